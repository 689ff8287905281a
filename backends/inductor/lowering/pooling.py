"""Max pooling for inference, separable: windows may overlap, and maxima are taken first along the columns of the image,
then along its rows, so that a window of k x k costs 2k comparisons. What lies in the padding is less than everything.
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

# The taps of a window stand in the text one by one.
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
    if not all(g.sizes.are_known(shape, 2, "an image is pooled") for shape in (self.shape, sizes)):
        return NotImplemented
    kernel, pad, dilated = _pair(kernel_size), _pair(padding), _pair(dilation)
    step = _pair(stride) if stride else kernel
    if g.is_read(1):
        return max_with_places(g, self, [int(n) for n in result.shape[-2:]], kernel, step, pad, dilated)
    if max(kernel) > MAX_TAPS:
        return NotImplemented
    g.realize_if_dear(self)
    out = self
    for dim in (-2, -1):
        out = _along(g, out, out.ndim + dim, int(result.shape[dim]), kernel[dim], step[dim], pad[dim], dilated[dim])
    if not planes:
        keep_in_planes(g, out)
    indices = TensorValue(out.shape, torch.int64, g.ops.const(0, torch.int64))
    return out, indices


def _pair(values: Sequence[int] | int) -> tuple[int, int]:
    values = [values] if isinstance(values, int) else list(values)
    return (values[0], values[-1])


def _along(
    g: GraphLowering, x: TensorValue, dim: int, size: int, kernel: int, stride: int, padding: int, dilation: int
) -> TensorValue:
    """Maxima of windows along one dim, which then has ``size`` elements; in memory."""
    if (kernel, stride, padding) == (1, 1, 0):
        return x
    length = x.shape[dim]
    assert isinstance(length, int)
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
