"""Decompositions of batch norm: its writes to running statistics, which its schema does not declare, and its forward
and backward passes as arithmetic."""
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
    """Makes the writes to the running statistics explicit. In training the operator updates them, though its schema
    does not declare it."""
    if not training or running_mean is None or running_var is None:
        return NotImplemented
    return aten._native_batch_norm_legit.default(
        input, weight, bias, running_mean.data, running_var.data, True, momentum, eps)


def batch_norm_inference(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> Any:
    """Inference with given statistics: one multiplication and one addition for each element, with eager's factors."""
    if training and running_mean is None and running_var is None:
        return batch_norm_training(input, weight, bias, None, None, True, momentum, eps)
    if training or running_mean is None or running_var is None or not input.dtype.is_floating_point:
        return batch_norm_effects(input, weight, bias, running_mean, running_var, training, momentum, eps)
    wide = _wide(input.dtype)
    parameters = [running_mean, running_var, *(p for p in (weight, bias) if p is not None)]
    if input.dim() < 2 or len({p.dtype for p in parameters}) > 1 or running_mean.dtype not in (input.dtype, wide):
        return NotImplemented
    factor = 1 / (running_var.to(wide) + eps).sqrt()
    if weight is not None:
        factor = factor * weight.to(wide)
    shift = running_mean.to(wide) * factor
    shift = -shift if bias is None else bias.to(wide) - shift
    shape = [-1] + [1] * (input.dim() - 2)
    out = (input.to(wide) * factor.view(shape) + shift.view(shape)).to(input.dtype)
    # The result is contiguous in the input's memory format, even if the input itself is not.
    out = out.contiguous(memory_format=_memory_format(input))
    return out, running_mean.new_empty(0), running_mean.new_empty(0)


def _memory_format(x: Tensor) -> torch.memory_format:
    """The memory format that a batch norm's result has for an input: channels-last if the input is."""
    for rank, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if x.dim() == rank and not x.is_contiguous() and x.is_contiguous(memory_format=last):
            return last
    return torch.contiguous_format


def batch_norm_training(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> Any:
    """Training: computes the statistics, updates the running statistics where there are any, and normalizes by one
    multiplication and one addition for each element, with eager's factors."""
    parameters = _parameters_of(input, weight, bias, running_mean, running_var)
    if not training or parameters is None:
        return NotImplemented
    wide = _wide(input.dtype)
    dims = [0, *range(2, input.dim())]
    count = input.numel() // input.shape[1]
    x = input.to(wide)
    var, mean = torch.var_mean(x, dims, correction=0)
    inverse = 1 / (var + eps).sqrt()
    if running_mean is not None and running_var is not None:
        # Written through `.data`, because eager's kernel does not increment the version counter of the statistics.
        running_mean.data.copy_(mean * momentum + running_mean.to(wide) * (1 - momentum))
        running_var.data.copy_(var * (momentum * count / (count - 1)) + running_var.to(wide) * (1 - momentum))
    saved = mean.to(parameters), inverse.to(parameters)
    mean, inverse = (s.to(wide) for s in saved)  # eager uses the rounded, saved values
    factor = inverse if weight is None else inverse * weight.to(wide)
    shift = -mean * factor if bias is None else bias.to(wide) - mean * factor
    shape = [-1] + [1] * (input.dim() - 2)
    out = (x * factor.view(shape) + shift.view(shape)).to(input.dtype)
    return out.contiguous(memory_format=_memory_format(input)), *saved


def batch_norm_backward(
    grad_out: Tensor, input: Tensor, weight: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    save_mean: Tensor | None, save_invstd: Tensor | None, train: bool, eps: float, output_mask: list[bool],
) -> Any:
    """The backward pass in training: two sums for each channel, and three multiplications for each element."""
    if not train or save_mean is None or save_invstd is None or grad_out.dtype != input.dtype:
        return NotImplemented
    if _parameters_of(input, weight, save_mean, save_invstd) is None:
        return NotImplemented
    wide = _wide(input.dtype)
    dims = [0, *range(2, input.dim())]
    count = input.numel() // input.shape[1]
    shape = [-1] + [1] * (input.dim() - 2)
    mean, inverse, grad = save_mean.to(wide), save_invstd.to(wide), grad_out.to(wide)
    centered = input.to(wide) - mean.view(shape)
    total = grad.sum(dims)
    dot = (grad * centered).sum(dims)
    grad_input = None
    if output_mask[0]:
        factor = inverse if weight is None else inverse * weight.to(wide)
        slope = dot * inverse * inverse / count
        grad_input = (grad - (total / count).view(shape) - centered * slope.view(shape)) * factor.view(shape)
        grad_input = grad_input.to(input.dtype).contiguous(memory_format=_memory_format(input))
    grad_weight = (dot * inverse).to(save_mean.dtype) if output_mask[1] else None
    return grad_input, grad_weight, total.to(save_mean.dtype) if output_mask[2] else None


def cudnn_batch_norm(
    input: Tensor, weight: Tensor, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> Any:
    """cuDNN's operator, computed as ``native_batch_norm``: it updates the running statistics in training, too, and its
    schema does not declare it."""
    results = aten.native_batch_norm.default(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return *results, input.new_empty(0, dtype=torch.uint8)


def cudnn_batch_norm_backward(
    input: Tensor, grad_output: Tensor, weight: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    save_mean: Tensor | None, save_var: Tensor | None, eps: float, reserved: Tensor,
) -> Any:
    """The gradient of cuDNN's operator. In spite of its name, ``save_var`` is the reciprocal of the standard deviation.
    """
    return aten.native_batch_norm_backward.default(
        grad_output, input, weight, running_mean, running_var, save_mean, save_var, True, eps, [True, True, True])


def _parameters_of(input: Tensor, *parameters: Tensor | None) -> torch.dtype | None:
    """The dtype of a batch norm's parameters and statistics. None for cases that the library computes: parameters of
    several dtypes, an input that is not contiguous in its memory format, a single value for each channel."""
    if input.dim() < 2 or input.numel() <= input.shape[1] or not input.dtype.is_floating_point:
        return None
    if not input.is_contiguous(memory_format=_memory_format(input)):
        return None
    dtypes = {t.dtype for t in parameters if t is not None} or {input.dtype}
    (first, *others) = dtypes
    return first if not others and first in (input.dtype, _wide(input.dtype)) else None


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the computation: float32 for 16-bit floats, whose results are rounded once."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


REQUIRED: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: batch_norm_effects,
    aten.cudnn_batch_norm.default: cudnn_batch_norm,
    aten.cudnn_batch_norm_backward.default: cudnn_batch_norm_backward,
}
FOR_KERNELS: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: batch_norm_inference,
    aten._native_batch_norm_legit.default: batch_norm_training,
    aten.native_batch_norm_backward.default: batch_norm_backward,
}
