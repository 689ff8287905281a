"""Packing of a contraction's left operand: what it costs, what it saves, for how many columns a block is packed.

Invariant: no thread's share is in what is decided here, as last bits may depend on it.
"""

from __future__ import annotations

import math

from dynamo_lite.backends.inductor.ir.contraction import (
    BLOCK,
    CHAIN_DEPTH,
    CHUNK_DEPTH,
    MAX_PANEL,
    Contraction,
    number,
    volume,
)
from dynamo_lite.backends.inductor.scheduler.exchanged import PACKING_SHARE
from dynamo_lite.backends.inductor.target_info import TargetInfo

# What is behind a packed strip of six rows (``panels.h``).
STRIP_SLACK = 8
# The fewest rows of a strip of ``panels.h``.
LEAST_STRIP = 4


def chunk_depth(info: TargetInfo) -> int:
    """So deep are the pieces of two packed operands that are multiplied: a panel's piece stays in half of the first
    cache while the left operand's rows pass by, if that has room for a whole chain; if not, it stays in the second."""
    return CHAIN_DEPTH if CHAIN_DEPTH * info.panel * 4 <= info.processor.l1.size // 2 else CHUNK_DEPTH


def left_block(info: TargetInfo) -> int:
    """Elements of a packed block of the left operand."""
    return BLOCK * chunk_depth(info) + -(-BLOCK // LEAST_STRIP) * STRIP_SLACK


def packing_left(contraction: Contraction, info: TargetInfo) -> tuple[float, float]:
    """What an element of the left operand costs to pack, and what that saves of each of its products."""
    costs = info.costs
    if contraction.left.depth_is_contiguous:
        return costs.left_columns, saved_left(contraction, info)
    return costs.left_lines, costs.strided_left


def saved_left(contraction: Contraction, info: TargetInfo) -> float:
    """What packing saves of each product of a left operand whose depth is contiguous."""
    costs, line = info.costs, contraction.left.line
    if not isinstance(line, int) or not line:
        return costs.streamed_left
    # So few places in a page have the lines of the cache that the rows of a tile begin with.
    period = info.near_lines[0][0]
    return costs.streamed_left + (costs.aliased_left - costs.streamed_left) * math.gcd(period, line * 4) / period


def packs_both(contraction: Contraction, columns: int, info: TargetInfo) -> bool:
    """Whether to pack both operands, the left one for so many columns, costs less than it saves."""
    cost, saved = packing_left(contraction, info)
    return columns > 0 and saved > cost / columns + info.costs.pack_lines / number(volume(contraction.rows))


def packed_again(contraction: Contraction, threads: int, columns: int, info: TargetInfo) -> float:
    """How much longer threads that share out panels take because each packs the left operand for its own."""
    cost, _ = packing_left(contraction, info)
    panels = number(volume(contraction.columns)) * number(volume(contraction.batch))
    share = min(columns, max(panels // threads, info.panel))
    return (1 + cost / share) / (1 + cost / columns)


def columns_at_once(contraction: Contraction, info: TargetInfo) -> int:
    """For how many columns a block of the left operand is packed, in whole panels; 0: it isn't, as it costs more than
    it saves. No thread's share is in this: last bits may depend on it."""
    cost, saved = packing_left(contraction, info)
    rows, columns, depth = (number(n) for n in (volume(contraction.rows), volume(contraction.columns),
                                                 contraction.depth))
    room = max(info.near_panels // (4 * piece_depth(rows, depth)), MAX_PANEL)
    most = min(columns, math.ceil(cost / PACKING_SHARE), room)
    if saved * most <= cost:
        return 0
    # Equal parts.
    panels = -(-columns // info.panel)
    parts = -(-panels // -(-most // info.panel))
    return -(-panels // parts) * info.panel


def piece_depth(rows: int, depth: int) -> int:
    """How deep the right operand is packed at a time; the sums are kept meanwhile, so it is all of it if that takes
    less."""
    return CHUNK_DEPTH if CHUNK_DEPTH + rows <= depth else depth
