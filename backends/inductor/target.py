"""The description of a compilation target, which is all that the target-independent passes know about it.

Lowering asks which operations the target leaves to the library, the scheduler how the target wants loops arranged, the
pipeline for the source of the kernels, and the wrapper how they are called. ``codegen/cpp`` and ``codegen/triton``
define one each.

Invariant: targets differ in how the kernels of a program are arranged and written, and in which operators are library
calls; the program computes the same on each.
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
    """How choices about a target's kernels are made, as given by the options of ``compile``.

    Attributes:
        products: matrix products are calls of the "library", or kernels from a "template", or whichever is "measured"
            to be faster (on a CPU convolutions are measured, too), or they follow the target's "rule".
        blocks: block sizes follow from a "rule", or are "measured".
        random: random numbers are drawn by the "library", or in the "kernels" that use them.
    """

    products: str = "rule"
    blocks: str = "rule"
    random: str = "library"


@dataclasses.dataclass(frozen=True, slots=True)
class Sources:
    """The generated source of a program's kernels.

    Attributes:
        text: the source of all kernels.
        symbols: the name by which each kernel is called, in the kernels' order.
        libraries: sources of libraries that the text calls into.
    """

    text: str
    symbols: list[str]
    libraries: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Attributes:
        name: the target's name in logs and in options of ``compile``.
        arrangement: how loops are arranged in kernels.
        write: writes the source of kernels.
        abilities: what the target can compute itself; lowering asks it.
        reports: whether kernels report which index was out of bounds; otherwise they stop the device, as eager's do.
        launches: whether each kernel is called separately, by a Python function that the source defines; otherwise C
            entries call several kernels at a time.
    """

    name: str
    arrangement: Arrangement
    write: Callable[[Sequence[Kernel]], Sources]
    abilities: Abilities = ALL
    reports: bool = True
    launches: bool = False
