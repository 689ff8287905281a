"""Work sharing of a contraction: the algorithm, the rows or panels that each thread computes, and its workspace.

Each thread packs its own panels, or fills its own planes of im2col. If these were shared, threads would wait for each
other, and would read modified cache lines from other cores, which takes as long as the products of some fifty rows.

Costs are counted in rows of the left operand: one unit is the time of the products of one row with all columns. So the
cost of packing the whole right operand, in rows, equals that of packing one element, in products. Costs and cache sizes
come from ``TargetInfo``.

If a size is a symbol, the template's library decides at each call by the same costs (``decide`` in
``contraction.cpp``), and workspaces have the largest size that any decision may need.

Invariant: the decision is a function of the sizes, the number of threads and the description of the processor. No
result depends on the number of threads, and only the last bits of results depend on the rest of the decision.
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
    PIECE_DEPTH,
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
    packing_gain,
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

# Sizes of workspaces are multiples of this number of elements, so that a kernel often finds one of its size to reuse.
WORKSPACE_UNIT = 1 << 14
# Threads get multiples of this number of rows.
ROWS = 2
# Up to this many columns beyond whole vectors are computed by dot products along the left operand's rows: ``panels.h``.
FEW = 4


@dataclasses.dataclass(frozen=True, slots=True)
class LateDecision:
    """A decision that is made when a kernel is called, see ``late_sharing``.

    Attributes:
        names: names of the decided numbers among the kernel's symbolic sizes.
        described: the key of the wrapper's request: nested tuples of numbers, sizes and strings.
    """

    names: tuple[str, ...]
    described: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WorkSharing:
    """The decisions for one contraction.

    Attributes:
        by_rows: whether threads share the rows, and each of them packs all panels; if not, they share the panels.
        slots: the largest number of threads that can take part.
        slot: number of workspace elements for each thread.
        kept: number of rows whose partial sums stay in the workspace while the right operand is packed piece by piece
            along its depth; 0 if it is packed at once.
        direct: whether vectors of the right operand are read in place, without packing.
        group: number of panels that each packed block of the left operand serves; 0: the left operand is read in place.
        chunk: depth (number of products per sum) of the pieces that are multiplied at a time, and so of a packed block
            of the left operand.
        piece: depth to which a matrix that is the right operand is packed at a time; 0 for other right operands, and if
            it is not packed.
        strip, copies: for convolutions, see ``Im2colPlanes``; with exchanged operands, see ``Exchange``.
        row_parts, block_parts: with exchanged operands or Winograd's filtering, the number of parts that the rows, and
            the blocks (or groups) of windows, are divided into; their product is at most ``slots``. 0: neither is used.
        tile_lines, tile_groups, tile_rows: for Winograd's filtering, see ``Grouping`` and ``Kept``; 0: it is not used.
        decided: whether ``by_rows``, ``kept``, ``direct`` and ``group`` are final; if not, the template's library
            decides at each call.
        packing: cost of filling the planes of im2col, in rows; an input of the library's decision.
        widest: number of columns, of all panels side by side, that fit a slot; a limit for the library's decision.
        tiles: for a depthwise convolution with symbolic sizes, the symbols for the results of ``Patches.tiles``.
        late: how the symbols among these numbers get their values; None if only ``slot`` may contain symbols.
    """

    by_rows: bool | ix.Index
    slots: int
    slot: ix.Index
    kept: ix.Index = 0
    direct: bool = False
    group: ix.Index = 0
    chunk: ix.Index = CHUNK_DEPTH
    piece: ix.Index = 0
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
        """All numbers that may be symbolic."""
        return (self.by_rows, self.slot, self.kept, self.group, self.chunk, self.piece, self.strip, self.copies,
                self.row_parts, self.block_parts, self.tile_lines, self.tile_groups, self.tile_rows, *self.tiles)

    @property
    def exchanged(self) -> bool:
        """Whether the operands exchange their roles: elements of windows are broadcast, and the left operand's rows are
        packed in panels."""
        return self.row_parts > 0 and not self.tile_lines

    @property
    def elements(self) -> ix.Index:
        """Number of elements of the workspace."""
        if not isinstance(self.slot, int):
            return ix.mul(self.slot, self.slots)
        return -(-self.slots * self.slot // WORKSPACE_UNIT) * WORKSPACE_UNIT


def share_work(contraction: Contraction, threads: int, info: TargetInfo) -> WorkSharing:
    """The fastest algorithm for a contraction, and the fastest way to share its work among ``threads`` threads."""
    right, sized = contraction.right, contraction.is_sized
    if isinstance(right, Patches) and right.each:
        return WorkSharing(False, threads, right.tiles(info.strip)[-1])
    if isinstance(right, Patches):
        # Only the size of the batch may be a symbol.
        rows, depth = number(volume(contraction.rows)), number(contraction.depth)
        saved = saved_left(contraction, info) if sized else 0.0
        planes = im2col_planes(right, rows, info, saved)
        # Filters whose innermost dimension is the channels have to be packed.
        must = contraction.left.taps > 0
        packing, gain = _window_packing(right, info), gain_of_strip(right, planes, saved, info, must)
        from_planes = planes.cost + rows * (info.costs.placed_right - gain)
        exchanged = exchange(contraction, right, info) if stays_near(right, info) else None
        beside = from_planes + rows * saved_left(contraction, info)
        alone = _in_one_panel(contraction, right, packing, info)
        plain = min(beside, exchanged.cost if exchanged else beside, alone)
        if _filters(contraction, right, rows + plain, info):
            own, grouping = filtering_parts(contraction, right, threads, info), group_tiles(right, info)
            return WorkSharing(False, threads, own.elements, row_parts=own.rows, block_parts=own.blocks,
                               tile_lines=grouping.lines, tile_groups=own.kept.groups, tile_rows=own.kept.rows,
                               decided=sized)
        group = _windows_at_once(contraction, right, from_planes, packing, info) if sized else 0
        if group:
            return _packed(contraction, threads, group // info.panel, packing, info)
        if plain == alone:
            return _packed(contraction, threads, 0, packing, info)
        if sized and exchanged is not None and exchanged.cost < beside:
            parts = parts_of(contraction, right, exchanged, threads, info)
            return WorkSharing(False, threads, parts.elements, strip=parts.strip, row_parts=parts.rows,
                               block_parts=parts.blocks)
        # The offsets of all taps come first in the workspace.
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
        # The consumer of a 1x1 convolution usually runs over its results by channels. If threads share them in the same
        # way, it finds them in the cache of its own core.
        few = threads > 1 and number(volume(contraction.columns)) <= info.near_pixels
        by_rows = _by_rows(contraction, threads, 0, info, _foreign(contraction, threads, info) if few else 1.0)
        return WorkSharing(by_rows, threads, rounded(number(contraction.depth), MAX_LANES), direct=True,
                           chunk=chunk_depth(info))
    return _packed(
        contraction, threads, group, info.costs.pack_lines if right.line == 1 else info.costs.pack_columns, info)


def share_later(contraction: Contraction, largest: Contraction, info: TargetInfo) -> WorkSharing:
    """The work sharing of a product whose sizes are known at each call, on one thread.

    Args:
        largest: the same product with its largest sizes, for which the workspace has room.
    """
    widest = _widest(contraction, info)
    return WorkSharing(False, 1, _largest_slot(largest, widest, info), chunk=chunk_depth(info), decided=False,
                       widest=widest)


def _filters(contraction: Contraction, right: Patches, plain: float, info: TargetInfo) -> bool:
    """Whether Winograd's filtering is possible and faster than plain sums of products.

    Args:
        plain: cost of plain sums, in rows.
    """
    if not info.winograd or not suits(contraction, right):
        return False
    return filtering_cost(contraction, right, info) < (1 - LEAST_GAIN) * plain


def _packed(contraction: Contraction, threads: int, group: int, packing: float, info: TargetInfo) -> WorkSharing:
    """The work sharing of a product whose right operand is packed.

    Args:
        group: number of panels that a packed block of the left operand serves; 0 if it is not packed.
        packing: cost of packing an element of the right operand, in products.
    """
    again = packed_again(contraction, threads, group * info.panel, info) if group else 1.0
    by_rows = _by_rows(contraction, threads, packing, info, again)
    rows, depth = number(volume(contraction.rows)), number(contraction.depth)
    piece = piece_depth(rows, depth, group > 0)
    kept = rows if piece < depth else 0
    if by_rows:
        kept = rounded(-(-kept // threads), MAX_LANES)
    if not group:
        return WorkSharing(by_rows, threads, (piece + kept + MAX_LANES) * MAX_PANEL, kept, piece=piece)
    slot = (piece + (kept if kept else BLOCK)) * group * info.panel + MAX_LANES + left_block(info)
    return WorkSharing(by_rows, threads, rounded(slot, MAX_PANEL), kept, group=group, chunk=chunk_depth(info),
                       piece=piece)


def _is_shifted(right: Patches) -> bool:
    """Whether windows are packed by ``pack_shifted`` in ``packed.h``, tap by tap: windows of a line see neighboring
    pixels. Only this way of packing takes padding."""
    return right.stride[1] == 1 and (
        any(right.padding) or right.dilation[1] > 1 or number(right.out_width) > right.kernel[1])


def _window_packing(right: Patches, info: TargetInfo) -> float:
    """The cost, in products, of packing an element of a window. It is that of an element of a matrix's column, scaled
    to tiles of narrower vectors if the kernel is narrower than a vector: a tile of n vectors takes n loads, n stores
    and n log2(n) shuffles for n * n elements. Windows of one pixel with a horizontal stride of 2 are every other lane
    of lines (``pack_halved`` in ``packed.h``): twice the pixels are read, and then packed as a matrix's lines are.
    Windows that are packed tap by tap take whole vectors for each line of the result."""
    if right.kernel == (1, 1) and right.stride[1] == 2:
        return 2 * info.costs.pack_lines
    if isinstance(right.out_width, int) and _is_shifted(right):
        return info.costs.pack_lines * rounded(right.out_width, LANES[info.simd]) / right.out_width
    width, widest = right.kernel[1], LANES[info.simd]
    lanes = min(max(1 << (width - 1).bit_length(), LANES["scalar"]), widest)
    instructions = [(2 + math.log2(n)) / n for n in (lanes, widest)]
    return info.costs.pack_columns * instructions[0] / instructions[1] * rounded(width, lanes) / width


def _windows_at_once(contraction: Contraction, right: Patches, from_planes: float, packing: float,
                     info: TargetInfo) -> int:
    """The number of columns that a block of the left operand is packed for, if windows are packed in panels directly
    from the image, like a matrix's columns; 0 if that does not pay. It pays if windows overlap little, as planes of
    im2col only save copies of pixels that several windows share.

    Args:
        from_planes: cost, in rows, of reading the windows from planes instead.
        packing: cost of packing an element of a window, in products.
    """
    if any(right.padding) or right.dilation[1] != 1 or contraction.left.taps:
        return 0
    columns = columns_at_once(contraction, info)
    if not columns:
        return 0
    rows = number(volume(contraction.rows))
    return columns if packing - rows * packing_gain(contraction, columns, info) < from_planes else 0


def _in_one_panel(contraction: Contraction, right: Patches, packing: float, info: TargetInfo) -> float:
    """The cost, in rows, of windows that are packed in one panel, piece by piece, while the filters are read where they
    are; infinite if that is not possible. All filters are read for each panel, and come from memory: so few windows are
    worth no packing of filters.

    Args:
        packing: cost of packing an element of a window, in products.
    """
    if not contraction.is_sized or contraction.left.taps or not _is_shifted(right):
        return math.inf
    if number(volume(contraction.columns)) > info.panel:
        return math.inf
    return packing + number(volume(contraction.rows)) * saved_left(contraction, info)


def _widest(contraction: Contraction, info: TargetInfo) -> int:
    """Upper bound, over all values of symbolic sizes, of the number of columns that a block of the left operand is
    packed for."""
    costs, columns, depth = info.costs, volume(contraction.columns), contraction.depth
    most = math.ceil(max(costs.left_lines, costs.left_columns, costs.near_left_lines, costs.near_left_columns)
                     / PACKING_SHARE)
    if isinstance(depth, int):
        most = min(most, info.own_cache // 2 // (4 * min(depth, PIECE_DEPTH)))
    if isinstance(columns, int):
        most = min(most, columns)
    return max(rounded(most, info.panel), MAX_PANEL)


def _largest_slot(contraction: Contraction, widest: int, info: TargetInfo) -> ix.Index:
    """Upper bound of the workspace elements that a thread needs for any decision of the library.

    A packed piece and the kept sums together take no more than the whole depth; the rows of a thread's share are
    rounded up.

    Args:
        widest: largest number of columns that a block of the left operand is packed for.
    """
    rows, depth = volume(contraction.rows), contraction.depth
    if isinstance(rows, int) and isinstance(depth, int):
        piece = piece_depth(rows, depth, together=False)  # shallow pieces and their sums take less
        depth = piece + rows if piece < depth else depth
    return ix.add(ix.mul(ix.add(depth, BLOCK), widest), rounded(MAX_LANES + left_block(info), MAX_PANEL))


def _by_rows(contraction: Contraction, threads: int, packing: float, info: TargetInfo, foreign: float = 1.0) -> bool:
    """Whether sharing rows among threads is faster than sharing panels.

    Args:
        packing: cost of packing the right operand, in rows.
        foreign: factor by which sharing panels takes longer than its products alone.
    """
    by_rows = _longest_share_of_rows(contraction, threads, packing, info)
    by_panels = _longest_share_of_panels(contraction, threads, info)
    return by_rows < by_panels * foreign


def _foreign(contraction: Contraction, threads: int, info: TargetInfo) -> float:
    """The factor by which a product takes longer if one includes the time to read its results from other cores' caches
    afterwards, when each thread reads an equal part of every thread's results."""
    depth = number(contraction.depth)
    return 1 + info.foreign_read * info.costs.product_rate * (threads - 1) / threads / depth


