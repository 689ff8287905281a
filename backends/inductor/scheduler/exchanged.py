"""Convolutions whose operands exchange their roles (``exchanged.h``): how many windows are a strip, and what it costs.

Elements of the image are spread over vectors, and vectors are of the left operand's rows, the filters. So strides and
short lines cost nothing, and an image is copied once at most; filters are read once for each strip and packed.

Costs are counted in rows, as in ``threads.py``.
"""
from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import CHAIN_DEPTH, MAX_LANES, Contraction, Patches, volume
from dynamo_lite.backends.inductor.target_info import TargetInfo

# Rows of a block, for which panels are read again, or windows that are finished at a time (``panels.h``).
BLOCK = 48
# Packing of an operand is to cost at most this part of its products, if there is enough to use it for: a bound on the
# loss, whatever packing costs here.
PACKING_SHARE = 0.02
# Bytes of a line of the caches.
LINE = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """Attributes:
    strip: so many windows, a multiple of ``BLOCK``.
    elements: what a thread needs for them.
    packed: what a row costs to pack, in products of an element.
    copied: in rows, what the image costs to copy.
    cost: in rows, beside the products of all rows.
    """

    strip: int
    elements: int
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


def exchange(contraction: Contraction, right: Patches, info: TargetInfo) -> Exchange:
    """The cheapest strip: one that fits the own cache, or a longer one where packing would cost more than it may, so
    that rows are packed less often while the image and the sums are read from further away."""
    rows, columns, depth = (_number(n) for n in (volume(contraction.rows), volume(contraction.columns),
                                                 contraction.depth))
    costs = info.costs
    packed = costs.pack_columns if contraction.left.depth == 1 else costs.pack_lines
    idle = -(-rows // info.lanes) * info.lanes - rows
    blocks, found = -(-columns // BLOCK), None
    for parts in range(1, blocks + 1):
        strip = -(-blocks // parts) * BLOCK
        image, strips = _image(right, strip), -(-columns // strip)
        kept = strip * (info.panel + 1) + CHAIN_DEPTH * info.panel
        near = image + kept <= info.near_planes
        room = image + MAX_LANES if any(right.padding) else 0
        copied = costs.im2col * strips * room / (depth * columns)
        # An element from further away is used by several taps, where that of a left operand is used once for a panel.
        far = max((info.far_read - 1) * strips * image / (depth * columns), PACKING_SHARE) * rows
        cost = strips * packed * rows / columns + copied + idle + (0.0 if near else far)
        if found is None or cost < found.cost:
            found = Exchange(strip, _whole(depth) + _whole(kept + room), packed, copied, cost)
        if near:
            break
    assert found is not None
    return found


def parts_of(contraction: Contraction, own: Exchange, threads: int, info: TargetInfo) -> tuple[int, int]:
    """Into how many parts rows and blocks of windows are divided, so that the largest part of both is done first: each
    thread copies the part of the image that it needs, and packs the rows that it needs. Rows are divided into whole
    panels, or where these are too few into vectors."""
    rows, columns = _number(volume(contraction.rows)), _number(volume(contraction.columns))
    blocks = -(-columns // BLOCK) * _number(volume(contraction.batch))
    found = None
    for row_parts in range(1, min(threads, -(-rows // info.lanes)) + 1):
        block_parts = min(threads // row_parts, blocks)
        unit = info.panel if row_parts * info.panel <= rows else info.lanes
        units = -(-rows // unit)
        most_rows = min(-(-units // row_parts) * unit, rows)
        windows = -(-blocks // block_parts) * BLOCK
        time = windows * (most_rows * (1 + own.packed / min(windows, own.strip)) + own.copied)
        # Where both take the same, by rows: what follows goes through the results by channels as a rule.
        if found is None or time <= found[0]:
            found = time, row_parts, block_parts
    assert found is not None
    return found[1:]


def _image(right: Patches, strip: int) -> int:
    """Elements of the padded image that a strip's windows see."""
    lines = min((strip + right.out_width - 2) // right.out_width + 1, right.out_height)
    height = (lines - 1) * right.stride[0] + (right.kernel[0] - 1) * right.dilation[0] + 1
    return right.channels * height * (right.width + 2 * right.padding[1])


def _whole(elements: int) -> int:
    return -(-elements // MAX_LANES) * MAX_LANES


def _number(n: ix.Index) -> int:
    assert isinstance(n, int)
    return n
