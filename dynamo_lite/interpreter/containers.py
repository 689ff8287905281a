"""Constructors of the builtin containers and of the builtins' lazy iterators.

Invariant: elements are taken, and asked for their hashes, in CPython's order (:mod:`.iteration`).
"""
from __future__ import annotations

import collections
import itertools
import types
from typing import TYPE_CHECKING, Any

import torch

from ..guards.source import ConstSource
from ..polyfills.iteration import Steps
from ..rules.table import handles
from ..variables.base import VariableTracker, realized, unsupported
from ..variables.class_calls import allocates, constructs
from ..variables.constant import ConstantVariable
from ..variables.containers.deques import DequeVariable
from ..variables.containers.iterators import (
    EnumerateVariable,
    FilterVariable,
    MapVariable,
    StepsVariable,
    TeeSourceVariable,
    TeeVariable,
    ZipVariable,
)
from ..variables.containers.mappings import DictVariable, MappingProxyVariable
from ..variables.containers.sequences import (
    ListVariable,
    NamedTupleVariable,
    TupleVariable,
    is_named_tuple,
)
from ..variables.containers.sets import SetVariable, set_of
from ..variables.functions.functions import FunctionVariable
from ..variables.objects.classes import ClassVariable
from ..variables.objects.objects import ObjectVariable
from .constructors import Constructor

if TYPE_CHECKING:
    from ..variables.protocols import Tracer


@handles(list)
def _list(tx: Tracer, items: VariableTracker | None = None) -> VariableTracker:
    return ListVariable(tx.iteration.listed(items) if items is not None else [])


@allocates(list)
def _new_list(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    return ListVariable([])


@handles(tuple)
def _tuple(tx: Tracer, items: VariableTracker | None = None) -> VariableTracker:
    if isinstance(items, TupleVariable) and items.cls is tuple:
        return items
    return TupleVariable(tx.iteration.listed(items, tuple) if items is not None else [])


@allocates(tuple)
def _new_tuple(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    items = args[0] if args else None
    if is_named_tuple(cls):
        return NamedTupleVariable(tx.iteration.listed(items, tuple) if items is not None else [], None, cls)
    _check_keywords(tx, cls, native, kwargs)
    return TupleVariable(tx.iteration.listed(items, tuple) if items is not None else [])


def _check_keywords(tx: Tracer, cls: type, native: Any, kwargs: dict[str, VariableTracker]) -> None:
    """``__new__`` of tuple and frozenset takes keyword arguments for a class that has an ``__init__`` for them."""
    if kwargs and tx.classes.lookup(cls, "__new__") is native.__dict__.get("__new__"):
        tx.raise_error(TypeError, f"{native.__name__}() takes no keyword arguments")


@constructs(tuple)
def _named_tuple(
    tx: Tracer, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    value: Any = cls.value
    if not is_named_tuple(value):
        return None
    if not hasattr(value, "_fields"):
        return NamedTupleVariable(tx.iteration.listed(args[0], tuple), None, value)
    new = value.__new__
    if not isinstance(new, types.FunctionType):
        unsupported("unsupported_builtin", f"{value.__qualname__}()")
    bound = FunctionVariable(new, ConstSource(new, value.__qualname__)).bind(tx, [cls, *args], kwargs)
    return NamedTupleVariable([realized(tx, bound[name]) for name in value._fields], None, value)


@handles(torch.Size)
def _size(tx: Tracer, items: VariableTracker | None = None) -> VariableTracker:
    return TupleVariable(tx.iteration.listed(items, tuple) if items is not None else [], cls=torch.Size)


def _dict_like(cls: type) -> Constructor:
    def constructor(tx: Tracer, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
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
    tx: Tracer, factory: VariableTracker | None = None, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    result = DictVariable({}, cls=collections.defaultdict, default_factory=factory or ConstantVariable(None))
    DictVariable._update(result, tx, *args, **kwargs)
    return result


@allocates(dict, collections.OrderedDict, collections.defaultdict)
def _new_dict(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    return DictVariable({}, cls=native)


# Special methods of a mapping that a view of it calls.
_READING = ("__getitem__", "__missing__", "__contains__", "__len__", "__iter__", "__reversed__", "__or__", "__ror__",
            "__eq__", "__ne__", "__str__", "__repr__", "__hash__")


@handles(types.MappingProxyType)
def _mapping_proxy(tx: Tracer, mapping: VariableTracker) -> VariableTracker:
    content = tx.operators.dict_content(mapping)
    known = content is not None and content.cls in (dict, collections.OrderedDict, types.MappingProxyType)
    asked = ("keys", "values", "items", "get", "copy", *_READING)
    if content is None or not known or isinstance(mapping, ObjectVariable) and any(
            isinstance(tx.classes.lookup(mapping.cls, name), types.FunctionType) for name in asked):
        unsupported("unsupported_builtin", f"mappingproxy of {mapping.describe()}")
    return MappingProxyVariable(mapping, content)


@handles(collections.deque)
def _deque(
    tx: Tracer, iterable: VariableTracker | None = None, maxlen: VariableTracker | None = None
) -> VariableTracker:
    made = DequeVariable([], None if maxlen is None else maxlen.constant())
    if iterable is not None:
        made.call_method(tx, "extend", [iterable], {})
    return made


@handles(set)
def _set(tx: Tracer, items: VariableTracker | None = None) -> VariableTracker:
    return set_of(tx, items) if items is not None else SetVariable({})


@handles(frozenset)
def _frozenset(tx: Tracer, items: VariableTracker | None = None) -> VariableTracker:
    if isinstance(items, SetVariable) and items.cls is frozenset:
        return items
    return set_of(tx, items, frozenset) if items is not None else SetVariable({}, cls=frozenset)


@allocates(set)
def _new_set(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    return SetVariable({})


@allocates(frozenset)
def _new_frozenset(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    _check_keywords(tx, cls, native, kwargs)
    return set_of(tx, args[0], frozenset) if args else SetVariable({}, cls=frozenset)


@handles(enumerate)
def _enumerate(tx: Tracer, iterable: VariableTracker, start: VariableTracker | None = None) -> VariableTracker:
    return EnumerateVariable(tx.iteration.get_iter(iterable), tx.operators.as_index(start) if start is not None else 0)


@handles(itertools._tee)  # type: ignore[attr-defined]
def _tee(tx: Tracer, iterable: VariableTracker) -> VariableTracker:
    iterator = tx.iteration.get_iter(iterable)
    return iterator.copied() if isinstance(iterator, TeeVariable) else TeeVariable(TeeSourceVariable(iterator))


@handles(zip)
def _zip(tx: Tracer, *iterables: VariableTracker, strict: VariableTracker | None = None) -> VariableTracker:
    return ZipVariable([tx.iteration.get_iter(i) for i in iterables], strict is not None and tx.truth(strict))


@handles(map)
def _map(tx: Tracer, function: VariableTracker, *iterables: VariableTracker) -> VariableTracker:
    return MapVariable(function, [tx.iteration.get_iter(i) for i in iterables])


@handles(filter)
def _filter(tx: Tracer, function: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    return FilterVariable(function, tx.iteration.get_iter(iterable))


@handles(Steps)
def _steps(tx: Tracer, iterator: VariableTracker) -> VariableTracker:
    return StepsVariable(iterator) if isinstance(iterator, ObjectVariable) else iterator


@handles(reversed)
def _reversed(tx: Tracer, items: VariableTracker) -> VariableTracker:
    return items.reversed(tx)
