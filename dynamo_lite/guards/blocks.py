"""Finds the guards that depend on the state of one dict alone; a call skips them while the dict is unchanged.

Most guards of a model look at numbers and names in the dicts of its modules. The guard program can tell whether a dict
is still in the state in which a block of guards held (``csrc/guards/dict_memo.h``). While it is, each name in the dict
is mapped to the same object, and if that object is immutable, every property of it is unchanged.

Invariants: the outcome of a guard in a block can't change while its dict is in one state; no step outside a block reads
a register that the block loads.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .guard import Guard
from .source import DictItemSource, PathKey, SequenceItemSource, Source

# Kinds of check that involve a second source.
PAIR_KINDS = frozenset({
    "tensor_same", "not_same", "all_distinct", "apart", "disjoint", "memory_offset", "relation",
})

_IMMUTABLE = (bool, int, float, complex, str, bytes, tuple, frozenset, range, slice, type(None), type(Ellipsis))
_SIZED = (str, bytes, tuple, frozenset, range)
_FEWEST = 2  # guards in a block; a block with one guard costs as much as it saves

Block = tuple[Source, list[Guard]]


def split_blocks(guards: Sequence[Guard], collect: Iterable[Source]) -> tuple[list[Guard], list[Block]]:
    """Separates the guards of a cache entry that can be put into blocks from the others.

    Args:
        guards: all guards of the entry.
        collect: the sources whose values the compiled code receives.

    Returns:
        the guards that are checked at every call, and the blocks: each a dict's source with the guards that depend on
        that dict.
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
    """Source of the dict that alone determines the guard's outcome; None if there is no such dict."""
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
    """The sources that a block loads for a guard: those on the path from its dict to the guarded value."""
    while source.key != holder.key:
        yield source
        source = source.parents()[0]


def _immutable(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_immutable, value))
    return type(value) in _IMMUTABLE


# Kinds of check whose outcome is fixed as long as the object is the same one, each with a predicate on the expectation.
_SETTLED: dict[str, Any] = {
    "is": lambda value: True,
    "is_not": lambda value: True,
    "const": _immutable,
    "type_is": lambda cls: cls in _IMMUTABLE,  # ``__class__`` of other objects may be assigned
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
