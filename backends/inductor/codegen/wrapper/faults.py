"""Faults of kernels that are called from Python: where one reports an index out of bounds, and what is raised then.

Invariant: the exception is the one that an entry in C would raise.
"""
from __future__ import annotations

import torch


def new_fault() -> torch.Tensor:
    """Where kernels report an index out of bounds: the number of the fault, the index, whether there is one."""
    return torch.zeros(3, dtype=torch.int64)


def raise_fault(fault: torch.Tensor, faults: tuple[tuple[type[Exception], str], ...]) -> None:
    """Raises what a kernel has reported, if it has reported anything."""
    number, index, reported = fault.tolist()
    if reported:
        kind, message = faults[number - 1]
        raise kind(message.format(index))
