"""Convolutions whose operands exchange their roles (``exchanged.h``): how many windows are a strip, and what it costs.

Elements of the image are spread over vectors, and vectors are of the left operand's rows, the filters. So strides and
short lines cost nothing, and an image is copied once at most; filters are read once for each strip and packed.

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

# Packing of an operand is to cost at most this part of its products, if there is enough to use it for: a bound on the
# loss, whatever packing costs here.
PACKING_SHARE = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """Attributes:
    strip: so many windows at most, a multiple of ``BLOCK``.
    packed: what a row costs to pack, in products of an element.
    copied: in rows, what the image costs to copy.
    cost: in rows, beside the products of all rows.
    """

    strip: int
    packed: float
    copied: float
    cost: float


def stays_near(right: Patches, info: TargetInfo) -> bool:
    """Whether the lines of the cache that a tile's windows are read from, in a chain of products, take no more than
    half of the first cache: so many taps see the same. Places in an image are numbers of 32 bits, too."""
    if right.channels * right.height * right.width >= 1 << 31:
        return False
    (_, kw), (_, sw), (_, dw) = right.kernel, right.stride, right.dilation
    seen = CHAIN_DEPTH / kw * (1 + ((info.tile[0] - 1) * sw + (kw - 1) * dw) * 4 / LINE)
    return seen * LINE <= info.processor.l1.size // 2


def exchange(contraction: Contraction, right: Patches, info: TargetInfo) -> Exchange | None:
    """The cheapest strip: one that fits the own cache, or a longer one where packing would cost more than it may, so
    that rows are packed less often while the image and the sums are read from further away, but from a cache; None if
    there is no such strip."""
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
        # An element from further away is used by several taps, where that of a left operand is used once for a panel.
        far = max((info.far_read - 1) * strips * image / (depth * columns), PACKING_SHARE) * rows
        cost = strips * packed * rows / columns + copied + idle + (0.0 if near else far)
        if (image + kept) * 4 <= info.near_panels and (found is None or cost < found.cost):
            found = Exchange(strip, packed, copied, cost)
        parts = max(parts + 1, parts * 5 // 4)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """Attributes:
    rows, blocks: into how many parts rows, and blocks of windows, are divided.
    strip: so many windows at a time, of one part.
    elements: what a thread needs for them.
    """

    rows: int
    blocks: int
    strip: int
    elements: int


def parts_of(contraction: Contraction, right: Patches, own: Exchange, threads: int, info: TargetInfo) -> Parts:
    """The division by which the largest part is done first: each thread copies the part of the image that it needs, and
    packs the rows that it needs. Rows are divided into whole panels, or where these are too few into vectors."""
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
        # Where both take the same, by rows: what follows goes through the results by channels as a rule.
        if best is None or time <= best[0]:
            best = time, row_parts, block_parts, strip
    assert best is not None
    _, row_parts, block_parts, strip = best
    room = _kept(strip, info) + _copied(right, strip)
    room = rounded(number(contraction.depth), MAX_LANES) + rounded(room, MAX_LANES)
    return Parts(row_parts, block_parts, strip, room)


def _kept(strip: int, info: TargetInfo) -> int:
    """Elements of a strip's sums and places, and of packed rows."""
    return strip * (info.panel + 1) + CHAIN_DEPTH * info.panel


def _copied(right: Patches, strip: int) -> int:
    """Elements of the copy of what a strip's windows see, if there is one."""
    return _image(right, strip) + MAX_LANES if any(right.padding) else 0


def _image(right: Patches, strip: int) -> int:
    """Elements of the padded image that a strip's windows see."""
    lines = min((strip + right.out_width - 2) // right.out_width + 1, right.out_height)
    height = (lines - 1) * right.stride[0] + (right.kernel[0] - 1) * right.dilation[0] + 1
    return right.channels * height * (right.width + 2 * right.padding[1])
