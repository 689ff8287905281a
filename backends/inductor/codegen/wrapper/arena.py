"""Memory planning: offsets in one arena for buffers whose lifetimes don't overlap.

Invariant: two buffers that share bytes are never alive together; each begins at a multiple of ``ALIGNMENT``.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dynamo_lite.runtime.storage_extent import storage_extent

ALIGNMENT = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Arena:
    """Offsets by name, and the size of the whole, in bytes; and what lies in a room instead: which, and where in it."""

    places: dict[str, int]
    size: int
    in_rooms: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)

    def names(self) -> set[str]:
        return {*self.places, *self.in_rooms}


def place(lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int],
          rooms: Mapping[str, tuple[int, int]] | None = None) -> Arena:
    """Places buffers, the largest first, each in the smallest gap that is free all its life.

    Args:
        lives: for each buffer the first and the last step that uses it.
        sizes: in bytes.
        rooms: memory that is there anyway: its size, and the step from which on it is taken (that of a result that is
            not written before).
    """
    taken: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in rooms or ()}
    placed: list[tuple[int, int, int, int]] = []
    places: dict[str, int] = {}
    in_rooms: dict[str, tuple[str, int]] = {}
    for name in sorted(lives, key=lambda n: (-sizes[n], lives[n])):
        first, last = lives[name]
        size = max(ALIGNMENT, -(-sizes[name] // ALIGNMENT) * ALIGNMENT)
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


def _gap(placed: list[tuple[int, int, int, int]], size: int, first: int, last: int) -> int:
    """Where the smallest gap begins that is free from ``first`` to ``last``; of what is placed: start, end, life."""
    at, best = 0, None
    for start, end, other_first, other_last in sorted(placed):
        if other_last < first or last < other_first:
            continue
        gap = start - at
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, at)
        at = max(at, end)
    return at if best is None else best[1]


def storage_bytes(size: Sequence[int], stride: Sequence[int], itemsize: int) -> int:
    """What a tensor of that layout occupies."""
    return storage_extent(size, stride) * itemsize
