"""What a graph calls for sizes that only it knows: it reads such a size of the tensor that has it, and checks what the
trace took for granted.

Invariant: what is raised here never reaches the program: the frame runs again in plain Python
(``continuation.deoptimize``).
"""
from __future__ import annotations

from typing import Any


class NotAsAssumed(Exception):
    """A size is not what the graph was made for."""


def size_within(tensor: Any, dim: int, lowest: int, highest: int) -> int:
    """The size of a dimension.

    Raises:
        NotAsAssumed: it is not within the limits.
    """
    size: int = tensor.shape[dim]
    if not lowest <= size <= highest:
        raise NotAsAssumed(f"a size that elements decide is {size}, and the graph is made for {lowest} and more")
    return size


def number_within(number: int, lowest: int, highest: int) -> int:
    """A number that came out of a tensor, and is computed with as a size.

    Raises:
        NotAsAssumed: it is not within the limits.
    """
    if not lowest <= number <= highest:
        raise NotAsAssumed(f"a number out of a tensor is {number}, and the graph is made for {lowest} to {highest}")
    return number


def check(holds: bool, expected: bool) -> bool:
    """What was expected.

    Raises:
        NotAsAssumed: it is not so.
    """
    if holds is not expected:
        raise NotAsAssumed("what the program says of a size, or what a size has to be, does not hold")
    return holds


SIZES = frozenset({size_within, number_within})
"""Calls that define a symbol."""
