"""Results of layers for mixed precision and mixed layouts, where torch's metadata rules differ from eager.

Most of these are normalizations. With 16-bit elements and 32-bit parameters (a layer under autocast), the statistics
that are saved for the backward pass have the parameters' dtype in eager, but the elements' dtype by torch's rules.
Kernels would then round them, and the results of a library call would be read with the wrong dtype. Gradients have the
input's dtype and memory format.

Invariant: a rule changes nothing but dtypes and strides, and only those of results that are not views.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Place = tuple[torch.dtype, tuple[Any, ...]]
Rule = Callable[[tuple[Any, ...], list[torch.Tensor | None]], list[Place | None]]

_HALVES = (torch.bfloat16, torch.float16)


def rule_of(func: Any) -> Rule | None:
    """The rule that corrects torch's metadata for the results of an operator; None if there is none."""
    return _RULES.get(func)


def _statistics(args: tuple[Any, ...], results: list[torch.Tensor | None]) -> list[Place | None]:
    """The first result is the layer's output, the others are its statistics."""
    if args[0].dtype not in _HALVES or not any(_is_single(x) for x in args[1:]):
        return []
    return [None, *((torch.float32, x.stride()) if x is not None and x.dtype in _HALVES else None for x in results[1:])]


def _of_groups(args: tuple[Any, ...], results: list[torch.Tensor | None]) -> list[Place | None]:
    strides = _in_memory_format(args[0])
    first = None if strides is None else (args[0].dtype, strides)
    return [first, *(_statistics(args, results)[1:] or [None, None])]


def _gradient_of_input(args: tuple[Any, ...], results: list[torch.Tensor | None]) -> list[Place | None]:
    """The rule for gradients of the input, which is the second argument."""
    grad, input = results[0], args[1]
    return [] if grad is None else [(input.dtype, _in_memory_format(input) or grad.stride())]


def _in_memory_format(x: torch.Tensor) -> tuple[Any, ...] | None:
    """The strides of a new tensor in the memory format of `x`; they are those of `x`, except in dimensions of one
    element. None if `x` is in none of the formats."""
    if x.is_contiguous():
        return x.stride()
    known = all(type(n) is int for n in x.shape)
    for rank, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if x.dim() == rank and x.is_contiguous(memory_format=last):
            return torch.empty(x.shape, device="meta", memory_format=last).stride() if known else x.stride()
    return None


def _is_single(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype is torch.float32


_RULES: dict[Any, Rule] = {
    aten.native_layer_norm.default: _statistics,
    aten.native_group_norm.default: _of_groups,
    aten.native_batch_norm.default: _statistics,
    aten._native_batch_norm_legit.default: _statistics,
    aten._native_batch_norm_legit.no_stats: _statistics,
    aten._native_batch_norm_legit_no_training.default: _statistics,
    aten.native_group_norm_backward.default: _gradient_of_input,
    aten.native_batch_norm_backward.default: _gradient_of_input,
    **{getattr(aten, f"{kind}_pad{rank}d_backward").default: _gradient_of_input
       for kind in ("reflection", "replication") for rank in (2, 3)},
}
