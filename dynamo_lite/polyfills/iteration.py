"""Python equivalents of itertools, traced in place of the C classes.

An iterator takes from what it iterates over as late as the C one does: a program that stops early finds the rest still
there, and an endless one ends. Invariant: each public function does at once what the C class does when it is called,
and leaves the rest to a generator whose parameters are arguments of the C class, so that one that has not begun can be
rebuilt.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


def chain_from_iterable(iterables: Iterable[Iterable[Any]], /) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


def product(*iterables: Iterable[Any], repeat: int = 1) -> Iterator[Any]:
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


def _groupby(iterator: Iterator[Any], key: Any) -> Iterator[Any]:
    number = 0  # of the group that was handed out last, the only one that still has elements
    ended = False
    try:
        element = next(iterator)
    except StopIteration:
        return
    element_key = element if key is None else key(element)

    def advance() -> bool:
        nonlocal element, element_key, ended
        try:
            element = next(iterator)
        except StopIteration:
            ended = True
            return False
        element_key = element if key is None else key(element)
        return True

    def members(own: int, group_key: Any) -> Iterator[Any]:
        while own == number and not ended and (group_key is element_key or group_key == element_key):
            yield element
            if own != number or not advance():
                return

    while not ended:
        group_key = element_key
        yield group_key, members(number, group_key)
        while not ended and (group_key is element_key or group_key == element_key):
            advance()
        number += 1


# class written in C -> its Python equivalent
REPLACEMENTS: dict[Any, Callable[..., Any]] = {
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
}
