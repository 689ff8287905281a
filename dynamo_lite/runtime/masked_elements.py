"""What generated code calls for the elements of a tensor that a mask selects, where no graph holds them.

Invariant: the result is the one of ``x[mask]`` at the place in the program where it was read.
"""
from __future__ import annotations

from typing import Any

import torch


def masked_elements(x: torch.Tensor, mask: torch.Tensor, before: int, inverted: bool, with_gradient: bool) -> Any:
    """The elements of `x` where `mask` is true.

    Args:
        before: number of dimensions of `x` before those of the mask.
        inverted: whether the elements are those where the mask is false.
        with_gradient: whether autograd was on where the program reads the elements.
    """
    with torch.set_grad_enabled(with_gradient):
        return x[(slice(None),) * before + (~mask if inverted else mask,)]
