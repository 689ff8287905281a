"""Work sharing of a contraction: which rows or panels each thread computes, and its workspace, for packed panels or for
the planes of im2col.

Each thread packs its own panels, or fills its own planes. Were these shared, threads would wait for each other and read
from each other's caches what is not written to memory yet, which takes as long as the products of some fifty rows.

Costs are counted in rows of the left operand: the time of the products of one row and all columns. What an element of
the right operand costs to pack, in products, is what all cost in rows. Costs and sizes of caches are ``TargetInfo``'s.

Where a size is a symbol, the library decides by the same costs when it is called (``decide`` in ``contraction.cpp``),
and workspaces are as large as they may have to be.

Invariant: what is decided is a function of the sizes, the number of threads and the description of the processor; no
result depends on the number of threads, and on the rest no more than its last bits do.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import (
    BLOCK,
    CHUNK_DEPTH,
    MAX_LANES,
    MAX_PANEL,
    Contraction,
    Matrix,
    Patches,
    number,
    rounded,
    volume,
)
from dynamo_lite.backends.inductor.scheduler.exchanged import PACKING_SHARE, exchange, parts_of, stays_near
from dynamo_lite.backends.inductor.scheduler.im2col import gain_of_strip, im2col_planes
from dynamo_lite.backends.inductor.scheduler.packing import (
    chunk_depth,
    columns_at_once,
    left_block,
    packed_again,
    packing_left,
    packs_both,
    piece_depth,
    saved_left,
)
from dynamo_lite.backends.inductor.scheduler.winograd import (
    LEAST_GAIN,
    filtering_cost,
    filtering_parts,
    group_tiles,
    suits,
)
from dynamo_lite.backends.inductor.target_info import LANES, TargetInfo

# Workspaces are rounded up to so many elements, so that kernels find one of the same size to take over.
WORKSPACE_UNIT = 1 << 14
# Rows are shared out in such units.
ROWS = 2
# Up to so many columns beyond whole vectors are sums of their own (``panels.h``).
FEW = 4


@dataclasses.dataclass(frozen=True, slots=True)
class LateDecision:
    """What is decided when a kernel is called, see ``late_sharing``.

    Attributes:
        names: of the numbers, among the kernel's sizes.
        described: what the wrapper asks by: nested tuples of numbers, sizes and texts.
    """

    names: tuple[str, ...]
    described: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WorkSharing:
    """Attributes:
    by_rows: whether threads share out rows, and each packs all panels; if not, panels.
    slots: so many threads at most.
    slot: elements that each has in the workspace.
    kept: of so many rows, where an operand is packed piece by piece, the sums are kept meanwhile.
    direct: whether vectors of the right operand are read where they are.
    group: the left operand is packed, block by block, each for so many panels; 0: it is read where it is.
    chunk: so deep is a block.
    strip, copies: of windows, see ``Im2colPlanes``, or of operands that exchange their roles, see ``Exchange``.
    row_parts, block_parts: of these, into how many parts the rows and the blocks of windows are divided, not more
        together than there are slots; 0: operands keep their roles.
    tile_lines, tile_groups, tile_rows: of transformed tiles, see ``Grouping`` and ``Kept``; 0: none are.
    decided: whether ``by_rows``, ``kept``, ``direct`` and ``group`` hold for all calls; the library decides if not.
    packing: what it costs to fill the planes of windows, in rows; for the library.
    widest: columns of all panels side by side for which a slot has room; for the library.
    tiles: of a depthwise convolution, see ``Patches.tiles``, if they are symbols.
    late: how the symbols among these get their values; None: there are none, but for ``slot``.
    """

    by_rows: bool | ix.Index
    slots: int
    slot: ix.Index
    kept: ix.Index = 0
    direct: bool = False
    group: ix.Index = 0
    chunk: ix.Index = CHUNK_DEPTH
    strip: ix.Index = 0
    copies: bool | ix.Index = False
    row_parts: ix.Index = 0
    block_parts: ix.Index = 0
    tile_lines: ix.Index = 0
    tile_groups: ix.Index = 0
    tile_rows: ix.Index = 0
    decided: bool = True
    packing: float = 0.0
    widest: int = 0
    tiles: tuple[ix.Index, ...] = ()
    late: LateDecision | None = None

    def indices(self) -> tuple[ix.Index, ...]:
        """All that may be a symbol."""
        return (self.by_rows, self.slot, self.kept, self.group, self.chunk, self.strip, self.copies, self.row_parts,
                self.block_parts, self.tile_lines, self.tile_groups, self.tile_rows, *self.tiles)

    @property
    def exchanged(self) -> bool:
        """Whether elements of windows are spread over vectors, and the left operand's rows are packed."""
        return self.row_parts > 0 and not self.tile_lines

    @property
    def elements(self) -> ix.Index:
        """Of the workspace."""
        if not isinstance(self.slot, int):
            return ix.mul(self.slot, self.slots)
        return -(-self.slots * self.slot // WORKSPACE_UNIT) * WORKSPACE_UNIT


def share_work(contraction: Contraction, threads: int, info: TargetInfo) -> WorkSharing:
    """The fastest work sharing for so many threads."""
    right, sized = contraction.right, contraction.is_sized
    if isinstance(right, Patches) and right.each:
        return WorkSharing(False, threads, right.tiles(info.strip)[-1])
    if isinstance(right, Patches):
        # Of the sizes only the batch's may be a symbol.
        rows, depth = number(volume(contraction.rows)), number(contraction.depth)
        saved = saved_left(contraction, info) if sized else 0.0
        planes = im2col_planes(right, rows, info, saved)
        # Filters whose channels lie innermost are packed in any case.
        must = contraction.left.taps > 0
        packing, gain = _window_packing(right, info), gain_of_strip(right, planes, saved, info, must)
        from_planes = planes.cost + rows * (info.costs.placed_right - gain)
        exchanged = exchange(contraction, right, info) if stays_near(right, info) else None
        beside = from_planes + rows * saved_left(contraction, info)
        if _filters(contraction, right, rows + min(beside, exchanged.cost if exchanged else beside), info):
            own, grouping = filtering_parts(contraction, right, threads, info), group_tiles(right, info)
            return WorkSharing(False, threads, own.elements, row_parts=own.rows, block_parts=own.blocks,
                               tile_lines=grouping.lines, tile_groups=own.kept.groups, tile_rows=own.kept.rows,
                               decided=sized)
        group = _windows_at_once(contraction, right, from_planes, packing, info) if sized else 0
        if group:
            return _packed(contraction, threads, group // info.panel, packing, info)
        if sized and exchanged is not None and exchanged.cost < beside:
            parts = parts_of(contraction, right, exchanged, threads, info)
            return WorkSharing(False, threads, parts.elements, strip=parts.strip, row_parts=parts.rows,
                               block_parts=parts.blocks)
        # The places of all taps come first.
        slot = rounded(depth, MAX_LANES) + rounded(planes.elements, MAX_LANES) + MAX_PANEL + MAX_LANES
        again = 1.0
        if gain or must:
            again = packed_again(contraction, threads, planes.strip, info) if sized else 1.0
            kept = planes.strip * BLOCK if depth > chunk_depth(info) else 0
            slot += kept + MAX_LANES + rounded(left_block(info), MAX_LANES)
        by_rows = sized and _by_rows(contraction, threads, planes.cost, info, again)
        return WorkSharing(by_rows, threads, slot, group=planes.strip // info.panel if gain or must else 0,
                           chunk=chunk_depth(info), strip=planes.strip, copies=planes.copies, decided=sized,
                           packing=planes.cost)
    if not sized:
        widest = _widest(contraction, info)
        return WorkSharing(False, threads, _largest_slot(contraction, widest, info), chunk=chunk_depth(info),
                           decided=False, widest=widest)
    group = columns_at_once(contraction, info) // info.panel
    if not packs_both(contraction, group * info.panel, info) and _is_direct(contraction, right, info):
        # What follows a 1x1 convolution goes through its results by channels as a rule, and finds them in the thread's
        # own cache if they are shared out so.
        few = threads > 1 and number(volume(contraction.columns)) <= info.near_pixels
        by_rows = _by_rows(contraction, threads, 0, info, _foreign(contraction, threads, info) if few else 1.0)
        return WorkSharing(by_rows, threads, rounded(number(contraction.depth), MAX_LANES), direct=True,
                           chunk=chunk_depth(info))
    return _packed(
        contraction, threads, group, info.costs.pack_lines if right.line == 1 else info.costs.pack_columns, info)


def _filters(contraction: Contraction, right: Patches, plain: float, info: TargetInfo) -> bool:
    """Whether Winograd's filtering is faster than plain sums, which cost so much in rows."""
    if not info.winograd or not suits(contraction, right):
        return False
    return filtering_cost(contraction, right, info) < (1 - LEAST_GAIN) * plain


def _packed(contraction: Contraction, threads: int, group: int, packing: float, info: TargetInfo) -> WorkSharing:
    """A product whose right operand is packed at so much an element, and the left one for so many panels if any."""
    again = packed_again(contraction, threads, group * info.panel, info) if group else 1.0
    by_rows = _by_rows(contraction, threads, packing, info, again)
    rows, depth = number(volume(contraction.rows)), number(contraction.depth)
    piece = piece_depth(rows, depth)
    kept = rows if piece < depth else 0
    if by_rows:
        kept = rounded(-(-kept // threads), MAX_LANES)
    if not group:
        return WorkSharing(by_rows, threads, (piece + kept + MAX_LANES) * MAX_PANEL, kept)
    slot = (piece + (kept if kept else BLOCK)) * group * info.panel + MAX_LANES + left_block(info)
    return WorkSharing(by_rows, threads, rounded(slot, MAX_PANEL), kept, group=group, chunk=chunk_depth(info))


def _window_packing(right: Patches, info: TargetInfo) -> float:
    """What an element of a window costs to pack: as one of a matrix's columns, in tiles of narrower vectors if the
    kernel is narrower. A tile of n vectors takes n loads, n stores and n log2(n) shuffles for n * n elements."""
    width, widest = right.kernel[1], LANES[info.simd]
    lanes = min(max(1 << (width - 1).bit_length(), LANES["scalar"]), widest)
    instructions = [(2 + math.log2(n)) / n for n in (lanes, widest)]
    return info.costs.pack_columns * instructions[0] / instructions[1] * rounded(width, lanes) / width


def _windows_at_once(contraction: Contraction, right: Patches, from_planes: float, packing: float,
                     info: TargetInfo) -> int:
    """For how many columns the left operand is packed where windows are packed in panels from the image, as a matrix's
    columns are; 0 where that does not pay. It does where windows overlap little: planes would hold what several see
    but once.

    Args:
        from_planes: what it costs in rows to read them from planes.
        packing: what an element costs to pack."""
    if any(right.padding) or right.dilation[1] != 1 or contraction.left.taps:
        return 0
    columns = columns_at_once(contraction, info)
    if not columns:
        return 0
    cost, saved = packing_left(contraction, info)
    rows = number(volume(contraction.rows))
    return columns if packing + rows * (cost / columns - saved) < from_planes else 0


def _widest(contraction: Contraction, info: TargetInfo) -> int:
    """For how many columns a block of the left operand is packed at most, whatever sizes are symbols."""
    cost, _ = packing_left(contraction, info)
    columns, depth = volume(contraction.columns), contraction.depth
    most = math.ceil(cost / PACKING_SHARE)
    if isinstance(depth, int):
        most = min(most, info.near_panels // (4 * min(depth, CHUNK_DEPTH)))
    if isinstance(columns, int):
        most = min(most, columns)
    return max(rounded(most, info.panel), MAX_PANEL)


def _largest_slot(contraction: Contraction, widest: int, info: TargetInfo) -> ix.Index:
    """What a thread needs of the workspace at most, whatever the library decides, for so many columns side by side: a
    piece and the sums that are kept are no more than the whole depth; rows that threads share are rounded up."""
    rows, depth = volume(contraction.rows), contraction.depth
    if isinstance(rows, int) and isinstance(depth, int):
        piece = piece_depth(rows, depth)
        depth = piece + rows if piece < depth else depth
    return ix.add(ix.mul(ix.add(depth, BLOCK), widest), rounded(MAX_LANES + left_block(info), MAX_PANEL))


def _by_rows(contraction: Contraction, threads: int, packing: float, info: TargetInfo, foreign: float = 1.0) -> bool:
    """Whether it is faster to share out rows than panels, which costs ``foreign`` times as much."""
    by_rows = _longest_share_of_rows(contraction, threads, packing, info)
    by_panels = _longest_share_of_panels(contraction, threads, info)
    return by_rows < by_panels * foreign


def _foreign(contraction: Contraction, threads: int, info: TargetInfo) -> float:
    """How many times as long a product takes together with the reading of its results, but for those that the thread
    itself has written, if each thread finds some of each in other cores' caches."""
    depth = number(contraction.depth)
    return 1 + info.foreign_read * info.costs.product_rate * (threads - 1) / threads / depth


def _is_direct(contraction: Contraction, right: Matrix, info: TargetInfo) -> bool:
    """Whether the right operand is read as fast where it is as from a packed panel."""
    columns, depth, lane = number(volume(contraction.columns)), number(contraction.depth), 4
    # Vectors must not reach beyond a line: of the last one, beyond the operand.
    beyond = columns % MAX_LANES
    alone = 0 < beyond <= FEW and contraction.left.depth == 1 and depth >= 4 * MAX_LANES
    step = number(right.depth)
    if right.line != 1 or (beyond and not alone) or depth * step >= 1 << 31:
        return False
    # Lines that begin at the same place of a page, or of a cache's way, take each other's room.
    for period, ways in info.near_lines:
        places = period // math.gcd(period, step * lane)
        if min(depth, CHUNK_DEPTH) > places * ways:
            return False
    return True


def _longest_share_of_panels(contraction: Contraction, threads: int, info: TargetInfo) -> float:
    """What part of the time the busiest thread takes, in relation to one thread alone, if panels are shared out."""
    columns = number(volume(contraction.columns))
    across = -(-columns // MAX_PANEL)
    panels = across * number(volume(contraction.batch))
    last = -(-(columns - (across - 1) * MAX_PANEL) // MAX_LANES)
    widths = [MAX_PANEL // MAX_LANES] * (across - 1) + [last]
    # Each panel reads the left operand anew, from memory if that is where it is.
    cost = info.far_read if _left(contraction) > info.far_left and panels > 1 else 1.0
    if panels > 64 * threads:
        return cost / threads
    work = [widths[p % across] for p in range(panels)]
    parts = (sum(work[panels * t // threads : panels * (t + 1) // threads]) for t in range(threads))
    return cost * max(parts) / sum(work)


def _longest_share_of_rows(contraction: Contraction, threads: int, packing: float, info: TargetInfo) -> float:
    """The same if rows are shared out and each thread packs all panels."""
    unit = MAX_LANES if contraction.transposed else ROWS
    rows = number(volume(contraction.rows))
    units = -(-rows // unit)
    cost = info.far_read if _left(contraction) > info.far_left * threads else 1.0
    return cost * (min(-(-units // threads) * unit, rows) + packing) / (rows + packing)


def _left(contraction: Contraction) -> int:
    """Bytes of the left operand that every panel reads; 0 if each batch has its own."""
    if any(contraction.left.batch):
        return 0
    return number(volume(contraction.rows)) * number(contraction.depth) * 4
