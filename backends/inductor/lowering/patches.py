"""Lowerings of ``unfold`` (``im2col``), which copies the windows over an image side by side, and of ``fold``
(``col2im``), its transpose, which adds windows up to an image.

Invariant: a window's elements are read where the image has them; the scheduler splits loops at the image's edges, so
that no guard is left in them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.lowering.formulas import like
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.joining import MAX_PARTS, constant_pad, stack
from dynamo_lite.backends.inductor.lowering.values import TensorValue, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering.views import reshaped, slice_
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten
# Elements along one dimension of a window whose sum is written out. The loops are split at both ends of each, so that
# the code grows with the square of this number. The compiler's time is the reason for the bound; its value is chosen.
_MOST_TERMS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class _Windows:
    """Windows along one dimension of ``size`` elements: ``taps`` elements each, ``dilation`` apart."""

    size: int
    taps: int
    dilation: int
    padding: int
    stride: int

    @property
    def count(self) -> int:
        return (self.size + 2 * self.padding - self.dilation * (self.taps - 1) - 1) // self.stride + 1

    def place(self, tap: int) -> tuple[int, int]:
        """The first and the end of the padded elements that are this tap of the windows."""
        first = tap * self.dilation
        return first, first + (self.count - 1) * self.stride + 1


def _windows(
    size: Sequence[Any], kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> list[_Windows] | None:
    """Windows along both dimensions of an image; None if they are no numbers, or eager refuses them."""
    given = [[*values] * (2 // len(values)) for values in (size, kernel_size, dilation, padding, stride)]
    if not all(isinstance(n, int) for values in given for n in values):
        return None
    windows = [_Windows(*(values[d] for values in given)) for d in (0, 1)]
    valid = all(min(w.size, w.taps, w.dilation, w.stride, w.count) > 0 <= w.padding for w in windows)
    return windows if valid else None


@register_lowering(aten.im2col.default)
def im2col(
    g: GraphLowering, self: TensorValue, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    windows = _windows(self.shape[-2:], kernel_size, dilation, padding, stride)
    if windows is None or self.ndim not in (3, 4) or max(w.taps for w in windows) > MAX_PARTS:
        return NotImplemented
    if is_size(ix.product(self.shape), 0):
        return NotImplemented
    rows, columns = windows
    image = self
    if rows.padding or columns.padding:
        image = constant_pad(g, self, (columns.padding, columns.padding, rows.padding, rows.padding))
    g.realize(image)  # each of its elements is in several windows
    lines = [slice_(g, image, -2, *rows.place(i), rows.stride) for i in range(rows.taps)]
    parts = [[slice_(g, line, -1, *columns.place(j), columns.stride) for j in range(columns.taps)] for line in lines]
    if rows.taps * columns.taps <= MAX_PARTS:
        joined = stack(g, [part for line in parts for part in line], self.ndim - 2)
    else:
        joined = stack(g, [stack(g, line, self.ndim - 2) for line in parts], self.ndim - 2)
    channels = ix.mul(self.shape[-3], rows.taps * columns.taps)
    return reshaped(g, joined, (*self.shape[:-3], channels, rows.count * columns.count))


@register_lowering(aten.col2im.default)
def col2im(
    g: GraphLowering, self: TensorValue, output_size: Sequence[int], kernel_size: Sequence[int],
    dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int],
) -> Any:
    windows = _windows(output_size, kernel_size, dilation, padding, stride)
    if windows is None or self.ndim not in (2, 3) or self.dtype in HALF or not self.dtype.is_floating_point:
        return NotImplemented
    if any(w.taps > _MOST_TERMS or w.stride > MAX_PARTS for w in windows):
        return NotImplemented
    if not g.sizes.are_known(self.shape, 2, "windows that are added up"):
        return NotImplemented
    rows, columns = windows
    outer = self.shape[:-2]
    channels = int(self.shape[-2]) // (rows.taps * columns.taps)
    shape = (*outer, channels, rows.taps, columns.taps, rows.count, columns.count)
    at = len(outer) + 1
    parts = reshaped(g, self, shape)
    g.realize_if_dear(parts)
    summed = _added_up(g, parts, at, at + 2, rows)
    g.realize(summed)
    return _added_up(g, summed, at, at + 2, columns)


def _added_up(g: GraphLowering, x: TensorValue, taps: int, dim: int, windows: _Windows) -> TensorValue:
    """Sums of the taps that fall on each element of the image, along one dimension: dimension ``taps`` of ``x`` goes,
    and the windows of dimension ``dim`` become elements.

    An element that is ``r`` more than a multiple ``m`` of the stride, in the padded image, gets tap ``i`` of the window
    that begins at it less ``i`` dilations, if that is a multiple, too. So there is one sum for each ``r``."""
    ops, step = g.ops, windows.stride
    multiples = math.ceil((windows.size + 2 * windows.padding) / step)
    shape = [n for d, n in enumerate(x.shape) if d != taps]
    shape[dim - 1] = multiples
    places = list(shape_vars(shape))
    multiple = places[dim - 1]

    def sum_for(r: int) -> TensorValue:
        node: Node = like(ops, x.node, 0)
        for tap in range(windows.taps):
            distance, rest = divmod(r - tap * windows.dilation, step)
            if rest:
                continue
            indices = [*places[:taps], tap, *places[taps:]]
            indices[dim] = ix.add(multiple, distance)
            inside = ops.inside(multiple, max(-distance, 0), min(windows.count - distance, multiples))
            if windows.count == 1:
                indices[dim] = 0
            node = ops.op("add", node, ops.op("where", inside, reindexed(ops, x, indices), like(ops, x.node, 0)))
        return TensorValue(tuple(shape), x.dtype, node, device=x.device)

    result = sum_for(0) if step == 1 else stack(g, [sum_for(r) for r in range(step)], dim)
    result = reshaped(g, result, (*shape[: dim - 1], multiples * step, *shape[dim:]))
    return slice_(g, result, dim - 1, windows.padding, windows.padding + windows.size)
