"""Storage extent: how much memory a layout spans, from its first element to its last, gaps included.

Invariant: a layout without elements spans nothing, whatever its strides.
"""
from __future__ import annotations

from collections.abc import Sequence


def storage_extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements lie between the first and the last one of a layout, both included."""
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
