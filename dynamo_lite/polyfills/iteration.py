"""Python equivalents of itertools, traced in place of the C classes.

An iterator takes elements from the underlying iterator as late as the C one does: a program that stops early finds the
rest still there, and iteration over an endless iterator can end. Invariant: each public function does at once what the
C class does when it is called, and leaves the rest to a generator. The generator's parameters are arguments of the C
class, so that a generator that has not started can be rebuilt.
"""
from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..rules.table import replaces


class Steps:
    """The rest of an iterator. A loop over the iterator itself would call its ``__iter__`` again, unlike the C code."""

    __slots__ = ("iterator",)

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        return next(self.iterator)


@replaces(itertools.chain)
def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


@replaces(itertools.chain.from_iterable)
def chain_from_iterable(iterables: Iterable[Iterable[Any]], /) -> Iterator[Any]:
    return _chain_from_iterable(iter(iterables))


def _chain_from_iterable(iterables: Iterator[Iterable[Any]], /) -> Iterator[Any]:
    for iterable in Steps(iterables):
        yield from iterable


@replaces(itertools.product)
def product(*iterables: Iterable[Any], repeat: int = 1) -> Iterator[Any]:
    if repeat < 0:
        raise ValueError("repeat argument cannot be negative")
    return _product(*([tuple(pool) for pool in iterables] * repeat))


def _product(*pools: tuple[Any, ...]) -> Iterator[Any]:
    if not all(pools):
        return
    positions = [0] * len(pools)
    while True:
        yield tuple([pool[i] for pool, i in zip(pools, positions)])
        place = len(pools) - 1
        while place >= 0 and positions[place] == len(pools[place]) - 1:
            positions[place] = 0
            place -= 1
        if place < 0:
            return
        positions[place] += 1


