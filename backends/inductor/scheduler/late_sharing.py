"""Convolutions of images whose sizes are symbols: the work is shared out when they are called.

A kernel of such a convolution gets what ``share_work`` decides as numbers, beside its sizes. The wrapper asks for them
by a description of the convolution in which the call's sizes stand (``late_decisions.decide``).

Invariant: what is decided for a call is what a graph of fixed sizes would have.
"""
from __future__ import annotations

from typing import Any

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, Patches
from dynamo_lite.backends.inductor.scheduler.threads import LateDecision, WorkSharing, share_work
from dynamo_lite.backends.inductor.target_info import TargetInfo

DECIDED = ("by_rows", "slot", "kept", "group", "chunk", "strip", "copies", "row_parts", "block_parts", "tile_lines",
           "tile_groups", "tile_rows")
"""What is decided of ``WorkSharing``; the rest is the same for all sizes."""
OF_EACH = ("tile_rows", "tile_columns", "several", "slot")
"""What is decided of a depthwise convolution, as ``Patches.tiles`` has it."""


def shared_late(contraction: Contraction, threads: int, prefix: str, info: TargetInfo) -> WorkSharing:
    """The sharing, with symbols for what is not known yet, and with the decision that gives these.

    Args:
        prefix: what the symbols' names begin with.
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
    """All that the decision depends on, as nested tuples of numbers and sizes."""
    left, right = contraction.left, contraction.right
    assert isinstance(right, Patches)
    own = tuple(tuple(v.size for v in loops) for loops in (contraction.batch, contraction.rows, contraction.columns))
    return (
        threads, own, contraction.depth, (left.batch, left.line, left.depth, left.taps), right.batch,
        (right.channels, *right.sizes, right.kernel, right.stride, right.padding, right.dilation, right.each))


def decide(description: tuple[Any, ...], info: TargetInfo) -> tuple[int, ...]:
    """The numbers for a call's sizes, in the order of ``DECIDED`` or ``OF_EACH``."""
    threads, own, depth, (left_batch, line, step, taps), right_batch, windows = description
    right = Patches("", 0, right_batch, *windows)
    if right.each:
        return right.tiles(info.strip)
    batch, rows, columns = (tuple(ix.Var(f"{name}{at}", size) for at, size in enumerate(sizes))
                            for name, sizes in zip("brc", own))
    contraction = Contraction(batch, rows, columns, depth, Matrix("", 0, left_batch, line, step, taps), right, False)
    sharing = share_work(contraction, threads, info)
    return tuple(int(getattr(sharing, name)) for name in DECIDED)
