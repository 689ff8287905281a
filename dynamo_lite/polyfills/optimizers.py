"""Stand-ins for functions that optimizers call and that can't be in a graph as they are.

Invariant: each does the same to its arguments as torch's own function, and rounds numbers where torch rounds them.
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
    """A step under ``torch.optim.optimizer._use_grad_for_differentiable``, without its graph breaks, which serve
    torch's own compiler only."""
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
_IN_FLOAT32 = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes for which torch's loops compute in float32."""


def _computed_in_float32(*tensors: Tensor) -> bool:
    return tensors[0].dtype in _IN_FLOAT32 and all(tensor.dtype == tensors[0].dtype for tensor in tensors)


def _factor(number: Any, like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A number rounded to a dtype, as torch's loops have it."""
    return (like.new_ones(1, dtype=dtype) * number).reshape(())


def _sum(self: Tensor, other: Any, alpha: Any, sign: int) -> Tensor:
    """``self + sign * alpha * other``, rounded once: torch's loops use fused multiply-add, whose float32 result is the
    same as that of double arithmetic."""
    if _computed_in_float32(self, other):
        product = _factor(alpha, other, other.dtype).double() * other.double()
        return (self.double() + sign * product).float().to(self.dtype)
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
    """``self + value * tensor1 * tensor2``; the second product and the sum are rounded once, together."""
    if _computed_in_float32(self, tensor1, tensor2):
        scaled = (_factor(value, tensor1) * tensor1.float()).double()
        return (self.double() + scaled * tensor2.double()).float().to(self.dtype)
    return self + value * tensor1 * tensor2


def _quotient(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Tensor:
    if _computed_in_float32(self, tensor1, tensor2):
        scaled = _factor(value, tensor1) * tensor1.float()
        return (self.float() + scaled / tensor2.float()).to(self.dtype)
    return self + value * tensor1 / tensor2


def addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.copy_(_quotient(self, tensor1, tensor2, value))


def addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return self.copy_(_product(self, tensor1, tensor2, value))


def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return _quotient(self, tensor1, tensor2, value)


def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor) -> Tensor:
    return _product(self, tensor1, tensor2, value)


def lerp(self: Tensor, end: Tensor, weight: Any) -> Tensor:
    return self.lerp(end, _factor(weight, end, end.dtype))


def lerp_(self: Tensor, end: Tensor, weight: Any) -> Tensor:
    return self.lerp_(end, _factor(weight, end, end.dtype))


METHODS: dict[str, tuple[Callable[..., Any], str]] = {
    **{f.__name__: (f, "alpha") for f in (add_, sub_, add, sub)},
    **{f.__name__: (f, "value") for f in (addcdiv_, addcmul_, addcdiv, addcmul)},
    **{f.__name__: (f, "weight") for f in (lerp, lerp_)},
}
"""Methods of tensors with the name of an argument that may be a tensor of one element."""


_RETURNS_FIRST_LIST = torch._foreach_mul_([torch.empty(0, device="cpu")], 1.0) is not None  # true for newer versions


def foreach_with_tensor_(
    name: str, self: Sequence[Tensor], tensors1: Sequence[Tensor], tensors2: Sequence[Tensor], scalars: Tensor
) -> Any:
    """``addcdiv_`` and ``addcmul_`` on lists, with the values in a tensor."""
    for i, (x, a, b) in enumerate(zip(self, tensors1, tensors2)):
        getattr(x, name)(a, b, value=scalars[i])
    return self if _RETURNS_FIRST_LIST else None


def foreach_with_numbers(name: str, argument: str | None, number: Any, *lists: Sequence[Tensor]) -> list[Tensor]:
    """An operation on lists of tensors with a number, or with a list of numbers.

    Args:
        argument: the number's keyword in a call of the method; None: it is the last positional argument.
    """
    made = []
    for i, operands in enumerate(zip(*lists)):
        factor = number[i] if isinstance(number, (list, tuple)) else number
        method = getattr(operands[0], name)
        made.append(method(*operands[1:], factor) if argument is None else method(*operands[1:], **{argument: factor}))
    return made


def foreach_with_numbers_(name: str, argument: str | None, number: Any, *lists: Sequence[Tensor]) -> Any:
    foreach_with_numbers(name, argument, number, *lists)
    return lists[0] if _RETURNS_FIRST_LIST else None
