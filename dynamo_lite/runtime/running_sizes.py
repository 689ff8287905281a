"""Functions that a graph calls for sizes that only it knows: they read such a size from the tensor that has it, and
check the assumptions of the trace.

Invariant: an exception raised here never reaches the program; the frame runs again in plain Python
(``continuation.deoptimize``).
"""
from __future__ import annotations

from typing import Any


class NotAsAssumed(Exception):
    """A size violates an assumption that the graph was made for."""


def size_within(tensor: Any, dim: int, lowest: int, highest: int) -> int:
    """The size of dimension `dim`.

    Raises:
        NotAsAssumed: the size is outside the limits.
    """
    size: int = tensor.shape[dim]
    if not lowest <= size <= highest:
        raise NotAsAssumed(f"a size that elements decide is {size}, and the graph is made for {lowest} and more")
    return size


def number_within(number: int, lowest: int, highest: int) -> int:
    """A number that was read from a tensor and is used as a size.

    Raises:
        NotAsAssumed: the number is outside the limits.
    """
    if not lowest <= number <= highest:
        raise NotAsAssumed(f"a number out of a tensor is {number}, and the graph is made for {lowest} to {highest}")
    return number


def check(holds: bool, expected: bool) -> bool:
    """The outcome of a condition, which must be the expected one.

    Raises:
        NotAsAssumed: the outcome is not the expected one.
    """
    if holds is not expected:
        raise NotAsAssumed("what the program says of a size, or what a size has to be, does not hold")
    return holds


SIZES = frozenset({size_within, number_within})
"""The functions whose calls define a symbol."""
