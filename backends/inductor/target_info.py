"""``TargetInfo``: what decisions of the back end rest on that differs between processors, in one description.

Sizes of caches and cores are read from the machine (``processor``). Costs of pieces of work, in products (the time of
one multiplication and addition of a tile), are measured once for each kind of processor, in some hundredths of a
second, when a decision first needs them (``machine_costs``), rounded, and kept in the cache folder, so that the same
machine decides the same again. So are times that depend on cores and caches, each by itself (``core_costs``).
``config.target`` replaces single values. What none of these tells has one value for all processors, and its comment
says how that was found. The rest are formulas of these; the log ``targets`` prints all.

Invariant: a description is immutable, and decisions are functions of it: given the same, they are the same anywhere.
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
# Bytes of a line of the caches, on all processors that kernels are written for.
LINE = 64
REGISTERS = {"avx512": 32, "avx2": 16, "scalar": 16}


@dataclasses.dataclass(frozen=True, slots=True)
class TargetInfo:
    """Attributes:
        processor: what the machine tells.
        simd: the vector instructions that kernels use.
        known_costs: measured or given ones; None: those of this machine, measured when they are first asked for.
        known_figures: measured or given ones of ``core_costs.FIGURES``, with their names; the others are those of this
            machine, measured when they are first asked for.
        library_call: nanoseconds that a call of the library takes beside what it computes: of torch's dispatcher, and
            of a run of kernels that ends before it, 4.2 us.
        library_sharing: how much less several threads gain in the library's products than in ours, where each packs
            what it reads. After 33 products on an AMD EPYC (Zen 3, AVX2, 2 cores; 8000 x 512 x 256: 1.12 to 1.2).
        convolution_share, product_share: what part of the rate at which a core computes products the library's
            convolutions reach, and its matrix products with what surrounds them: 100 and 85 of 116 GFLOP/s of an AMD
            EPYC (Zen 4). The rate itself is measured (``costs``).
        pages: a first-level table of translations has about so many places (64 in Intel's since Nehalem, in AMD's since
            Zen), so that so many lines on pages of their own can be read in turn.
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
    winograd: bool = True

    # ---------------------------------------------------------------- vectors and tiles
    @property
    def lanes(self) -> int:
        """Of a vector of float32."""
        return LANES[self.simd]

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and vectors of a tile of products: its sums, the vectors of one line and the element that is spread
        over a vector stay in registers, and there are more sums than products begun before the first is done (4 or 5
        cycles, two in each). Without instructions that multiply and add, each takes a register for the product, too.
        ``panels.h`` is compiled with these."""
        registers = REGISTERS[self.simd]
        vectors = 4 if registers == 32 else 2
        spare = vectors + 1 if self.simd != "scalar" else 2 * vectors + 1
        rows = (registers - spare) // vectors
        return rows - rows % 2, vectors

    @property
    def panel(self) -> int:
        """Columns of a tile of products."""
        return self.tile[1] * self.lanes

    # ---------------------------------------------------------------- costs
    @property
    def costs(self) -> Costs:
        """Of pieces of work."""
        return self.known_costs if self.known_costs is not None else _costs_here(self.processor, self.simd)

    def _figure(self, name: str) -> float:
        known = dict(self.known_figures)
        return known[name] if name in known else _figure_here(name, self, torch.get_num_threads())

    @property
    def wake(self) -> float:
        """Nanoseconds until a thread that sleeps has begun to compute, and is seen to have: by the system's futexes."""
        return self._figure("wake")

    @property
    def awake(self) -> float:
        """Nanoseconds that a loop takes longer for being shared out to threads that have just computed another: by
        OpenMP's library, with as many threads as there are."""
        return self._figure("awake")

    @property
    def elements(self) -> float:
        """Operations on elements a nanosecond, of one core, from its own cache, a load and a store being one each."""
        return self._figure("elements")

    @property
    def far_read(self) -> float:
        """How many times as long products take whose left operand streams from beyond a core's own cache."""
        return self._figure("far_read")

    @property
    def foreign_read(self) -> float:
        """Nanoseconds that an element takes longer to read, in order, if another core has written it last."""
        return self._figure("foreign_read")

    @property
    def near_store(self) -> float:
        """Nanoseconds of an element that is copied to a line of its own, all of which stay in a core's own cache."""
        return self._figure("near_store")

    @property
    def far_store(self) -> float:
        """The same if the lines are on pages of their own, beyond the own cache."""
        return self._figure("far_store")

    def grain(self, awake: bool) -> int:
        """Work, in operations on elements, that one thread should have at least: below it, sharing out costs more
        than it brings. Rounded to a power of two, as is ``product_grain``.

        Whether other threads sleep when a loop begins is not known: they do so some milliseconds after the last one,
        and what runs in between is the program's. If they do, sharing out pays from ``wake`` on, if not, from ``awake``
        on. Between the two, at their geometric mean, a wrong guess costs at most the root of their ratio.

        Args:
            awake: whether other, larger kernels keep the threads awake.
        """
        return 1 << round(math.log2(self._thread_cost(awake) * self.elements))

    def product_grain(self, awake: bool) -> int:
        """The same in products of a template."""
        return 1 << round(math.log2(self._thread_cost(awake) * self.costs.product_rate))

    def _thread_cost(self, awake: bool) -> float:
        return self.awake if awake else math.sqrt(self.wake * self.awake)

    # ---------------------------------------------------------------- what stays near
    @property
    def own_cache(self) -> int:
        """Bytes of the second cache that a core has for itself; logical processors of one core share it anyway."""
        l2, siblings = self.processor.l2, self.processor.siblings
        return max(l2.size * siblings // max(l2.sharers, siblings), 128 << 10)

    @property
    def far_left(self) -> int:
        """A left operand of more bytes is read from beyond the own cache by each panel. Of one that is up to twice as
        large as the cache, half is still there, and the rest is fetched ahead in time."""
        return 2 * self.own_cache

    @property
    def near_panels(self) -> int:
        """Bytes of panels that a thread packs at once: they are read once for each block of the left operand's rows,
        which is seldom enough for the third cache, half of whose part that is one core's they may take."""
        l3 = self.processor.l3
        return max(self.own_cache, 0 if l3 is None else l3.size * self.processor.siblings // l3.sharers // 2)

    @property
    def near_planes(self) -> int:
        """Elements of the planes of im2col that stay in the own cache: five eighths of it, beside the left operand's
        rows and the results, which pass through the rest."""
        return self.own_cache * 5 // 8 // 4

    @property
    def near_result(self) -> int:
        """Results of fewer bytes are still in the own cache when they are read next: half of it."""
        return self.own_cache // 2

    @property
    def near_row(self) -> int:
        """Bytes of a row that waits between two passes over it, in memory of the kernel's own: a sixteenth of the
        cache, and no more than a thread's stack is sure to have."""
        return min(self.own_cache // 16, 64 << 10)

    @property
    def near_pixels(self) -> int:
        """Pixels of which 64 channels fill the own cache. With more, a thread that computes some channels of a 1x1
        convolution reads all that comes in from further away, which costs more than results that are elsewhere."""
        return self.own_cache // (64 * 4)

    @property
    def near_vector(self) -> int:
        """Elements of a matrix that is multiplied with a vector by a loop: four times the own cache. What is larger
        comes from memory, and the library fetches that better."""
        return self.own_cache

    @property
    def strip(self) -> int:
        """Results of a depthwise convolution at a time: with them, what they see and what follows them, a quarter of
        the first cache; ``depthwise.cpp`` has room for 8192 of them."""
        return min(self.processor.l1.size // 16, 4096)

    @property
    def near_lines(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """From one line to the next that takes the same place, in bytes, and how many such lines may be read in turn:
        pages, of as many as are translated at once; the second cache, of half its ways."""
        l2 = self.processor.l2
        return (4 << 10, self.pages), (max(l2.size // l2.ways, 4 << 10), max(l2.ways // 2, 1))

    @property
    def far_stores(self) -> int:
        """Elements of a gradient from which on every store of one that is rearranged goes beyond the own cache: nine
        quarters of it, as the lines written last stay."""
        return self.own_cache * 9 // 16

    def describe(self) -> str:
        """In words, for the log."""
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
    """The same for kernels with other vector instructions, or with other algorithms of convolutions."""
    info = _described(simd, tuple(sorted(config.target.items())))
    return info if winograd else dataclasses.replace(info, winograd=False)


@functools.lru_cache(maxsize=16)
def _described(simd: str, replaced: tuple[tuple[str, float], ...]) -> TargetInfo:
    return with_values(TargetInfo(processor.this_processor(), simd), dict(replaced))


def with_values(info: TargetInfo, values: dict[str, float]) -> TargetInfo:
    """A description with some values replaced.

    Args:
        values: as ``config.target`` has them: sizes of caches ("l1", "l2", "l3") and their ways ("l2_ways"), "cores",
            costs by the names of ``Costs``, the numbers of ``TargetInfo``.
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
    numbers = {name: int(v) if name == "pages" else float(v) for name, v in known.items()}
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
         "library_sharing", "convolution_share", "product_share", "pages")
"""Of ``config.target``."""
