"""Python equivalents of C functions, traced in their place.

The standard library documents most of these as equivalent Python (docs of itertools and functools). Invariant: a
replacement gives what the C function gives for every argument that it takes, exceptions included.
"""
from __future__ import annotations

import collections
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import bisection

_NOTHING = object()


def call_module(module: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The frame of a compiled module's call: ``module(...)`` is evaluated in it as in any caller."""
    return module(*args, **kwargs)


def reduce(function: Callable[..., Any], iterable: Iterable[Any], initial: Any = _NOTHING, /) -> Any:
    iterator = iter(iterable)
    if initial is _NOTHING:
        try:
            value = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        value = initial
    for element in iterator:
        value = function(value, element)
    return value


def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


def chain_from_iterable(iterables: Iterable[Iterable[Any]], /) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


def product(*iterables: Iterable[Any], repeat: int = 1) -> Iterator[Any]:
    return _product(*([tuple(pool) for pool in iterables] * repeat))


def _product(*pools: tuple[Any, ...]) -> Iterator[Any]:
    result: list[tuple[Any, ...]] = [()]
    for pool in pools:
        result = [(*head, last) for head in result for last in pool]
    yield from result


def islice(iterable: Iterable[Any], /, *args: int | None) -> Iterator[Any]:
    bounds = slice(*args)
    start = 0 if bounds.start is None else bounds.start
    stop = bounds.stop
    step = 1 if bounds.step is None else bounds.step
    if start < 0 or (stop is not None and stop < 0) or step < 1:
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    return _islice(iter(iterable), start, stop, step)


def _islice(iterable: Iterator[Any], start: int, stop: int | None, step: int, /) -> Iterator[Any]:
    wanted = start
    position = 0
    if stop is not None and stop <= 0:
        return
    for element in iterable:
        if position == wanted:
            yield element
            wanted += step
        position += 1
        if stop is not None and position >= stop:
            return


def accumulate(iterable: Iterable[Any], func: Any = None, *, initial: Any = None) -> Iterator[Any]:
    return _accumulate(iter(iterable), func, initial=initial)


def _accumulate(iterator: Iterator[Any], func: Any, *, initial: Any) -> Iterator[Any]:
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for element in iterator:
        total = total + element if func is None else func(total, element)
        yield total


def combinations(iterable: Iterable[Any], r: int) -> Iterator[Any]:
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations(tuple(iterable), r)


def _combinations(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    n = len(pool)
    if r > n:
        return
    indices = list(range(r))
    yield tuple(pool[i] for i in indices)
    while True:
        i = r - 1
        while i >= 0 and indices[i] == i + n - r:
            i -= 1
        if i < 0:
            return
        indices[i] += 1
        for j in range(i + 1, r):
            indices[j] = indices[j - 1] + 1
        yield tuple(pool[i] for i in indices)


def combinations_with_replacement(iterable: Iterable[Any], r: int) -> Iterator[Any]:
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations_with_replacement(tuple(iterable), r)


def _combinations_with_replacement(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    n = len(pool)
    for indices in product(range(n), repeat=r):
        if sorted(indices) == list(indices):
            yield tuple(pool[i] for i in indices)


def permutations(iterable: Iterable[Any], r: int | None = None) -> Iterator[Any]:
    pool = tuple(iterable)
    count = len(pool) if r is None else r
    if count < 0:
        raise ValueError("r must be non-negative")
    return _permutations(pool, count)


def _permutations(pool: tuple[Any, ...], count: int) -> Iterator[Any]:
    n = len(pool)
    for indices in product(range(n), repeat=count):
        if len(set(indices)) == count:
            yield tuple(pool[i] for i in indices)


def repeat(obj: Any, *times: int) -> Iterator[Any]:
    if not times:
        while True:
            yield obj
    for _ in range(max(times[0], 0)):
        yield obj


def count(start: Any = 0, step: Any = 1) -> Iterator[Any]:
    value = start
    while True:
        yield value
        value += step


def cycle(iterable: Iterable[Any], /) -> Iterator[Any]:
    return _cycle(iter(iterable))


def _cycle(iterable: Iterator[Any], /) -> Iterator[Any]:
    saved = []
    for element in iterable:
        yield element
        saved.append(element)
    while saved:
        yield from saved


def takewhile(predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    return _takewhile(predicate, iter(iterable))


def _takewhile(predicate: Callable[[Any], Any], iterable: Iterator[Any], /) -> Iterator[Any]:
    for element in iterable:
        if not predicate(element):
            return
        yield element


def dropwhile(predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    return _dropwhile(predicate, iter(iterable))


def _dropwhile(predicate: Callable[[Any], Any], iterator: Iterator[Any], /) -> Iterator[Any]:
    for element in iterator:
        if not predicate(element):
            yield element
            break
    yield from iterator


def filterfalse(predicate: Any, iterable: Iterable[Any], /) -> Iterator[Any]:
    return _filterfalse(predicate, iter(iterable))


def _filterfalse(predicate: Any, iterable: Iterator[Any], /) -> Iterator[Any]:
    for element in iterable:
        if not (element if predicate is None else predicate(element)):
            yield element


def starmap(function: Callable[..., Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    return _starmap(function, iter(iterable))


def _starmap(function: Callable[..., Any], iterable: Iterator[Any], /) -> Iterator[Any]:
    for arguments in iterable:
        yield function(*arguments)


def compress(data: Iterable[Any], selectors: Iterable[Any]) -> Iterator[Any]:
    return _compress(iter(data), iter(selectors))


def _compress(data: Iterator[Any], selectors: Iterator[Any]) -> Iterator[Any]:
    for element, wanted in zip(data, selectors):
        if wanted:
            yield element


def pairwise(iterable: Iterable[Any], /) -> Iterator[Any]:
    return _pairwise(iter(iterable))


def _pairwise(iterator: Iterator[Any], /) -> Iterator[Any]:
    try:
        previous = next(iterator)
    except StopIteration:
        return
    for element in iterator:
        yield previous, element
        previous = element


def zip_longest(*iterables: Iterable[Any], fillvalue: Any = None) -> Iterator[Any]:
    return _zip_longest(*[iter(iterable) for iterable in iterables], fillvalue=fillvalue)


def _zip_longest(*given: Iterator[Any], fillvalue: Any) -> Iterator[Any]:
    iterators = list(given)
    active = len(iterators)
    if not active:
        return
    done = [False] * active
    while True:
        values = []
        for i in range(len(iterators)):
            value = fillvalue
            if not done[i]:
                try:
                    value = next(iterators[i])
                except StopIteration:
                    done[i] = True
                    active -= 1
                    if not active:
                        return
                    value = fillvalue
            values.append(value)
        yield tuple(values)


def groupby(iterable: Iterable[Any], key: Any = None) -> Iterator[Any]:
    return _groupby(iter(iterable), key)


def _groupby(iterable: Iterator[Any], key: Any) -> Iterator[Any]:
    groups: list[tuple[Any, list[Any]]] = []
    for element in iterable:
        element_key = element if key is None else key(element)
        if groups and groups[-1][0] == element_key:
            groups[-1][1].append(element)
        else:
            groups.append((element_key, [element]))
    for group_key, members in groups:
        yield group_key, iter(members)


def count_of(sequence: Iterable[Any], value: Any, /) -> int:
    total = 0
    for element in sequence:
        if element is value or element == value:
            total += 1
    return total


def index_of(sequence: Iterable[Any], value: Any, /) -> int:
    for position, element in enumerate(sequence):
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
    itertools.chain: chain,
    itertools.chain.from_iterable: chain_from_iterable,
    itertools.product: product,
    itertools.islice: islice,
    itertools.accumulate: accumulate,
    itertools.combinations: combinations,
    itertools.combinations_with_replacement: combinations_with_replacement,
    itertools.permutations: permutations,
    itertools.repeat: repeat,
    itertools.count: count,
    itertools.cycle: cycle,
    itertools.takewhile: takewhile,
    itertools.dropwhile: dropwhile,
    itertools.filterfalse: filterfalse,
    itertools.starmap: starmap,
    itertools.compress: compress,
    itertools.pairwise: pairwise,
    itertools.zip_longest: zip_longest,
    itertools.groupby: groupby,
    operator.countOf: count_of,
    operator.indexOf: index_of,
}
