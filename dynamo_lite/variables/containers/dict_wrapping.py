"""Wrapping of dicts, default dicts and mapping proxies that come in from outside.

Invariant: if all keys are constants they are guarded together, when they are first needed. Otherwise each key is
guarded: a constant by value, a tensor by which of the trace's tensors it is, any other key by its identity.
"""
from __future__ import annotations

import collections
import gc
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from ...guards.source import ConstSource, DictItemSource, DictKeySource, DictValueSource, FrozenSource, Source
from ..base import LazyVariable, ObservedException, VariableTracker, realized, unsupported, wraps_if, wraps_type
from ..constant import is_constant_value
from .dict_changes import Entries
from .mappings import DictVariable, OuterProxyVariable
from .sets import constant_part
from .user_keys import check_given

if TYPE_CHECKING:
    from ..protocols import Tracer


def dict_at(
    tx: Tracer, value: dict[Any, Any], source: Source, cls: type, default_factory: VariableTracker | None = None
) -> DictVariable:
    """The tracker of a dict from outside; if all keys are constants, they are guarded when they are first needed."""
    # An OrderedDict keeps the order of its keys apart from the order in its table.
    base: Any = collections.OrderedDict if issubclass(type(value), collections.OrderedDict) else dict
    check_given(tx, base.keys(value), source.name)
    if all(is_constant_value(key) for key in base.keys(value)):
        entries: Entries = {
            key: (constant_part(tx, key), LazyVariable(dict.__getitem__(value, key), DictItemSource(source, key)))
            for key in base.keys(value)
        }
        keys = tuple(entries)
        return DictVariable(entries, source, cls, default_factory, lambda: tx.guard(source, "dict_keys", keys))
    tx.guard(source, "len", dict.__len__(value))
    entries = {}
    for index, key in enumerate(base.keys(value)):
        key_source = DictKeySource(source, index)
        if is_constant_value(key):
            key_variable = constant_part(tx, key)
            tx.guard(key_source, "const", key)
        else:
            key_variable = realized(tx, tx.values.wrap_at(key, key_source))
        if isinstance(key, torch.Tensor) and key_variable.node is not None and base is dict:
            # Guards fix for all tensors of the trace which of them are one object. A guard on this object's identity
            # would make the cache entry fit this dict alone, and keep its tensors alive.
            item_source: Source = DictValueSource(source, index)
        else:
            if not is_constant_value(key):
                # A key that is not compared by value, such as a module or a function, is guarded by identity.
                tx.guard(key_source, "is", key)
            item_source = DictItemSource(source, key)
        try:
            hashed = tx.operators.hash_key(key_variable)
        except ObservedException:
            # The key's hashing raises now; the real dict would not hash its keys again.
            unsupported("unsupported_value", f"{source.name}, a dict with a key that can't be hashed now")
        entries[hashed] = (key_variable, LazyVariable(dict.__getitem__(value, key), item_source))
    return DictVariable(entries, source, cls, default_factory)


@wraps_type(dict)
def _wrap_dict(tx: Tracer, value: dict[Any, Any], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    return dict_at(tx, value, source, dict)


@wraps_type(collections.defaultdict)
def _wrap_defaultdict(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    factory = realized(tx, tx.values.wrap_slot(source, collections.defaultdict, value, "default_factory"))
    return dict_at(tx, value, source, collections.defaultdict, factory)


@wraps_if(lambda value: type(value) is MappingProxyType, rank=4)
def _wrap_proxy(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    # A guard can't reach the mapping behind the proxy, so it reads the entries through the proxy.
    behind = type(gc.get_referents(value)[0])
    if behind not in (dict, collections.OrderedDict):
        unsupported("unsupported_value", f"{source.name}, a view of a {behind.__qualname__}")
    place: type[ConstSource] = FrozenSource
    if not source.is_frozen:
        place = ConstSource
        tx.guard(source, "is", value)
        tx.guard(ConstSource(value, source.name), "callable_eq", entries_of, (value,), entries_of(value))
        tx.output.effects.note_proxied(gc.get_referents(value)[0])
    entries: Entries = {}
    for key, item in value.items():
        key_variable = tx.values.from_result(key, "key")
        entries[key_variable.hash_key()] = (key_variable, LazyVariable(item, place(item, f"{source.name}[{key!r}]")))
    return OuterProxyVariable(entries, source, behind)


def entries_of(mapping: Any) -> tuple[tuple[Any, Any], ...]:
    """The entries of a mapping, in order."""
    return tuple(mapping.items())
