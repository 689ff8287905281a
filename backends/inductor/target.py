"""What kernels are made for: the one description of a target that the neutral passes ask.

Lowering asks what the target leaves to the library, the scheduler how it wants loops arranged, the pipeline for
the text of its kernels, the wrapper how these are called. ``codegen/cpp`` and ``codegen/triton`` have one each.

Invariant: a program differs between targets in how its kernels are arranged and written, and in which operators are
library calls; what it computes is the same.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dynamo_lite.backends.inductor.lowering.abilities import ALL, PRODUCTS, Abilities, Convolution, Products
from dynamo_lite.backends.inductor.scheduler.arrangement import Arrangement
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel

__all__ = ["PRODUCTS", "Abilities", "Convolution", "Products", "Sources", "Target", "Tuning"]


@dataclasses.dataclass(frozen=True, slots=True)
class Tuning:
    """What of a target's kernels is decided how, as options of ``compile`` have it.

    Attributes:
        products: matrix products are the "library"'s, a "template"'s, whichever is "measured" to be faster (the
            convolutions of a CPU then, too), or by the target's "rule".
        blocks: sizes of blocks follow from a "rule", or are "measured".
        random: random numbers are drawn by the "library", or in the "kernels" that use them.
    """

    products: str = "rule"
    blocks: str = "rule"
    random: str = "library"


@dataclasses.dataclass(frozen=True, slots=True)
class Sources:
    """What a target writes for the kernels of a program.

    Attributes:
        text: of all kernels.
        symbols: what calls each kernel.
        libraries: sources of libraries that the text calls into.
    """

    text: str
    symbols: list[str]
    libraries: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Attributes:
        name: for logs, as options of ``compile`` have it.
        arrangement: of loops.
        write: the text of kernels.
        abilities: what lowering asks.
        reports: whether kernels say which index was out of bounds; else they stop the device, as eager's do.
        launches: whether kernels are called by Python functions that their text defines, each by itself, and not by
            entries in C that call several.
    """

    name: str
    arrangement: Arrangement
    write: Callable[[Sequence[Kernel]], Sources]
    abilities: Abilities = ALL
    reports: bool = True
    launches: bool = False
