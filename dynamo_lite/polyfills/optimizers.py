"""Stand-ins for what optimizers call that can't be in a graph as it is.

Invariant: each does to its arguments what torch's own does, numbers rounded where torch rounds them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Region:
    """In place of ``torch.autograd.profiler.record_function``: a graph has no times of its own to record."""

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def use_grad(step: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``torch.optim.optimizer._use_grad_for_differentiable`` makes of a step, without its breaks, which are there
    for torch's own compiler."""
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(self.defaults["differentiable"])
        return step(self, *args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


def group_tensors(tensors: Sequence[Sequence[Tensor | None]], with_indices: bool = False) -> dict[Any, Any]:
    """``torch._C._group_tensors_by_device_and_dtype``."""
    groups: dict[Any, Any] = {}
    for i, first in enumerate(tensors[0]):
        assert first is not None
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensors], [])
        lists, indices = groups[key]
        for found, given in zip(lists, tensors):
            if given:
                found.append(given[i])
        if with_indices:
            indices.append(i)
    return groups


# ---------------------------------------------------------------- numbers that are in a tensor
def _sum(self: Tensor, other: Any, alpha: Any, sign: int) -> Tensor:
    """``self + sign * alpha * other``, rounded once: torch's loops use fused operations, which for float32 is what
    double gives. The number, if it is none of float32, is rounded to it first."""
    if self.dtype == torch.float32 and other.dtype == torch.float32:
        factor = (other.new_ones(1) * alpha).reshape(())
        return (self.double() + sign * (factor.double() * other.double())).float()
    return self + sign * (alpha * other)


def add_(self: Tensor, other: Any, *, alpha: Tensor) -> Tensor:
    return self.copy_(_sum(self, other, alpha, 1))


def sub_(self: Tensor, other: Any, *, alpha: Tensor) -> Tensor:
    return self.copy_(_sum(self, other, alpha, -1))


def add(self: Tensor, other: Any, *, alpha: Tensor) -> Tensor:
    return _sum(self, other, alpha, 1)


def sub(self: Tensor, other: Any, *, alpha: Tensor) -> Tensor:
    return _sum(self, other, alpha, -1)


def _product(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Tensor:
    """``self + value * tensor1 * tensor2``, the second product and the sum rounded once."""
    if self.dtype == tensor1.dtype == tensor2.dtype == torch.float32:
        return (self.double() + (value * tensor1).double() * tensor2.double()).float()
    return self + value * tensor1 * tensor2


def addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.add_(value * tensor1 / tensor2)


def addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.copy_(_product(self, tensor1, tensor2, value))


def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.add(value * tensor1 / tensor2)


def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return _product(self, tensor1, tensor2, value)


METHODS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (add_, sub_, add, sub, addcdiv_, addcmul_, addcdiv, addcmul)}
"""Methods of tensors whose ``alpha`` or ``value`` may be a tensor of one element."""


def foreach_with_tensor_(
    name: str, self: Sequence[Tensor], tensors1: Sequence[Tensor], tensors2: Sequence[Tensor], scalars: Tensor
) -> None:
    """``addcdiv_`` and ``addcmul_`` on lists, with the values in a tensor."""
    for i, (x, a, b) in enumerate(zip(self, tensors1, tensors2)):
        getattr(x, name)(a, b, value=scalars[i])


def foreach_with_number(name: str, self: Sequence[Tensor], other: Any, **alpha: Any) -> list[Tensor]:
    """An operation on lists with a number, or with a list and ``alpha``."""
    if alpha:
        return [getattr(x, name)(y, **alpha) for x, y in zip(self, other)]
    return [getattr(x, name)(other) for x in self]


def foreach_with_number_(name: str, self: Sequence[Tensor], other: Any, **alpha: Any) -> None:
    foreach_with_number(name, self, other, **alpha)
