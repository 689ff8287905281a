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


# ---------------------------------------------------------------- numbers that are in a tensor
def add_(self: Tensor, other: Any, *, alpha: Tensor) -> Tensor:
    return self.add_(alpha * other)


def sub_(self: Tensor, other: Any, *, alpha: Tensor) -> Tensor:
    return self.sub_(alpha * other)


def add(self: Tensor, other: Any, *, alpha: Tensor) -> Tensor:
    return self.add(alpha * other)


def sub(self: Tensor, other: Any, *, alpha: Tensor) -> Tensor:
    return self.sub(alpha * other)


def addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.add_(value * tensor1 / tensor2)


def addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.add_(value * tensor1 * tensor2)


def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.add(value * tensor1 / tensor2)


def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.add(value * tensor1 * tensor2)


METHODS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (add_, sub_, add, sub, addcdiv_, addcmul_, addcdiv, addcmul)}
"""Methods of tensors whose ``alpha`` or ``value`` may be a tensor of one element."""


def foreach_addcdiv_(self: Sequence[Tensor], tensors1: Sequence[Tensor], tensors2: Sequence[Tensor], scalars: Tensor
                     ) -> None:
    for i, (x, a, b) in enumerate(zip(self, tensors1, tensors2)):
        x.add_(scalars[i] * a / b)


def foreach_addcmul_(self: Sequence[Tensor], tensors1: Sequence[Tensor], tensors2: Sequence[Tensor], scalars: Tensor
                     ) -> None:
    for i, (x, a, b) in enumerate(zip(self, tensors1, tensors2)):
        x.add_(scalars[i] * a * b)
