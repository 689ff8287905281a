"""The planes of im2col: their layout, the part of an image that they hold at a time, and their cost.

Invariant: a description of planes is a function of the sizes and the description of the processor.
"""

from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.ir.contraction import MAX_PANEL, Patches, rounded
from dynamo_lite.backends.inductor.target_info import TargetInfo


@dataclasses.dataclass(frozen=True, slots=True)
class Im2colPlanes:
    """The im2col planes of a strip of an image (``contraction.cpp``): one for each column of the kernel, or for each
    residue class of image columns modulo the stride, so that a tap's reads for neighboring windows are contiguous.

    Attributes:
        strip: number of columns of the result that are computed from the strip, a multiple of ``MAX_PANEL``.
        copies: whether each of the kernel's columns has a plane of its own; then the windows of successive lines of the
            result are contiguous, too, with no unused columns in between.
        elements: number of elements of the planes of all channels.
        cost: cost of filling the planes and of computing unused columns, in rows.
    """

    strip: int
    copies: bool
    elements: int
    cost: float


def im2col_planes(right: Patches, rows: int, info: TargetInfo, saved: float = 0.0) -> Im2colPlanes:
    """The cheaper kind of planes.

    Args:
        rows: number of filters.
        saved: time that packing the filters saves in each product, in products.
    """
    kinds = [_planes_of_kind(right, rows, False, info)]
    if right.out_height > 1:
        kinds.append(_planes_of_kind(right, rows, True, info))

    def cost(planes: Im2colPlanes) -> float:
        return planes.cost - rows * gain_of_strip(right, planes, saved, info)

    return min(kinds, key=cost)


def gain_of_strip(
    right: Patches, planes: Im2colPlanes, saved: float, info: TargetInfo, must: bool = False
) -> float:
    """The net time saved in each product, in products, if the filters are packed anew for each strip instead of being
    read as streams; 0 if it does not pay.

    Args:
        saved: time that reading packed filters saves in each product.
        must: whether the filters have to be packed, so that the result may be negative.
    """
    columns = right.out_height * right.out_width
    gain = saved - info.costs.left_columns * -(-columns // planes.strip) / columns
    return gain if must else max(gain, 0.0)


def _planes_of_kind(right: Patches, rows: int, copies: bool, info: TargetInfo) -> Im2colPlanes:
    """The planes of one kind, with the largest strip that fits the core's own cache. For an image of one line, a strip
    is a part of the line; otherwise it consists of lines."""
    near = info.near_planes
    (kh, kw), (sh, sw), (dh, dw) = right.kernel, right.stride, right.dilation
    beside, beyond = (kw - 1) * dw // sw, (kh - 1) * dh // sh
    kinds = right.channels * sh * (kw if copies else sw)
    width = right.out_width if copies else right.out_width + beside
    if right.out_height == 1:
        columns = near // (kinds * (1 + beyond)) - beside
        strip = min(max(columns // MAX_PANEL, 1) * MAX_PANEL, rounded(right.out_width, MAX_PANEL))
        each = (1 + beyond) * (min(strip, right.out_width) + beside)
        strips, idle = -(-right.out_width // strip), 0.0
    else:
        lines = max(near // (kinds * width) - beyond, 2 * beyond, 3)
        places = right.out_height * width
        # A strip may begin and end within a line.
        columns = places if lines >= right.out_height else (lines - 2) * right.out_width + 2
        strip = max(rounded(columns, MAX_PANEL) if columns == places else columns // MAX_PANEL * MAX_PANEL, MAX_PANEL)
        each = (min((strip + right.out_width - 2) // right.out_width + 1, right.out_height) + beyond) * width
        strips, idle = -(-places // strip), width / right.out_width - 1
    filled = strips * kinds * each / (right.channels * kh * kw * right.out_height * right.out_width)
    return Im2colPlanes(strip, copies, kinds * each, info.costs.im2col * filled + idle * rows)
