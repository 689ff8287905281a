"""Whether the library or our loops compute a matrix product faster: what both take for it, measured and kept.

By rule a product is judged by one of its kind: of the same form (which operand is strided how), with each size the
nearest of ``SIZES``. A kind is measured when a product of it is first compiled, in some hundredths of a second, and
kept in the cache folder under the processor, the loops' source and torch's version, so that the same machine decides
the same again. With ``exact`` (``mode="max-autotune"``) each product is measured as it is. What follows a product is
fused behind our loops, and goes through memory once more behind the library's: that counts against it.

One thread computes what is measured, and its own time counts: several would wait for one another where other processes
keep them from running, and what they found would be kept. What several gain is ``library_sharing`` of ``TargetInfo``.

Invariant: measurements are of memory of their own; what is decided changes a result's last bits, and nothing else.
"""
from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
import os
import time
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dynamo_lite import exc, log
from dynamo_lite.backends.inductor import _runtime, codecache, kept_choices, prebuilt
from dynamo_lite.backends.inductor.codegen.cpp.libraries import alone_symbol, library_source
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, volume
from dynamo_lite.backends.inductor.scheduler.threads import WorkSharing, share_work
from dynamo_lite.backends.inductor.target_info import TargetInfo

_SUFFIX = ".product"
SIZES = (16, 128, 1024)
"""Rows, columns and depths of products that stand for others; larger ones take as long for as much work."""
MARGIN = 1.1
"""The library has to be faster by this, on any processor: what other processes take from the caches has two
measurements of the same differ by as much."""
CALLS = 10
"""What one thread does in the time of so many calls of the library is ours: each would cost it a tenth and more, and
so short a time can't be measured well."""
_ROUNDS, _SECONDS = 5, 0.02  # that a measurement takes at least, and about
_LARGEST = 1 << 26  # elements of an operand that is made for a measurement


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
    """Nanoseconds that a product takes one thread in our loops and in the library, to two digits."""

    ours: float
    library: float


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
        costs = self.info.costs
        least = CALLS * self.info.library_call * costs.product_rate
        if min(math.prod(sizes), math.prod(_sizes(measured))) < least:
            return False
        times = _times(_described(measured), self.info)
        if times is None:
            return False
        scale = math.prod(sizes) / math.prod(_sizes(measured)) / self.threads
        # Written and read once more, as packing reads and writes.
        passed = 2 * costs.pack_lines * rows * columns / (costs.product_rate * self.threads) if follows else 0.0
        ours, library = times.ours * scale, times.library * scale + self.info.library_call + passed
        chosen = ours > MARGIN * (self.info.library_sharing if self.threads > 1 else 1.0) * library
        log.artifact("tuning").info(
            "%s x %s x %s: %s; ours %.0f us, the library's %.0f us%s", rows, depth, columns,
            "the library" if chosen else "ours", ours / 1e3, library / 1e3,
            "" if self.exact else f", by {_described(measured)}")
        return chosen


def _sizes(contraction: Contraction) -> tuple[int, int, int]:
    return _number(volume(contraction.rows)), _number(volume(contraction.columns)), _number(contraction.depth)


def _number(n: ix.Index) -> int:
    assert isinstance(n, int)
    return n


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
    strides = tuple(map(_number, (left.line, left.depth, right.line, right.depth)))
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
    key = kept_choices.key_of(
        info.processor.key(), info.simd, source, torch.__version__, repr(described), repr(_of(sharing)))
    kept = kept_choices.read(key, _SUFFIX)
    try:
        if kept is not None:
            return Times(float(kept["ours"]), float(kept["library"]))
    except (TypeError, KeyError, ValueError) as error:
        log.artifact("tuning").info("kept times of a product are of another form: %s", error)
    with log.phase("tuning"):
        found = _measured(described, source, info, sharing)
    if found is not None:
        kept_choices.write(key, _SUFFIX, dataclasses.asdict(found))
    return found


def _measured(described: Described, source: str, info: TargetInfo, sharing: WorkSharing) -> Times | None:
    rows, columns, depth, left_line, left_depth, right_line, right_depth, transposed = described
    layouts = ((rows, depth), (left_line, left_depth)), ((columns, depth), (right_line, right_depth))
    if any(1 + sum((n - 1) * s for n, s in zip(*layout)) > _LARGEST for layout in layouts):
        return None
    alone = _limit_threads()
    if alone is None:
        log.artifact("tuning").info("products are ours: what the library takes in one thread can't be measured")
        return None
    try:
        path = prebuilt.find(source, prebuilt.flags_for(info.simd)) or codecache.shared_library(source)
        entry = getattr(ctypes.CDLL(str(path), handle=_runtime.load(str(path))), alone_symbol(info.simd))
    except (exc.CompilerMissing, exc.CacheError, OSError, AttributeError) as error:
        log.artifact("tuning").info("products can't be measured, so they are ours: %s", error)
        return None
    with _disable_current_modes(), torch.inference_mode():
        left, right = (torch.empty_strided(*layout).fill_(0.5) for layout in layouts)
        room = torch.empty(_number(sharing.elements))
        result = torch.empty((columns, rows) if transposed else (rows, columns))
        factors = (right, left.t()) if transposed else (left, right.t())
        numbers = (ctypes.c_int64 * 15)(*described, *_of(sharing))
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (left, right, result, room)]
        before = alone(1)
        try:
            return _timed(lambda: entry(numbers, *pointers), lambda: torch.mm(*factors, out=result))
        finally:
            alone(before)


@functools.cache
def _limit_threads() -> Callable[[int], int] | None:
    """MKL's function that says how many threads its products take that this one calls; None: torch has no MKL."""
    folder = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "lib")
    try:
        return ctypes.CDLL(os.path.join(folder, "libtorch_cpu.so")).MKL_Set_Num_Threads_Local
    except (OSError, AttributeError):
        return None


def _of(sharing: WorkSharing) -> tuple[int, ...]:
    return (sharing.by_rows, sharing.direct, sharing.slots, _number(sharing.slot), sharing.kept, sharing.group,
            sharing.chunk)


def _timed(ours: Callable[[], object], library: Callable[[], object]) -> Times:
    """In turn, the least of each: what else runs on the machine makes some calls slower, none faster."""
    least = [math.inf, math.inf]
    begun, rounds = time.perf_counter(), 0
    while rounds < _ROUNDS or time.perf_counter() - begun < _SECONDS:
        for at, call in enumerate((ours, library)):
            start = time.thread_time_ns()
            call()
            least[at] = min(least[at], time.thread_time_ns() - start)
        rounds += 1
    return Times(*(float(f"{n:.2g}") for n in least))
