"""Batch norm: what its schema does not say, and its inference form as arithmetic."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def batch_norm_effects(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> Any:
    """In training the running statistics are written, though the operator's schema does not say so."""
    if not training or running_mean is None or running_var is None:
        return NotImplemented
    return aten._native_batch_norm_legit.default(
        input, weight, bias, running_mean, running_var, True, momentum, eps)


def batch_norm_inference(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> Any:
    """With known statistics it is one product and one sum for each element, with eager's factors."""
    if training or running_mean is None or running_var is None or not input.dtype.is_floating_point:
        return batch_norm_effects(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if input.dim() < 2 or input.dtype != running_mean.dtype or (weight is not None and weight.dtype != input.dtype):
        return NotImplemented
    factor = 1 / (running_var + eps).sqrt()
    if weight is not None:
        factor = factor * weight
    shift = running_mean * factor
    shift = -shift if bias is None else bias - shift
    shape = [-1] + [1] * (input.dim() - 2)
    out = input * factor.view(shape) + shift.view(shape)
    return out, input.new_empty(0), input.new_empty(0)


REQUIRED: dict[Any, Callable[..., Any]] = {aten.native_batch_norm.default: batch_norm_effects}
FOR_KERNELS: dict[Any, Callable[..., Any]] = {aten.native_batch_norm.default: batch_norm_inference}
