"""Lowerings of softmax and normalization layers: pointwise loops around reductions of the same rows, which the
scheduler fuses into one kernel.

All steps are computed in the dtype of accumulation, and the result is rounded once at the end, as in eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.few_elements import are_few
from dynamo_lite.backends.inductor.lowering.formulas import like, rsqrt
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.one_hot import summed
from dynamo_lite.backends.inductor.lowering.promotion import elementwise, opmath
from dynamo_lite.backends.inductor.lowering.reduction import cast_to, count, divided_by, mean_of, moments
from dynamo_lite.backends.inductor.lowering.values import TensorValue, is_size
from dynamo_lite.backends.inductor.lowering.views import reshaped, wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten


# ---------------------------------------------------------------- softmax
def _shifted(g: GraphLowering, x: TensorValue, dim: int) -> TensorValue:
    """``x`` less its maximum along ``dim``."""
    top = g.reduce(x, "max", (dim,), True)
    return elementwise(g, lambda a, m: g.ops.op("sub", a, m), x, top)


@register_lowering(aten._softmax.default)
def softmax(g: GraphLowering, self: TensorValue, dim: int, half_to_float: bool) -> Any:
    if not self.ndim or is_size(self.numel, 0):
        return NotImplemented
    dim = wrap(dim, self.ndim)
    wide = cast_to(g, self, opmath(self.dtype))
    g.realize_if_dear(wide)
    powers = elementwise(g, lambda d: g.ops.op("exp", d), _shifted(g, wide, dim))
    if not are_few(g, powers, (dim,)):
        g.realize(powers)
    total = g.reduce(powers, "sum", (dim,), True)
    result = elementwise(g, lambda e, s: g.ops.op("div", e, s), powers, total)
    return cast_to(g, result, torch.float32 if half_to_float else self.dtype)


@register_lowering(aten._log_softmax.default)
def log_softmax(g: GraphLowering, self: TensorValue, dim: int, half_to_float: bool) -> Any:
    if not self.ndim or is_size(self.numel, 0):
        return NotImplemented
    dim = wrap(dim, self.ndim)
    wide = cast_to(g, self, opmath(self.dtype))
    g.realize_if_dear(wide)
    shifted = _shifted(g, wide, dim)
    total = g.reduce(elementwise(g, lambda d: g.ops.op("exp", d), shifted), "sum", (dim,), True)
    result = elementwise(g, lambda d, s: g.ops.op("sub", d, g.ops.op("log", s)), shifted, total)
    return cast_to(g, result, torch.float32 if half_to_float else self.dtype)


@register_lowering(aten._softmax_backward_data.default)
def softmax_backward(
    g: GraphLowering, grad_output: TensorValue, output: TensorValue, dim: int, input_dtype: torch.dtype
) -> Any:
    if not output.ndim or is_size(output.numel, 0):
        return NotImplemented
    compute = opmath(grad_output.dtype)
    grad, out = cast_to(g, grad_output, compute), cast_to(g, output, compute)
    total = g.reduce(
        elementwise(g, lambda a, b: g.ops.op("mul", a, b), grad, out), "sum", (wrap(dim, output.ndim),), True
    )
    result = elementwise(g, lambda a, b, s: g.ops.op("mul", g.ops.op("sub", a, s), b), grad, out, total)
    return cast_to(g, result, input_dtype)


@register_lowering(aten._log_softmax_backward_data.default)
def log_softmax_backward(
    g: GraphLowering, grad_output: TensorValue, output: TensorValue, dim: int, input_dtype: torch.dtype
) -> Any:
    if not output.ndim or is_size(output.numel, 0):
        return NotImplemented
    compute = opmath(grad_output.dtype)
    grad, out = cast_to(g, grad_output, compute), cast_to(g, output, compute)
    total = summed(g, grad, (wrap(dim, output.ndim),), True)
    result = elementwise(
        g, lambda a, b, s: g.ops.op("sub", a, g.ops.op("mul", g.ops.op("exp", b), s)), grad, out, total
    )
    return cast_to(g, result, input_dtype)


# ---------------------------------------------------------------- layer norm, and functions that norms share
def normalized(
    g: GraphLowering, x: TensorValue, dims: Sequence[int], eps: float
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """``((x - mean) * rstd, mean, rstd)`` in the dtype of accumulation; mean and rstd keep ``dims`` with size 1.

    Args:
        dims: the dimensions over which mean and variance are taken.
        eps: the number that is added to the variance.
    """
    wide = cast_to(g, x, opmath(x.dtype))
    mean, rstd = statistics(g, wide, dims, eps)
    out = elementwise(g, lambda a, m, r: g.ops.op("mul", g.ops.op("sub", a, m), r), wide, mean, rstd)
    return out, mean, rstd


def statistics(g: GraphLowering, x: TensorValue, dims: Sequence[int], eps: float) -> tuple[TensorValue, TensorValue]:
    """The mean and the reciprocal of the standard deviation over ``dims``, which are kept with size 1. ``x`` is in the
    dtype of accumulation."""
    g.realize_if_dear(x)
    mean, squares = moments(g, x, dims)
    variance = divided_by(g, squares, count(x, dims))
    rstd = elementwise(g, lambda v: rsqrt(g.ops, g.ops.op("add", v, like(g.ops, v, eps))), variance)
    g.realize(rstd)
    return mean, rstd


def scaled(g: GraphLowering, x: TensorValue, weight: TensorValue | None, bias: TensorValue | None) -> TensorValue:
    """``x * weight + bias`` in the dtype of ``x``; a missing weight or bias is left out."""
    if weight is not None:
        x = elementwise(g, lambda a, w: g.ops.op("mul", a, w), x, cast_to(g, weight, x.dtype))
    if bias is not None:
        x = elementwise(g, lambda a, b: g.ops.op("add", a, b), x, cast_to(g, bias, x.dtype))
    return x


@register_lowering(aten.native_layer_norm.default)
def layer_norm(
    g: GraphLowering,
    input: TensorValue,
    normalized_shape: Sequence[ix.Index],
    weight: TensorValue | None,
    bias: TensorValue | None,
    eps: float,
) -> Any:
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    if not input.dtype.is_floating_point or is_size(input.numel, 0):
        return NotImplemented
    out, mean, rstd = normalized(g, input, dims, eps)
    stats = g.result_dtypes()[1]
    return cast_to(g, scaled(g, out, weight, bias), input.dtype), cast_to(g, mean, stats), cast_to(g, rstd, stats)


@register_lowering(aten.native_layer_norm_backward.default)
def layer_norm_backward(
    g: GraphLowering,
    grad_out: TensorValue,
    input: TensorValue,
    normalized_shape: Sequence[ix.Index],
    mean: TensorValue,
    rstd: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    output_mask: Sequence[bool],
) -> Any:
    if not input.dtype.is_floating_point or is_size(input.numel, 0):
        return NotImplemented
    outer = tuple(range(input.ndim - len(normalized_shape)))
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    compute = opmath(input.dtype)
    grad, x = cast_to(g, grad_out, compute), cast_to(g, input, compute)
    m, r = cast_to(g, mean, compute), cast_to(g, rstd, compute)
    hat = elementwise(g, lambda a, b, c: g.ops.op("mul", g.ops.op("sub", a, b), c), x, m, r)
    dx = dw = db = None
    if output_mask[0]:
        gw = (
            grad
            if weight is None
            else elementwise(g, lambda a, w: g.ops.op("mul", a, w), grad, cast_to(g, weight, compute))
        )
        s1 = mean_of(g, gw, dims, True)
        s2 = mean_of(g, elementwise(g, lambda a, h: g.ops.op("mul", a, h), gw, hat), dims, True)

        def make(a: Node, h: Node, one: Node, two: Node, scale: Node) -> Node:
            inner = g.ops.op("sub", g.ops.op("sub", a, one), g.ops.op("mul", h, two))
            return g.ops.op("mul", inner, scale)

        dx = cast_to(g, elementwise(g, make, gw, hat, s1, s2, r), input.dtype)
    if output_mask[1] and weight is not None:
        dw = cast_to(
            g, _parameter_grad(g, elementwise(g, lambda a, h: g.ops.op("mul", a, h), grad, hat), outer), weight.dtype
        )
    if output_mask[2] and bias is not None:
        db = cast_to(g, _parameter_grad(g, grad, outer), bias.dtype)
    return dx, dw, db


def _parameter_grad(g: GraphLowering, x: TensorValue, outer: Sequence[int]) -> TensorValue:
    """The gradient of a weight or bias: the sum over the dimensions that it does not have."""
    return g.reduce(x, "sum", outer, False) if outer else x


@register_lowering(aten._fused_rms_norm.default)
def rms_norm(
    g: GraphLowering,
    input: TensorValue,
    normalized_shape: Sequence[ix.Index],
    weight: TensorValue | None,
    eps: float | None,
) -> Any:
    if not input.dtype.is_floating_point or is_size(input.numel, 0):
        return NotImplemented
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    wide = cast_to(g, input, opmath(input.dtype))
    g.realize_if_dear(wide)
    squares = mean_of(g, elementwise(g, lambda a: g.ops.op("mul", a, a), wide), dims, True)
    small = torch.finfo(wide.dtype).eps if eps is None else eps
    rstd = elementwise(g, lambda v: rsqrt(g.ops, g.ops.op("add", v, like(g.ops, v, small))), squares)
    g.realize(rstd)
    out = scaled(g, elementwise(g, lambda a, r: g.ops.op("mul", a, r), wide, rstd), weight, None)
    return cast_to(g, out, input.dtype), cast_to(g, rstd, g.result_dtypes()[1])


# ---------------------------------------------------------------- batch norm
def _per_channel(g: GraphLowering, x: TensorValue | None, like_: TensorValue) -> TensorValue | None:
    """A vector with one element for each channel, reshaped so that it broadcasts against ``like_``."""
    return None if x is None else reshaped(g, x, (1, like_.shape[1], *(1 for _ in like_.shape[2:])))


def _wide_channels(g: GraphLowering, x: TensorValue, like_: TensorValue, dtype: torch.dtype) -> TensorValue:
    """``_per_channel`` of ``x`` converted to a dtype."""
    wide = _per_channel(g, cast_to(g, x, dtype), like_)
    assert wide is not None
    return wide


@register_lowering(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    g: GraphLowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue,
    running_var: TensorValue,
    momentum: float,
    eps: float,
) -> Any:
    if not input.dtype.is_floating_point or input.ndim < 2:
        return NotImplemented
    compute = opmath(input.dtype)
    mean, var = (_wide_channels(g, x, input, compute) for x in (running_mean, running_var))
    # As in eager, a factor and a term for each channel: each element then takes one multiplication and one addition.
    factor = elementwise(g, lambda v: rsqrt(g.ops, g.ops.op("add", v, like(g.ops, v, eps))), var)
    if weight is not None:
        factor = elementwise(g, lambda r, w: g.ops.op("mul", r, w), factor, _wide_channels(g, weight, input, compute))
    term = elementwise(g, lambda m, f: g.ops.op("neg", g.ops.op("mul", m, f)), mean, factor)
    if bias is not None:
        term = elementwise(g, lambda t, b: g.ops.op("add", t, b), term, _wide_channels(g, bias, input, compute))
    out = elementwise(
        g, lambda a, f, t: g.ops.op("add", g.ops.op("mul", a, f), t), cast_to(g, input, compute), factor, term
    )
    empty = [TensorValue((0,), d, g.ops.const(0, d)) for d in g.result_dtypes()[1:]]
    return (cast_to(g, out, input.dtype), *empty)


@register_lowering(aten._native_batch_norm_legit_functional.default)
def batch_norm_training(
    g: GraphLowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue,
    running_var: TensorValue,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    normalized = _normalized(g, input, weight, bias, eps) if training else None
    if normalized is None:
        return NotImplemented
    out, mean, rstd, unbiased = normalized

    def blend(new: Node, old: Node) -> Node:
        keep = g.ops.op("mul", old, like(g.ops, old, 1 - momentum))
        return g.ops.op("add", g.ops.op("mul", new, like(g.ops, new, momentum)), keep)

    dtypes = g.result_dtypes()
    moved = []
    for new, old in ((mean, running_mean), (unbiased, running_var)):
        moved.append(cast_to(g, elementwise(g, blend, new, cast_to(g, old, new.dtype)), old.dtype))
    return out, cast_to(g, mean, dtypes[1]), cast_to(g, rstd, dtypes[2]), *moved


@register_lowering(aten.native_batch_norm.default)
def batch_norm_without_runningstatistics(
    g: GraphLowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue | None,
    running_var: TensorValue | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if not training or running_mean is not None or running_var is not None:
        return NotImplemented
    normalized = _normalized(g, input, weight, bias, eps)
    if normalized is None:
        return NotImplemented
    out, *stats = normalized
    return out, *(cast_to(g, s, dtype) for s, dtype in zip(stats, g.result_dtypes()[1:]))


def _normalized(
    g: GraphLowering, input: TensorValue, weight: TensorValue | None, bias: TensorValue | None, eps: float
) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue] | None:
    """The normalized result, and for each channel the mean, the reciprocal of the standard deviation and the unbiased
    variance. None if the input is not floating-point, or a channel may have fewer than two values."""
    dims = (0, *range(2, input.ndim))
    n = count(input, dims)
    if not input.dtype.is_floating_point or not g.sizes.at_most(2, n, "a channel's variance"):
        return None
    wide = cast_to(g, input, opmath(input.dtype))
    g.realize_if_dear(wide)
    mean, squares = moments(g, wide, dims)
    g.realize(squares)
    variance = divided_by(g, squares, n)
    rstd = elementwise(g, lambda v: rsqrt(g.ops, g.ops.op("add", v, like(g.ops, v, eps))), variance)
    g.realize(rstd)
    out = elementwise(g, lambda a, m, r: g.ops.op("mul", g.ops.op("sub", a, m), r), wide, mean, rstd)
    out = scaled(g, out, _per_channel(g, weight, input), _per_channel(g, bias, input))
    stats = [reshaped(g, s, (input.shape[1],)) for s in (mean, rstd, divided_by(g, squares, ix.add(n, -1)))]
    return cast_to(g, out, input.dtype), stats[0], stats[1], stats[2]


@register_lowering(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    g: GraphLowering,
    grad_out: TensorValue,
    input: TensorValue,
    weight: TensorValue | None,
    running_mean: TensorValue | None,
    running_var: TensorValue | None,
    save_mean: TensorValue | None,
    save_invstd: TensorValue | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    if not train or save_mean is None or save_invstd is None or not input.dtype.is_floating_point:
        return NotImplemented
    dims = (0, *range(2, input.ndim))
    compute = opmath(input.dtype)
    grad, x = cast_to(g, grad_out, compute), cast_to(g, input, compute)
    mean = _per_channel(g, cast_to(g, save_mean, compute), input)
    rstd = _per_channel(g, cast_to(g, save_invstd, compute), input)
    assert mean is not None and rstd is not None
    n = count(input, dims)
    total = g.reduce(grad, "sum", dims, True)
    centered = elementwise(g, lambda a, m: g.ops.op("sub", a, m), x, mean)
    dot = g.reduce(elementwise(g, lambda a, d: g.ops.op("mul", a, d), centered, grad), "sum", dims, True)
    dx = dw = db = None
    if output_mask[0]:
        scale = (
            rstd
            if weight is None
            else elementwise(
                g, lambda r, w: g.ops.op("mul", r, w), rstd, cast_to(g, _per_channel(g, weight, input), compute)
            )
        )
        slope = elementwise(g, lambda d, r: g.ops.op("mul", g.ops.op("mul", d, r), r), divided_by(g, dot, n), rstd)

        def make(d: Node, c: Node, k: Node, m: Node, s: Node) -> Node:
            inner = g.ops.op("sub", g.ops.op("sub", d, m), g.ops.op("mul", c, k))
            return g.ops.op("mul", inner, s)

        dx = cast_to(g, elementwise(g, make, grad, centered, slope, divided_by(g, total, n), scale), input.dtype)
    channels = (input.shape[1],)
    parameter = weight.dtype if weight is not None else compute
    if output_mask[1]:
        dw = cast_to(g, reshaped(g, elementwise(g, lambda d, r: g.ops.op("mul", d, r), dot, rstd), channels), parameter)
    if output_mask[2]:
        db = cast_to(g, reshaped(g, total, channels), parameter)
    return dx, dw, db
