"""Convolutions of 3 x 3 taps by Winograd's minimal filtering (``winograd.h``): the grouping of tiles, the cost, and the
division of work among threads.

A tile of 2 x 2 results takes 16 products of each channel instead of 36. The transforms of pixels, filters and sums are
additional costs, which are measured (``TargetInfo.costs``).

Costs are counted in rows, as in ``threads.py``.

Invariant: the grouping of results, and hence every bit of them, does not depend on the number of threads.
"""
from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.ir.contraction import BLOCK, Contraction, Patches, number, rounded, volume
from dynamo_lite.backends.inductor.target_info import LINE, TargetInfo

# Elements of a transformed tile, and taps of a filter.
PLACES, TAPS = 16, 9
# Largest number of tiles in a group (``wide`` in ``panels.h``).
MAX_TILES = 64
# Number of float32 elements in a cache line.
_LINE = LINE // 4
# Smallest fraction of the time that filtering must save by the formula to be chosen. The costs leave out that each step
# evicts from the caches what the next one reads, which took up to a fifth of the time on an AMD EPYC (Zen 3).
LEAST_GAIN = 0.2
# As in ``winograd.h`` and ``panels.h``: number of channels whose taps are packed at a time, and of unused elements
# behind a packed strip.
_PACKED_CHANNELS, _SLACK = 32, 8


@dataclasses.dataclass(frozen=True, slots=True)
class Grouping:
    """The grouping of an image's tiles.

    Attributes:
        lines: number of lines of tiles in a group; 1 if a group is a part of a line.
        side: number of tiles in each line of a group.
        groups: number of groups of an image.
        computed: number of tiles of a group, rounded up to whole vectors.
        split: the same for the transform of pixels, where each line is rounded up to whole vectors.
    """

    lines: int
    side: int
    groups: int
    computed: int
    split: float


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """The operand whose transformed form a thread keeps: all of its filters, while it processes groups one by one; or
    the pixels of several groups, while it processes filters in pieces.

    Attributes:
        groups: number of groups whose pixels are transformed together.
        rows: number of rows (filters) that are transformed together, a multiple of a tile's rows.
    """

    groups: int
    rows: int


@dataclasses.dataclass(frozen=True, slots=True)
class FilteringParts:
    """The division of a convolution among threads.

    Attributes:
        rows, blocks: number of parts that the rows, and the groups of all images, are divided into.
        kept: the operand that stays transformed in a part.
        elements: number of workspace elements that a thread needs.
        cost: cost of the largest part, in products.
    """

    rows: int
    blocks: int
    kept: Kept
    elements: int
    cost: float


def suits(contraction: Contraction, right: Patches) -> bool:
    """Whether Winograd's filtering can compute a convolution: it has 3 x 3 taps, stride and dilation 1, contiguous
    filters, and more than one line of results."""
    square = right.kernel == (3, 3) and right.stride == right.dilation == (1, 1)
    return square and right.out_height > 1 and contraction.left.depth_is_contiguous and not contraction.transposed


