"""Convolutions with exchanged operands (``exchanged.h``): the number of windows in a strip, and the cost.

The micro-kernel broadcasts elements of the image and multiplies them by vectors of filters, that is of the left
operand's rows. So strides and short image lines cost nothing, and an image is copied at most once; the filters are read
and packed once for each strip.

Costs are counted in rows, as in ``threads.py``.
"""
from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.ir.contraction import (
    BLOCK,
    CHAIN_DEPTH,
    MAX_LANES,
    Contraction,
    Patches,
    number,
    rounded,
    volume,
)
from dynamo_lite.backends.inductor.target_info import LINE, TargetInfo

# Packing an operand should cost at most this fraction of the products that use it, if there are enough of them. This
# bounds the loss for any cost of packing.
PACKING_SHARE = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """How a convolution is computed with exchanged operands.

    Attributes:
        strip: largest number of windows in a strip, a multiple of ``BLOCK``.
        packed: cost of packing an element of the filters, in products.
        copied: cost of copying the image, in rows.
        cost: total cost, in rows, beyond the products of all rows.
    """

    strip: int
    packed: float
    copied: float
    cost: float


def stays_near(right: Patches, info: TargetInfo) -> bool:
    """Whether the cache lines that a tile's windows are read from, during a chain of products, take at most half of the
    L1 cache, so that neighboring taps and windows find them there. Offsets in an image must also fit 32 bits."""
    if right.channels * right.height * right.width >= 1 << 31:
        return False
    (_, kw), (_, sw), (_, dw) = right.kernel, right.stride, right.dilation
    seen = CHAIN_DEPTH / kw * (1 + ((info.tile[0] - 1) * sw + (kw - 1) * dw) * 4 / LINE)
    return seen * LINE <= info.processor.l1.size // 2


def exchange(contraction: Contraction, right: Patches, info: TargetInfo) -> Exchange | None:
    """The division into strips with the least cost; None if no strip is possible.

    Candidates are a strip whose image and sums fit the core's own cache, and longer ones. With a longer strip the
    filters are packed less often, but the image and the sums are read from a cache that is further away.
    """
    rows, columns, depth = (number(n) for n in (volume(contraction.rows), volume(contraction.columns),
                                                 contraction.depth))
    costs = info.costs
    packed = costs.pack_columns if contraction.left.depth_is_contiguous else costs.pack_lines
    idle = rounded(rows, info.lanes) - rows
    blocks, found, parts, near = -(-columns // BLOCK), None, 1, False
    while parts <= blocks and not near:
        strip = -(-blocks // parts) * BLOCK
        image, kept = _image(right, strip), _kept(strip, info)
        near, strips = image + kept <= info.near_planes, -(-columns // strip)
        copied = costs.im2col * strips * _copied(right, strip) / (depth * columns)
        # An element of the image from a cache further away serves several taps, whereas an element of a streamed left
        # operand is used only once for each panel.
        far = max((info.far_read - 1) * strips * image / (depth * columns), PACKING_SHARE) * rows
        cost = strips * packed * rows / columns + copied + idle + (0.0 if near else far)
        if (image + kept) * 4 <= info.near_panels and (found is None or cost < found.cost):
            found = Exchange(strip, packed, copied, cost)
        parts = max(parts + 1, parts * 5 // 4)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """The division of a convolution with exchanged operands among threads.

    Attributes:
        rows, blocks: number of parts that the rows, and the blocks of windows, are divided into.
        strip: number of windows that a thread computes at a time.
        elements: number of workspace elements that a thread needs for them.
    """

    rows: int
    blocks: int
    strip: int
    elements: int


def parts_of(contraction: Contraction, right: Patches, own: Exchange, threads: int, info: TargetInfo) -> Parts:
    """The division whose largest part takes the least time. Each thread copies the part of the image that it needs, and
    packs the rows that it needs. Rows are divided into whole panels, or into vectors if there are too few panels."""
    rows, columns = number(volume(contraction.rows)), number(volume(contraction.columns))
    blocks = -(-columns // BLOCK) * number(volume(contraction.batch))
    best = None
    for row_parts in range(1, min(threads, -(-rows // info.lanes)) + 1):
        block_parts = min(threads // row_parts, blocks)
        unit = info.panel if row_parts * info.panel <= rows else info.lanes
        units = -(-rows // unit)
        most_rows = min(-(-units // row_parts) * unit, rows)
        windows = -(-blocks // block_parts) * BLOCK
        strip = min(windows, own.strip)
        time = windows * (most_rows * (1 + own.packed / strip) + own.copied)
        # Of equal divisions the one into more parts of rows: what follows usually goes through the results by channels.
        if best is None or time <= best[0]:
            best = time, row_parts, block_parts, strip
    assert best is not None
    _, row_parts, block_parts, strip = best
    room = _kept(strip, info) + _copied(right, strip)
    room = rounded(number(contraction.depth), MAX_LANES) + rounded(room, MAX_LANES)
    return Parts(row_parts, block_parts, strip, room)


def _kept(strip: int, info: TargetInfo) -> int:
    """Number of elements for a strip's sums and offsets, and for the packed rows."""
    return strip * (info.panel + 1) + CHAIN_DEPTH * info.panel


def _copied(right: Patches, strip: int) -> int:
    """Number of elements of the padded copy of the image that a strip needs; 0 if the image is read in place."""
    return _image(right, strip) + MAX_LANES if any(right.padding) else 0


def _image(right: Patches, strip: int) -> int:
    """Number of elements of the padded image that the windows of a strip cover."""
    lines = min((strip + right.out_width - 2) // right.out_width + 1, right.out_height)
    height = (lines - 1) * right.stride[0] + (right.kernel[0] - 1) * right.dilation[0] + 1
    return right.channels * height * (right.width + 2 * right.padding[1])
