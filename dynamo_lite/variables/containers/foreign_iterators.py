"""Which iterators from outside a trace can follow: those of builtin containers that have given nothing yet, or all.

One in the middle is what a break in a loop's body has left: each of its turns would be another position, and code of
its own. Of such a one the next element can be looked at. Invariant: nothing here moves an iterator, or runs code of the
user's.
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
    """What an iterator goes over: the container itself; for one at its end an empty one, or None."""
    if type(iterator) in _OVER_DICTS:
        return next((part for part in gc.get_referents(iterator) if isinstance(part, dict)), None)
    return iterator.__reduce__()[1][0]


def position_of(iterator: Any) -> int | None:
    """How many elements a list, tuple or range iterator has given; None at its end; -1 where it knows no more than what
    is left, as range iterators do since Python 3.12."""
    reduced = iterator.__reduce__()
    if len(reduced) < 3 or type(iterator) is RANGE and not operator.length_hint(iterator):
        return None
    position: int | None = reduced[2]
    return -1 if position is None else position


def is_new(iterator: Any) -> bool | None:
    """Whether an iterator over a dict has given nothing, and the dict is as large as when it was made; None at its
    end."""
    over = container_of(iterator)
    return None if over is None else iterator.__length_hint__() == dict.__len__(over)


def inner_of(iterator: Any) -> tuple[Any, ...]:
    """The iterators that an enumerate, a zip or a map takes from."""
    parts: tuple[Any, ...] = iterator.__reduce__()[1]
    if type(iterator) is zip:
        return parts
    return parts[1:] if type(iterator) is map else parts[:1]


def count_of(iterator: Any) -> int:
    """The number that an enumerate gives next."""
    number: int = iterator.__reduce__()[1][1]
    return number


def function_of(iterator: Any) -> Any:
    """What a map calls."""
    return iterator.__reduce__()[1][0]


def is_strict(iterator: Any) -> bool:
    """Whether a zip wants all its iterators to end together."""
    return len(iterator.__reduce__()) > 2


class Inner:
    """Gives one of the iterators that another one takes from; for guards."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, iterator: Any) -> Any:
        return inner_of(iterator)[self.place]


def is_followed(iterator: Any, surely: bool = False) -> bool:
    """Whether a trace can follow an iterator from outside.

    Args:
        surely: whether one that may be in the middle counts as such.
    """
    cls = type(iterator)
    if cls in _IN_ORDER:
        return position_of(iterator) in ((0, None) if surely else (0, None, -1))
    if cls in _OVER_DICTS:
        return is_new(iterator) is not False
    return cls in FOLLOWED and all(is_followed(inner, surely) for inner in inner_of(iterator))




def next_of(iterator: Any) -> tuple[Any, ...] | None:
    """A tuple of what an iterator will give next, empty where it will end; None where that can't be told, or the next
    step raises."""
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
    """The element of a list, tuple or range in a tuple, without asking a class of the user's."""
    base = next(cls for cls in (list, tuple, range) if isinstance(container, cls))
    if position >= base.__len__(container):
        return ()
    return (base.__getitem__(container, position),)


def containers_of(iterator: Any) -> list[Any]:
    """The lists and dicts that an iterator goes over, by way of others, too."""
    if type(iterator) in (enumerate, zip):
        return [container for part in inner_of(iterator) for container in containers_of(part)]
    container = container_of(iterator)
    return [container] if isinstance(container, (list, dict)) else []


class Container:
    """Gives one of these lists and dicts; for guards."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, iterator: Any) -> Any:
        found = containers_of(iterator)
        return found[self.place] if self.place < len(found) else None
