"""Which guards depend on the state of one dict alone, so that a call can leave them out while the dict is as it was.

Most of what a model's guards look at are numbers and names in the dicts of its modules. The guard program knows whether
a dict is in the state in which a block held (``csrc/guards/dict_memo.h``): where it has not changed, what the dict maps
a name to is the same object, and of an immutable object everything is as it was.

Invariants: a guard in a block can't come out differently while its dict is in one state; nothing outside reads what a
block loads.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .guard import Guard
from .source import DictItemSource, PathKey, SequenceItemSource, Source

# Checks that involve a second source.
PAIR_KINDS = frozenset({
    "tensor_same", "not_same", "all_distinct", "apart", "disjoint", "memory_offset", "relation",
})

_IMMUTABLE = (bool, int, float, complex, str, bytes, tuple, frozenset, range, slice, type(None), type(Ellipsis))
_SIZED = (str, bytes, tuple, frozenset, range)
_FEWEST = 2  # guards; a block of one costs as much as it saves

Block = tuple[Source, list[Guard]]


def split_blocks(guards: Sequence[Guard], collect: Iterable[Source]) -> tuple[list[Guard], list[Block]]:
    """Parts the guards of a cache entry.

    Args:
        guards: all of them.
        collect: the sources whose values the compiled code receives.

    Returns:
        those to be checked at every call, and dicts with the guards that depend on each.
    """
    every: list[Guard] = []
    blocks: dict[PathKey, Block] = {}
    sized = {g.source.key for g in guards if g.kind == "type_is" and g.expected[0] in _SIZED}
    for guard in guards:
        holder = _holder(guard, sized)
        if holder is None:
            every.append(guard)
        else:
            blocks.setdefault(holder.key, (holder, []))[1].append(guard)
    outside: set[PathKey] = set()
    for source in [*collect, *(holder for holder, _ in blocks.values()), *(s for g in every for s in _sources(g))]:
        _add_path(source, outside)
    kept = []
    for holder, group in blocks.values():
        inside = [g for g in group if not any(s.key in outside for s in _below(holder, g.source))]
        inside = inside if len(inside) >= _FEWEST else []
        chosen = set(map(id, inside))
        every += [g for g in group if id(g) not in chosen]
        if inside:
            kept.append((holder, inside))
    return every, kept


def _holder(guard: Guard, sized: set[PathKey]) -> Source | None:
    """The dict that the outcome depends on alone."""
    source, kind, expected = guard.source, guard.kind, guard.expected
    if kind in ("dict_has", "dict_lacks"):
        return source if isinstance(expected[0], str) else None
    if kind == "len":
        settled = source.key in sized
    else:
        settled = kind in _SETTLED and _SETTLED[kind](*expected)
    while isinstance(source, SequenceItemSource) and not source.is_list:
        source = source.base
    return source.base if settled and isinstance(source, DictItemSource) else None


def _below(holder: Source, source: Source) -> Iterator[Source]:
    """What a block loads for a guard: the path behind its dict."""
    while source.key != holder.key:
        yield source
        source = source.parents()[0]


def _immutable(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_immutable, value))
    return type(value) in _IMMUTABLE


# Checks of an object that come out as before if it is the same object, by what they expect.
_SETTLED: dict[str, Any] = {
    "is": lambda value: True,
    "is_not": lambda value: True,
    "const": _immutable,
    "type_is": lambda cls: cls in _IMMUTABLE,  # objects of other classes may be given another one
    "int_range": lambda low, high, why: True,
}


def _sources(guard: Guard) -> Sequence[Source]:
    if guard.kind not in PAIR_KINDS:
        return (guard.source,)
    return (guard.source, *(part for part in guard.expected if isinstance(part, Source)))


def _add_path(source: Source, found: set[PathKey]) -> None:
    waiting = [source]
    while waiting:
        source = waiting.pop()
        if source.key not in found:
            found.add(source.key)
            waiting += source.parents()
