"""Lowering of max pooling for inference, separated by dimension: maxima are taken first along the columns of the image,
then along its rows, so that a window of k x k costs 2k comparisons. Windows may overlap. Elements in the padding count
as minus infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.layouts import same_strides, strides_of
from dynamo_lite.backends.inductor.lowering.planes import is_in_planes, keep_in_planes
from dynamo_lite.backends.inductor.lowering.pooling_training import max_with_places
from dynamo_lite.backends.inductor.lowering.values import TensorValue, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten

# Largest window along one dimension: its taps are unrolled in the generated code.
MAX_TAPS = 16


@register_lowering(aten.max_pool2d_with_indices.default)
def max_pool2d(
    g: GraphLowering,
    self: TensorValue,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    result = g.results()[0]
    sizes = tuple(map(index_of, result.shape))
    if not self.dtype.is_floating_point:
        return NotImplemented
    planes = same_strides(sizes, strides_of(result), ix.contiguous_strides(sizes))
    if not planes and (g.is_read(1) or g.leaves_graph() or not is_in_planes(g, self)):
        return NotImplemented
    known = 2 if g.is_read(1) else 0  # the indices are computed from the image's sizes, which have to be numbers
    if not all(g.sizes.are_known(shape, known, "an image is pooled") for shape in (self.shape, sizes)):
        return NotImplemented
    kernel, pad, dilated = _pair(kernel_size), _pair(padding), _pair(dilation)
    step = _pair(stride) if stride else kernel
    if g.is_read(1):
        return max_with_places(g, self, [int(n) for n in result.shape[-2:]], kernel, step, pad, dilated)
    if max(kernel) > MAX_TAPS:
        return NotImplemented
    for dim in (-2, -1):
        offsets = [tap * dilated[dim] - pad[dim] for tap in range(kernel[dim])]
        if not _know_edges(g, sizes[dim], self.shape[dim], offsets, step[dim], pad[dim], ceil_mode):
            return NotImplemented
    g.realize_if_dear(self)
    out = self
    for dim in (-2, -1):
        out = _along(g, out, out.ndim + dim, sizes[dim], kernel[dim], step[dim], pad[dim], dilated[dim])
    if not planes:
        keep_in_planes(g, out)
    indices = TensorValue(out.shape, torch.int64, g.ops.const(0, torch.int64))
    return out, indices


def _pair(values: Sequence[int] | int) -> tuple[int, int]:
    """One number for each of two dimensions; a single number holds for both."""
    values = [values] if isinstance(values, int) else list(values)
    return (values[0], values[-1])


def _know_edges(
    g: GraphLowering, size: ix.Index, length: ix.Index, offsets: Sequence[int], stride: int, padding: int, ceil: bool
) -> bool:
    """Records the order in which a loop over windows meets the positions at which taps enter and leave the image.
    Returns whether this order is the same for all sizes that the graph serves.

    Args:
        size: number of windows.
        length: number of elements of the image along the dimension.
        offsets: position of each tap of the first window, relative to the image's first element, in ascending order.
        ceil: the operator's ``ceil_mode``.
    """
    if isinstance(size, int) and isinstance(length, int):
        return True
    enters = sorted({max(-(offset // stride), 0) for offset in offsets})
    within: list[ix.Index] = []
    beyond: list[ix.Index] = []
    for offset in reversed(offsets):
        # The same expression as the scheduler's (``guards.bounds_of``).
        edge = ix.mul(ix.floordiv(ix.add(offset, ix.mul(length, -1)), stride), -1)
        (beyond if _leaves_behind(offset, offsets[-1], stride, padding, ceil) else within).append(edge)
    edges = [0, *enters, *within, size, *beyond]
    if not g.sizes.is_ordered(edges, "windows of an image"):
        return False
    g.ops.know_order(edges)
    return True


def _leaves_behind(offset: int, last: int, stride: int, padding: int, ceil: bool) -> bool:
    """Whether no window's tap at ``offset`` lies beyond the image's end, whatever the image's length.

    Args:
        last: the offset of a window's last tap.
    """
    some = range(last + padding + 1, last + padding + 1 + stride)  # lengths of one period: further ones repeat it
    windows = [(n + padding - last - 1 + ceil * (stride - 1)) // stride + 1 for n in some]
    return all(count <= -((offset - n) // stride) for count, n in zip(windows, some))


def _along(
    g: GraphLowering, x: TensorValue, dim: int, size: ix.Index, kernel: int, stride: int, padding: int, dilation: int
) -> TensorValue:
    """Maxima of windows along one dimension, which then has ``size`` elements. The result is realized."""
    if (kernel, stride, padding) == (1, 1, 0):
        return x
    length = x.shape[dim]
    shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
    indices = list(shape_vars(shape))
    here = indices[dim]
    least = g.ops.const(-math.inf, x.dtype)
    best: Node | None = None
    for tap in range(kernel):
        at = ix.add(ix.mul(here, stride), tap * dilation - padding)
        indices[dim] = at
        value = g.ops.op("where", g.ops.inside(at, 0, length), reindexed(g.ops, x, indices), least)
        best = value if best is None else g.ops.op("maximum", best, value)
    assert best is not None
    out = TensorValue(shape, x.dtype, best, ix.contiguous_strides(shape), x.device)
    g.realize(out)
    return out