def _is_direct(contraction: Contraction, right: Matrix, info: TargetInfo) -> bool:
    """Whether the right operand can be read in place as fast as from a packed panel."""
    columns, depth, lane = number(volume(contraction.columns)), number(contraction.depth), 4
    # Vectors must not extend beyond a line, as they would extend beyond the operand in the last one.
    beyond = columns % MAX_LANES
    alone = 0 < beyond <= FEW and contraction.left.depth == 1 and depth >= 4 * MAX_LANES
    step = number(right.depth)
    if right.line != 1 or (beyond and not alone) or depth * step >= 1 << 31:
        return False
    # Vectors of lines that begin anywhere in a cache line take longer than packing the lines if there are many rows.
    apart = 1 - math.gcd(step, LANES[info.simd]) / LANES[info.simd]
    if number(volume(contraction.rows)) * apart * info.costs.placed_right > info.costs.pack_lines:
        return False
    # Lines that begin at the same offset in a page, or in a way of the cache, conflict.
    for period, ways in info.near_lines:
        places = period // math.gcd(period, step * lane)
        if min(depth, CHUNK_DEPTH) > places * ways:
            return False
    return True


def _longest_share_of_panels(contraction: Contraction, threads: int, info: TargetInfo) -> float:
    """The time of the busiest thread if threads share the panels, relative to that of one thread alone."""
    columns = number(volume(contraction.columns))
    across = -(-columns // MAX_PANEL)
    panels = across * number(volume(contraction.batch))
    last = -(-(columns - (across - 1) * MAX_PANEL) // MAX_LANES)
    widths = [MAX_PANEL // MAX_LANES] * (across - 1) + [last]
    # Each panel reads the whole left operand again, from beyond the core's own cache if it is too large for that.
    cost = info.far_read if _left(contraction) > info.far_left and panels > 1 else 1.0
    if panels > 64 * threads:
        return cost / threads
    work = [widths[p % across] for p in range(panels)]
    parts = (sum(work[panels * t // threads : panels * (t + 1) // threads]) for t in range(threads))
    return cost * max(parts) / sum(work)


def _longest_share_of_rows(contraction: Contraction, threads: int, packing: float, info: TargetInfo) -> float:
    """The time of the busiest thread if threads share the rows and each packs all panels, relative to that of one
    thread alone."""
    unit = MAX_LANES if contraction.transposed else ROWS
    rows = number(volume(contraction.rows))
    units = -(-rows // unit)
    cost = info.far_read if _left(contraction) > info.far_left * threads else 1.0
    return cost * (min(-(-units // threads) * unit, rows) + packing) / (rows + packing)


def _left(contraction: Contraction) -> int:
    """Size in bytes of a left operand that all panels read; 0 if each batch has its own left operand."""
    if any(contraction.left.batch):
        return 0
    return number(volume(contraction.rows)) * number(contraction.depth) * 4
