"""Faults of kernels that are called from Python: how a kernel reports an index out of bounds, and how it is raised.

Invariant: the exception is the one that an entry in C would raise.
"""
from __future__ import annotations

import torch


def new_fault() -> torch.Tensor:
    """The tensor in which kernels report an index out of bounds: number of the fault, the index, whether there is
    one."""
    return torch.zeros(3, dtype=torch.int64, device="cpu")


def raise_fault(fault: torch.Tensor, faults: tuple[tuple[type[Exception], str], ...]) -> None:
    """Raises the exception for the fault that a kernel has reported, if any."""
    number, index, reported = fault.tolist()
    if reported:
        kind, message = faults[number - 1]
        raise kind(message.format(index))
