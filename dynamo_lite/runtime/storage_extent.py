"""Storage extent: the number of elements of storage that a layout spans from its first to its last element, with gaps;
and whether each of its elements has a place of its own.

Invariant: a layout without elements has extent 0, whatever its strides.
"""
from __future__ import annotations

from collections.abc import Sequence


def storage_extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Number of elements from the first to the last element of a layout, both included."""
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))


def is_surely_disjoint(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether no two elements of a layout lie at one place, as far as its dimensions are nested in each other; False if
    they are not, even if no two elements do."""
    reach = 0
    for step, n in sorted((step, n) for step, n in zip(stride, size) if n != 1):
        if step <= reach:
            return False
        reach += step * (n - 1)
    return True
