"""What an instance of a subclass of a builtin holds: the items of a list or dict, the value of a number or text.

Invariant: the contents are those that the builtin's own methods see, whatever the class overrides.
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

# Builtins whose instances are wholly known values.
VALUE_TYPES: tuple[Any, ...] = (int, float, complex, str, bytes)


def content_of_value(tx: Tracer, value: Any, source: Source) -> VariableTracker | None:
    """What an instance of a subclass of list, tuple, dict or set holds."""
    cls = type(value)  # not isinstance: a weak proxy says that it is what it points to
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
        # Not the object, which a guard would keep alive, and of which each call may have another one.
        base: Any = native_base(cls)
        plain = plain_value(base, value)
        text = f"{base.__name__}({source.name})"
        tx.guard(ComputedSource(source, functools.partial(plain_value, base), text), "const", plain)
        return ConstantVariable(plain)
    return None


def plain_value(base: Any, value: Any) -> Any:
    """The value of exactly a builtin class that an instance of a subclass holds."""
    if base in (str, bytes):
        return base.__getitem__(value, slice(None)) if base is bytes else base.__str__(value)
    return base.__pos__(value)
