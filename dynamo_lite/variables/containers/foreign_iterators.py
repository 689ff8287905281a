"""Inspection of iterators from outside: a trace can follow those over builtin containers that are at their beginning or
exhausted.

A partly consumed iterator is usually the result of a graph break in a loop's body. Each iteration of that loop has
another position and would need code of its own; but the next element of such an iterator can be read ahead. Invariant:
nothing here advances an iterator or runs the user's code.
"""
from __future__ import annotations

import gc
import operator
from typing import Any

_EMPTY: dict[None, None] = {}
LIST: type = type(iter([None]))
TUPLE: type = type(iter(()))
RANGE: type = type(iter(range(0)))
KEYS, VALUES, ITEMS = type(iter(_EMPTY)), type(iter(_EMPTY.values())), type(iter(_EMPTY.items()))
_OVER_DICTS = (KEYS, VALUES, ITEMS)
_IN_ORDER = (LIST, TUPLE, RANGE)
FOLLOWED = (*_IN_ORDER, *_OVER_DICTS, enumerate, zip, map)


def container_of(iterator: Any) -> Any:
    """The container over which an iterator goes; for an exhausted iterator an empty container, or None."""
    if type(iterator) in _OVER_DICTS:
        return next((part for part in gc.get_referents(iterator) if isinstance(part, dict)), None)
    return iterator.__reduce__()[1][0]


def position_of(iterator: Any) -> int | None:
    """The number of elements that a list, tuple or range iterator has yielded; None if it is exhausted; -1 where only
    the remaining elements are known, as for range iterators since Python 3.12."""
    reduced = iterator.__reduce__()
    if len(reduced) < 3 or type(iterator) is RANGE and not operator.length_hint(iterator):
        return None
    position: int | None = reduced[2]
    return -1 if position is None else position


def is_new(iterator: Any) -> bool | None:
    """Whether an iterator over a dict has yielded nothing yet and the dict still has the same size; None if it is
    exhausted."""
    over = container_of(iterator)
    return None if over is None else iterator.__length_hint__() == dict.__len__(over)


def inner_of(iterator: Any) -> tuple[Any, ...]:
    """The iterators from which an enumerate, zip or map object takes its elements."""
    parts: tuple[Any, ...] = iterator.__reduce__()[1]
    if type(iterator) is zip:
        return parts
    return parts[1:] if type(iterator) is map else parts[:1]


def count_of(iterator: Any) -> int:
    """The number that an enumerate object yields next."""
    number: int = iterator.__reduce__()[1][1]
    return number


def function_of(iterator: Any) -> Any:
    """The function that a map object calls."""
    return iterator.__reduce__()[1][0]


def is_strict(iterator: Any) -> bool:
    """Whether a zip object is strict: requires iterators of equal length."""
    return len(iterator.__reduce__()) > 2


class Inner:
    """A function for guards that returns one of the iterators from which another one takes its elements."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, iterator: Any) -> Any:
        return inner_of(iterator)[self.place]


def is_followed(iterator: Any, surely: bool = False) -> bool:
    """Whether a trace can follow an iterator from outside.

    Args:
        surely: whether the result is False for an iterator that may be partly consumed.
    """
    cls = type(iterator)
    if cls in _IN_ORDER:
        return position_of(iterator) in ((0, None) if surely else (0, None, -1))
    if cls in _OVER_DICTS:
        return is_new(iterator) is not False
    return cls in FOLLOWED and all(is_followed(inner, surely) for inner in inner_of(iterator))




def next_of(iterator: Any) -> tuple[Any, ...] | None:
    """A tuple with the element that an iterator yields next, empty if the iterator is exhausted; None where that is
    unknown or the next step raises."""
    cls = type(iterator)
    if cls in _IN_ORDER:
        position = position_of(iterator)
        return () if position is None else _element(container_of(iterator), max(position, 0))
    if cls in _OVER_DICTS:
        try:
            rest = iterator.__reduce__()[1][0]
        except RuntimeError:  # the dict's size has changed
            return None
        return tuple(rest[:1])
    if cls not in (enumerate, zip):
        return None
    parts = [next_of(part) for part in inner_of(iterator)] or [()]
    if any(part is None for part in parts) or cls is zip and is_strict(iterator) and len(set(map(bool, parts))) > 1:
        return None
    if not all(parts):
        return ()
    elements = tuple(part[0] for part in parts if part is not None)
    return ((count_of(iterator), *elements),) if cls is enumerate else (elements,)


def _element(container: Any, position: int) -> tuple[Any, ...]:
    """A tuple with one element of a list, tuple or range, empty beyond its end; calls no method of a user's class."""
    base = next(cls for cls in (list, tuple, range) if isinstance(container, cls))
    if position >= base.__len__(container):
        return ()
    return (base.__getitem__(container, position),)


def containers_of(iterator: Any) -> list[Any]:
    """The lists and dicts over which an iterator goes, directly or through other iterators."""
    if type(iterator) in (enumerate, zip):
        return [container for part in inner_of(iterator) for container in containers_of(part)]
    container = container_of(iterator)
    return [container] if isinstance(container, (list, dict)) else []


class Container:
    """A function for guards that returns one of the results of :func:`containers_of`, None if there are fewer."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, iterator: Any) -> Any:
        found = containers_of(iterator)
        return found[self.place] if self.place < len(found) else None
