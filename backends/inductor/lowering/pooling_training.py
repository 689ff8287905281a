"""Lowerings of pooling for training: max pooling with indices, and the gradients of max and average pooling.

The index of a maximum is found together with the maximum, window by window, in eager's order: the first of equal
elements, the last of NaNs. The gradient of a maximum is added at the maximum's position, in the order of the windows.
The gradient of a mean is read by every element of its window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.creation import filled
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.indexing import place_of
from dynamo_lite.backends.inductor.lowering.layouts import same_strides, strides_of
from dynamo_lite.backends.inductor.lowering.scattering import written
from dynamo_lite.backends.inductor.lowering.values import TensorValue, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering.windows import divided_by_count, pair
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten

# Largest number of elements in a window: its taps are unrolled in the generated code.
MAX_WINDOW = 16


def _fixed(g: GraphLowering, *shapes: Sequence[ix.Index]) -> bool:
    """Whether the last two sizes of each shape are numbers and no shape is empty; the other sizes may be symbols."""
    return all(g.sizes.are_known(shape, 2, "an image is pooled") for shape in shapes)


def _is_contiguous(fake: torch.Tensor) -> bool:
    """Whether a fake tensor, whose sizes may be symbols, is contiguous."""
    sizes = tuple(map(index_of, fake.shape))
    return same_strides(sizes, strides_of(fake), ix.contiguous_strides(sizes))


def max_with_places(
    g: GraphLowering, x: TensorValue, out: Sequence[int], kernel: tuple[int, int], step: tuple[int, int],
    padding: tuple[int, int], dilation: tuple[int, int],
) -> Any:
    """Maxima of windows over the last two dimensions, and the index of each in its image, flattened.

    Args:
        out: numbers of windows along the last two dimensions.
    """
    if kernel[0] * kernel[1] > MAX_WINDOW:
        return NotImplemented
    g.realize_if_dear(x)
    ops, shape = g.ops, (*x.shape[:-2], *out)
    height, width = x.shape[-2:]
    assert isinstance(width, int)
    variables = shape_vars(shape)
    corner = [ix.add(ix.mul(variables[d], step[d]), -padding[d]) for d in (-2, -1)]
    least = ops.const(-math.inf, x.dtype)
    best, place = least, _first_inside(g, corner, (height, width), kernel, dilation)
    for a in range(kernel[0]):
        for b in range(kernel[1]):
            row, column = ix.add(corner[0], a * dilation[0]), ix.add(corner[1], b * dilation[1])
            at = [0 if is_size(n, 1) else i for i, n in zip((*variables[:-2], row, column), x.shape)]
            value = ops.op("where", ops.inside(column, 0, width), reindexed(ops, x, at), least)
            value = ops.op("where", ops.inside(row, 0, height), value, least)
            takes = ops.op("or", ops.op("gt", value, best), ops.op("ne", value, value))
            here = ops.const(a * dilation[0] * width + b * dilation[1], torch.int64)
            best, place = ops.op("where", takes, value, best), ops.op("where", takes, here, place)
    place = ops.op("add", ops.index(ix.add(ix.mul(corner[0], width), corner[1])), place)
    results = [TensorValue(shape, node.dtype, node, ix.contiguous_strides(shape), x.device) for node in (best, place)]
    for result in results:
        g.realize(result)
    return tuple(results)


def _first_inside(
    g: GraphLowering, corner: Sequence[ix.Index], size: Sequence[ix.Index], kernel: tuple[int, int],
    dilation: tuple[int, int],
) -> Node:
    """The offset, relative to the window's corner in the flattened image, of its first element outside the padding."""
    total = g.ops.const(0, torch.int64)
    for begin, n, taps, d, stride in zip(corner, size, kernel, dilation, (size[1], 1)):
        first = g.ops.const(0, torch.int64)
        for tap in reversed(range(taps)):
            inside = g.ops.inside(ix.add(begin, tap * d), 0, n)
            first = g.ops.op("where", inside, g.ops.const(tap * d * int(stride), torch.int64), first)
        total = g.ops.op("add", total, first)
    return total


