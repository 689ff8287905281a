"""Convolutions of 3 x 3 taps by Winograd's minimal filtering (``winograd.h``): how tiles are grouped, what it costs,
how threads share it out.

A tile of 2 x 2 results takes 16 products of each channel in place of 36. Against that stands what pixels, filters and
sums cost to transform, which is measured (``TargetInfo.costs``).

Costs are counted in rows, as in ``threads.py``.

Invariant: which results are a group, hence all bits of them, does not depend on the number of threads.
"""
from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.ir.contraction import BLOCK, Contraction, Patches, number, rounded, volume
from dynamo_lite.backends.inductor.target_info import LINE, TargetInfo

# Places of a transformed tile, taps of a filter.
PLACES, TAPS = 16, 9
# So many tiles at most are a group (``wide`` in ``panels.h``).
MAX_TILES = 64
# Elements of a line of the caches.
_LINE = LINE // 4
# It has to save so much of the time: what the costs leave out, as each step pushes out of the caches what the next one
# reads, took up to a fifth of it on an AMD EPYC (Zen 3).
LEAST_GAIN = 0.2
# As in ``winograd.h`` and ``panels.h``: channels whose taps are packed at a time, what stands behind a packed strip.
_PACKED_CHANNELS, _SLACK = 32, 8


@dataclasses.dataclass(frozen=True, slots=True)
class Grouping:
    """Attributes:
    lines: of tiles, of which a group has so many, or a part of one.
    side: tiles side by side.
    groups: of an image.
    computed: tiles of a group for which vectors are computed.
    split: the same where pixels are transformed, whose lines are split in whole vectors.
    """

    lines: int
    side: int
    groups: int
    computed: int
    split: float


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """What stays transformed: all filters of a thread while groups pass by one by one, or the pixels of so many groups
    while filters pass by in pieces.

    Attributes:
        groups: whose pixels are transformed together.
        rows: whose filters are, a multiple of a tile's rows.
    """

    groups: int
    rows: int


@dataclasses.dataclass(frozen=True, slots=True)
class FilteringParts:
    """Attributes:
    rows, blocks: into how many parts rows, and groups of all images, are divided.
    kept: what stays transformed of a part.
    elements: what a thread needs.
    cost: of the largest part, in products.
    """

    rows: int
    blocks: int
    kept: Kept
    elements: int
    cost: float


def suits(contraction: Contraction, right: Patches) -> bool:
    """Whether a convolution is of the kind: 3 x 3 taps side by side, no stride, filters whose taps are contiguous."""
    square = right.kernel == (3, 3) and right.stride == right.dilation == (1, 1)
    return square and right.out_height > 1 and contraction.left.depth_is_contiguous and not contraction.transposed


def group_tiles(right: Patches, info: TargetInfo) -> Grouping:
    """Whole lines of tiles as far as they fit a group, or equal parts of a line; lines are divided evenly, too."""
    down, across = -(-right.out_height // 2), -(-right.out_width // 2)
    side = -(-across // -(-across // MAX_TILES))
    lines = min(max(MAX_TILES // side, 1), down)
    lines = -(-down // -(-down // lines))
    groups = -(-down // lines) * -(-across // side)
    # Half of the work is done for each two lines of pixels, of which neighbouring groups share two, and three lines of
    # tiles were measured.
    split = (lines + (lines + 1) * 3 / 4) / 2 * rounded(side, info.lanes)
    return Grouping(lines, side, groups, rounded(lines * side, info.lanes), split)


def filtering_cost(contraction: Contraction, right: Patches, info: TargetInfo) -> float:
    """What all takes, in rows."""
    parts, images = filtering_parts(contraction, right, 1, info), volume(contraction.batch)
    columns = number(volume(contraction.columns)) * (images if isinstance(images, int) else 1)
    return parts.cost / (TAPS * right.channels * columns)


def filtering_parts(contraction: Contraction, right: Patches, threads: int, info: TargetInfo) -> FilteringParts:
    """The division by which the largest part is done first: each thread transforms the pixels and the filters that it
    needs. If the number of images is a symbol, there is room for one thread with all filters and one image, and the
    library divides the work when it is called."""
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
    """The smaller one of both, in what caches have room for; pieces of the other one stay in a core's own."""
    room, unit = info.near_panels // 4, info.tile[0]
    filters, pixels = PLACES * right.channels * rows, _image_elements(own, right, info)
    if filters <= min(groups * pixels, room):
        return Kept(1, rows)
    piece = max(info.near_planes // (PLACES * right.channels) // unit, 2) * unit
    return Kept(min(groups, max(room // pixels, 1)), min(piece, BLOCK, rows))


def _cost(rows: int, groups: int, alike: int, kept: Kept, right: Patches, own: Grouping, info: TargetInfo) -> float:
    """In products: so many rows and groups, of which so many have the same filters."""
    costs, channels = info.costs, right.channels
    together = min(groups, alike)
    strips = 1 if kept.rows >= rows else -(-together // kept.groups)
    taps = -(-groups // together) * strips * rows * channels
    return PLACES * (
        groups * own.computed * rows * (channels + costs.transform_sums) + groups * own.split * channels
        * costs.transform_pixels + taps * costs.transform_taps)


def _image_elements(own: Grouping, right: Patches, info: TargetInfo) -> int:
    """Of a group's transformed pixels."""
    return PLACES * (rounded(own.lines * own.side, info.panel) * right.channels + _LINE)


def _elements(kept: Kept, right: Patches, own: Grouping, info: TargetInfo) -> int:
    """Of a thread's part of the workspace, as ``winograd.h`` divides it."""
    unit, tiles = info.tile[0], own.lines * own.side
    filters = PLACES * (kept.rows // unit * (unit * right.channels + _SLACK) + _LINE)
    taps = unit * TAPS * _PACKED_CHANNELS + _SLACK
    sums = PLACES * (BLOCK * rounded(tiles, info.panel) + _LINE)
    results = BLOCK * (rounded(4 * tiles, _LINE) + _LINE)
    pixels = 16 * (rounded((own.lines + 1) * own.side + info.panel, _LINE) + _LINE)
    return kept.groups * _image_elements(own, right, info) + filters + taps + sums + results + pixels
