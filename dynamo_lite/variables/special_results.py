"""Checks and conversions of the results of special methods that must return an object of one class.

Invariant: an accepted result is of the class that the method must return, as in CPython; a result that CPython converts
with a warning breaks the graph.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import error_texts
from .base import VariableTracker, realized, unsupported
from .constant import ConstantVariable

if TYPE_CHECKING:
    from .protocols import ObjectVariable, Tracer

# For each method: the class of its result, and whether an instance of a subclass is converted to exactly that class,
# with a warning (Objects/abstract.c, object.c, typeobject.c).
_WANTED: dict[str, tuple[type, bool]] = {
    "__int__": (int, True), "__index__": (int, True), "__float__": (float, True), "__complex__": (complex, True),
    "__bytes__": (bytes, False), "__str__": (str, False), "__repr__": (str, False), "__format__": (str, False),
    "__bool__": (bool, False),
}


def checked_result(tx: Tracer, name: str, owner: type, result: VariableTracker) -> VariableTracker:
    """The result of special method `name` of class `owner`; raises TypeError in the program if its class is wrong."""
    result = realized(tx, result)
    wanted, converted = _WANTED[name]
    given = result.python_type()
    if given is wanted:
        return result
    if not issubclass(given, wanted):
        tx.raise_error(TypeError, error_texts.wrong_result(name, owner, given))
    if converted:
        unsupported("print_or_log", f"{owner.__qualname__}.{name}, of whose result Python warns")
    return result


def index_of(tx: Tracer, owner: ObjectVariable) -> VariableTracker | None:
    """operator.index(owner); None where its class has no ``__index__`` (Objects/abstract.c, PyNumber_Index)."""
    content = owner.content
    if content is not None and issubclass(content.python_type(), int):
        return ConstantVariable(content.constant())
    method = tx.classes.special(owner.cls, "__index__")
    if method is None:
        return None
    given = tx.classes.call_attribute(owner, owner.cls, "__index__", method, [], {})
    return checked_result(tx, "__index__", owner.cls, given)


# The special methods that a builtin's constructor looks up, in this order (Objects/abstract.c, complexobject.c,
# bytesobject.c).
_ASKED: dict[Any, tuple[str, ...]] = {
    int: ("__int__", "__index__"), float: ("__float__", "__index__"),
    complex: ("__complex__", "__float__", "__index__"), bytes: ("__bytes__",),
}


def value_for(tx: Tracer, cls: Any, owner: ObjectVariable) -> VariableTracker | None:
    """The value from which int, float, complex or bytes (`cls`), called with an object as its only argument, makes its
    result: the result of one of the object's special methods, or the object's builtin content. None where the object
    has neither, or where another special method is used."""
    content = owner.content
    text = content is not None and issubclass(content.python_type(), str)
    held = ConstantVariable(content.constant()) if content is not None and content.is_constant() else content
    for name in _ASKED[cls]:
        if text and cls is complex:
            return held
        method = tx.classes.special(owner.cls, name)
        if method is None:
            continue
        if content is not None and method is getattr(content.python_type(), name, None):
            return held
        return checked_result(tx, name, owner.cls, tx.classes.call_attribute(owner, owner.cls, name, method, [], {}))
    trunc = cls is int and tx.classes.lookup(owner.cls, "__trunc__") is not None  # some versions call it and warn
    return None if trunc else held


def own_value_for(tx: Tracer, cls: Any, value: VariableTracker) -> VariableTracker | None:
    """The same for a constant: the result of the first special method that its class defines, if that is written in
    Python; None otherwise."""
    for name in (*_ASKED[cls], *(("__trunc__",) if cls is int else ())):
        made = value.call_own(tx, name)
        if made is not None and name == "__trunc__":
            unsupported("print_or_log", f"{value.describe()}.__trunc__(), of which some versions of Python warn")
        if made is not None:
            return checked_result(tx, name, value.python_type(), made)
        if hasattr(value.python_type(), name):
            return None
    return None
