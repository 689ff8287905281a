"""Convolutions of images with symbolic sizes, whose division of work is decided at each call.

The kernel of such a convolution receives the decisions of ``share_work`` as further integer arguments, besides its
sizes. The wrapper obtains them with a description of the convolution that contains the call's sizes
(``late_decisions.share_windows``).

Invariant: the decisions for a call equal those for a graph with the same fixed sizes.
"""
from __future__ import annotations

from typing import Any

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, Patches
from dynamo_lite.backends.inductor.scheduler.threads import LateDecision, WorkSharing, share_work
from dynamo_lite.backends.inductor.target_info import TargetInfo

DECIDED = ("by_rows", "slot", "kept", "group", "chunk", "piece", "strip", "copies", "row_parts", "block_parts",
           "tile_lines", "tile_groups", "tile_rows")
"""The fields of ``WorkSharing`` that are decided at each call; the others are the same for all sizes."""
OF_EACH = ("tile_rows", "tile_columns", "several", "slot")
"""The numbers that are decided for a depthwise convolution: the result of ``Patches.tiles``."""


def shared_late(contraction: Contraction, threads: int, prefix: str, info: TargetInfo) -> WorkSharing:
    """The division of work with symbols in place of undecided numbers, and the ``LateDecision`` that determines them.

    Args:
        prefix: prefix of the symbols' names.
    """
    right = contraction.right
    assert isinstance(right, Patches)
    decided = OF_EACH if right.each else DECIDED
    names = {name: f"{prefix}_{name}" for name in decided}
    numbers: dict[str, Any] = {name: ix.atom(ix.Sym(symbol, 0)) for name, symbol in names.items()}
    late = LateDecision(tuple(names.values()), (info.simd, info.winograd, *described(contraction, threads)))
    if right.each:
        return WorkSharing(False, threads, numbers["slot"], tiles=tuple(numbers.values()), late=late)
    return WorkSharing(slots=threads, late=late, **numbers)


def described(contraction: Contraction, threads: int) -> tuple[Any, ...]:
    """Everything that the decision depends on, as nested tuples of numbers and sizes."""
    left, right = contraction.left, contraction.right
    assert isinstance(right, Patches)
    own = tuple(tuple(v.size for v in loops) for loops in (contraction.batch, contraction.rows, contraction.columns))
    return (
        threads, own, contraction.depth, (left.batch, left.line, left.depth, left.taps), right.batch,
        (right.channels, *right.sizes, right.kernel, right.stride, right.padding, right.dilation, right.each))


def decide(description: tuple[Any, ...], info: TargetInfo) -> tuple[int, ...]:
    """The decided numbers for the sizes of a call, in the order of ``DECIDED`` or ``OF_EACH``.

    Args:
        description: the result of ``described``, with the call's sizes in place of symbols.
    """
    threads, own, depth, (left_batch, line, step, taps), right_batch, windows = description
    right = Patches("", 0, right_batch, *windows)
    if right.each:
        return right.tiles(info.strip)
    batch, rows, columns = (tuple(ix.Var(f"{name}{at}", size) for at, size in enumerate(sizes))
                            for name, sizes in zip("brc", own))
    contraction = Contraction(batch, rows, columns, depth, Matrix("", 0, left_batch, line, step, taps), right, False)
    sharing = share_work(contraction, threads, info)
    return tuple(int(getattr(sharing, name)) for name in DECIDED)
