"""Lowerings of resizing by linear interpolation along one, two or three dimensions.

The source positions and weights along each dimension are tables that are computed beforehand, in the same precision as
in eager. Nearest-neighbor resizing, which is a view, is in ``windows``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import FLOAT
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.values import TensorValue, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten

# A source element along one dimension: its index, and its weight; None stands for the weight 1.
Tap = tuple[ix.Index, "Node | None"]


def _linear(
    g: GraphLowering, x: TensorValue, size: Sequence[int], align_corners: bool, scales: Sequence[float | None]
) -> Any:
    """Resizes the last dimensions of ``x`` to ``size``; the arguments are the operator's."""
    shape = (*x.shape[: x.ndim - len(size)], *size)
    if x.dtype not in FLOAT or not all(isinstance(n, int) and n for n in (*x.shape, *shape)):
        return NotImplemented
    g.realize(x)
    lead = x.ndim - len(size)
    if shape[lead:-1] != x.shape[lead:-1] and int(shape[-1]) > int(x.shape[-1]) and g.results()[0].is_contiguous():
        # The outer dimensions are resized first, contiguously along the rows. The lookups of neighbors within a row are
        # then made in one row instead of several.
        x = _resized(g, x, (*shape[:-1], x.shape[-1]), lead, align_corners, scales)
        g.realize(x)
    return _resized(g, x, shape, lead, align_corners, scales)


def _resized(
    g: GraphLowering, x: TensorValue, shape: Sequence[ix.Index], lead: int, align_corners: bool,
    scales: Sequence[float | None],
) -> TensorValue:
    """``x`` resized to ``shape`` as one expression.

    Args:
        lead: number of leading dimensions that are not resized.
    """
    variables = shape_vars(shape)
    taps = [_taps(g, variables[d], int(x.shape[d]), int(shape[d]), align_corners, scale, x.dtype)
            for d, scale in enumerate(scales, lead)]

    def value(places: tuple[ix.Index, ...], left: Sequence[Sequence[Tap]]) -> Node:
        if not left:
            return reindexed(g.ops, x, [0 if is_size(n, 1) else i for i, n in zip(places, x.shape)])
        total = None
        for place, weight in left[0]:
            part = value((*places, place), left[1:])
            part = part if weight is None else g.ops.op("mul", part, weight)
            total = part if total is None else g.ops.op("add", total, part)
        assert total is not None
        return total

    return TensorValue(tuple(shape), x.dtype, value(variables[:lead], taps), device=x.device)


def _taps(
    g: GraphLowering, place: ix.Index, size: int, out: int, align_corners: bool, scale: float | None,
    dtype: torch.dtype,
) -> list[Tap]:
    """The source elements, along one dimension, between which an element of the result is interpolated.

    Args:
        place: index of the result's element.
        size, out: sizes of the dimension before and after.
    """
    if size == out:
        return [(place, None)]
    if size == 1:
        return [(0, None)]
    ops = g.ops

    def number(value: float) -> Node:
        return ops.const(value, dtype)

    (here,) = shape_vars((out,))
    at = ops.cast(ops.index(here, torch.int32), dtype)
    whole, parts = torch.tensor(size, dtype=dtype), torch.tensor(out, dtype=dtype)
    if align_corners:
        real = ops.op("mul", at, number(((whole - 1) / (parts - 1)).item() if out > 1 else 0.0))
    else:
        ratio = 1.0 / scale if scale is not None and scale > 0 else (whole / parts).item()
        middle = ops.op("mul", ops.op("add", at, number(0.5)), number(ratio))
        real = ops.op("maximum", ops.op("sub", middle, number(0.5)), number(0.0))
    low = ops.op("minimum", ops.op("floor", real), number(size - 1))
    rest = ops.op("minimum", ops.op("maximum", ops.op("sub", real, low), number(0.0)), number(1.0))
    high = ops.op("minimum", ops.op("add", low, number(1.0)), number(size - 1))
    numbers = [ops.cast(low, torch.int32), ops.cast(high, torch.int32), ops.op("sub", number(1.0), rest), rest]
    first, second, *weights = [_from_table(g, n, out, place) for n in numbers]
    return [(ix.atom(ix.Indirect(n, size)), weight) for n, weight in zip((first, second), weights)]


def _from_table(g: GraphLowering, node: Node, n: int, place: ix.Index) -> Node:
    """Element ``place`` of a table of ``n`` numbers, which ``node`` computes once for all rows."""
    table = TensorValue((n,), node.dtype, node)
    g.realize(table)
    return reindexed(g.ops, table, [0 if n == 1 else place])


@register_lowering(aten.upsample_linear1d.default)
def upsample_linear1d(
    g: GraphLowering, self: TensorValue, output_size: Sequence[int], align_corners: bool, scales: float | None = None
) -> Any:
    return _linear(g, self, output_size, align_corners, (scales,))


@register_lowering(aten.upsample_bilinear2d.default)
def upsample_bilinear2d(
    g: GraphLowering, self: TensorValue, output_size: Sequence[int], align_corners: bool,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Any:
    return _linear(g, self, output_size, align_corners, (scales_h, scales_w))


@register_lowering(aten.upsample_trilinear3d.default)
def upsample_trilinear3d(
    g: GraphLowering, self: TensorValue, output_size: Sequence[int], align_corners: bool,
    scales_d: float | None = None, scales_h: float | None = None, scales_w: float | None = None,
) -> Any:
    return _linear(g, self, output_size, align_corners, (scales_d, scales_h, scales_w))
