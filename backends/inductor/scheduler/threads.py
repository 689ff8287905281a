"""Work sharing of a contraction: which rows or panels each thread computes, and its workspace, for packed panels or for
the planes of im2col.

Each thread packs its own panels, or fills its own planes. Were these shared, threads would wait for each other and read
from each other's caches what is not written to memory yet, which takes as long as the products of some fifty rows.

Costs are counted in rows of the left operand: the time of the products of one row and all columns.

Where a size is a symbol, the library decides by the same costs when it is called (``decide`` in ``contraction.cpp``),
and workspaces are as large as they may have to be.

Invariant: results do not depend on anything that is decided here.
"""

from __future__ import annotations

import dataclasses
import math

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import CHUNK_DEPTH, MAX_LANES, Contraction, Matrix, Patches, volume

# Workspaces are rounded up to so many elements, so that kernels find one of the same size to take over.
WORKSPACE_UNIT = 1 << 14
# A left operand of more bytes does not stay in a core's own cache: to read it again and again costs so much.
FAR_LEFT, FAR_COST = 2 << 20, 1.05
# What it costs to pack a panel: of lines that are copied; otherwise; by im2col, each time that all windows are copied.
PACKING_LINES, PACKING, IM2COL = 3, 8, 6
# What follows a 1x1 convolution goes through its results by channels as a rule, and finds them in the thread's cache if
# they are shared out so. Otherwise that costs so much. With more pixels it counts for less than that each thread would
# read all that comes in.
FOREIGN_COST = 1.06
MOST_PIXELS = 4096
# Rows are shared out in such units.
ROWS = 2
# The widest panel, in columns, of ``contraction.cpp``.
MAX_PANEL = 64
# Up to so many columns beyond whole vectors are sums of their own (``contraction.cpp``).
FEW = 4
# Of the caches of one core: the bytes from one line to the next that takes the same place, and half as many as may.
NEAR_CACHES = ((4 << 10, 64), (128 << 10, 4))
# Im2colPlanes of about so many elements stay in a core's own cache beside what is read meanwhile.
NEAR_PLANES = 160 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class WorkSharing:
    """Attributes:
    by_rows: whether threads share out rows, and each packs all panels; if not, panels.
    slots: so many threads at most.
    slot: elements that each has in the workspace.
    kept: of so many rows, where an operand is packed piece by piece, the sums are kept meanwhile.
    direct: whether vectors of the right operand are read where they are.
    strip, copies: of windows, see ``Im2colPlanes``.
    decided: whether ``by_rows``, ``kept`` and ``direct`` hold for all calls; the library decides if not.
    packing: what it costs to fill the planes of windows, in rows; for the library.
    """

    by_rows: bool
    slots: int
    slot: ix.Index
    kept: int = 0
    direct: bool = False
    strip: int = 0
    copies: bool = False
    decided: bool = True
    packing: float = 0.0

    @property
    def elements(self) -> ix.Index:
        """Of the workspace."""
        if not isinstance(self.slot, int):
            return ix.mul(self.slot, self.slots)
        return -(-self.slots * self.slot // WORKSPACE_UNIT) * WORKSPACE_UNIT


@dataclasses.dataclass(frozen=True, slots=True)
class Im2colPlanes:
    """The im2col planes of a strip of an image (``contraction.cpp``): one for each column of the kernel, or for each
    class of columns modulo the stride, so that what one tap reads for neighbouring windows lies side by side.

    Attributes:
        strip: so many columns of the result see it, a multiple of ``MAX_PANEL``.
        copies: whether each of the kernel's columns has a plane of its own; nothing lies between its windows then.
        elements: of the planes of all channels.
        cost: in rows.
    """

    strip: int
    copies: bool
    elements: int
    cost: float


def share_work(contraction: Contraction, threads: int) -> WorkSharing:
    """The fastest work sharing for so many threads."""
    right, sized = contraction.right, contraction.is_sized
    if isinstance(right, Patches) and right.each:
        return WorkSharing(False, threads, right.strip()[-1])
    if isinstance(right, Patches):
        # Of the sizes only the batch's may be a symbol.
        rows, depth = _number(volume(contraction.rows)), _number(contraction.depth)
        planes = im2col_planes(right, rows)
        # The places of all taps come first.
        slot = _rounded(depth, MAX_LANES) + _rounded(planes.elements, MAX_LANES) + MAX_PANEL + MAX_LANES
        by_rows = sized and _by_rows(contraction, threads, planes.cost)
        return WorkSharing(by_rows, threads, slot, 0, False, planes.strip, planes.copies, sized, planes.cost)
    if not sized:
        return WorkSharing(False, threads, _largest_slot(contraction), decided=False)
    if _is_direct(contraction, right):
        foreign = FOREIGN_COST if threads > 1 and _number(volume(contraction.columns)) <= MOST_PIXELS else 1.0
        by_rows = _by_rows(contraction, threads, 0, foreign)
        return WorkSharing(by_rows, threads, _rounded(_number(contraction.depth), MAX_LANES), direct=True)
    by_rows = _by_rows(contraction, threads, PACKING_LINES if right.line == 1 else PACKING)
    rows, depth = _number(volume(contraction.rows)), _number(contraction.depth)
    piece = _piece(rows, depth)
    kept = rows if piece < depth else 0
    if by_rows:
        kept = _rounded(-(-kept // threads), MAX_LANES)
    return WorkSharing(by_rows, threads, (piece + kept + MAX_LANES) * MAX_PANEL, kept)


def _number(n: ix.Index) -> int:
    assert isinstance(n, int)
    return n


def _piece(rows: int, depth: int) -> int:
    """How deep the right operand is packed at a time; the sums are kept meanwhile, so it is all of it if that takes
    less."""
    return CHUNK_DEPTH if CHUNK_DEPTH + rows <= depth else depth


def _largest_slot(contraction: Contraction) -> ix.Index:
    """What a thread needs of the workspace at most, whatever the library decides: a piece and the sums that are kept
    are no more than the whole depth."""
    rows, depth = volume(contraction.rows), contraction.depth
    if isinstance(rows, int) and isinstance(depth, int):
        piece = _piece(rows, depth)
        depth = piece + rows if piece < depth else depth
    return ix.mul(ix.add(depth, 2 * MAX_LANES), MAX_PANEL)


def _by_rows(contraction: Contraction, threads: int, packing: float, foreign: float = 1.0) -> bool:
    """Whether it is faster to share out rows than panels, which costs ``foreign`` times as much."""
    by_rows = _longest_share_of_rows(contraction, threads, packing)
    by_panels = _longest_share_of_panels(contraction, threads)
    return by_rows < by_panels * foreign


def _is_direct(contraction: Contraction, right: Matrix) -> bool:
    """Whether the right operand is read as fast where it is as from a packed panel."""
    columns, depth, lane = _number(volume(contraction.columns)), _number(contraction.depth), 4
    # Vectors must not reach beyond a line: of the last one, beyond the operand.
    beyond = columns % MAX_LANES
    alone = 0 < beyond <= FEW and contraction.left.depth == 1 and depth >= 4 * MAX_LANES
    step = _number(right.depth)
    if right.line != 1 or (beyond and not alone) or depth * step >= 1 << 31:
        return False
    # Lines that begin at the same place of a page, or of a cache's way, take each other's room.
    for period, ways in NEAR_CACHES:
        places = period // math.gcd(period, step * lane)
        if min(depth, CHUNK_DEPTH) > places * ways:
            return False
    return True


def im2col_planes(right: Patches, rows: int) -> Im2colPlanes:
    """The cheaper kind of planes for so many filters."""
    kinds = [_planes_of_kind(right, rows, False)]
    if right.out_height > 1:
        kinds.append(_planes_of_kind(right, rows, True))
    return min(kinds, key=lambda planes: planes.cost)


def _planes_of_kind(right: Patches, rows: int, copies: bool) -> Im2colPlanes:
    (kh, kw), (sh, sw), (dh, dw) = right.kernel, right.stride, right.dilation
    beside, beyond = (kw - 1) * dw // sw, (kh - 1) * dh // sh
    kinds = right.channels * sh * (kw if copies else sw)
    width = right.out_width if copies else right.out_width + beside
    if right.out_height == 1:
        columns = NEAR_PLANES // (kinds * (1 + beyond)) - beside
        strip = min(max(columns // MAX_PANEL, 1) * MAX_PANEL, _rounded(right.out_width, MAX_PANEL))
        each = (1 + beyond) * (min(strip, right.out_width) + beside)
        strips, idle = -(-right.out_width // strip), 0.0
    else:
        lines = max(NEAR_PLANES // (kinds * width) - beyond, 2 * beyond, 3)
        places = right.out_height * width
        # A strip may begin and end within a line.
        columns = places if lines >= right.out_height else (lines - 2) * right.out_width + 2
        strip = max(_rounded(columns, MAX_PANEL) if columns == places else columns // MAX_PANEL * MAX_PANEL, MAX_PANEL)
        each = (min((strip + right.out_width - 2) // right.out_width + 1, right.out_height) + beyond) * width
        strips, idle = -(-places // strip), width / right.out_width - 1
    filled = strips * kinds * each / (right.channels * kh * kw * right.out_height * right.out_width)
    return Im2colPlanes(strip, copies, kinds * each, IM2COL * filled + idle * rows)


def _longest_share_of_panels(contraction: Contraction, threads: int) -> float:
    """What part of the time the busiest thread takes, in relation to one thread alone, if panels are shared out."""
    columns = _number(volume(contraction.columns))
    across = -(-columns // MAX_PANEL)
    panels = across * _number(volume(contraction.batch))
    last = -(-(columns - (across - 1) * MAX_PANEL) // MAX_LANES)
    widths = [MAX_PANEL // MAX_LANES] * (across - 1) + [last]
    # Each panel reads the left operand anew, from memory if that is where it is.
    cost = FAR_COST if _left(contraction) > FAR_LEFT and panels > 1 else 1.0
    if panels > 64 * threads:
        return cost / threads
    work = [widths[p % across] for p in range(panels)]
    parts = (sum(work[panels * t // threads : panels * (t + 1) // threads]) for t in range(threads))
    return cost * max(parts) / sum(work)


def _longest_share_of_rows(contraction: Contraction, threads: int, packing: float) -> float:
    """The same if rows are shared out and each thread packs all panels."""
    unit = MAX_LANES if contraction.transposed else ROWS
    rows = _number(volume(contraction.rows))
    units = -(-rows // unit)
    cost = FAR_COST if _left(contraction) > FAR_LEFT * threads else 1.0
    return cost * (min(-(-units // threads) * unit, rows) + packing) / (rows + packing)


def _left(contraction: Contraction) -> int:
    """Bytes of the left operand that every panel reads; 0 if each batch has its own."""
    if any(contraction.left.batch):
        return 0
    return _number(volume(contraction.rows)) * _number(contraction.depth) * 4


def _rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit
