"""Calls of classes without a row in the table of calls: functions that make the objects, registered by base class.

Such a function is registered beside the tracker that it makes, either for a class and all classes derived from it
(``constructs``), or for the result of a builtin's ``__new__`` when a class derived from that builtin is called
(``allocates``). Invariant: a class has one function of each kind; a second is an error at import.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..rules.class_table import ClassTable

if TYPE_CHECKING:
    from .base import VariableTracker
    from .protocols import ClassVariable, Tracer

# Arguments: the tracer, the class, the arguments of the call. A result of None stands for the default construction.
Constructor = Callable[["Tracer", "ClassVariable", "list[VariableTracker]", "dict[str, VariableTracker]"],
                       "VariableTracker | None"]
# Arguments: the tracer, the class that is called, the builtin whose ``__new__`` runs, the arguments of the call.
Allocator = Callable[["Tracer", type, Any, "list[VariableTracker]", "dict[str, VariableTracker]"], "VariableTracker"]
F = TypeVar("F", bound=Callable[..., Any])

_OF_BASES: ClassTable[Constructor] = ClassTable("constructed")
_ALLOCATORS: ClassTable[Allocator] = ClassTable("allocated")
# Classes whose allocator also serves the classes written in C that derive from them.
_ALLOCATE_DERIVED: set[type] = set()

# Registers ``(tx, cls, args, kwargs) -> object`` for calls of these classes and of those derived from them; the first
# entry in a class's method resolution order wins. A result of None stands for construction by ``__new__`` and
# ``__init__``.
constructs = _OF_BASES.register


def allocates(*natives: type, derived: bool = False) -> Callable[[F], F]:
    """Registers ``(tx, cls, native, args, kwargs) -> tracker`` for ``__new__`` of these classes written in C. The
    tracker is the new instance of `cls`, or the builtin value inside it.

    Args:
        derived: whether the function also serves classes written in C that derive from these.
    """
    if derived:
        _ALLOCATE_DERIVED.update(natives)
    return _ALLOCATORS.register(*natives)


def constructor_of(cls: type) -> Constructor | None:
    """The function that makes the objects of a class, found by the classes that it derives from."""
    return _OF_BASES.of(cls)


def allocator_of(native: type) -> Allocator | None:
    """The function that implements ``__new__`` of a class written in C."""
    found = _ALLOCATORS.exact(native)
    return found or next((_ALLOCATORS.rows[base] for base in native.__mro__ if base in _ALLOCATE_DERIVED), None)
