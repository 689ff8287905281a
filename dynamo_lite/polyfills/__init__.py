"""Python equivalents of C functions, which are traced in their place; one module for each topic.

The standard library documents most of these as equivalent Python (docs of itertools and functools). Invariant: for
every argument that a replacement takes, it has the result of the C function, exceptions included.

May import `rules`, where each is registered, and `torch_versions`; knows nothing of trackers.
"""
from __future__ import annotations

import collections
import functools
import heapq
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..rules.table import replaces
from . import attention as attention  # imported for the rows that it registers
from . import bisection as bisection  # likewise
from . import distributions as distributions  # likewise
from . import flex_attention as flex_attention  # likewise
from . import higher_order as higher_order  # likewise
from . import iteration
from . import tracing as tracing  # likewise

_NOTHING = object()


def call_module(module: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The frame of a compiled module's call: ``module(...)`` is evaluated in it as in any other caller."""
    return module(*args, **kwargs)


@replaces(functools.reduce)
def reduce(function: Callable[..., Any], iterable: Iterable[Any], initial: Any = _NOTHING, /) -> Any:
    try:
        iterator = iter(iterable)
    except TypeError:
        raise TypeError("reduce() arg 2 must support iteration") from None
    if initial is _NOTHING:
        try:
            value = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        value = initial
    for element in iteration.Steps(iterator):
        value = function(value, element)
    return value


def _searched(sequence: Iterable[Any]) -> Iterator[Any]:
    try:
        return iteration.Steps(iter(sequence))
    except TypeError:
        raise TypeError(f"argument of type {type(sequence).__name__!r} is not iterable") from None


@replaces(operator.countOf)
def count_of(sequence: Iterable[Any], value: Any, /) -> int:
    total = 0
    for element in _searched(sequence):
        if element is value or element == value:
            total += 1
    return total


@replaces(operator.indexOf)
def index_of(sequence: Iterable[Any], value: Any, /) -> int:
    for position, element in enumerate(_searched(sequence)):
        if element is value or element == value:
            return position
    raise ValueError("sequence.index(x): x not in sequence")


@replaces(math.prod)
def prod(iterable: Iterable[Any], /, *, start: Any = 1) -> Any:
    total = start
    for element in iterable:
        total = total * element
    return total


@replaces(dict.fromkeys)
def fromkeys(iterable: Iterable[Any], value: Any = None, /) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key in iterable:
        made[key] = value
    return made


@replaces(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(mapping: dict[Any, int], iterable: Iterable[Any], /) -> None:
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


def update_ordered(mapping: Any, given: Any, /) -> None:
    """The handling of its argument by OrderedDict.update() (Objects/odictobject.c, mutablemapping_update_arg)."""
    if type(given) is dict:
        _add_pairs(mapping, list(given.items()))
    elif hasattr(given, "keys"):
        for key in given.keys():
            mapping[key] = given[key]
    elif hasattr(given, "items"):
        _add_pairs(mapping, given.items())
    else:
        _add_pairs(mapping, given)


def setdefault_ordered(mapping: Any, key: Any, default: Any, /) -> Any:
    """OrderedDict.setdefault() in a derived class (Objects/odictobject.c, OrderedDict_setdefault_impl)."""
    if key in mapping:
        return mapping[key]
    mapping[key] = default
    return default


def _add_pairs(mapping: Any, pairs: Iterable[Any]) -> None:
    for pair in pairs:
        values = iter(pair)
        taken = []
        for value in iteration.Steps(values):
            taken.append(value)
            if len(taken) == 3:
                raise ValueError("too many values to unpack (expected 2)")
        if len(taken) < 2:
            raise ValueError(f"need more than {len(taken)} value{'s' * (not taken)} to unpack")
        mapping[taken[0]] = taken[1]


@replaces(operator.itemgetter)
def itemgetter(item: Any, /, *items: Any) -> Callable[[Any], Any]:
    if not items:
        return lambda obj, /: obj[item]
    return lambda obj, /: tuple([obj[i] for i in (item, *items)])


@replaces(operator.attrgetter)
def attrgetter(attr: str, /, *attrs: str) -> Callable[[Any], Any]:
    def resolve(obj: Any, path: str) -> Any:
        for name in path.split("."):
            obj = getattr(obj, name)
        return obj

    if not attrs:
        return lambda obj, /: resolve(obj, attr)
    return lambda obj, /: tuple([resolve(obj, path) for path in (attr, *attrs)])


@replaces(operator.methodcaller)
def methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda obj, /: getattr(obj, name)(*args, **kwargs)


class _Key:
    """The object that functools.cmp_to_key makes, which compares through the function."""

    __slots__ = ("compare", "obj")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, compare: Callable[[Any, Any], Any], obj: Any) -> None:
        self.compare = compare
        self.obj = obj

    def __lt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) == 0

    def __le__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) >= 0


@replaces(functools.cmp_to_key)
def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda obj: _Key(mycmp, obj)


@replaces(heapq.heappush)
def heappush(heap: list[Any], item: Any, /) -> None:
    heap.append(item)
    heapq._siftdown(heap, 0, len(heap) - 1)  # type: ignore[attr-defined]


@replaces(heapq.heappop)
def heappop(heap: list[Any], /) -> Any:
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    heapq._siftup(heap, 0)  # type: ignore[attr-defined]
    return first


@replaces(heapq.heapreplace)
def heapreplace(heap: list[Any], item: Any, /) -> Any:
    first = heap[0]
    heap[0] = item
    heapq._siftup(heap, 0)  # type: ignore[attr-defined]
    return first


@replaces(heapq.heappushpop)
def heappushpop(heap: list[Any], item: Any, /) -> Any:
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        heapq._siftup(heap, 0)  # type: ignore[attr-defined]
    return item


@replaces(heapq.heapify)
def heapify(heap: list[Any], /) -> None:
    for i in reversed(range(len(heap) // 2)):
        heapq._siftup(heap, i)  # type: ignore[attr-defined]


@replaces(heapq._heapify_max)
def heapify_max(heap: list[Any], /) -> None:
    for i in reversed(range(len(heap) // 2)):
        heapq._siftup_max(heap, i)  # type: ignore[attr-defined]


@replaces(heapq._heapreplace_max)  # type: ignore[attr-defined]
def heapreplace_max(heap: list[Any], item: Any, /) -> Any:
    first = heap[0]
    heap[0] = item
    heapq._siftup_max(heap, 0)  # type: ignore[attr-defined]
    return first
