"""Lowerings of group norm and its gradient: reductions along rows if channels are planes, or down columns if channels
lie innermost in memory.

In the latter case (channels last), neighbors in memory belong to several groups. A group's statistics are then stored
once for each of its channels, so that vectorized loops run over all channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.memory_order import contiguous_dim, down_columns
from dynamo_lite.backends.inductor.lowering.normalization import normalized, scaled, statistics
from dynamo_lite.backends.inductor.lowering.promotion import elementwise, opmath
from dynamo_lite.backends.inductor.lowering.reduction import cast_to, count, divided_by
from dynamo_lite.backends.inductor.lowering.values import TensorValue, expanded, is_size
from dynamo_lite.backends.inductor.lowering.views import reshaped
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten


@register_lowering(aten.native_group_norm.default)
def group_norm(
    g: GraphLowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    N: ix.Index,
    C: ix.Index,
    HxW: ix.Index,
    group: int,
    eps: float,
) -> Any:
    if not input.dtype.is_floating_point or is_size(input.numel, 0) or not isinstance(C, int):
        return NotImplemented
    grouped = reshaped(g, input, (N, group, C // group, HxW))
    one = [None if p is None else reshaped(g, p, (1, group, C // group, 1)) for p in (weight, bias)]
    near = g.abilities.near
    if near is not None and down_columns(grouped, (2, 3), near):
        wide = cast_to(g, grouped, opmath(input.dtype))
        mean, rstd = statistics(g, wide, (2, 3), eps)
        out = _by_channels(g, wide, mean, rstd, *one)
    else:
        out, mean, rstd = normalized(g, grouped, (2, 3), eps)
        out = scaled(g, out, *one)
    result = reshaped(g, out, input.shape)
    stats = g.result_dtypes()[1]
    return (cast_to(g, result, input.dtype), *(cast_to(g, reshaped(g, s, (N, group)), stats) for s in (mean, rstd)))


def _by_channels(
    g: GraphLowering, x: TensorValue, mean: TensorValue, rstd: TensorValue, weight: TensorValue | None,
    bias: TensorValue | None,
) -> TensorValue:
    """``(x - mean) * rstd * weight + bias``, computed as in eager from a factor and a term for each channel. Both are
    stored with channels contiguous, so that channels adjacent in memory are adjacent in them, whatever their groups."""
    factor = rstd
    if weight is not None:
        factor = elementwise(g, lambda r, w: g.ops.op("mul", r, w), rstd, cast_to(g, weight, rstd.dtype))
    term = elementwise(g, lambda m, f: g.ops.op("neg", g.ops.op("mul", m, f)), mean, factor)
    if bias is not None:
        term = elementwise(g, lambda t, b: g.ops.op("add", t, b), term, cast_to(g, bias, rstd.dtype))
    both = [_of_channels(g, v, x) for v in (factor, term)]
    return elementwise(g, lambda a, f, t: g.ops.op("add", g.ops.op("mul", a, f), t), x, *both)


def _of_channels(g: GraphLowering, value: TensorValue, x: TensorValue) -> TensorValue:
    """Stores a group's value in memory once for each of the group's channels."""
    shape = (*x.shape[:-1], 1)
    value = TensorValue(shape, value.dtype, expanded(g.ops, value, shape), device=x.device)
    g.realize(value, fresh=True)
    return value


@register_lowering(aten.native_group_norm_backward.default)
def group_norm_backward(
    g: GraphLowering,
    grad_out: TensorValue,
    input: TensorValue,
    mean: TensorValue,
    rstd: TensorValue,
    weight: TensorValue | None,
    N: ix.Index,
    C: ix.Index,
    HxW: ix.Index,
    group: int,
    output_mask: Sequence[bool],
) -> Any:
    if not input.dtype.is_floating_point or is_size(input.numel, 0) or not isinstance(C, int):
        return NotImplemented
    if grad_out.dtype is not input.dtype:
        return NotImplemented
    ops, compute, shape = g.ops, opmath(input.dtype), (N, group, C // group, HxW)
    grad, x = (cast_to(g, reshaped(g, v, shape), compute) for v in (grad_out, input))
    m, r = (cast_to(g, reshaped(g, v, (N, group, 1, 1)), compute) for v in (mean, rstd))
    w = None if weight is None else cast_to(g, reshaped(g, weight, (1, group, C // group, 1)), compute)
    if contiguous_dim(x) == 2:
        m = _of_channels(g, m, x)
    centered = elementwise(g, lambda a, b: ops.op("sub", a, b), x, m)
    total = g.reduce(grad, "sum", (3,), True)
    dot = g.reduce(elementwise(g, lambda a, d: ops.op("mul", a, d), grad, centered), "sum", (3,), True)
    dx = dw = db = None
    if output_mask[0]:
        factor = r if w is None else elementwise(g, lambda a, b: ops.op("mul", a, b), r, w)
        sums = [v if w is None else elementwise(g, lambda a, b: ops.op("mul", a, b), v, w) for v in (total, dot)]
        one, two = (divided_by(g, g.reduce(v, "sum", (2,), True), count(x, (2, 3))) for v in sums)
        term = elementwise(g, lambda s, a: ops.op("mul", s, a), one, r)
        slope = elementwise(g, lambda s, a: ops.op("mul", ops.op("mul", ops.op("mul", s, a), a), a), two, r)
        if contiguous_dim(x) == 2:
            factor, term, slope = (_of_channels(g, v, x) for v in (factor, term, slope))

        def make(d: Node, c: Node, f: Node, k: Node, t: Node) -> Node:
            return ops.op("sub", ops.op("sub", ops.op("mul", d, f), ops.op("mul", c, k)), t)

        dx = elementwise(g, make, grad, centered, factor, slope, term)
        dx = cast_to(g, reshaped(g, dx, input.shape), input.dtype)
    if weight is not None:
        if output_mask[1]:
            scaled_dot = elementwise(g, lambda d, a: ops.op("mul", d, a), dot, r)
            dw = cast_to(g, reshaped(g, g.reduce(scaled_dot, "sum", (0,), False), (C,)), weight.dtype)
        if output_mask[2]:
            db = cast_to(g, reshaped(g, g.reduce(total, "sum", (0,), False), (C,)), weight.dtype)
    return dx, dw, db