def group_tiles(right: Patches, info: TargetInfo) -> Grouping:
    """The division of an image's tiles into groups: as many whole lines of tiles as fit, or equal parts of a line. The
    lines are distributed evenly over the groups."""
    down, across = -(-right.out_height // 2), -(-right.out_width // 2)
    side = -(-across // -(-across // MAX_TILES))
    lines = min(max(MAX_TILES // side, 1), down)
    lines = -(-down // -(-down // lines))
    groups = -(-down // lines) * -(-across // side)
    # Half of the work is done for each pair of pixel lines, of which a group of n lines of tiles has n + 1, as the last
    # pair also belongs to the next group. The measurement had three lines of tiles, hence the factor.
    split = (lines + (lines + 1) * 3 / 4) / 2 * rounded(side, info.lanes)
    return Grouping(lines, side, groups, rounded(lines * side, info.lanes), split)


def filtering_cost(contraction: Contraction, right: Patches, info: TargetInfo) -> float:
    """The time of the whole convolution, in rows."""
    parts, images = filtering_parts(contraction, right, 1, info), volume(contraction.batch)
    columns = number(volume(contraction.columns)) * (images if isinstance(images, int) else 1)
    return parts.cost / (TAPS * right.channels * columns)


def filtering_parts(contraction: Contraction, right: Patches, threads: int, info: TargetInfo) -> FilteringParts:
    """The division whose largest part takes the least time. Each thread transforms the pixels and the filters that it
    needs. If the number of images is a symbol, a slot has room for one thread's work on all filters and one image, and
    the template's library divides the work at each call."""
    rows, images = number(volume(contraction.rows)), volume(contraction.batch)
    batch, threads = (images, threads) if isinstance(images, int) else (1, 1)
    own, unit, best = group_tiles(right, info), info.tile[0], None
    groups, units = own.groups * batch, -(-rows // unit)
    alike = groups if not any(contraction.left.batch) else own.groups
    for row_parts in range(1, min(threads, units) + 1):
        block_parts = min(threads // row_parts, groups)
        most_rows, most_groups = -(-units // row_parts) * unit, -(-groups // block_parts)
        kept = _kept(most_rows, min(most_groups, alike), right, own, info)
        cost = _cost(most_rows, most_groups, alike, kept, right, own, info)
        if best is None or cost <= best[0]:
            best = cost, row_parts, block_parts, kept
    assert best is not None
    cost, row_parts, block_parts, kept = best
    return FilteringParts(row_parts, block_parts, kept, _elements(kept, right, own, info), cost)


def _kept(rows: int, groups: int, right: Patches, own: Grouping, info: TargetInfo) -> Kept:
    """Which operand stays transformed: the smaller one, as far as it fits the caches. Pieces of the other operand fit
    the core's own cache."""
    room, unit = info.near_panels // 4, info.tile[0]
    filters, pixels = PLACES * right.channels * rows, _image_elements(own, right, info)
    if filters <= min(groups * pixels, room):
        return Kept(1, rows)
    piece = max(info.near_planes // (PLACES * right.channels) // unit, 2) * unit
    return Kept(min(groups, max(room // pixels, 1)), min(piece, BLOCK, rows))


def _cost(rows: int, groups: int, alike: int, kept: Kept, right: Patches, own: Grouping, info: TargetInfo) -> float:
    """The cost, in products, of a part of the convolution.

    Args:
        rows, groups: the rows and groups of the part.
        alike: number of consecutive groups that use the same filters.
    """
    costs, channels = info.costs, right.channels
    together = min(groups, alike)
    strips = 1 if kept.rows >= rows else -(-together // kept.groups)
    taps = -(-groups // together) * strips * rows * channels
    return PLACES * (
        groups * own.computed * rows * (channels + costs.transform_sums) + groups * own.split * channels
        * costs.transform_pixels + taps * costs.transform_taps)


def _image_elements(own: Grouping, right: Patches, info: TargetInfo) -> int:
    """Number of elements of a group's transformed pixels."""
    return PLACES * (rounded(own.lines * own.side, info.panel) * right.channels + _LINE)


def _elements(kept: Kept, right: Patches, own: Grouping, info: TargetInfo) -> int:
    """Number of elements of a thread's part of the workspace, as ``winograd.h`` divides it."""
    unit, tiles = info.tile[0], own.lines * own.side
    filters = PLACES * (kept.rows // unit * (unit * right.channels + _SLACK) + _LINE)
    taps = unit * TAPS * _PACKED_CHANNELS + _SLACK
    sums = PLACES * (BLOCK * rounded(tiles, info.panel) + _LINE)
    results = BLOCK * (rounded(4 * tiles, _LINE) + _LINE)
    pixels = 16 * (rounded((own.lines + 1) * own.side + info.panel, _LINE) + _LINE)
    return kept.groups * _image_elements(own, right, info) + filters + taps + sums + results + pixels
