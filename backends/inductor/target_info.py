"""``TargetInfo``: what decisions of the back end rest on that differs between processors, in one description.

Sizes of caches and cores are read from the machine (``processor``). Costs of pieces of work, in products (the time of
one multiplication and addition of a tile), are measured once for each kind of processor, in some hundredths of a
second, when a decision first needs them (``machine_costs``), rounded, and kept in the cache folder, so that the same
machine decides the same again. ``config.target`` replaces single values. What neither tells has one value for all
processors, and its comment says how that was found. The rest are formulas of these; the log ``targets`` prints all.

Invariant: a description is immutable, and decisions are functions of it: given the same, they are the same anywhere.
"""
from __future__ import annotations

import dataclasses
import functools
import math

from dynamo_lite import config, log
from dynamo_lite.backends.inductor import machine_costs, processor
from dynamo_lite.backends.inductor.machine_costs import TYPICAL, Costs
from dynamo_lite.backends.inductor.processor import Cache, Processor

LANES = {"avx512": 16, "avx2": 8, "scalar": 4}
REGISTERS = {"avx512": 32, "avx2": 16, "scalar": 16}


@dataclasses.dataclass(frozen=True, slots=True)
class TargetInfo:
    """Attributes:
        processor: what the machine tells.
        simd: the vector instructions that kernels use.
        known_costs: measured or given ones; None: those of this machine, measured when they are first asked for.
        far_read: how much longer products take whose left operand streams from beyond a core's own cache. With BERT's
            weights in memory, 1.05; the probe would have to read more than all caches hold to see it.
        foreign_read: how much longer a network takes if the results of its 1x1 convolutions are not in the cache of the
            core that reads them next: ResNet-50's and MobileNetV3's, 1.06.
        wake, awake: nanoseconds that a loop takes longer for being shared out, if the other threads sleep, and if they
            have just computed another loop: of the system's, 6.5 us and 1.6 us with Linux's futexes and libgomp.
        library_call: nanoseconds that a call of the library takes beside what it computes: of torch's dispatcher, and
            of a run of kernels that ends before it, 4.2 us.
        elements: operations on elements a nanosecond, of one core, with vectors of 64 bytes: from its caches, 10.
        pages: a first-level table of translations has about so many places (64 in Intel's since Nehalem, in AMD's since
            Zen), so that so many lines on pages of their own can be read in turn.
    """

    processor: Processor
    simd: str
    known_costs: Costs | None = None
    far_read: float = 1.05
    foreign_read: float = 1.06
    wake: float = 6500.0
    awake: float = 1600.0
    library_call: float = 4200.0
    elements: float = 10.0
    pages: int = 64

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

    @property
    def grain(self) -> int:
        """Work, in operations on elements, that one thread should have at least: below it, waking another costs more
        than it brings. Rounded to a power of two, as is ``grain_awake``."""
        return self._grain(self.wake)

    @property
    def grain_awake(self) -> int:
        """The same if other, larger kernels keep the threads awake; they then find in their own caches what they have
        written, too."""
        return self._grain(self.awake)

    def _grain(self, nanoseconds: float) -> int:
        return 1 << round(math.log2(nanoseconds * self.elements * self.lanes / 16))

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
        numbers = [f.name for f in dataclasses.fields(self)][3:]
        numbers += ["grain", "grain_awake", "own_cache", "far_left", "near_panels", "near_planes", "near_result",
                    "near_row", "near_pixels", "near_vector", "strip", "near_lines", "far_stores"]
        lines += [f"{name} = {getattr(self, name)}" for name in numbers]
        if config.target:
            lines.append(f"config.target: {config.target}")
        return "\n".join(lines)


def current() -> TargetInfo:
    """The description of this machine, with what ``config.target`` replaces."""
    info = _described(processor.simd(), tuple(sorted(config.target.items())))
    if log.enabled("targets") and log.first_time("targets", info):
        log.artifact("targets").info("%s", info.describe())
    return info


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
    numbers = {name: int(v) if name == "pages" else float(v) for name, v in known.items()}
    if costs:
        before = TYPICAL if costs.keys() == names else info.costs
        info = dataclasses.replace(info, known_costs=dataclasses.replace(before, **costs))
    return dataclasses.replace(info, processor=p, **numbers)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=16)
def _costs_here(own: Processor, simd: str) -> Costs:
    costs = machine_costs.costs_of(own, simd)
    log.artifact("targets").info("costs, in products: %s", costs)
    return costs


NAMES = ("l1", "l2", "l2_ways", "l3", "cores", *(f.name for f in dataclasses.fields(Costs)), "far_read", "foreign_read",
         "wake", "awake", "library_call", "elements", "pages")
"""Of ``config.target``."""
