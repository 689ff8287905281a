"""Storage extent: the number of elements of storage that a layout spans from its first to its last element, with gaps.

Invariant: a layout without elements has extent 0, whatever its strides.
"""
from __future__ import annotations

from collections.abc import Sequence


def storage_extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Number of elements from the first to the last element of a layout, both included."""
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
