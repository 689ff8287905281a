"""Measures how long our loops and the library take for a product or a convolution on one thread, keeps the times, and
compares them.

A measurement uses one thread and counts that thread's CPU time. Several threads would wait for one another while other
processes keep some of them from running, and such distorted times would be kept.

Invariant: measurements use memory of their own, and leave the settings of the number of threads unchanged.
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator

import torch

from dynamo_lite import exc, log
from dynamo_lite.backends.inductor import _runtime, codecache, kept_choices, prebuilt
from dynamo_lite.backends.inductor.codegen.cpp.libraries import alone_symbol, library_source
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Patches, number, volume
from dynamo_lite.backends.inductor.scheduler.threads import WorkSharing
from dynamo_lite.backends.inductor.target_info import TargetInfo
from dynamo_lite.clock import Clock

MARGIN = 1.1
"""Factor by which the library has to be faster, on any processor. Two measurements of the same work differ by as much,
because of what other processes take from the caches."""
LARGEST = 1 << 26
"""Largest number of elements of an operand that is allocated for a measurement."""
_ROUNDS, _SECONDS = 5, 0.02  # least number of rounds of a measurement, and least duration of it
_MOST_ROUNDS = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
    """Nanoseconds of one thread in our loops and in the library, rounded to two digits."""

    ours: float
    library: float


def is_faster(info: TargetInfo, threads: int, times: Times, results: int, follows: bool) -> bool:
    """Whether the library is faster than our loops.

    Args:
        info: description of the processor.
        threads: number of threads that share the work.
        times: those of one thread.
        results: number of elements of the result.
        follows: whether there are operations on the result that would be fused with our loops.
    """
    ours, library = shared(info, threads, times, results, follows)
    return ours > MARGIN * (info.library_sharing if threads > 1 else 1.0) * library


def shared(info: TargetInfo, threads: int, times: Times, results: int, follows: bool) -> tuple[float, float]:
    """Nanoseconds that ``threads`` threads take in our loops, and in the library with its call and another pass over
    memory for what follows. The arguments are those of ``is_faster``."""
    # The result is written and read once more, which costs about as much per element as packing.
    passed = 2 * info.costs.pack_lines * results / (info.costs.product_rate * threads) if follows else 0.0
    return times.ours / threads, times.library / threads + info.library_call + passed


def kept_or_measured(suffix: str, around: tuple[str, ...], measure: Callable[[], Times | None]) -> Times | None:
    """The kept times of a product or a convolution, or else those measured now.

    Args:
        suffix: of the file in the cache folder.
        around: texts that identify what is measured and everything that its times depend on.
        measure: measures it; None if that is not possible.
    """
    key = kept_choices.key_of(*around, torch.__version__)
    kept = kept_choices.read(key, suffix)
    try:
        if kept is not None:
            return Times(float(kept["ours"]), float(kept["library"]))
    except (TypeError, KeyError, ValueError) as error:
        log.artifact("tuning").info("kept times are of another form: %s", error)
    with log.phase("tuning"):
        found = measure()
    if found is not None:
        kept_choices.write(key, suffix, dataclasses.asdict(found))
    return found


def entry_alone(name: str, info: TargetInfo) -> Callable[..., object] | None:
    """The function of one of our libraries that computes a product or convolution without an epilogue (``alone.cpp``);
    None, and a log entry, if the library can't be built or loaded."""
    source = library_source(name, info.simd)
    try:
        path = prebuilt.find(source, prebuilt.flags_for(info.simd)) or codecache.shared_library(source)
        return getattr(ctypes.CDLL(str(path), handle=_runtime.load(str(path))), alone_symbol(name, info.simd))
    except (exc.CompilerMissing, exc.CacheError, OSError, AttributeError) as error:
        log.artifact("tuning").info("our %s can't be measured, so they are taken: %s", name, error)
        return None


def numbers_of(contraction: Contraction, sharing: WorkSharing, info: TargetInfo) -> ctypes.Array[ctypes.c_int64]:
    """The numbers that describe a contraction, in the order of ``alone.cpp``."""
    c, left, right = contraction, contraction.left, contraction.right
    windows, line, depth = [0] * 26, 0, 0
    if isinstance(right, Patches):
        pairs = (right.kernel, right.stride, right.padding, right.dilation)
        windows[:14] = [*(number(n) for n in (right.channels, right.height, right.width, right.out_height,
                                              right.out_width)), *(n for pair in pairs for n in pair), right.each]
        windows[14:18] = sharing.strip, sharing.copies, sharing.row_parts, sharing.block_parts
        if right.each:
            windows[18:22] = right.tiles(info.strip)
        windows[22:] = sharing.tile_lines, sharing.tile_groups, sharing.tile_rows, left.taps
    else:
        line, depth = number(right.line), number(right.depth)
    numbers = [
        number(volume(c.rows)), number(volume(c.columns)), number(c.depth), number(left.line), number(left.depth),
        line, depth, c.transposed, sharing.by_rows, sharing.direct, sharing.slots, number(sharing.slot), sharing.kept,
        sharing.group, sharing.chunk, sharing.piece, *_three([v.size for v in c.batch], 1), *_three(left.batch, 0),
        *_three(right.batch, 0), *windows, info.far_left]
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _three(values: list[ix.Index] | tuple[ix.Index, ...], fill: int) -> list[int]:
    """The values for three batch dimensions, preceded by ``fill`` for those that are missing."""
    return [*[fill] * (3 - len(values)), *map(number, values)]


@functools.cache
def limit_products() -> Callable[[int], int] | None:
    """MKL's function that sets the number of threads for products called by the current thread, and returns the number
    before; None if torch has no MKL."""
    return _of_torch("MKL_Set_Num_Threads_Local")


@contextlib.contextmanager
def one_thread() -> Iterator[bool]:
    """Context in which the library computes products and convolutions of this thread on this thread alone. It yields
    False if that is not possible."""
    count, limit, products = _of_torch("omp_get_max_threads"), _of_torch("omp_set_num_threads"), limit_products()
    if count is None or limit is None:
        yield False
        return
    before, mkl = count(), 0 if products is None else products(1)
    limit(1)
    try:
        yield True
    finally:
        limit(before)
        if products is not None:
            products(mkl)


def _of_torch(name: str) -> Callable[..., int] | None:
    """A function that is visible through libtorch_cpu; None if there is none of that name."""
    folder = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "lib")
    try:
        return getattr(ctypes.CDLL(os.path.join(folder, "libtorch_cpu.so")), name)
    except (OSError, AttributeError):
        return None


def timed(ours: Callable[[], object], library: Callable[[], object]) -> Times:
    """Calls both in turn and returns the shortest time of each: what else runs on the machine makes some calls slower,
    but none faster."""
    least = [math.inf, math.inf]
    begun, rounds = Clock.now(), 0
    while rounds < _ROUNDS or Clock.now() - begun < _SECONDS and rounds < _MOST_ROUNDS:
        for at, call in enumerate((ours, library)):
            start = Clock.of_thread()
            call()
            least[at] = min(least[at], 1e9 * (Clock.of_thread() - start))
        rounds += 1
    return Times(*(float(f"{n:.2g}") for n in least))
