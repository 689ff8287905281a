"""What lowering asks of a target: which operators its kernels compute, on which device, and how it wants reductions.

Invariant: whatever is left out is computed by library calls, with the same results.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Set
from typing import Any

import torch

from dynamo_lite.backends.inductor.gpu_info import GpuInfo
from dynamo_lite.backends.inductor.ir.contraction import Contraction
from dynamo_lite.backends.inductor.ir.nodes import Node


@dataclasses.dataclass(frozen=True, slots=True)
class Products:
    """Which matrix products a target's template computes; the rest is the library's.

    Attributes:
        dtypes: of operands; sums are of float32.
        least_lines, least_columns, least_depth: sizes of the left operand, the right one and the sum that are worth it.
        streams: whether a template reads one operand in vectors, so that the other one's results lie in lines if the
            right operand's columns lie in memory, and fewer lines than the least are sums along rows.
        faster: whether the library is faster for a product of two matrices of known sizes, and whether something
            follows it that the template would compute with it; None: the template computes all that it can.
    """

    dtypes: Set[torch.dtype]
    least_lines: int
    least_columns: int
    least_depth: int
    streams: bool
    faster: Callable[[Contraction, bool], bool] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution, as the operator has them, all of them known.

    Attributes:
        input, weight: shapes.
        stride, padding, dilation: one number for each spatial dim.
        groups: of channels.
    """

    input: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


aten = torch.ops.aten
PRODUCTS = frozenset({
    aten.linear.default, aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default})
"""What the library computes where no template is asked for."""
IN_VECTORS = Products(frozenset({torch.float32}), 8, 8, 8, True)
"""Fewer lines or columns than 8 leave most of a vector idle, or most of a tile."""


@dataclasses.dataclass(frozen=True, slots=True)
class Abilities:
    """Attributes:
        library: operators that have a lowering, which needs what the target has not: templates of products.
        leaves: whether a call is the library's, for what only its operands or torch's state say.
        computes: whether kernels can compute a node of the loop IR; None: they compute all.
        device: the type of the device whose tensors kernels read and write; what others hold is the library's.
        gpu: the device, where reductions that would leave most of it idle are made in parts; None: none are.
        products: see there.
        faster_convolution: whether the library is faster for a convolution of known sizes that a template can compute
            as this contraction, and whether something follows it that the template would compute with it; None: the
            template computes all that it can.
        random: whether kernels draw random numbers, from what ``device_random`` says; else the library draws them.
        near_vector: a matrix of at most so many elements is multiplied with a vector by a loop, a larger one by the
            library; None: any.
        near: bytes of a core's first cache, by which reductions are arranged that run down columns of memory; None:
            where blocks of rows are read, they aren't.
        few: a reduction, or a sum of products, of at most so many terms is a chain of operations; 0: none is.
    """

    library: Set[Any] = frozenset()
    leaves: Callable[[torch.fx.Node], bool] | None = None
    computes: Callable[[Node], bool] | None = None
    device: str = "cpu"
    gpu: GpuInfo | None = None
    products: Products = IN_VECTORS
    faster_convolution: Callable[[Convolution, Contraction, bool], bool] | None = None
    near_vector: int | None = None
    near: int | None = None
    random: bool = False
    few: int = 0


ALL = Abilities()
"""All operators, on the CPU."""
