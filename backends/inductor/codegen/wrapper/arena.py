"""Memory planning: assigns offsets in one arena to buffers whose live ranges don't overlap.

If sizes are symbolic, a buffer's size is an integer multiple of a *unit*, which is the formula of its size without
common factors. Most buffers of a program have the same unit, and are placed as if it were a byte. Each unit has its own
part of the arena.

Invariant: two buffers that share bytes are never live at the same time; each begins at a multiple of ``ALIGNMENT``.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.runtime.storage_extent import storage_extent

ALIGNMENT = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Arena:
    """Offsets in bytes by name, and the arena's size in bytes. ``in_rooms``: for buffers that lie in a room instead
    (see ``place``), the room and the offset in it."""

    places: dict[str, int]
    size: int
    in_rooms: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)

    def names(self) -> set[str]:
        return {*self.places, *self.in_rooms}


def place(lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int],
          rooms: Mapping[str, tuple[int, int]] | None = None, alignment: int = ALIGNMENT) -> Arena:
    """Places buffers, the largest first, each in the smallest gap that is free during its whole live range.

    Args:
        lives: for each buffer, the first and the last step that uses it.
        sizes: sizes in bytes.
        rooms: memory that is allocated anyway and is free up to some step, such as that of a result that is written
            late: its size in bytes, and that step.
        alignment: each buffer begins at a multiple of it.
    """
    taken: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in rooms or ()}
    placed: list[tuple[int, int, int, int]] = []
    places: dict[str, int] = {}
    in_rooms: dict[str, tuple[str, int]] = {}
    for name in sorted(lives, key=lambda n: (-sizes[n], lives[n])):
        first, last = lives[name]
        size = max(alignment, -(-sizes[name] // alignment) * alignment)
        for room, (room_size, until) in (rooms or {}).items():
            begin = _gap(taken[room], size, first, last)
            if last < until and begin + size <= room_size:
                in_rooms[name] = room, begin
                taken[room].append((begin, begin + size, first, last))
                break
        else:
            begin = places[name] = _gap(placed, size, first, last)
            placed.append((begin, begin + size, first, last))
    return Arena(places, max((end for _, end, _, _ in placed), default=0), in_rooms)


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """The part of an arena for buffers whose sizes in bytes are multiples of one formula.

    Attributes:
        unit: the formula. Its value is rounded up to a multiple of ``ALIGNMENT`` when the program runs.
        places: the offset of each buffer, in units.
        size: the part's size, in units.
    """

    unit: ix.Index
    places: dict[str, int]
    size: int


def place_by_formula(lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, ix.Index]) -> list[Part]:
    """Places buffers whose sizes are formulas. The arguments are those of ``place``."""
    counts: dict[ix.Index, dict[str, int]] = {}
    for name, size in sizes.items():
        unit, count = _unit(size)
        counts.setdefault(unit, {})[name] = count
    parts = []
    for unit, own in counts.items():
        arena = place({name: lives[name] for name in own}, own, alignment=1)
        parts.append(Part(unit, arena.places, arena.size))
    return parts


def _unit(size: ix.Index) -> tuple[ix.Index, int]:
    """Factors a formula into one without common factors and an integer."""
    if isinstance(size, int):
        return 1, size
    count = math.gcd(size.const, *size.terms.values())
    return ix.polynomial({m: k // count for m, k in size.terms.items()}, size.const // count), count


def _gap(placed: list[tuple[int, int, int, int]], size: int, first: int, last: int) -> int:
    """The offset of the smallest gap that is free from step ``first`` to ``last``. ``placed``: start, end, first and
    last step of each buffer that is already placed."""
    at, best = 0, None
    for start, end, other_first, other_last in sorted(placed):
        if other_last < first or last < other_first:
            continue
        gap = start - at
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, at)
        at = max(at, end)
    return at if best is None else best[1]


def formula_of_bytes(size: Sequence[ix.Index], stride: Sequence[ix.Index], itemsize: int) -> ix.Index:
    """Number of bytes that a non-empty tensor of a layout occupies."""
    extent = ix.sum_of([1, *(ix.mul(ix.add(n, -1), s) for n, s in zip(size, stride))])
    return ix.mul(extent, itemsize)


def storage_bytes(size: Sequence[int], stride: Sequence[int], itemsize: int) -> int:
    """Number of bytes that a tensor of a layout occupies."""
    return storage_extent(size, stride) * itemsize
