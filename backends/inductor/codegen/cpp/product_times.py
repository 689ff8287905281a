"""Whether the library or our loops compute a matrix product faster: what both take for it, measured and kept.

By rule a product is judged by one of its kind: of the same form (which operand is strided how), with each size the
nearest of ``SIZES``. A kind is measured when a product of it is first compiled, in some hundredths of a second, and
kept in the cache folder under the processor, the loops' source and torch's version, so that the same machine decides
the same again. With ``exact`` (``mode="max-autotune"``) each product is measured as it is. What follows a product is
fused behind our loops, and goes through memory once more behind the library's: that counts against it. What several
threads gain is ``library_sharing`` of ``TargetInfo``.

Invariant: what is decided changes a result's last bits, and nothing else.
"""
from __future__ import annotations

import ctypes
import dataclasses
import functools
import math

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dynamo_lite import log
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_source
from dynamo_lite.backends.inductor.codegen.cpp.library_times import (
    LARGEST,
    Times,
    entry_alone,
    is_faster,
    is_worth_measuring,
    kept_or_measured,
    limit_products,
    numbers_of,
    shared,
    timed,
)
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, number, volume
from dynamo_lite.backends.inductor.scheduler.threads import WorkSharing, share_work
from dynamo_lite.backends.inductor.target_info import TargetInfo

_SUFFIX = ".product"
SIZES = (16, 128, 1024)
"""Rows, columns and depths of products that stand for others; larger ones take as long for as much work."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProductTimes:
    """Decides for products of one target.

    Attributes:
        info: of the processor.
        threads: that compute a product.
        exact: whether each product is measured, and not one of its kind.
    """

    info: TargetInfo
    threads: int
    exact: bool

    def is_for_library(self, contraction: Contraction, follows: bool) -> bool:
        """Whether the library is faster.

        Args:
            contraction: of two matrices, without a batch, of known sizes.
            follows: whether something reads the result that would be fused behind our loops.
        """
        rows, columns, depth = sizes = _sizes(contraction)
        measured = contraction if self.exact else _representative(contraction)
        if not is_worth_measuring(self.info, min(math.prod(sizes), math.prod(_sizes(measured)))):
            return False
        times = _times(_described(measured), self.info)
        if times is None:
            return False
        scale = math.prod(sizes) / math.prod(_sizes(measured))
        times = Times(times.ours * scale, times.library * scale)
        chosen = is_faster(self.info, self.threads, times, rows * columns, follows)
        ours, library = shared(self.info, self.threads, times, rows * columns, follows)
        log.artifact("tuning").info(
            "%s x %s x %s: %s; ours %.0f us, the library's %.0f us%s", rows, depth, columns,
            "the library" if chosen else "ours", ours / 1e3, library / 1e3,
            "" if self.exact else f", by {_described(measured)}")
        return chosen


def _sizes(contraction: Contraction) -> tuple[int, int, int]:
    return number(volume(contraction.rows)), number(volume(contraction.columns)), number(contraction.depth)


def _representative(contraction: Contraction) -> Contraction:
    """A product of the same form with sizes of ``SIZES``, dense in memory."""
    rows, columns, depth = (min(SIZES, key=lambda s: abs(math.log(s / n))) for n in _sizes(contraction))
    left, right = contraction.left, contraction.right
    assert isinstance(right, Matrix)
    return dataclasses.replace(
        contraction, rows=(ix.Var("r", rows),), columns=(ix.Var("c", columns),), depth=depth,
        left=_dense(left, rows, depth), right=_dense(right, columns, depth))


def _dense(operand: Matrix, lines: int, depth: int) -> Matrix:
    if operand.depth == 1:
        return dataclasses.replace(operand, line=depth, depth=1)
    return dataclasses.replace(operand, line=1, depth=lines)


Described = tuple[int, int, int, int, int, int, int, bool]


def _described(contraction: Contraction) -> Described:
    """All that the time of a product depends on: its sizes, its operands' strides, how its result lies."""
    left, right = contraction.left, contraction.right
    assert isinstance(right, Matrix)
    strides = tuple(map(number, (left.line, left.depth, right.line, right.depth)))
    return (*_sizes(contraction), *strides, contraction.transposed)


def _contraction(described: Described) -> Contraction:
    rows, columns, depth, left_line, left_depth, right_line, right_depth, transposed = described
    left, right = Matrix("left", 0, (), left_line, left_depth), Matrix("right", 0, (), right_line, right_depth)
    return Contraction((), (ix.Var("r", rows),), (ix.Var("c", columns),), depth, left, right, transposed)


@functools.lru_cache(maxsize=4096)
def _times(described: Described, info: TargetInfo) -> Times | None:
    """The kept times of a product, or else those that are measured now; None: it can't be measured."""
    source = library_source("products", info.simd)
    sharing = share_work(_contraction(described), 1, info)
    around = (info.processor.key(), info.simd, source, repr(described), repr(sharing))
    return kept_or_measured(_SUFFIX, around, lambda: _measured(described, info, sharing))


def _measured(described: Described, info: TargetInfo, sharing: WorkSharing) -> Times | None:
    rows, columns, depth, left_line, left_depth, right_line, right_depth, transposed = described
    layouts = ((rows, depth), (left_line, left_depth)), ((columns, depth), (right_line, right_depth))
    if any(1 + sum((n - 1) * s for n, s in zip(*layout)) > LARGEST for layout in layouts):
        return None
    alone = limit_products()
    if alone is None:
        log.artifact("tuning").info("products are ours: what the library takes in one thread can't be measured")
        return None
    entry = entry_alone("products", info)
    if entry is None:
        return None
    with _disable_current_modes(), torch.inference_mode():
        left, right = (torch.empty_strided(*layout).fill_(0.5) for layout in layouts)
        room = torch.empty(number(sharing.elements))
        result = torch.empty((columns, rows) if transposed else (rows, columns))
        factors = (right, left.t()) if transposed else (left, right.t())
        numbers = numbers_of(_contraction(described), sharing, info)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (left, right, result, room)]
        before = alone(1)
        try:
            return timed(lambda: entry(numbers, *pointers), lambda: torch.mm(*factors, out=result))
        finally:
            alone(before)
