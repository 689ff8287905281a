"""What calls of classes make, for classes without a row in the table of calls: by a class that they derive from.

A function that makes objects is registered beside what it makes, for a class and all derived from it (``constructs``),
or for what ``__new__`` of a builtin gives when a class derived from it is called (``allocates``). Invariant: a class
has one function of each kind; a second is an error at import.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..rules.class_table import ClassTable

if TYPE_CHECKING:
    from .base import VariableTracker
    from .protocols import ClassVariable, Tracer

# The tracer, the class, the arguments. None: the class is called like any other after all.
Constructor = Callable[["Tracer", "ClassVariable", "list[VariableTracker]", "dict[str, VariableTracker]"],
                       "VariableTracker | None"]
# The tracer, the class that is called, the builtin whose ``__new__`` runs, the arguments.
Allocator = Callable[["Tracer", type, Any, "list[VariableTracker]", "dict[str, VariableTracker]"], "VariableTracker"]
F = TypeVar("F", bound=Callable[..., Any])

_OF_BASES: ClassTable[Constructor] = ClassTable("constructed")
_ALLOCATORS: ClassTable[Allocator] = ClassTable("allocated")
# Those of them that are for the classes written in C that derive from theirs, too.
_ALLOCATE_DERIVED: set[type] = set()

# Registers ``(tx, cls, args, kwargs) -> object`` for calls of these classes and of those derived from them; the first
# in a class's method resolution order counts. None stands for: by ``__new__`` and ``__init__``.
constructs = _OF_BASES.register


def allocates(*natives: type, derived: bool = False) -> Callable[[F], F]:
    """Registers ``(tx, cls, native, args, kwargs) -> tracker`` for ``__new__`` of these classes written in C: what it
    gives for `cls`, or what that holds of the builtin.

    Args:
        derived: also for classes written in C that derive from these.
    """
    if derived:
        _ALLOCATE_DERIVED.update(natives)
    return _ALLOCATORS.register(*natives)


def constructor_of(cls: type) -> Constructor | None:
    """What makes the objects of a class, by the classes that it derives from."""
    return _OF_BASES.of(cls)


def allocator_of(native: type) -> Allocator | None:
    """What ``__new__`` of a class written in C gives."""
    found = _ALLOCATORS.exact(native)
    return found or next((_ALLOCATORS.rows[base] for base in native.__mro__ if base in _ALLOCATE_DERIVED), None)
