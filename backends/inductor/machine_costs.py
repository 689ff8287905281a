"""Costs of pieces of work on this machine's processor. A library that is built when the package is installed
(``codegen/cpp/probe.cpp``) measures them once; they are kept in the cache folder under the processor's name.

Measured values are rounded to whole products (the rate to two digits, ratios of products' times to twentieths), so that
they seldom differ between measurements. Where rounding changes a decision, its alternatives are about equally fast.

Invariant: whatever goes wrong while measuring or keeping, there are costs: the typical ones, and the log says so.
"""
from __future__ import annotations

import ctypes
import dataclasses
import math
import statistics

from dynamo_lite import log
from dynamo_lite.backends.inductor import kept_choices, prebuilt
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_source, library_symbol
from dynamo_lite.backends.inductor.processor import Processor
from dynamo_lite.clock import Clock

_SUFFIX = ".costs"
_ROOM = 1 << 21  # floats: a panel, and more elements than fill a core's L2 cache
_SECONDS = 0.06  # some six rounds on an Intel Xeon (Emerald Rapids)
_MOST_ROUNDS = 100
_LEAST, _MOST = 1.0, 64.0  # bounds of a plausible cost
_NUMBERS = 17  # number of values that the probe measures
_RATIOS = 4  # the last of them are times of products


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """Costs in products. The defaults are typical of processors with vectors of 64 bytes.

    Attributes:
        product_rate: products per nanosecond of one core: half its GFLOP/s.
        pack_lines, pack_columns: packing one element of the right operand, from lines and from columns, which are in
            the core's own L2 cache, several panels at a time.
        pack_far_lines, pack_far_columns: the same panel by panel, from beyond that cache.
        im2col: copying one element to a plane of im2col.
        left_lines, left_columns: packing one element of the left operand, from lines and from columns, which come from
            beyond the core's own L2 cache.
        near_left_lines, near_left_columns: the same if the operand is in that cache.
        transform_pixels, transform_taps, transform_sums: transforming one element of the image, of the filter and of
            the result in Winograd's algorithm (``winograd.h``).
        strided_left, streamed_left: additional cost of a product whose left operand is not packed, if its depth is
            strided in memory, and if it is contiguous.
        aliased_left: ``streamed_left`` where the rows are a multiple of a page apart, so that they compete for the same
            sets of the L1 cache.
        placed_right: additional cost of a product whose right operand is read from planes by unaligned vector loads.
    """

    product_rate: float = 58.0
    pack_lines: float = 4.0
    pack_columns: float = 4.0
    pack_far_lines: float = 8.0
    pack_far_columns: float = 8.0
    im2col: float = 6.0
    left_lines: float = 6.0
    left_columns: float = 8.0
    near_left_lines: float = 5.0
    near_left_columns: float = 5.0
    transform_pixels: float = 6.0
    transform_taps: float = 8.0
    transform_sums: float = 6.0
    strided_left: float = 0.3
    streamed_left: float = 0.05
    aliased_left: float = 0.2
    placed_right: float = 0.2


TYPICAL = Costs()


def costs_of(own: Processor, simd: str) -> Costs:
    """The kept costs of a processor; where there are none, they are measured now.

    Args:
        own: the processor that this process runs on.
        simd: the vector instructions that kernels use.
    """
    if simd == "scalar":
        return TYPICAL  # products are function calls, beside which packing costs next to nothing
    source = library_source("probe", simd)
    key = kept_choices.key_of(own.key(), simd, source, str(_SECONDS))
    kept = _kept(key)
    if kept is not None:
        return kept
    measured = _measured(source, simd)
    if measured is None:
        return TYPICAL
    kept_choices.write(key, _SUFFIX, dataclasses.asdict(measured))
    return measured


def _kept(key: str) -> Costs | None:
    kept = kept_choices.read(key, _SUFFIX)
    if kept is None:
        return None
    try:
        return Costs(**{name: float(value) for name, value in kept.items()})
    except (ValueError, TypeError, AttributeError) as error:
        log.artifact("targets").info("kept costs are of another form: %s", error)
        return None


def _measured(source: str, simd: str) -> Costs | None:
    """Runs the probe for ``_SECONDS`` and takes the least of each time, and the median of each ratio of times; None if
    it can't be run."""
    path = prebuilt.find(source, prebuilt.flags_for(simd))
    if path is None:
        log.artifact("targets").info("nothing is measured, as no probe was built with the package: typical costs count")
        return None
    try:
        probe = getattr(ctypes.CDLL(str(path)), library_symbol("probe", simd))
        room, out = (ctypes.c_float * (_ROOM + 16))(), (ctypes.c_double * _NUMBERS)()
    except (OSError, AttributeError, MemoryError) as error:
        log.artifact("targets").info("nothing is measured, typical costs count: %s", error)
        return None
    # At the beginning of a cache line, as workspaces are.
    at = ctypes.c_void_p(-(-ctypes.addressof(room) // 64) * 64)
    ctypes.memset(room, 0x3f, ctypes.sizeof(room))  # numbers below 1, in memory that exists
    least, begun = [math.inf] * (_NUMBERS - _RATIOS), Clock.now()
    ratios: list[list[float]] = []
    # Other work on this core, or on its other hardware thread, makes some rounds slower, but none faster.
    while Clock.now() - begun < _SECONDS and len(ratios) < _MOST_ROUNDS:
        probe(at, ctypes.c_int64(_ROOM), out)
        least = [min(pair) for pair in zip(least, out)]
        ratios.append([other / out[0] if out[0] > 0 else math.nan for other in out[-_RATIOS:]])
    return rounded(*least, *(least[0] * statistics.median(of_one) for of_one in zip(*ratios)))


def rounded(product: float, *rest: float) -> Costs | None:
    """Costs from the times that the probe has measured, in nanoseconds; None if they are implausible."""
    if not all(math.isfinite(value) and value > 0 for value in (product, *rest)):
        log.artifact("targets").info("nothing is known from %s", (product, *rest))
        return None
    whole = (min(max(float(round(piece / product)), _LEAST), _MOST) for piece in rest[:-_RATIOS])
    # Rounded to twentieths.
    more = (min(max(round(20 * (other / product - 1)) / 20, 0.0), _MOST) for other in rest[-_RATIOS:])
    return Costs(float(f"{1 / product:.2g}"), *whole, *more)