@replaces(itertools.islice)
def islice(iterable: Iterable[Any], /, *args: int | None) -> Iterator[Any]:
    bounds = slice(*args)
    start = 0 if bounds.start is None else bounds.start
    stop = bounds.stop
    step = 1 if bounds.step is None else bounds.step
    if stop is not None and stop < 0 and len(args) == 1:
        raise ValueError("Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if start < 0 or (stop is not None and stop < 0):
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if step < 1:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return _islice(iter(iterable), start, stop, step)


def _islice(iterable: Iterator[Any], start: int, stop: int | None, step: int, /) -> Iterator[Any]:
    wanted = start
    position = 0
    if stop is not None and position >= stop and position >= wanted:
        return
    for element in Steps(iterable):
        position += 1
        if position > wanted:
            yield element
            wanted += step
            if stop is not None and wanted > stop:
                wanted = stop
        if stop is not None and position >= stop and position >= wanted:
            return


@replaces(itertools.accumulate)
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
    for element in Steps(iterator):
        total = total + element if func is None else func(total, element)
        yield total


@replaces(itertools.combinations)
def combinations(iterable: Iterable[Any], r: int) -> Iterator[Any]:
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations(pool, r)


def _combinations(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    n = len(pool)
    if r > n:
        return
    indices = list(range(r))
    yield tuple([pool[i] for i in indices])
    while True:
        i = r - 1
        while i >= 0 and indices[i] == i + n - r:
            i -= 1
        if i < 0:
            return
        indices[i] += 1
        for j in range(i + 1, r):
            indices[j] = indices[j - 1] + 1
        yield tuple([pool[i] for i in indices])


@replaces(itertools.combinations_with_replacement)
def combinations_with_replacement(iterable: Iterable[Any], r: int) -> Iterator[Any]:
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations_with_replacement(pool, r)


def _combinations_with_replacement(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    n = len(pool)
    if not n and r:
        return
    indices = [0] * r
    while True:
        yield tuple([pool[i] for i in indices])
        place = r - 1
        while place >= 0 and indices[place] == n - 1:
            place -= 1
        if place < 0:
            return
        indices[place:] = [indices[place] + 1] * (r - place)


@replaces(itertools.permutations)
def permutations(iterable: Iterable[Any], r: int | None = None) -> Iterator[Any]:
    pool = tuple(iterable)
    count = len(pool) if r is None else r
    if count < 0:
        raise ValueError("r must be non-negative")
    return _permutations(pool, count)


def _permutations(pool: tuple[Any, ...], count: int) -> Iterator[Any]:
    n = len(pool)
    if count > n:
        return
    indices = list(range(n))
    cycles = list(range(n, n - count, -1))
    while True:
        yield tuple([pool[i] for i in indices[:count]])
        place = count - 1
        while place >= 0:
            cycles[place] -= 1
            if cycles[place]:
                other = n - cycles[place]
                indices[place], indices[other] = indices[other], indices[place]
                break
            indices[place:] = [*indices[place + 1 :], indices[place]]
            cycles[place] = n - place
            place -= 1
        if place < 0:
            return


_ENDLESS = object()


@replaces(itertools.repeat)
def repeat(object: Any, times: Any = _ENDLESS) -> Iterator[Any]:
    return _repeat(object) if times is _ENDLESS else _repeat(object, times)


def _repeat(object: Any, *times: int) -> Iterator[Any]:
    if not times:
        while True:
            yield object
    for _ in range(max(times[0], 0)):
        yield object


@replaces(itertools.count)
def count(start: Any = 0, step: Any = 1) -> Iterator[Any]:
    value = start
    while True:
        given = value
        value = value + step
        yield given


@replaces(itertools.cycle)
def cycle(iterable: Iterable[Any], /) -> Iterator[Any]:
    return _cycle(iter(iterable))


def _cycle(iterable: Iterator[Any], /) -> Iterator[Any]:
    saved = []
    for element in Steps(iterable):
        saved.append(element)
        yield element
    while saved:
        yield from saved


@replaces(itertools.takewhile)
def takewhile(predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    return _takewhile(predicate, iter(iterable))


def _takewhile(predicate: Callable[[Any], Any], iterable: Iterator[Any], /) -> Iterator[Any]:
    for element in Steps(iterable):
        if not predicate(element):
            return
        yield element


@replaces(itertools.dropwhile)
def dropwhile(predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    return _dropwhile(predicate, iter(iterable))


def _dropwhile(predicate: Callable[[Any], Any], iterator: Iterator[Any], /) -> Iterator[Any]:
    dropping = True
    for element in Steps(iterator):
        if dropping and predicate(element):
            continue
        dropping = False
        yield element


@replaces(itertools.filterfalse)
def filterfalse(predicate: Any, iterable: Iterable[Any], /) -> Iterator[Any]:
    return _filterfalse(predicate, iter(iterable))


def _filterfalse(predicate: Any, iterable: Iterator[Any], /) -> Iterator[Any]:
    for element in Steps(iterable):
        if not (element if predicate is None else predicate(element)):
            yield element


@replaces(itertools.starmap)
def starmap(function: Callable[..., Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    return _starmap(function, iter(iterable))


def _starmap(function: Callable[..., Any], iterable: Iterator[Any], /) -> Iterator[Any]:
    for arguments in Steps(iterable):
        yield function(*tuple(arguments))


@replaces(itertools.compress)
def compress(data: Iterable[Any], selectors: Iterable[Any]) -> Iterator[Any]:
    return _compress(iter(data), iter(selectors))


def _compress(data: Iterator[Any], selectors: Iterator[Any]) -> Iterator[Any]:
    for element, wanted in zip(Steps(data), Steps(selectors)):
        if wanted:
            yield element


@replaces(itertools.pairwise)
def pairwise(iterable: Iterable[Any], /) -> Iterator[Any]:
    return _pairwise(iter(iterable))


def _pairwise(iterator: Iterator[Any], /) -> Iterator[Any]:
    try:
        previous = next(iterator)
    except StopIteration:
        return
    for element in Steps(iterator):
        yield previous, element
        previous = element


def _whole_number(n: Any) -> int:
    size = operator.index(n)
    if size < 1:
        raise ValueError("n must be at least one")
    return size


def _batched(iterator: Iterator[Any], n: int) -> Iterator[Any]:
    while True:
        batch = []
        for element in Steps(iterator):
            batch.append(element)
            if len(batch) == n:
                break
        if not batch:
            return
        yield tuple(batch)


def _batched_or_strict(iterator: Iterator[Any], n: int, *, strict: bool) -> Iterator[Any]:
    for batch in _batched(iterator, n):
        if strict and len(batch) < n:
            raise ValueError("batched(): incomplete batch")
        yield batch


_BATCHED = getattr(itertools, "batched", None)
if _BATCHED is not None and "strict" in (_BATCHED.__text_signature__ or ""):

    @replaces(_BATCHED)
    def batched_or_strict(iterable: Iterable[Any], n: int, *, strict: bool = False) -> Iterator[Any]:
        size = _whole_number(n)
        return _batched_or_strict(iter(iterable), size, strict=bool(strict))

elif _BATCHED is not None:

    @replaces(_BATCHED)
    def batched(iterable: Iterable[Any], n: int) -> Iterator[Any]:
        size = _whole_number(n)
        return _batched(iter(iterable), size)


@replaces(itertools.zip_longest)
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


@replaces(itertools.groupby)
def groupby(iterable: Iterable[Any], key: Any = None) -> Iterator[Any]:
    return _groupby(iter(iterable), key)


def _groupby(iterator: Iterator[Any], key: Any) -> Iterator[Any]:
    number = 0  # number of the group that was returned last, the only one that still has elements
    waiting = False  # whether an element has been taken that is in no group yet
    element = element_key = group_key = None

    def take() -> None:
        nonlocal element, element_key, waiting
        element = next(iterator)
        element_key = element if key is None else key(element)
        waiting = True

    def members(own: int) -> Iterator[Any]:
        nonlocal waiting
        while own == number:
            if not waiting:
                try:
                    take()
                except StopIteration:
                    return
            if not (group_key is element_key or group_key == element_key):
                return
            waiting = False
            yield element

    while True:
        number += 1
        while not waiting or (number > 1 and (group_key is element_key or group_key == element_key)):
            try:
                take()
            except StopIteration:
                return
        group_key = element_key
        yield group_key, members(number)
