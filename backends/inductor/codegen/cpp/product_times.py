"""Decides whether the library or our loops compute a matrix product, by the measured times of both, which are kept.

Normally a product is judged by a representative of its kind: a product of the same form (the operands' strides), with
each size the nearest of ``SIZES``. A kind is measured when a product of it is first compiled, in some hundredths of a
second, and its times are kept in the cache folder under the processor, the loops' source and torch's version, so that
the same machine decides the same again. With ``exact`` (``mode="max-autotune"``) each product is measured itself. An
epilogue is fused with our loops, but is another pass over memory after the library's, which counts against the library.
``TargetInfo.library_sharing`` says how much less the library gains from several threads.

Invariant: a decision changes no more than the last bits of a result.
"""
from __future__ import annotations

import ctypes
import dataclasses
import functools
import math

import torch

from dynamo_lite import log
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_source
from dynamo_lite.backends.inductor.codegen.cpp.library_times import (
    LARGEST,
    Times,
    entry_alone,
    is_faster,
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
from dynamo_lite.runtime.neutral_state import neutral_state

_SUFFIX = ".product"
SIZES = (16, 128, 1024)
"""Rows, columns and depths of the representative products; larger products take as long for the same work."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProductTimes:
    """Decides for the products of one target.

    Attributes:
        info: description of the processor.
        threads: number of threads that compute a product.
        exact: whether each product is measured itself, not a representative of its kind.
    """

    info: TargetInfo
    threads: int
    exact: bool

    def is_for_library(self, contraction: Contraction, follows: bool) -> bool:
        """Whether the library computes a product faster than our loops.

        Args:
            contraction: a product of two matrices of known sizes, without a batch.
            follows: whether there are operations on the result that would be fused with our loops.
        """
        rows, columns, depth = sizes = _sizes(contraction)
        measured = contraction if self.exact else _representative(contraction)
        if not self.info.outweighs_a_call(min(math.prod(sizes), math.prod(_sizes(measured)))):
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
    """Rows, columns and depth."""
    return number(volume(contraction.rows)), number(volume(contraction.columns)), number(contraction.depth)


def _representative(contraction: Contraction) -> Contraction:
    """A product of the same form, with sizes of ``SIZES`` and operands that are dense in memory."""
    rows, columns, depth = (min(SIZES, key=lambda s: abs(math.log(s / n))) for n in _sizes(contraction))
    left, right = contraction.left, contraction.right
    assert isinstance(right, Matrix)
    return dataclasses.replace(
        contraction, rows=(ix.Var("r", rows),), columns=(ix.Var("c", columns),), depth=depth,
        left=_dense(left, rows, depth), right=_dense(right, columns, depth))


def _dense(operand: Matrix, lines: int, depth: int) -> Matrix:
    """An operand with the same contiguous dimension and the strides of a dense matrix of these sizes."""
    if operand.depth == 1:
        return dataclasses.replace(operand, line=depth, depth=1)
    return dataclasses.replace(operand, line=1, depth=lines)


Described = tuple[int, int, int, int, int, int, int, bool]


def _described(contraction: Contraction) -> Described:
    """Everything that the time of a product depends on: rows, columns, depth, the operands' strides (left line, left
    depth, right line, right depth), and whether the result is transposed."""
    left, right = contraction.left, contraction.right
    assert isinstance(right, Matrix)
    strides = tuple(map(number, (left.line, left.depth, right.line, right.depth)))
    return (*_sizes(contraction), *strides, contraction.transposed)


def _contraction(described: Described) -> Contraction:
    """The product of a description, on operands of its own."""
    rows, columns, depth, left_line, left_depth, right_line, right_depth, transposed = described
    left, right = Matrix("left", 0, (), left_line, left_depth), Matrix("right", 0, (), right_line, right_depth)
    return Contraction((), (ix.Var("r", rows),), (ix.Var("c", columns),), depth, left, right, transposed)


@functools.lru_cache(maxsize=4096)
def _times(described: Described, info: TargetInfo) -> Times | None:
    """The kept times of a product, or else those measured now; None if it can't be measured."""
    source = library_source("products", info.simd)
    sharing = share_work(_contraction(described), 1, info)
    around = (info.processor.key(), info.simd, source, repr(described), repr(sharing))
    return kept_or_measured(_SUFFIX, around, lambda: _measured(described, info, sharing))


def _measured(described: Described, info: TargetInfo, sharing: WorkSharing) -> Times | None:
    """Measures a product; None, and a log entry except for operands that are too large, if that is not possible."""
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
    with neutral_state(), torch.inference_mode():
        left, right = (torch.empty_strided(*layout, dtype=torch.float32).fill_(0.5) for layout in layouts)
        room = torch.empty(number(sharing.elements), dtype=torch.float32)
        result = torch.empty((columns, rows) if transposed else (rows, columns), dtype=torch.float32)
        factors = (right, left.t()) if transposed else (left, right.t())
        numbers = numbers_of(_contraction(described), sharing, info)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (left, right, result, room)]
        before = alone(1)
        try:
            return timed(lambda: entry(numbers, *pointers), lambda: torch.mm(*factors, out=result))
        finally:
            alone(before)
