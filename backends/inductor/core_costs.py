"""Figures of the cores and caches: what cores cost one another, and what accesses beyond a core's L2 cache cost. A
library that is built when the package is installed measures them once for each kind of processor
(``codegen/cpp/cores.cpp``).

Each figure is measured separately, when a decision first needs it, in some 5 ms, and kept in the cache folder under the
processor's name. It is the lower quartile of its samples, since other work on the machine makes some of them larger. It
is rounded to a power of the square root of 2 (of a ratio, its excess over 1 is); two measurements seldom differ by
more.

Invariant: whatever goes wrong while measuring or keeping, there is a figure: the typical one. The log says so, and it
is not kept, so that another process tries again.
"""
from __future__ import annotations

import ctypes
import dataclasses
import math

from dynamo_lite import log
from dynamo_lite.backends.inductor import kept_choices, prebuilt
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_source, library_symbol
from dynamo_lite.backends.inductor.processor import Processor

_SUFFIX = ".core"
_MOST = 64  # samples of a figure
_NOTHING = 0.01  # a smaller excess of a ratio over 1 counts as 0


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """Attributes:
        which: the figure's number in ``cores.cpp``.
        typical: the value that counts where it can't be measured.
        least, most: bounds of a plausible value.
        fewest: the least number of samples that are meaningful; where other processes keep a thread from running, each
            sample takes milliseconds, and there are few.
        caches: size of the memory that the measurement needs, in multiples of a core's L2 cache.
        room: number of floats that it needs in addition.
        is_ratio: whether the figure is a ratio of two times.
        per: whether it is the inverse of the measured time.
        is_shared: whether several threads take part in it.
    """

    which: int
    typical: float
    least: float
    most: float
    fewest: int = 4
    room: int = 0
    caches: float = 0
    is_ratio: bool = False
    per: bool = False
    is_shared: bool = False


FIGURES = {
    "wake": Figure(0, 6500.0, 500.0, 200_000.0, is_shared=True),
    "awake": Figure(1, 1600.0, 100.0, 100_000.0, is_shared=True),
    "elements": Figure(2, 10.0, 0.5, 200.0, caches=0.75, per=True),
    "foreign_read": Figure(3, 0.25, 0.0, 10.0, caches=0.25, is_shared=True),
    "far_read": Figure(4, 1.05, 0.5, 3.0, 2, room=1 << 14, caches=4, is_ratio=True),
    "near_store": Figure(5, 1.0, 0.05, 20.0, room=1 << 15),
    "far_store": Figure(6, 9.0, 0.05, 100.0, room=1 << 16, caches=4),
}


def figure_of(name: str, own: Processor, simd: str, own_cache: int, threads: int) -> float:
    """The kept figure of a processor; where there is none, it is measured now.

    Args:
        name: a key of ``FIGURES``.
        own: the processor that this process runs on.
        simd: the vector instructions that kernels use.
        own_cache: bytes of the L2 cache that a core has for itself.
        threads: number of threads that torch may use.
    """
    figure = FIGURES[name]
    if figure.is_shared and (threads < 2 or own.cores * own.siblings < 2):
        return figure.typical  # no other thread runs beside this one
    source = library_source("cores", simd)
    together = str(threads) if name == "awake" else ""  # the figure depends on how many threads have to meet
    key = kept_choices.key_of(own.key(), simd, source, name, str(own_cache), together)
    kept = kept_choices.read(key, _SUFFIX)
    if isinstance(kept, (int, float)):
        return float(kept)
    measured = rounded(name, _samples(figure, source, simd, own_cache))
    if measured is None:
        return figure.typical
    kept_choices.write(key, _SUFFIX, measured)
    return measured


def _samples(figure: Figure, source: str, simd: str, own_cache: int) -> list[float]:
    """Runs the measurement of one figure; an empty list if it can't be run."""
    path = prebuilt.find(source, prebuilt.flags_for(simd))
    if path is None:
        return []
    try:
        entry = getattr(ctypes.CDLL(str(path)), library_symbol("cores", simd))
        elements = int(figure.caches * own_cache) // 4 + figure.room
        room = (ctypes.c_float * (elements + 16))()
    except (OSError, AttributeError, MemoryError) as error:
        log.artifact("targets").info("nothing is measured: %s", error)
        return []
    samples, count = (ctypes.c_double * _MOST)(), ctypes.c_int64()
    at = ctypes.c_void_p(-(-ctypes.addressof(room) // 64) * 64)  # the beginning of a cache line
    number, bytes_, most = (ctypes.c_int64(n) for n in (figure.which, own_cache, _MOST))
    entry(number, at, bytes_, samples, most, ctypes.byref(count))
    return samples[:count.value]


def rounded(name: str, samples: list[float]) -> float | None:
    """A figure from its samples, rounded to a coarse step; None if they are too few or implausible, which is logged."""
    figure = FIGURES[name]
    ordered = sorted(samples)
    value = ordered[len(ordered) // 4] if len(ordered) >= figure.fewest else math.nan
    if figure.per:
        value = 1 / value if value > 0 else math.nan
    if not figure.least <= value <= figure.most:
        log.artifact("targets").info("%s counts as %s: %s samples, of which the lower quartile is %s", name,
                                     figure.typical, len(samples), value)
        return None
    measured = 1 + _step(value - 1) if figure.is_ratio else _step(value)
    log.artifact("targets").info("%s = %s, measured: %.4g", name, measured, value)
    return measured


def _step(value: float) -> float:
    """The nearest power of the square root of 2, to four digits; 0 for a negligible value."""
    return 0.0 if value < _NOTHING else float(f"{2 ** (round(2 * math.log2(value)) / 2):.4g}")
