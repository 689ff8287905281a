"""Subclasses of ``nn.Parameter`` that only add attributes and methods to it; many libraries define such classes.

To torch's functions they are parameters: results are plain tensors, and nothing is overridden. Invariant: a class that
redefines any attribute of a tensor is not treated this way.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ...guards.source import DictItemSource, InstanceDictSource, Source
from ..base import VariableTracker, unsupported
from ..objects.classes import class_attribute_source

if TYPE_CHECKING:
    from ..protocols import Tracer

# Names that a class statement, a generic base or an annotation leaves in a class.
_OF_CLASSES = frozenset({
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__orig_bases__",
    "__parameters__", "__slots__", "__static_attributes__", "__firstlineno__", "__init__", "__new__", "__deepcopy__",
    "__reduce_ex__", "__repr__", "__init_subclass__", "__class_getitem__", "__subclasshook__",
})


def adds_only(cls: type) -> bool:
    """Whether torch's functions can treat tensors of a class as nn.Parameter."""
    if not issubclass(cls, torch.nn.Parameter) or type(cls) is not type(torch.nn.Parameter):
        return False
    return not any(
        name not in _OF_CLASSES and (hasattr(torch.nn.Parameter, name) or name in ("__getattr__", "__del__"))
        for added in _added(cls) for name in vars(added))


def _added(cls: type) -> list[type]:
    known = torch.nn.Parameter.__mro__
    return [c for c in cls.__mro__ if c not in known]


def is_added(cls: type, name: str) -> bool:
    """Whether a class adds this attribute to those of nn.Parameter."""
    return any(name in vars(c) for c in _added(cls))


def read_added(tx: Tracer, tensor: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    """The result of reading an attribute that the class adds; `attribute` is the object in the class's dict."""
    source = class_attribute_source(cls, name)
    if isinstance(attribute, types.FunctionType):
        return tx.values.bound_class_function(tensor, cls, name, attribute)
    if isinstance(attribute, property) and attribute.fget is not None:
        return tx.call(tx.values.wrap_class_part(attribute.fget, source), [tensor], {})
    if isinstance(attribute, staticmethod):
        return tx.values.wrap_class_part(attribute.__func__, source)
    if hasattr(type(attribute), "__get__"):
        unsupported("unsupported_attribute", f"{cls.__qualname__}.{name}, a {type(attribute).__qualname__}")
    return tx.values.wrap_at(attribute, source)


def is_static(value: torch.Tensor, source: Source) -> bool:
    """Whether a tensor is a parameter or a buffer of a module."""
    return isinstance(value, torch.nn.Parameter) or (
        isinstance(source, DictItemSource)
        and isinstance(source.base, DictItemSource)
        and source.base.item in ("_buffers", "_parameters")
        and isinstance(source.base.base, InstanceDictSource)
    )
