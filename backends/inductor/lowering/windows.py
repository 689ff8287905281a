"""Lowerings of nearest-neighbor resizing and average pooling.

All of these read one element, or the elements of one window, at positions that follow from the position in the result.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.formulas import like
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.promotion import elementwise, opmath
from dynamo_lite.backends.inductor.lowering.reduction import cast_to
from dynamo_lite.backends.inductor.lowering.values import TensorValue, is_size, shape_vars
from dynamo_lite.backends.inductor.lowering.views import make_view
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten


def _fixed(g: GraphLowering, x: TensorValue, last: int) -> bool:
    """Whether the last ``last`` sizes are numbers, and no size is 0; the other sizes may be symbols."""
    return g.sizes.are_known(x.shape, last, "windows of an image")


# ---------------------------------------------------------------- nearest neighbors
def _source(place: ix.Index, size: int, out: int, scale: float | None, exact: bool) -> ix.Index | None:
    """The index of the source element that eager takes for a position along one dimension; None if it is not a simple
    expression.

    Args:
        place: index of the result's element.
        size, out: sizes of the dimension before and after.
        scale: the scale factor that the operator is given, if any.
        exact: whether the operator is one of the ``nearest_exact`` variants.
    """
    ratio = torch.tensor(1.0 / scale if scale else size / out, dtype=torch.float32)
    at = torch.arange(out, dtype=torch.float32)
    taken = (((at + 0.5) if exact else at) * ratio).floor().long().clamp(max=size - 1)
    if not exact and out == 2 * size:
        taken = torch.arange(out) // 2
    if size == out and torch.equal(taken, torch.arange(out)):
        return place
    if out % size == 0 and torch.equal(taken, torch.arange(out) // (out // size)):
        return ix.floordiv(place, out // size)
    step = size // out if out else 0
    for offset in (0, step // 2):
        if step > 1 and torch.equal(taken, torch.arange(out) * step + offset):
            return ix.add(ix.mul(place, step), offset)
    return None


def _nearest(g: GraphLowering, x: TensorValue, size: Sequence[int], scales: Sequence[float | None], exact: bool) -> Any:
    """Resizes the last dimensions to ``size``, as a view."""
    if not all(isinstance(n, int) and n for n in size) or not _fixed(g, x, len(size)):
        return NotImplemented
    lead = x.ndim - len(size)
    shape = (*x.shape[:lead], *size)
    indices = list(shape_vars(shape))
    for d, scale in enumerate(scales, lead):
        before, after = x.shape[d], shape[d]
        assert isinstance(before, int) and isinstance(after, int)
        found = _source(indices[d], before, after, scale, exact)
        if found is None:
            return NotImplemented
        indices[d] = 0 if before == 1 else found
    return make_view(g, x, shape, indices)


@register_lowering(aten.upsample_nearest1d.default)
def upsample_nearest1d(
    g: GraphLowering, self: TensorValue, output_size: Sequence[int], scales: float | None = None
) -> Any:
    return _nearest(g, self, output_size, (scales,), False)


@register_lowering(aten._upsample_nearest_exact1d.default)
def upsample_nearest_exact1d(
    g: GraphLowering, self: TensorValue, output_size: Sequence[int], scales: float | None = None
) -> Any:
    return _nearest(g, self, output_size, (scales,), True)


@register_lowering(aten.upsample_nearest2d.default)
def upsample_nearest2d(
    g: GraphLowering, self: TensorValue, output_size: Sequence[int], scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    return _nearest(g, self, output_size, (scales_h, scales_w), False)


@register_lowering(aten._upsample_nearest_exact2d.default)
def upsample_nearest_exact2d(
    g: GraphLowering, self: TensorValue, output_size: Sequence[int], scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    return _nearest(g, self, output_size, (scales_h, scales_w), True)


@register_lowering(aten.upsample_nearest2d_backward.default)
def upsample_nearest2d_backward(
    g: GraphLowering,
    grad_output: TensorValue,
    output_size: Sequence[int],
    input_size: Sequence[ix.Index],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    """Lowers the gradient for integer scale factors: that of each element is the sum over the window that the element
    was copied to."""
    if not _fixed(g, grad_output, 2) or not all(isinstance(n, int) and n for n in (*output_size, *input_size[2:])):
        return NotImplemented
    factors = [out // n for out, n in zip(output_size, input_size[2:])]
    for n, out, scale in zip(input_size[2:], output_size, (scales_h, scales_w)):
        place = shape_vars((out,))[0]
        if out % n or _source(place, n, out, scale, False) != ix.floordiv(place, out // n):
            return NotImplemented
    if factors[0] * factors[1] > MAX_WINDOW or grad_output.dtype.itemsize == 2:
        return NotImplemented
    return _window_sum(g, grad_output, factors, factors, input_size[2:])


# ---------------------------------------------------------------- pooling
# Largest number of elements in a window: they are unrolled in the loop's body.
MAX_WINDOW = 16


def _window_sum(
    g: GraphLowering, x: TensorValue, window: Sequence[int], stride: Sequence[int], out: Sequence[int],
    pad: Sequence[int] = (0, 0),
) -> TensorValue:
    """The sum of each window of the last two dimensions, in the order in which eager adds. Elements of a window outside
    of the image count as 0.

    Args:
        window, stride, pad: window size, stride and padding along the two dimensions.
        out: numbers of windows along the two dimensions.
    """
    shape = (*x.shape[:-2], *out)
    zero = g.ops.const(0, x.dtype)
    total = None
    for a in range(window[0]):
        for b in range(window[1]):
            indices = list(shape_vars(shape))
            guards = []
            for d, offset in ((-2, a), (-1, b)):
                place = ix.add(ix.mul(indices[d], stride[d]), offset - pad[d])
                if pad[d] or (out[d] - 1) * stride[d] + window[d] > int(x.shape[d]):
                    guards.append(g.ops.inside(place, 0, x.shape[d]))
                indices[d] = 0 if is_size(x.shape[d], 1) else place
            element = make_view(g, x, shape, indices).node
            for guard in guards:
                element = g.ops.op("where", guard, element, zero)
            total = element if total is None else g.ops.op("add", total, element)
    assert total is not None
    return TensorValue(shape, x.dtype, total)


@register_lowering(aten.avg_pool2d.default)
def avg_pool2d(
    g: GraphLowering,
    self: TensorValue,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    window, pad = pair(kernel_size), pair(padding)
    step = pair(stride) if stride else window
    out = [index_of(n) for n in g.results()[0].shape[-2:]]
    if not _fixed(g, self, 2) or not all(isinstance(n, int) and n for n in out):
        return NotImplemented
    if not self.dtype.is_floating_point or window[0] * window[1] > MAX_WINDOW:
        return NotImplemented
    wide = _window_sum(g, cast_to(g, self, opmath(self.dtype)), window, step, out, pad)
    mean = divided_by_count(g, wide, self.shape[-2:], window, step, pad, count_include_pad, divisor_override)
    result = cast_to(g, mean, self.dtype)
    if any(n.op == "inside" for n in walk((result.node,))):
        g.realize_result(result)
    return result


def divided_by_count(
    g: GraphLowering, x: TensorValue, size: Sequence[ix.Index], window: Sequence[int], step: Sequence[int],
    pad: Sequence[int], padding_counts: bool, divisor: int | None,
) -> TensorValue:
    """``x``, which has an element for each window over an image, divided by the number of elements in the window.

    Args:
        size: the last two sizes of the image.
        window, step, pad: window size, stride and padding along the two dimensions.
        padding_counts: whether elements in the padding are counted, too; if not, only those inside the image.
        divisor: the divisor to use instead of the number of elements, if any.
    """
    counts: list[Node] = []
    whole = 1 if divisor is None else divisor
    for d in (-2, -1):
        n, out = int(size[d]), int(x.shape[d])
        low, high = (-pad[d], n + pad[d]) if padding_counts else (0, n)
        last = (out - 1) * step[d] - pad[d] + window[d]
        if divisor is not None:
            continue
        if low <= -pad[d] and last <= high:
            whole *= window[d]
            continue
        first = ix.add(ix.mul(shape_vars(x.shape)[d], step[d]), -pad[d])
        one, none = g.ops.const(1, x.dtype), g.ops.const(0, x.dtype)
        taps = [g.ops.op("where", g.ops.inside(ix.add(first, tap), low, high), one, none) for tap in range(window[d])]
        counts.append(functools.reduce(lambda a, b: g.ops.op("add", a, b), taps))
    count = g.ops.const(whole, x.dtype)
    for more in counts:
        count = g.ops.op("mul", count, more)
    return TensorValue(x.shape, x.dtype, g.ops.op("div", x.node, count), device=x.device)


def pair(values: Sequence[int]) -> tuple[int, int]:
    """One number for each of two dimensions; a single number holds for both."""
    return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])


@register_lowering(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(g: GraphLowering, self: TensorValue, output_size: Sequence[int]) -> Any:
    """Lowers adaptive pooling where all windows have the same size."""
    if not all(isinstance(n, int) and n for n in output_size) or not self.dtype.is_floating_point:
        return NotImplemented
    if not _fixed(g, self, 2):
        return NotImplemented
    rows, columns = self.shape[-2:]
    assert isinstance(rows, int) and isinstance(columns, int)
    if rows % output_size[0] or columns % output_size[1]:
        return NotImplemented
    window = rows // output_size[0], columns // output_size[1]
    if window[0] * window[1] > MAX_WINDOW:
        return NotImplemented
    wide = _window_sum(g, cast_to(g, self, opmath(self.dtype)), window, window, output_size)

    def mean(t: Node) -> Node:
        for n in window:
            t = g.ops.op("div", t, like(g.ops, t, n))
        return t

    return cast_to(g, elementwise(g, mean, wide), self.dtype)
