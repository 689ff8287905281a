"""Trackers of dicts, default dicts and read-only views of them that come in from outside.

Invariant: keys that are constants are guarded together, when they are needed; of a key that is a tensor the guards say
which of the trace's tensors it is, of any other one that it is this object.
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
    """The tracker of a dict from outside; keys that are constants are guarded when they are needed."""
    # An OrderedDict has an order of its own, apart from its table's.
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
            # Which of the trace's tensors it is, or that it is none of them, is guarded for all tensors; a guard on its
            # identity would serve this dict alone, and keep its tensors alive.
            item_source: Source = DictValueSource(source, index)
        else:
            if not is_constant_value(key):
                # A key without a value of its own, such as a module or a function: only its identity is known.
                tx.guard(key_source, "is", key)
            item_source = DictItemSource(source, key)
        try:
            hashed = tx.operators.hash_key(key_variable)
        except ObservedException:
            # The real dict does not hash its keys again.
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
    # What lies behind the proxy is out of reach: the guard reads the entries through it.
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
    """What a mapping holds, in order."""
    return tuple(mapping.items())
