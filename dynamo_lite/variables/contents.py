"""The builtin content of an instance of a subclass of a builtin: the items of a list or dict, the value of a number or
text.

Invariant: the content is that which the builtin's own methods see, whatever the class overrides.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..guards.source import ComputedSource, Source
from .base import VariableTracker, unsupported
from .constant import ConstantVariable, is_constant_value
from .containers.dict_wrapping import dict_at
from .containers.sequences import ListVariable, TupleVariable, lazy_items
from .containers.sets import given_set
from .objects.classes import native_base

if TYPE_CHECKING:
    from .protocols import Tracer

# Builtins whose instances are fully known values.
VALUE_TYPES: tuple[Any, ...] = (int, float, complex, str, bytes)


def content_of_value(tx: Tracer, value: Any, source: Source) -> VariableTracker | None:
    """The content of an instance of a subclass of a list, tuple, dict, set, number or text; None for other values."""
    cls = type(value)  # not isinstance: a weak proxy claims the class of its referent
    if issubclass(cls, list):
        tx.guard(source, "len", list.__len__(value))
        return ListVariable(lazy_items(value, source, True), source, cls=list)
    if issubclass(cls, tuple):
        tx.guard(source, "len", tuple.__len__(value))
        return TupleVariable(lazy_items(value, source, False), source)
    if issubclass(cls, dict):
        return dict_at(tx, value, source, native_base(cls))
    if issubclass(cls, (set, frozenset)):
        kind: Any = native_base(cls)
        items = list(kind.__iter__(value))
        if not all(is_constant_value(item) for item in items):
            unsupported("unsupported_value", f"{source.name}, a set of objects")
        tx.guard(source, "set_items", frozenset(items))
        return given_set(tx, value, items, source, kind)
    if issubclass(cls, VALUE_TYPES) and native_base(cls) in VALUE_TYPES:
        # The guard is on the value, not on the object: a guard would keep the object alive, and each call may pass
        # another object.
        base: Any = native_base(cls)
        plain = plain_value(base, value)
        text = f"{base.__name__}({source.name})"
        tx.guard(ComputedSource(source, functools.partial(plain_value, base), text), "const", plain)
        return ConstantVariable(plain)
    return None


def plain_value(base: Any, value: Any) -> Any:
    """The value of exactly the builtin class `base` inside an instance of a subclass."""
    if base in (str, bytes):
        return base.__getitem__(value, slice(None)) if base is bytes else base.__str__(value)
    return base.__pos__(value)
