"""One piece of memory for buffers that are not needed at the same time.

Invariant: two buffers that share bytes are never alive together; each begins at a multiple of ``ALIGNMENT``.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

ALIGNMENT = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Arena:
    """Offsets by name, and the size of the whole, in bytes."""

    places: dict[str, int]
    size: int


def place(lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> Arena:
    """Places buffers, the largest first, each in the smallest gap that is free all its life.

    Args:
        lives: for each buffer the first and the last step that uses it.
        sizes: in bytes.
    """
    placed: list[tuple[int, int, int, int]] = []  # start, end, first, last
    places: dict[str, int] = {}
    for name in sorted(lives, key=lambda n: (-sizes[n], lives[n])):
        first, last = lives[name]
        size = max(ALIGNMENT, -(-sizes[name] // ALIGNMENT) * ALIGNMENT)
        at, best = 0, None
        for start, end, other_first, other_last in sorted(placed):
            if other_last < first or last < other_first:
                continue
            gap = start - at
            if gap >= size and (best is None or gap < best[0]):
                best = (gap, at)
            at = max(at, end)
        begin = at if best is None else best[1]
        places[name] = begin
        placed.append((begin, begin + size, first, last))
    return Arena(places, max((end for _, end, _, _ in placed), default=0))


def storage_bytes(size: Sequence[int], stride: Sequence[int], itemsize: int) -> int:
    """What a tensor of that layout occupies."""
    if 0 in size:
        return 0
    return (sum((n - 1) * s for n, s in zip(size, stride)) + 1) * itemsize
