"""Convolutions as sums of products that a template computes on eager's own layout, so that the epilogue (bias, batch
norm, activation, residual) is computed on the tiles of the result.

Weights are not packed ahead of time: every call reads them in place, so no change of them can be missed. The template
takes float32, one or two spatial dimensions, and known numbers of channels and kernel sizes; the library computes the
rest. A depthwise convolution has only a few products for each element, for which the template has separate loops.
Channels-last images are computed in planes (channels first), and a network's values then stay in planes (``planes``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import MAX_KERNEL_WIDTH, Contraction, Matrix, Patches, number
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.abilities import Convolution
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.layouts import is_dense, same_strides
from dynamo_lite.backends.inductor.lowering.planes import keep_in_planes, pays_in_planes, to_planes
from dynamo_lite.backends.inductor.lowering.products import Operand, emit_product, plus, product, suits, turned
from dynamo_lite.backends.inductor.lowering.values import Shape, TensorValue, dim_var, is_size, loop_vars, shape_vars
from dynamo_lite.backends.inductor.lowering.views import reshaped
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten

# Least number of output channels in a group: with fewer, the rows of a tile are mostly idle, and packing is most of the
# work.
MIN_CHANNELS = 4
# Least number of results in a row: fewer leave most of a vector idle.
MIN_COLUMNS = 8
# Limit of a tap's offset within a strip of an image, which the template keeps in 32 bits.
MAX_REACH = 1 << 31
# Largest kernel of a depthwise convolution: its products are added up sequentially, and longer sums would be less exact
# than eager's.
MAX_TAPS = MAX_KERNEL_WIDTH


@register_lowering(aten.convolution.default)
def convolution(
    g: GraphLowering,
    input: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    spatial = input.ndim - 2
    if transposed or spatial not in (1, 2) or not suits(g, input, weight, *([] if bias is None else [bias])):
        return NotImplemented
    if not all(isinstance(n, int) for n in (input.shape[1], *weight.shape)):
        return NotImplemented
    window = _Window(input, weight, stride, padding, dilation, groups)
    out_shape = window.result(spatial)
    wanted = g.wanted_stride(out_shape)
    if wanted is None:
        return NotImplemented
    last = not same_strides(out_shape, wanted, ix.contiguous_strides(out_shape))
    if last and not (is_dense(out_shape, wanted) and pays_in_planes(g, input, window.depthwise, window.overlaps)):
        return NotImplemented
    out: TensorValue | None
    if is_size(window.columns, 1) and window.plain and groups == 1:
        # A single output pixel of a 1 x 1 kernel: the convolution is a linear layer.
        flat, factors = (reshaped(g, t, t.shape[:2]) for t in (input, weight))
        out = product(g, flat, turned(g, factors), 0, library=False)
        if out is None:
            return NotImplemented
        out = reshaped(g, out, out_shape)
    elif window.depthwise:
        out = _depthwise(g, input, weight, window, spatial)
        if out is None:
            return NotImplemented
    elif window.is_wide and window.group_out >= MIN_CHANNELS and g.sizes.below(
            window.reach, MAX_REACH, "places in an image are numbers of 32 bits"):
        out = _grouped(g, input, weight, window, spatial)
        if out is None:
            return NotImplemented
    else:
        return NotImplemented
    if last:
        keep_in_planes(g, out)
    if bias is not None:
        out = plus(g, out, reshaped(g, bias, (1, -1, *(1,) * spatial)))
    return out


class _Window:
    """The sizes of a convolution, extended to two spatial dimensions."""

    def __init__(
        self,
        input: TensorValue,
        weight: TensorValue,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ):
        spatial = input.ndim - 2
        self.batch = input.shape[0]
        channels, *size = input.shape[1:]
        out, self.group_in, *kernel = (number(n) for n in weight.shape)
        self.groups = groups
        self.channels, self.group_out = number(channels), out // groups

        def pair(values: Sequence[Any], fill: int) -> tuple[Any, Any]:
            values = list(values) * spatial if len(values) == 1 else list(values)
            return (fill, values[0]) if spatial == 1 else (values[0], values[1])

        self.height: ix.Index
        self.width: ix.Index
        self.height, self.width = pair(size, 1)
        self.kernel = pair(kernel, 1)
        self.stride, self.padding, self.dilation = pair(stride, 1), pair(padding, 0), pair(dilation, 1)
        self.out_height, self.out_width = (
            ix.add(ix.floordiv(ix.add(n, 2 * p - d * (k - 1) - 1), s), 1)
            for n, k, s, p, d in zip(
                (self.height, self.width), self.kernel, self.stride, self.padding, self.dilation
            )
        )

    @property
    def columns(self) -> ix.Index:
        """Number of output pixels of one image."""
        return ix.mul(self.out_height, self.out_width)

    @property
    def is_wide(self) -> bool:
        """Whether there are enough output pixels to fill vectors. Symbolic sizes are assumed to, since the answer
        affects speed only."""
        columns = self.columns
        return not isinstance(columns, int) or columns >= MIN_COLUMNS

    @property
    def depth(self) -> int:
        """Number of products summed for each result."""
        return self.group_in * math.prod(self.kernel)

    @property
    def depthwise(self) -> bool:
        """Whether every group has a single input channel, and the depthwise loops can compute the kernel."""
        if is_size(self.columns, 1) and any(
            pad >= number(size) + d for pad, d, size in zip(self.padding, self.dilation, (self.height, self.width))
        ):
            return False  # the kernel may see nothing but padding
        return self.group_in == 1 and self.groups > 1 and math.prod(self.kernel) <= MAX_TAPS

    @property
    def reach(self) -> ix.Index:
        """Approximate distance, in elements, between the first and the last tap of one window within a strip of the
        fewest lines (``scheduler/threads.py``). Strips of more lines are limited to a core's private cache anyway."""
        (kh, kw), (sh, _), (dh, dw) = self.kernel, self.stride, self.dilation
        beyond = (kh - 1) * dh // sh
        lines = max(2 * beyond, 3)
        if isinstance(self.out_height, int):
            lines = min(lines, self.out_height)
        kinds = self.group_in * sh * max(kw, self.stride[1]) * (lines + beyond)
        return ix.mul(ix.add(self.out_width, (kw - 1) * dw), kinds)

    @property
    def overlaps(self) -> bool:
        """Whether neighboring windows share pixels, or each window is a single pixel."""
        return self.kernel == (1, 1) or any(s < k for s, k in zip(self.stride, self.kernel))

    @property
    def plain(self) -> bool:
        """Whether the image is the right operand of the product as it is: one column for each pixel."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0)

    def patches(self, image: Operand, batch: tuple[ix.Index, ...], channels: int, each: int = 0) -> Patches:
        """The right operand of the product: the windows of an input in memory."""
        return Patches(
            image.buffer, image.offset, batch, channels, self.height, self.width, self.out_height, self.out_width,
            self.kernel, self.stride, self.padding, self.dilation, each)

    def result(self, spatial: int) -> Shape:
        """The shape of the result, which has ``spatial`` spatial dimensions."""
        return (self.batch, self.groups * self.group_out, *(self.out_height, self.out_width)[-spatial:])


def _contiguous(g: GraphLowering, x: TensorValue, dims: int) -> Operand:
    """``x`` in memory, with its last ``dims`` dimensions contiguous; a copy if need be."""
    if x.node.op != "load" and x.stride is not None:
        to_planes(g, x)
    operand = Operand(g, x)
    strides = ix.contiguous_strides(x.shape)
    if not same_strides(operand.shape[-dims:], operand.stride[-dims:], strides[-dims:]):
        copy = TensorValue(x.shape, x.dtype, x.node, strides, x.device)
        g.realize(copy, fresh=True)
        operand = Operand(g, copy)
    return operand


def _filters(g: GraphLowering, weight: TensorValue, w: _Window) -> tuple[Operand, tuple[int, int, int]]:
    """Filters in memory, and their strides along channels, kernel rows and kernel columns. They are used in place if
    the taps of a filter, or the channels of a tap, are contiguous. The latter (channels-last filters) holds only for
    windows that share pixels: windows that do not are packed in the other order."""
    across, in_memory = w.kernel[1], weight.node.op == "load"
    last = (w.depth, 1, *(w.group_in * step for step in (across, 1)[4 - weight.ndim:]))
    if w.overlaps and w.kernel != (1, 1) and w.group_in > 1 and (
            in_memory or same_strides(weight.shape, last, weight.stride)):
        operand = Operand(g, weight)  # filters in place; for a copy that is not made yet, the original that it copies
        if same_strides(weight.shape, operand.stride, last):
            return operand, (1, w.group_in * across, w.group_in)
    return _contiguous(g, weight, weight.ndim), (math.prod(w.kernel), across, 1)


# ---------------------------------------------------------------- sums over channels
def _grouped(
    g: GraphLowering, input: TensorValue, weight: TensorValue, w: _Window, spatial: int
) -> TensorValue | None:
    """The convolution as a product of filters and windows, summed over the channels of a group; None if the library is
    faster."""
    image = _contiguous(g, input, spatial)
    if image.stride[1] != ix.mul(w.height, w.width):
        image = _contiguous(g, input, input.ndim)
    filters, strides = _filters(g, weight, w)
    sizes = (w.batch, w.groups, w.group_out, w.out_height, w.out_width)
    n, group, channel, y, x = shape_vars(sizes)
    taps = [dim_var(5 + at, size) for at, size in enumerate((w.group_in, *w.kernel))]
    c, kh, kw = taps
    out_channel = ix.add(ix.mul(group, w.group_out), channel)
    a = g.ops.load(
        filters.buffer,
        ix.add(ix.dot((out_channel, *taps), (w.depth, *strides)), filters.offset),
        torch.float32,
    )
    in_channel = ix.add(ix.mul(group, w.group_in), c)
    b = _pixel(g, image, w, n, in_channel, (y, x), (kh, kw))
    per_group = ix.product((w.group_in, w.height, w.width))
    outer = [s for s, size in zip((image.stride[0], per_group), sizes[:2]) if not is_size(size, 1)]
    left = Matrix(
        filters.buffer,
        filters.offset,
        tuple(s for s, size in zip((0, w.group_out * w.depth), sizes[:2]) if not is_size(size, 1)),
        w.depth,
        *((1, 0) if strides[-1] == 1 else (0, math.prod(w.kernel))),
    )
    right: Matrix | Patches
    if w.plain:
        right = Matrix(image.buffer, image.offset, tuple(outer), 1, ix.mul(w.height, w.width))
    else:
        right = w.patches(image, tuple(outer), w.group_in)
    contraction = Contraction(
        loop_vars((n, group)), loop_vars((channel,)), loop_vars((y, x)), w.depth, left, right, False
    )
    if _is_for_library(g, w, contraction, spatial):
        return None
    return emit_product(g, w.result(spatial), sizes, contraction, a, b, loop_vars(taps))


def _is_for_library(g: GraphLowering, w: _Window, contraction: Contraction, spatial: int) -> bool:
    """Whether the library is faster for a convolution, according to the target; False if sizes are not known."""
    faster = g.abilities.faster_convolution
    if faster is None or not contraction.is_sized or not isinstance(w.batch, int):
        return False
    size, kernel, stride, padding, dilation = (
        pair[2 - spatial:]
        for pair in ((number(w.height), number(w.width)), w.kernel, w.stride, w.padding, w.dilation))
    sizes = Convolution((w.batch, w.channels, *size), (w.groups * w.group_out, w.group_in, *kernel), stride, padding,
                        dilation, w.groups)
    return faster(sizes, contraction, g.is_read_on())


def _pixel(
    g: GraphLowering,
    image: Operand,
    w: _Window,
    batch: ix.Index,
    channel: ix.Index,
    place: tuple[ix.Index, ix.Index],
    tap: tuple[ix.Index, ix.Index],
    border: bool = True,
) -> Node:
    """The input element that a tap of the kernel reads, or 0 in the padding.

    Args:
        batch, channel: the image and the input channel.
        place: row and column of the output pixel.
        tap: row and column within the kernel.
        border: whether taps may lie in the padding; if not, no guards are made.
    """
    at = []
    for p, t, s, pad, d in zip(place, tap, w.stride, w.padding, w.dilation):
        at.append(ix.add(ix.add(ix.mul(p, s), ix.mul(t, d)), -pad))
    index = ix.dot((batch, channel, *at), (image.stride[0], ix.mul(w.height, w.width), w.width, 1))
    node = g.ops.load(image.buffer, ix.add(index, image.offset), torch.float32)
    zero = g.ops.const(0.0, torch.float32)
    for where, size, pad in zip(at, (w.height, w.width), w.padding):
        if pad and border:
            node = g.ops.op("where", g.ops.inside(where, 0, size), node, zero)
    return node


# ---------------------------------------------------------------- depthwise
def _depthwise(
    g: GraphLowering, input: TensorValue, weight: TensorValue, w: _Window, spatial: int
) -> TensorValue | None:
    """The convolution with one input channel in each group, summed over the taps only: by the template, or as a plain
    reduction for a single output pixel. None if the library is faster."""
    image = _contiguous(g, input, spatial)
    if image.stride[1] != ix.mul(w.height, w.width):
        image = _contiguous(g, input, input.ndim)
    filters = _contiguous(g, weight, weight.ndim)
    sizes = (w.batch, w.groups * w.group_out, w.out_height, w.out_width)
    n, channel, y, x = shape_vars(sizes)
    first: tuple[int, ...] = (0, 0)
    last: tuple[int, ...] = w.kernel
    if is_size(w.columns, 1):
        # For a single output pixel, only the taps inside the image are summed: an ordinary sum without guards.
        sides = list(zip(w.kernel, w.dilation, w.padding, map(number, (w.height, w.width))))
        first = tuple(-(-pad // d) for _, d, pad, _ in sides)
        last = tuple(min(k, (size - 1 + pad) // d + 1) for k, d, pad, size in sides)
    loops = [dim_var(4 + at, end - begin) for at, (begin, end) in enumerate(zip(first, last))]
    taps = [ix.add(v, begin) for v, begin in zip(loops, first)]
    at = ix.dot((channel, *taps), (w.depth, w.kernel[1], 1))
    a = g.ops.load(filters.buffer, ix.add(at, filters.offset), torch.float32)
    seen = channel if w.group_out == 1 else ix.floordiv(channel, w.group_out)
    b = _pixel(g, image, w, n, seen, (y, x), (taps[0], taps[1]), not is_size(w.columns, 1))
    if not loop_vars(loops):
        return reshaped(g, TensorValue(sizes, torch.float32, g.ops.op("mul", a, b)), w.result(spatial))
    if is_size(w.columns, 1):
        return emit_product(g, w.result(spatial), sizes, None, a, b, loop_vars(loops))
    left = Matrix(filters.buffer, filters.offset, (0,) * (not is_size(w.batch, 1)), w.depth, 1)
    outer = (image.stride[0],) * (not is_size(w.batch, 1))
    right = w.patches(image, outer, 1, each=w.group_out)
    contraction = Contraction(loop_vars((n,)), loop_vars((channel,)), loop_vars((y, x)), w.depth, left, right, False)
    if _is_for_library(g, w, contraction, spatial):
        return None
    return emit_product(g, w.result(spatial), sizes, contraction, a, b, loop_vars(loops))
