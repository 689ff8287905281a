"""``TargetInfo``: one description of all the processor properties that decisions of the back end depend on.

Sizes of caches and numbers of cores are read from the machine (``processor``). Costs of pieces of work are counted in
products (one product is the time of one multiply-add of a tile). A probe measures them once for each kind of processor,
in some hundredths of a second, when a decision first needs them (``machine_costs``); they are rounded and kept in the
cache folder, so that the same machine decides the same again. Times that depend on cores and caches are measured and
kept in the same way, but each one separately (``core_costs``). ``config.target`` replaces single values. A number that
none of these sources provides has one value for all processors, and its comment says how that was found. The rest are
formulas of these; the log ``targets`` prints all.

Invariant: a description is immutable, and decisions are pure functions of it: equal descriptions give equal decisions
on any machine.
"""
from __future__ import annotations

import dataclasses
import functools
import math

import torch

from dynamo_lite import config, log
from dynamo_lite.backends.inductor import core_costs, machine_costs, processor
from dynamo_lite.backends.inductor.core_costs import FIGURES
from dynamo_lite.backends.inductor.machine_costs import TYPICAL, Costs
from dynamo_lite.backends.inductor.processor import Cache, Processor

LANES = {"avx512": 16, "avx2": 8, "scalar": 4}
# Bytes of a cache line, on all processors that kernels are written for.
LINE = 64
# Number of library calls whose overhead is to be small beside some work: it is a tenth of the work then.
CALLS = 10
REGISTERS = {"avx512": 32, "avx2": 16, "scalar": 16}


