"""Packing of a contraction's left operand: its cost, its benefit, and the number of columns that a block is packed for.

Invariant: the decisions do not depend on the number of threads or their shares, as the last bits of results may depend
on the decisions.
"""

from __future__ import annotations

import math

from dynamo_lite.backends.inductor.ir.contraction import (
    BLOCK,
    CHAIN_DEPTH,
    CHUNK_DEPTH,
    MAX_PANEL,
    PIECE_DEPTH,
    Contraction,
    Matrix,
    number,
    volume,
)
from dynamo_lite.backends.inductor.scheduler.exchanged import PACKING_SHARE
from dynamo_lite.backends.inductor.target_info import TargetInfo

# Unused elements behind each packed strip of rows (``panels.h``), which whole vectors may overwrite.
STRIP_SLACK = 8
# Smallest number of rows in a strip of ``panels.h``, over all kinds of vectors.
LEAST_STRIP = 4


def chunk_depth(info: TargetInfo) -> int:
    """Depth of the pieces of two packed operands that are multiplied at a time. A panel's piece stays in half of the L1
    cache while the left operand's rows stream by, if a whole chain fits there; otherwise it stays in the L2 cache."""
    return CHAIN_DEPTH if CHAIN_DEPTH * info.panel * 4 <= info.processor.l1.size // 2 else CHUNK_DEPTH


def left_block(info: TargetInfo) -> int:
    """Number of elements of a packed block of the left operand."""
    return BLOCK * chunk_depth(info) + -(-BLOCK // LEAST_STRIP) * STRIP_SLACK


def packing_left(contraction: Contraction, info: TargetInfo) -> tuple[float, float]:
    """The cost of packing an element of the left operand, and the time that it saves in each product of the element;
    both in products."""
    costs = info.costs
    # A smaller operand that is far is prefetched in time while other rows' products are computed.
    near = number(volume(contraction.rows)) * number(contraction.depth) * 4 <= info.near_result
    if contraction.left.depth_is_contiguous:
        return costs.near_left_columns if near else costs.left_columns, saved_left(contraction, info)
    return costs.near_left_lines if near else costs.left_lines, costs.strided_left


def saved_left(contraction: Contraction, info: TargetInfo) -> float:
    """The time, in products, that packing a left operand with contiguous depth saves in each product."""
    costs, line = info.costs, contraction.left.line
    if not isinstance(line, int) or not line:
        return costs.streamed_left
    # Rows whose distance has a large common divisor with the page size begin at few distinct offsets in a page, so that
    # their cache lines conflict.
    period = info.near_lines[0][0]
    return costs.streamed_left + (costs.aliased_left - costs.streamed_left) * math.gcd(period, line * 4) / period


def near_columns(contraction: Contraction, info: TargetInfo) -> int:
    """The number of columns whose packed panels, and the sums that are kept meanwhile, stay in the L2 cache: they may
    take half of it. Beyond it, packing writes to memory that other cores share, and each block of the left operand's
    rows reads the panels from there."""
    rows, depth = number(volume(contraction.rows)), number(contraction.depth)
    piece = piece_depth(rows, depth)
    columns = info.own_cache // 2 // (4 * (piece + (rows if piece < depth else 0)))
    return max(columns - columns % info.panel, MAX_PANEL)


def packing_gain(contraction: Contraction, columns: int, info: TargetInfo) -> float:
    """The time, in products, that is saved in each product if the left operand is packed for ``columns`` columns at a
    time; negative if packing costs more."""
    cost, saved = packing_left(contraction, info)
    return saved - cost / columns


def fetching_gain(contraction: Contraction, info: TargetInfo) -> float:
    """The time, in products, that is saved in each product if the right operand is packed for many columns at a time:
    the next piece is prefetched then, line after line, while the products of one are computed."""
    right, costs = contraction.right, info.costs
    columns, depth = number(volume(contraction.columns)), number(contraction.depth)
    if not isinstance(right, Matrix) or not right.far and columns * depth * 4 <= info.own_cache:
        return 0.0
    rows = number(volume(contraction.rows))
    if right.line == 1:
        return max(costs.pack_far_lines - costs.pack_lines, 0.0) / rows
    return max(costs.pack_far_columns - costs.pack_columns, 0.0) / rows if right.depth == 1 else 0.0


def packs_both(contraction: Contraction, columns: int, info: TargetInfo) -> bool:
    """Whether packing both operands costs less than it saves, if the left one is packed for ``columns`` columns."""
    return columns > 0 and packing_gain(contraction, columns, info) > (
        info.costs.pack_lines / number(volume(contraction.rows)))


def packed_again(contraction: Contraction, threads: int, columns: int, info: TargetInfo) -> float:
    """The factor by which products take longer if threads share the panels, as each packs the left operand for its own.

    Args:
        columns: number of columns that one thread alone would pack a block of the left operand for.
    """
    cost, _ = packing_left(contraction, info)
    panels = number(volume(contraction.columns)) * number(volume(contraction.batch))
    share = min(columns, max(panels // threads, info.panel))
    return (1 + cost / share) / (1 + cost / columns)


def columns_at_once(contraction: Contraction, info: TargetInfo) -> int:
    """The number of columns that a block of the left operand is packed for, a multiple of a panel; 0 if packing costs
    more than it saves. It does not depend on threads, as the last bits of results may depend on it."""
    cost, _ = packing_left(contraction, info)
    columns = number(volume(contraction.columns))
    most = min(columns, math.ceil(cost / PACKING_SHARE), near_columns(contraction, info))
    if packing_gain(contraction, most, info) + fetching_gain(contraction, info) <= 0:
        return 0
    # Divide the panels into equal parts.
    panels = -(-columns // info.panel)
    parts = -(-panels // -(-most // info.panel))
    return -(-panels // parts) * info.panel


def piece_depth(rows: int, depth: int, together: bool = True) -> int:
    """The depth to which the right operand is packed at a time. Partial sums of all rows are kept between two pieces,
    so the whole depth is packed at once if that takes less memory. Shallow pieces, for which more columns fit a cache,
    load and store the sums more often, so they have to take half of that memory.

    Args:
        together: whether a block of the left operand is packed for several panels.
    """
    if together and 2 * (PIECE_DEPTH + rows) <= depth:
        return PIECE_DEPTH
    return CHUNK_DEPTH if CHUNK_DEPTH + rows <= depth else depth
