"""Abilities of a target, as lowering asks for them: the operators that its kernels compute, their device, and the form
of reductions and products that suits it.

Invariant: library calls compute whatever a target's kernels do not, with the same results.
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
    """Which matrix products a target's template computes; the library computes the rest.

    Attributes:
        dtypes: dtypes of operands that the template takes; it accumulates in float32.
        least_lines, least_columns, least_depth: the smallest number of rows of the left operand, of columns of the
            right operand, and of products per sum for which the template is worthwhile.
        streams: whether the template reads one operand in vectors. If so, the two operands change roles where the right
            one is contiguous along the sum, and products of fewer than ``least_lines`` rows are plain reductions.
        faster: predicate that says whether the library is faster for a product of two matrices of known sizes. Its
            second argument says whether generated code reads the product, which the template could fuse as an
            epilogue. None: the template computes all products that it can.
    """

    dtypes: Set[torch.dtype]
    least_lines: int
    least_columns: int
    least_depth: int
    streams: bool
    faster: Callable[[Contraction, bool], bool] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution in the order of the operator's arguments, all of them known numbers.

    Attributes:
        input, weight: shapes of the two operands.
        stride, padding, dilation: one number for each spatial dimension.
        groups: number of channel groups.
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
"""Operators that the library computes unless the options ask for a template."""
IN_VECTORS = Products(frozenset({torch.float32}), 8, 8, 8, True)
"""The products of the C++ template: with fewer than 8 rows or columns, most of a vector or of a tile would be idle."""


@dataclasses.dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities and preferences of one target.

    Attributes:
        library: operators that the library computes although they have a lowering, because the target has no template
            for them, or is not asked to use it.
        leaves: predicate that says whether a call is left to the library because of its operands or of torch's state,
            which the operator alone does not tell.
        computes: predicate that says whether kernels can compute a node of the loop IR; None: they compute all nodes.
        device: type of the device whose tensors kernels read and write; the library handles tensors on other devices.
        gpu: description of the GPU for which reductions are split that would leave most of it idle; None: no
            reductions are split for that reason.
        products: the matrix products that the target's template computes.
        faster_convolution: predicate that says whether the library is faster for a convolution of known sizes that the
            template can compute as the given contraction. Its third argument says whether generated code reads the
            result, which the template could fuse as an epilogue. None: the template computes all that it can.
        random: whether kernels draw random numbers, by the state that ``device_random`` reserves; otherwise the
            library draws them.
        near_vector: the largest number of elements of a matrix that a loop multiplies by a vector; the library
            multiplies larger ones. None: a loop multiplies matrices of any size.
        near: size of a core's L1 data cache in bytes, which decides how reductions down columns of memory are
            arranged; None: the target reads blocks of rows, so they need no arrangement.
        few: the largest number of terms for which a reduction or a sum of products becomes a chain of operations
            instead of a loop; 0: none does.
        online_softmax: whether a kernel computes two products with softmax between them without scores in memory; such
            products are then not left to the library.
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
    online_softmax: bool = False


ALL = Abilities()
"""A CPU target that computes all operators that have a lowering."""
