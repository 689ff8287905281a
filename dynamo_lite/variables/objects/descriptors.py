"""Setting and deleting attributes through descriptors whose classes are written in Python.

A class has one C slot for both (``tp_descr_set``), which is filled if the class or a base defines ``__set__`` or
``__delete__``; the access that is not defined raises. Invariant: the type of a class attribute determines whether it
handles an access, and this is guarded, absence of the methods included.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..base import VariableTracker, realized
from .classes import NO_ATTRIBUTE, class_attribute_source

if TYPE_CHECKING:
    from ..protocols import Tracer

_OTHER = {"__set__": "__delete__", "__delete__": "__set__"}
_OF_PROPERTIES = {"__get__": ("fget", "getter"), "__set__": ("fset", "setter"), "__delete__": ("fdel", "deleter")}


def is_property(tx: Tracer, attribute: Any, access: str) -> bool:
    """Whether an attribute is a property whose class does not override the method `access` ("__get__", ..)."""
    return isinstance(attribute, property) and (
        type(attribute) is property or tx.classes.lookup(type(attribute), access) is property.__dict__[access])


def call_property(
    tx: Tracer, attribute: property, owner: VariableTracker, name: str, access: str, *args: Any
) -> VariableTracker:
    """Calls the getter, setter or deleter of a property of `owner`'s class."""
    field, what = _OF_PROPERTIES[access]
    function, cls = getattr(attribute, field), owner.python_type()
    if function is None:
        tx.raise_error(AttributeError, f"property {name!r} of {cls.__qualname__!r} object has no {what}")
    source = class_attribute_source(cls, name)
    return tx.call(tx.values.wrap_class_part(function, source), [owner, *args], {})


def takes_over(tx: Tracer, attribute: Any, owner: Any, name: str, access: str, *args: Any) -> bool | None:
    """Sets or deletes an attribute (`access` is "__set__" or "__delete__") through a descriptor written in Python.
    Returns False if the class attribute does not handle this access, None if it handles it in C."""
    if is_property(tx, attribute, access):
        call_property(tx, attribute, owner, name, access, *args)
        return True
    cls = type(attribute)
    method = tx.classes.special(cls, access)
    if method is None:
        if tx.classes.lookup(cls, _OTHER[access], NO_ATTRIBUTE) is not NO_ATTRIBUTE:
            tx.raise_error(AttributeError, access)
        return False
    if not isinstance(method, types.FunctionType):
        return None
    descriptor = realized(tx, tx.values.wrap_at(attribute, class_attribute_source(owner.cls, name)))
    tx.classes.call_attribute(descriptor, cls, access, method, [owner, *args], {})
    return True