@register_lowering(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(
    g: GraphLowering,
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: TensorValue,
) -> Any:
    if not _fixed(g, self.shape, grad_output.shape) or grad_output.dtype in HALF or not _is_contiguous(g.results()[0]):
        return NotImplemented
    *_, height, width = self.shape
    area = ix.mul(height, width)
    if is_size(area, 1):
        return NotImplemented
    # The image is contiguous, so an index into the flattened image is an offset in its memory.
    place = place_of(g, indices.node, area, False, RuntimeError, "Found an invalid max index: {}")
    places = (*shape_vars(grad_output.shape)[:-2], 0, place)
    image = filled(g, self.shape, 0, grad_output.dtype)
    return written(g, image, grad_output.shape, places, grad_output.node, True)


@register_lowering(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    g: GraphLowering,
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Lowers the gradient where windows are adjacent without overlap or padding, or where the stride is 1."""
    kernel, pad = pair(kernel_size), pair(padding)
    step = pair(stride) if stride else kernel
    if not _fixed(g, self.shape, grad_output.shape) or grad_output.dtype in HALF:
        return NotImplemented
    out, size = grad_output.shape[-2:], self.shape[-2:]
    side_by_side = step == kernel and pad == (0, 0)
    if not side_by_side and (step != (1, 1) or kernel[0] * kernel[1] > MAX_WINDOW):
        return NotImplemented
    share = divided_by_count(g, grad_output, size, kernel, step, pad, count_include_pad, divisor_override)
    if not side_by_side or any(n.op == "inside" for n in walk((share.node,))):
        g.realize(share)
    if side_by_side:
        return _repeated(g, share, self.shape, kernel)
    variables = shape_vars(self.shape)
    zero = g.ops.const(0, share.dtype)
    total = zero
    for a in reversed(range(kernel[0])):
        for b in reversed(range(kernel[1])):
            rows, columns = ix.add(variables[-2], pad[0] - a), ix.add(variables[-1], pad[1] - b)
            at = [0 if is_size(n, 1) else i for i, n in zip((*variables[:-2], rows, columns), share.shape)]
            value = g.ops.op("where", g.ops.inside(columns, 0, out[1]), reindexed(g.ops, share, at), zero)
            total = g.ops.op("add", total, g.ops.op("where", g.ops.inside(rows, 0, out[0]), value, zero))
    result = TensorValue(self.shape, share.dtype, total, device=self.device)
    g.realize_result(result)
    return result


def _repeated(g: GraphLowering, x: TensorValue, shape: Sequence[ix.Index], kernel: tuple[int, int]) -> TensorValue:
    """Repeats every element over a window of its own; elements of the result outside of all windows are 0.

    Args:
        shape: shape of the result.
        kernel: rows and columns of a window.
    """
    variables = list(shape_vars(shape))
    at = [*variables[:-2], *(ix.floordiv(v, k) for v, k in zip(variables[-2:], kernel))]
    node = reindexed(g.ops, x, [0 if is_size(n, 1) else i for i, n in zip(at, x.shape)])
    covered = True
    for v, n, k, size in zip(variables[-2:], x.shape[-2:], kernel, shape[-2:]):
        if ix.mul(n, k) != size:
            covered = False
            node = g.ops.op("where", g.ops.inside(v, 0, ix.mul(n, k)), node, g.ops.const(0, x.dtype))
    result = TensorValue(tuple(shape), x.dtype, node, device=x.device)
    if not covered:
        g.realize_result(result)
    return result


@register_lowering(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue) -> Any:
    """Lowers the gradient where all windows have the same size."""
    if not _fixed(g, self.shape, grad_output.shape) or grad_output.dtype in HALF:
        return NotImplemented
    sides = [(int(n), int(out)) for n, out in zip(self.shape[-2:], grad_output.shape[-2:])]
    if any(n % out for n, out in sides):
        return NotImplemented
    kernel = (sides[0][0] // sides[0][1], sides[1][0] // sides[1][1])
    node = grad_output.node
    for n in kernel:
        node = g.ops.op("div", node, g.ops.const(n, grad_output.dtype))
    return _repeated(g, TensorValue(grad_output.shape, grad_output.dtype, node), self.shape, kernel)
