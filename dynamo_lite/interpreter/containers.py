"""Constructors of the builtin containers and of the builtins' lazy iterators.

Invariant: elements are taken, and asked for their hashes, in CPython's order (:mod:`.iteration`).
"""
from __future__ import annotations

import collections
import itertools
import types
from typing import Any

import torch

from ..polyfills.iteration import Steps
from ..rules.table import handles
from ..variables.base import VariableTracker, type_name, unsupported
from ..variables.constant import ConstantVariable
from ..variables.containers.deques import DequeIteratorVariable, DequeVariable
from ..variables.containers.iterators import (
    EnumerateVariable,
    FilterVariable,
    MapVariable,
    ReversedObjectVariable,
    StepsVariable,
    TeeSourceVariable,
    TeeVariable,
    ZipVariable,
)
from ..variables.containers.mappings import DictIteratorVariable, DictVariable, DictViewVariable, MappingProxyVariable
from ..variables.containers.sequences import ListVariable, ReversedVariable, SequenceVariable, TupleVariable
from ..variables.containers.sets import SetVariable, set_of
from ..variables.numbers.ranges import RangeVariable
from ..variables.objects.objects import ObjectVariable
from ..variables.tensors.tensor import TensorVariable
from .construction import Constructor


@handles(list)
def _list(tx: Any, items: VariableTracker | None = None) -> VariableTracker:
    return ListVariable(tx.listed(items) if items is not None else [])


@handles(tuple)
def _tuple(tx: Any, items: VariableTracker | None = None) -> VariableTracker:
    if isinstance(items, TupleVariable) and items.cls is tuple:
        return items
    return TupleVariable(tx.listed(items) if items is not None else [])


@handles(torch.Size)
def _size(tx: Any, items: VariableTracker | None = None) -> VariableTracker:
    return TupleVariable(tx.listed(items) if items is not None else [], cls=torch.Size)


def _dict_like(cls: type) -> Constructor:
    def constructor(tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        result = DictVariable({}, cls=cls)
        if len(args) > 1:
            tx.raise_error(TypeError, f"{cls.__name__} expected at most 1 argument, got {len(args)}")
        DictVariable._update(result, tx, *args, **kwargs)
        return result

    return constructor


handles(dict)(_dict_like(dict))
handles(collections.OrderedDict)(_dict_like(collections.OrderedDict))


@handles(collections.defaultdict)
def _defaultdict(
    tx: Any, factory: VariableTracker | None = None, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    result = DictVariable({}, cls=collections.defaultdict, default_factory=factory or ConstantVariable(None))
    DictVariable._update(result, tx, *args, **kwargs)
    return result


@handles(types.MappingProxyType)
def _mapping_proxy(tx: Any, mapping: VariableTracker) -> VariableTracker:
    content = tx.dict_content(mapping)
    if content is None:
        unsupported("unsupported_builtin", f"mappingproxy of {mapping.describe()}")
    return MappingProxyVariable(mapping, content)


@handles(collections.deque)
def _deque(tx: Any, iterable: VariableTracker | None = None, maxlen: VariableTracker | None = None) -> VariableTracker:
    made = DequeVariable([], None if maxlen is None else maxlen.constant())
    if iterable is not None:
        made.call_method(tx, "extend", [iterable], {})
    return made


@handles(set)
def _set(tx: Any, items: VariableTracker | None = None) -> VariableTracker:
    return set_of(tx, items) if items is not None else SetVariable({})


@handles(frozenset)
def _frozenset(tx: Any, items: VariableTracker | None = None) -> VariableTracker:
    if isinstance(items, SetVariable) and items.cls is frozenset:
        return items
    return set_of(tx, items, frozenset) if items is not None else SetVariable({}, cls=frozenset)


@handles(enumerate)
def _enumerate(tx: Any, iterable: VariableTracker, start: VariableTracker | None = None) -> VariableTracker:
    return EnumerateVariable(tx.get_iter(iterable), tx.as_index(start) if start is not None else 0)


@handles(itertools._tee)  # type: ignore[attr-defined]
def _tee(tx: Any, iterable: VariableTracker) -> VariableTracker:
    iterator = tx.get_iter(iterable)
    return iterator.copied() if isinstance(iterator, TeeVariable) else TeeVariable(TeeSourceVariable(iterator))


@handles(zip)
def _zip(tx: Any, *iterables: VariableTracker, strict: VariableTracker | None = None) -> VariableTracker:
    return ZipVariable([tx.get_iter(i) for i in iterables], strict is not None and tx.truth(strict))


@handles(map)
def _map(tx: Any, function: VariableTracker, *iterables: VariableTracker) -> VariableTracker:
    return MapVariable(function, [tx.get_iter(i) for i in iterables])


@handles(filter)
def _filter(tx: Any, function: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    return FilterVariable(function, tx.get_iter(iterable))


@handles(Steps)
def _steps(tx: Any, iterator: VariableTracker) -> VariableTracker:
    return StepsVariable(iterator) if isinstance(iterator, ObjectVariable) else iterator


@handles(reversed)
def _reversed(tx: Any, items: VariableTracker) -> VariableTracker:
    if isinstance(items, ObjectVariable):
        method = tx.class_lookup(items.cls, "__reversed__")
        if isinstance(method, types.FunctionType):
            return tx.call_class_attribute(items, items.cls, "__reversed__", method, [], {})
        own = [tx.class_lookup(items.cls, name) for name in ("__getitem__", "__len__")]
        if items.content is not None and method is not None:
            items = items.content
        elif own[0] is None or own[1] is None:
            tx.raise_error(TypeError, f"{items.cls.__name__!r} object is not reversible")
        else:
            return ReversedObjectVariable(items, tx.as_index(items.length(tx)) - 1)
    if isinstance(items, TensorVariable):
        return tx.call_method(items, "flip", [ConstantVariable(0)]).iterator(tx)
    if isinstance(items, DequeVariable):
        return DequeIteratorVariable(items, backwards=True)
    if isinstance(items, SequenceVariable):
        return ReversedVariable(items)
    if isinstance(items, DictVariable):
        return DictIteratorVariable(items, "keys", backwards=True)
    if isinstance(items, DictViewVariable):
        return DictIteratorVariable(items.owner, items.what, backwards=True)
    if isinstance(items, RangeVariable):
        return RangeVariable(items.value[::-1]).iterator(tx)
    if items.is_constant() and isinstance(items.constant(), (str, bytes)):
        return ListVariable(list(items.iterate(tx))[::-1]).iterator(tx)
    tx.raise_error(TypeError, f"{type_name(items.python_type())!r} object is not reversible")
