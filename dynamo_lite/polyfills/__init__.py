"""Python equivalents of C functions, traced in their place.

The standard library documents most of these as equivalent Python (docs of itertools and functools). Invariant: a
replacement gives what the C function gives for every argument that it takes, exceptions included.
"""
from __future__ import annotations

import collections
import functools
import heapq
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import bisection, iteration

_NOTHING = object()


def call_module(module: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The frame of a compiled module's call: ``module(...)`` is evaluated in it as in any caller."""
    return module(*args, **kwargs)


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


def count_of(sequence: Iterable[Any], value: Any, /) -> int:
    total = 0
    for element in _searched(sequence):
        if element is value or element == value:
            total += 1
    return total


def index_of(sequence: Iterable[Any], value: Any, /) -> int:
    for position, element in enumerate(_searched(sequence)):
        if element is value or element == value:
            return position
    raise ValueError("sequence.index(x): x not in sequence")


def prod(iterable: Iterable[Any], /, *, start: Any = 1) -> Any:
    total = start
    for element in iterable:
        total = total * element
    return total


def fromkeys(iterable: Iterable[Any], value: Any = None, /) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key in iterable:
        made[key] = value
    return made


def count_elements(mapping: dict[Any, int], iterable: Iterable[Any], /) -> None:
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


def update_ordered(mapping: Any, given: Any, /) -> None:
    """What OrderedDict.update() does with its argument (Objects/odictobject.c, mutablemapping_update_arg)."""
    if type(given) is dict:
        _add_pairs(mapping, list(given.items()))
    elif hasattr(given, "keys"):
        for key in given.keys():
            mapping[key] = given[key]
    elif hasattr(given, "items"):
        _add_pairs(mapping, given.items())
    else:
        _add_pairs(mapping, given)


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


def itemgetter(item: Any, /, *items: Any) -> Callable[[Any], Any]:
    if not items:
        return lambda obj, /: obj[item]
    return lambda obj, /: tuple([obj[i] for i in (item, *items)])


def attrgetter(attr: str, /, *attrs: str) -> Callable[[Any], Any]:
    def resolve(obj: Any, path: str) -> Any:
        for name in path.split("."):
            obj = getattr(obj, name)
        return obj

    if not attrs:
        return lambda obj, /: resolve(obj, attr)
    return lambda obj, /: tuple([resolve(obj, path) for path in (attr, *attrs)])


def methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda obj, /: getattr(obj, name)(*args, **kwargs)


class _Key:
    """What functools.cmp_to_key makes: an object that compares through the function."""

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


def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda obj: _Key(mycmp, obj)


def heappush(heap: list[Any], item: Any, /) -> None:
    heap.append(item)
    heapq._siftdown(heap, 0, len(heap) - 1)  # type: ignore[attr-defined]


def heappop(heap: list[Any], /) -> Any:
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    heapq._siftup(heap, 0)  # type: ignore[attr-defined]
    return first


def heapreplace(heap: list[Any], item: Any, /) -> Any:
    first = heap[0]
    heap[0] = item
    heapq._siftup(heap, 0)  # type: ignore[attr-defined]
    return first


def heappushpop(heap: list[Any], item: Any, /) -> Any:
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        heapq._siftup(heap, 0)  # type: ignore[attr-defined]
    return item


def heapify(heap: list[Any], /) -> None:
    for i in reversed(range(len(heap) // 2)):
        heapq._siftup(heap, i)  # type: ignore[attr-defined]


def heapify_max(heap: list[Any], /) -> None:
    for i in reversed(range(len(heap) // 2)):
        heapq._siftup_max(heap, i)  # type: ignore[attr-defined]


def heapreplace_max(heap: list[Any], item: Any, /) -> Any:
    first = heap[0]
    heap[0] = item
    heapq._siftup_max(heap, 0)  # type: ignore[attr-defined]
    return first


# C function or class -> its Python equivalent
REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    **bisection.REPLACEMENTS,
    **iteration.REPLACEMENTS,
    functools.reduce: reduce,
    functools.cmp_to_key: cmp_to_key,
    dict.fromkeys: fromkeys,
    collections._count_elements: count_elements,  # type: ignore[attr-defined]
    heapq.heappush: heappush,
    heapq.heappop: heappop,
    heapq.heapreplace: heapreplace,
    heapq.heappushpop: heappushpop,
    heapq.heapify: heapify,
    heapq._heapify_max: heapify_max,  # type: ignore[attr-defined]
    heapq._heapreplace_max: heapreplace_max,  # type: ignore[attr-defined]
    operator.itemgetter: itemgetter,
    operator.attrgetter: attrgetter,
    operator.methodcaller: methodcaller,
    math.prod: prod,
    operator.countOf: count_of,
    operator.indexOf: index_of,
}