@dataclasses.dataclass(frozen=True, slots=True)
class TargetInfo:
    """Attributes:
        processor: the properties of the processor as the machine reports them.
        simd: the vector instructions that kernels use.
        known_costs: measured or given costs; None: the costs of this machine, measured when they are first asked for.
        known_figures: measured or given figures of ``core_costs.FIGURES``, as pairs of name and value; the others are
            those of this machine, measured when they are first asked for.
        library_call: overhead of a library call in nanoseconds, beside the computation itself: torch's dispatcher, and
            the run of kernels that has to end before the call; 4.2 us.
        library_sharing: factor by which several threads gain less in the library's products than in ours, because each
            of the library's threads packs its own operands. From 33 products on an AMD EPYC (Zen 3, AVX2, 2 cores;
            8000 x 512 x 256: 1.12 to 1.2).
        convolution_share, product_share: the fraction of a core's rate of products that the library reaches in its
            convolutions, and in its matrix products together with the operations around them: 100 and 85 of 116
            GFLOP/s of an AMD EPYC (Zen 4). The rate itself is measured (``costs``).
        pages: approximate number of entries of the first-level data TLB (64 in Intel's processors since Nehalem and in
            AMD's since Zen): the number of cache lines on different pages that can be read in turn without TLB misses.
        fetched_depth: the least depth of products whose results' memory is prefetched even if all that they touch fits
            the L2 cache. Prefetches cost shallower ones time: on an AMD EPYC (Zen 4), alone, depths of 16 to 32 take 2
            to 10% longer with them for results of 0.6 to 0.9 MB, and 10 to 30% less for those of 1.8 MB and more.
        winograd: whether convolutions may be computed by ``winograd.h`` (``config.winograd``).
    """

    processor: Processor
    simd: str
    known_costs: Costs | None = None
    known_figures: tuple[tuple[str, float], ...] = ()
    library_call: float = 4200.0
    library_sharing: float = 1.1
    convolution_share: float = 0.86
    product_share: float = 0.73
    pages: int = 64
    fetched_depth: int = 64
    winograd: bool = True

    # ---------------------------------------------------------------- vectors and tiles
    @property
    def lanes(self) -> int:
        """Number of float32 lanes of a vector register."""
        return LANES[self.simd]

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and vectors of the register tile of products. The tile's accumulators, the vectors of one line of the
        right operand and the broadcast element of the left one stay in registers. There are more accumulators than
        multiply-adds in flight (latency of 4 or 5 cycles, two begun in each). Without fused multiply-add, each product
        takes a register, too. ``panels.h`` is compiled with these two numbers."""
        registers = REGISTERS[self.simd]
        vectors = 4 if registers == 32 else 2
        spare = vectors + 1 if self.simd != "scalar" else 2 * vectors + 1
        rows = (registers - spare) // vectors
        return rows - rows % 2, vectors

    @property
    def panel(self) -> int:
        """Number of columns of a tile of products."""
        return self.tile[1] * self.lanes

    # ---------------------------------------------------------------- costs
    @property
    def costs(self) -> Costs:
        """Costs of pieces of work, in products."""
        return self.known_costs if self.known_costs is not None else _costs_here(self.processor, self.simd)

    def _figure(self, name: str) -> float:
        known = dict(self.known_figures)
        return known[name] if name in known else _figure_here(name, self, torch.get_num_threads())

    @property
    def wake(self) -> float:
        """Nanoseconds from waking a sleeping thread (by a futex) until it is seen to have begun to compute."""
        return self._figure("wake")

    @property
    def awake(self) -> float:
        """Nanoseconds of overhead of a loop that the OpenMP library shares out to all threads, if these have just
        computed another loop and are still awake."""
        return self._figure("awake")

    @property
    def elements(self) -> float:
        """Element operations per nanosecond of one core on data in its L2 cache; a load and a store count as one
        operation each."""
        return self._figure("elements")

    @property
    def far_read(self) -> float:
        """Ratio of the time of products whose left operand streams from beyond a core's L2 cache to the time of those
        whose left operand is in it."""
        return self._figure("far_read")

    @property
    def foreign_read(self) -> float:
        """Additional nanoseconds for the sequential read of an element that another core has written last."""
        return self._figure("foreign_read")

    @property
    def near_store(self) -> float:
        """Nanoseconds for copying an element to a cache line of its own, if all these lines stay in the L2 cache."""
        return self._figure("near_store")

    @property
    def far_store(self) -> float:
        """Nanoseconds for copying an element to a cache line of its own, if the lines are on different pages, beyond
        the L2 cache."""
        return self._figure("far_store")

    def grain(self, awake: bool) -> int:
        """The least work, in element operations, that one thread should get: below it, sharing a loop out costs more
        than it gains. Rounded to a power of two, as is ``product_grain``.

        Whether the other threads sleep when a loop begins is not known: they fall asleep some milliseconds after the
        last loop, and what runs in between is up to the program. If they sleep, sharing out pays from ``wake`` on, if
        not, from ``awake`` on. With the geometric mean of the two, a wrong guess costs at most the square root of their
        ratio.

        Args:
            awake: whether other, larger kernels keep the threads awake.
        """
        return 1 << round(math.log2(self._thread_cost(awake) * self.elements))

    def product_grain(self, awake: bool) -> int:
        """The least work, in products, that one thread should get in a matrix product of ours (see ``grain``)."""
        return 1 << round(math.log2(self._thread_cost(awake) * self.costs.product_rate))

    def outweighs_a_call(self, products: int) -> bool:
        """Whether the overhead of a library call is small beside the time of this number of products on one thread. If
        it is not, the work is left to our loops, and is too short to be measured well."""
        return products >= CALLS * self.library_call * self.costs.product_rate

    def _thread_cost(self, awake: bool) -> float:
        return self.awake if awake else math.sqrt(self.wake * self.awake)

    # ---------------------------------------------------------------- what stays in cache
    @property
    def own_cache(self) -> int:
        """Bytes of the L2 cache that one core can count on; the logical processors of a core share it anyway."""
        l2, siblings = self.processor.l2, self.processor.siblings
        return max(l2.size * siblings // max(l2.sharers, siblings), 128 << 10)

    @property
    def far_left(self) -> int:
        """Bytes of the left operand from which on each panel reads it from beyond the L2 cache. Of an operand of up to
        twice the cache's size, half is still in the cache, and the rest is prefetched in time."""
        return 2 * self.own_cache

    @property
    def near_panels(self) -> int:
        """Bytes of what a convolution with exchanged operands or Winograd's filtering keeps at a time: it is read
        seldom enough for the L3 cache, and may take half of one core's share of it."""
        l3 = self.processor.l3
        return max(self.own_cache, 0 if l3 is None else l3.size * self.processor.siblings // l3.sharers // 2)

    @property
    def near_planes(self) -> int:
        """Number of elements of im2col planes that stay in the L2 cache: they take five eighths of it. The rows of the
        left operand and the results pass through the rest."""
        return self.own_cache * 5 // 8 // 4

    @property
    def near_result(self) -> int:
        """Bytes of results up to which they are still in the L2 cache when they are read next: half of the cache."""
        return self.own_cache // 2

    @property
    def near_row(self) -> int:
        """Bytes of a row that is kept in the kernel's own memory between two passes over it: a sixteenth of the L2
        cache, and no more than what surely fits on a thread's stack."""
        return min(self.own_cache // 16, 64 << 10)

    @property
    def near_pixels(self) -> int:
        """Number of pixels of which 64 channels fill the L2 cache. With more, a thread that computes some of the
        channels of a 1x1 convolution reads all of the input from beyond the L2 cache, which costs more than results
        that another core's cache holds."""
        return self.own_cache // (64 * 4)

    @property
    def near_vector(self) -> int:
        """Largest number of elements of a matrix for which a matrix-vector product is a loop: four times the L2 cache
        in bytes. Larger matrices come from memory, and the library prefetches better there."""
        return self.own_cache

    @property
    def strip(self) -> int:
        """Number of results of a depthwise convolution that are computed at a time. They take a quarter of the L1
        cache, beside the inputs that they read and the operations that follow; ``depthwise.cpp`` has room for 8192."""
        return min(self.processor.l1.size // 16, 4096)

    @property
    def near_lines(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Pairs of a period in bytes and a number of lines. Lines whose addresses differ by multiples of the period
        compete for one resource; up to this number of them can be read in turn without misses. The first pair is for
        pages, of which the TLB holds ``pages``; the second is for lines of one set of the L2 cache, half its ways."""
        l2 = self.processor.l2
        return (4 << 10, self.pages), (max(l2.size // l2.ways, 4 << 10), max(l2.ways // 2, 1))

    @property
    def far_stores(self) -> int:
        """Number of elements of a rearranged gradient from which on every store misses the L2 cache: nine quarters of
        the cache in bytes, because the lines written last are still in it."""
        return self.own_cache * 9 // 16

    def describe(self) -> str:
        """The description as text, for the log."""
        p = self.processor
        l3 = "none" if p.l3 is None else f"{p.l3.size >> 10} KB for {p.l3.sharers}"
        lines = [
            f"{p.name} ({p.family}); {self.simd}, tiles of {self.tile[0]} x {self.tile[1]} vectors",
            f"caches: {p.l1.size >> 10} KB, {p.l2.size >> 10} KB for {p.l2.sharers}, {l3}; {p.cores} cores, "
            f"{p.siblings} logical processors each",
        ]
        numbers = [f.name for f in dataclasses.fields(self)][4:]
        numbers += [*FIGURES, "own_cache", "far_left", "near_panels", "near_planes", "near_result", "near_row",
                    "near_pixels", "near_vector", "strip", "near_lines", "far_stores"]
        lines += [f"{name} = {getattr(self, name)}" for name in numbers]
        lines += [f"{name} = {of(False)}, of threads that are awake {of(True)}"
                  for name, of in (("grain", self.grain), ("product_grain", self.product_grain))]
        if config.target:
            lines.append(f"config.target: {config.target}")
        return "\n".join(lines)


def current() -> TargetInfo:
    """The description of this machine, with what ``config.target`` replaces."""
    info = with_vectors(processor.simd(), config.winograd)
    if log.enabled("targets") and log.first_time("targets", info):
        log.artifact("targets").info("%s", info.describe())
    return info


def with_vectors(simd: str, winograd: bool) -> TargetInfo:
    """This machine's description for kernels with other vector instructions, or with Winograd convolutions turned
    off."""
    info = _described(simd, tuple(sorted(config.target.items())))
    return info if winograd else dataclasses.replace(info, winograd=False)


@functools.lru_cache(maxsize=16)
def _described(simd: str, replaced: tuple[tuple[str, float], ...]) -> TargetInfo:
    return with_values(TargetInfo(processor.this_processor(), simd), dict(replaced))


def with_values(info: TargetInfo, values: dict[str, float]) -> TargetInfo:
    """A description with some values replaced.

    Args:
        values: replacements as in ``config.target``: sizes of caches ("l1", "l2", "l3") and their ways ("l2_ways"),
            "cores", costs by the names of ``Costs``, the figures of ``FIGURES``, the numbers of ``TargetInfo``.
    """
    p, known = info.processor, dict(values)
    l1, l2 = p.l1, p.l2
    l1 = Cache(int(known.pop("l1", l1.size)), l1.ways, l1.sharers)
    l2 = Cache(int(known.pop("l2", l2.size)), int(known.pop("l2_ways", l2.ways)), l2.sharers)
    l3 = p.l3
    if "l3" in known:
        l3 = Cache(int(known.pop("l3")), 16, p.l3.sharers if p.l3 else p.cores)
    p = dataclasses.replace(p, l1=l1, l2=l2, l3=l3, cores=int(known.pop("cores", p.cores)))
    names = {f.name for f in dataclasses.fields(Costs)}
    costs = {name: known.pop(name) for name in list(known) if name in names}
    figures = {**dict(info.known_figures), **{name: float(known.pop(name)) for name in list(known) if name in FIGURES}}
    numbers = {name: int(v) if name in ("pages", "fetched_depth") else float(v) for name, v in known.items()}
    if costs:
        before = TYPICAL if costs.keys() == names else info.costs
        info = dataclasses.replace(info, known_costs=dataclasses.replace(before, **costs))
    info = dataclasses.replace(info, known_figures=tuple(sorted(figures.items())))
    return dataclasses.replace(info, processor=p, **numbers)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=16)
def _costs_here(own: Processor, simd: str) -> Costs:
    costs = machine_costs.costs_of(own, simd)
    log.artifact("targets").info("costs, in products: %s", costs)
    return costs


@functools.lru_cache(maxsize=64)
def _figure_here(name: str, info: TargetInfo, threads: int) -> float:
    return core_costs.figure_of(name, info.processor, info.simd, info.own_cache, threads)


NAMES = ("l1", "l2", "l2_ways", "l3", "cores", *(f.name for f in dataclasses.fields(Costs)), *FIGURES, "library_call",
         "library_sharing", "convolution_share", "product_share", "pages", "fetched_depth")
"""The names that ``config.target`` may have."""
