"""Decompositions of a loss's gradient and of safe softmax into arithmetic, so that they fuse with kernels around them.

The negative log likelihood itself has a lowering, which reports targets out of range, so its gradient needs no further
check. Without the decomposition, the gradient would be a tensor as large as the scores, filled with zeros first and
read once.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_MEAN = 1


def nll_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
    total_weight: Tensor,
) -> Any:
    if weight is not None or self.dim() not in (2, 4) or self.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    grad = -(grad_output / total_weight if reduction == _MEAN else grad_output)
    classes = torch.arange(self.shape[1], device=self.device).view(-1, *[1] * (self.dim() - 2))
    label = target.unsqueeze(1)
    hit = (classes == label) & (label != ignore_index)
    if grad.dim():
        grad = grad.unsqueeze(1)
    return torch.where(hit, grad, torch.zeros((), dtype=grad.dtype, device=grad.device))


def safe_softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax that gives zeros for rows in which all elements are masked (minus infinity)."""
    out = torch.softmax(self, dim, dtype=dtype)
    masked = (self == -torch.inf).all(dim, keepdim=True)
    return torch.where(masked, torch.zeros((), dtype=out.dtype, device=out.device), out)


FOR_KERNELS: dict[Any, Callable[..., Any]] = {
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten._safe_softmax.default: safe_softmax,
}
