"""Lowerings of reductions: sums, extremes, positions of extremes, moments.

Each makes a loop nest whose result is in a buffer of its own; the operations around it (dividing by the count, casting)
are pointwise and fuse as usual. Sums of 16-bit floats are accumulated in float32, as in eager. A variance is computed
in two passes, which is as accurate as Welford's method and needs no division inside the loop; the rows that it reads
twice are in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.lowering.formulas import clamp_min, is_nan, like
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.memory_order import contiguous_dim, sampled
from dynamo_lite.backends.inductor.lowering.one_hot import summed
from dynamo_lite.backends.inductor.lowering.promotion import elementwise, opmath
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, expanded, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering.views import wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten
Dims = Any  # None, an int, or a list of them


def all_dims(dim: Dims, rank: int) -> tuple[int, ...]:
    """The dimensions that an operator's ``dim`` argument means, in ascending order; all of them for None or an empty
    list."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(rank))
    return tuple(sorted({wrap(d, rank) for d in (dim if isinstance(dim, (list, tuple)) else (dim,)) if rank}))


def count(x: TensorValue, dims: Sequence[int]) -> ix.Index:
    """Number of elements that are reduced to one result."""
    return ix.product(x.shape[d] for d in dims)


def cast_to(g: GraphLowering, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    """``x`` converted to a dtype."""
    return TensorValue(x.shape, dtype, g.ops.cast(x.node, dtype), device=x.device)


def divided_by(g: GraphLowering, x: TensorValue, n: ix.Index) -> TensorValue:
    """``x / n``, where ``n`` is a number of elements, which may be symbolic."""
    divisor = g.ops.const(n, x.dtype) if isinstance(n, int) else g.ops.cast(g.ops.index(n), x.dtype)
    return TensorValue(x.shape, x.dtype, g.ops.op("div", x.node, divisor), device=x.device)


def sum_of(g: GraphLowering, x: TensorValue, dims: Sequence[int], keepdim: bool) -> TensorValue:
    """The sum in the dtype in which eager accumulates (float32 for 16-bit floats)."""
    x = cast_to(g, x, opmath(x.dtype))
    if x.dtype.is_floating_point and is_size(count(x, dims), 1):
        x = elementwise(g, lambda a: g.ops.op("add", a, like(g.ops, a, 0)), x)  # a sum starts at 0: -0.0 becomes 0.0
    return summed(g, x, dims, keepdim)


def mean_of(g: GraphLowering, x: TensorValue, dims: Sequence[int], keepdim: bool) -> TensorValue:
    """The mean in the dtype in which eager accumulates."""
    return divided_by(g, sum_of(g, x, dims, keepdim), count(x, dims))


def moments(g: GraphLowering, x: TensorValue, dims: Sequence[int]) -> tuple[TensorValue, TensorValue]:
    """The mean, and the sum of squared differences from it, in the dtype of accumulation, with ``dims`` kept as size 1.

    The computed mean of large numbers that differ little is wrong in the digits in which they differ. So the
    differences from it are summed as well, and their mean, which would be zero for an exact mean, corrects both
    results. The mean of a sample is sufficient as the first mean (``memory_order``) where reading all numbers once more
    is expensive.
    """
    x = cast_to(g, x, opmath(x.dtype))
    ops = g.ops
    part = None if g.abilities.near is None else sampled(ops, x, dims, g.abilities.near)
    rough = mean_of(g, x if part is None else part, dims, True)
    if part is not None:
        # The sample may miss an infinity that cancels those in it, which makes the mean NaN. So a sample's mean that is
        # not finite is replaced by 0, and infinities enter the results through the sums over all elements.
        rough = elementwise(g, lambda m: ops.op("where", ops.op("lt", ops.op("abs", m), like(ops, m, math.inf)), m,
                                                like(ops, m, 0)), rough)
        inner = contiguous_dim(x)
        if inner is not None and inner in dims:  # one mean for each element of a short run, contiguous like the run
            shape = (*rough.shape[:inner], x.shape[inner], *rough.shape[inner + 1:])
            rough = TensorValue(shape, rough.dtype, expanded(ops, rough, shape), device=x.device)
    g.realize(rough)

    def squared(a: Node, m: Node) -> Node:
        d = ops.op("sub", a, m)
        return ops.op("mul", d, d)

    off = g.reduce(elementwise(g, lambda a, m: ops.op("sub", a, m), x, rough), "sum", dims, True)
    squares = g.reduce(elementwise(g, squared, x, rough), "sum", dims, True)
    by = divided_by(g, off, count(x, dims))

    def corrected(m: Node, d: Node) -> Node:
        if part is not None:
            return ops.op("add", m, d)
        return ops.op("where", is_nan(ops, d), m, ops.op("add", m, d))  # for infinities m is infinite, d NaN

    def less(s: Node, o: Node, d: Node) -> Node:
        rest = clamp_min(ops, ops.op("sub", s, ops.op("mul", o, d)), like(ops, s, 0))
        infinite = s if part is None else ops.op("add", s, ops.op("mul", o, like(ops, o, 0)))  # NaN if o is infinite
        return ops.op("where", ops.op("eq", s, like(ops, s, math.inf)), infinite, rest)

    if rough.shape != by.shape:
        rough = TensorValue(by.shape, rough.dtype, reindexed(
            ops, rough, [0 if d in dims else v for d, v in enumerate(shape_vars(rough.shape))]), device=x.device)
    mean = elementwise(g, corrected, rough, by)
    g.realize(mean)
    return mean, elementwise(g, less, squares, off, by)


def without(g: GraphLowering, x: TensorValue, dims: Sequence[int], keepdim: bool) -> TensorValue:
    """Drops the reduced dimensions, which were kept with size 1, unless ``keepdim``."""
    if keepdim:
        return x
    return TensorValue(
        tuple(n for d, n in enumerate(x.shape) if d not in dims), x.dtype, g.without_ones(x, dims), device=x.device
    )


# ---------------------------------------------------------------- sums
@register_lowering(aten.sum.default)
def sum_all(g: GraphLowering, self: TensorValue, dtype: torch.dtype | None = None) -> Any:
    return sum_dims(g, self, None, False, dtype)


@register_lowering(aten.sum.dim_IntList)
def sum_dims(
    g: GraphLowering, self: TensorValue, dim: Dims, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Any:
    dtype = dtype or (self.dtype if self.dtype.is_floating_point else torch.int64)
    if dtype is torch.bool:
        return NotImplemented
    wide = sum_of(g, cast_to(g, self, opmath(dtype)), all_dims(dim, self.ndim), keepdim)
    return cast_to(g, wide, dtype)


@register_lowering(aten.mean.default)
def mean_all(g: GraphLowering, self: TensorValue, dtype: torch.dtype | None = None) -> Any:
    return mean_dims(g, self, None, False, dtype)


@register_lowering(aten.mean.dim)
def mean_dims(
    g: GraphLowering, self: TensorValue, dim: Dims, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Any:
    dtype = dtype or self.dtype
    if not dtype.is_floating_point:
        return NotImplemented
    return cast_to(g, mean_of(g, cast_to(g, self, opmath(dtype)), all_dims(dim, self.ndim), keepdim), dtype)


@register_lowering(aten.prod.default)
def prod_all(g: GraphLowering, self: TensorValue, dtype: torch.dtype | None = None) -> Any:
    return _prod(g, self, None, False, dtype)


@register_lowering(aten.prod.dim_int)
def prod_dim(
    g: GraphLowering, self: TensorValue, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Any:
    return _prod(g, self, dim, keepdim, dtype)


def _prod(g: GraphLowering, x: TensorValue, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Any:
    """Lowers a product over ``dim``, all dimensions if it is None."""
    dtype = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    if dtype is torch.bool:
        return NotImplemented
    return cast_to(g, g.reduce(cast_to(g, x, opmath(dtype)), "prod", all_dims(dim, x.ndim), keepdim), dtype)


# ---------------------------------------------------------------- truth
@register_lowering(aten.any.default)
def any_all(g: GraphLowering, self: TensorValue) -> Any:
    return _truth(g, "any", self, None, False)


@register_lowering(aten.any.dim, aten.any.dims)
def any_dim(g: GraphLowering, self: TensorValue, dim: Dims = None, keepdim: bool = False) -> Any:
    return _truth(g, "any", self, dim, keepdim)


@register_lowering(aten.all.default)
def all_all(g: GraphLowering, self: TensorValue) -> Any:
    return _truth(g, "all", self, None, False)


@register_lowering(aten.all.dim, aten.all.dims)
def all_dim(g: GraphLowering, self: TensorValue, dim: Dims = None, keepdim: bool = False) -> Any:
    return _truth(g, "all", self, dim, keepdim)


def _truth(g: GraphLowering, kind: str, x: TensorValue, dim: Dims, keepdim: bool) -> TensorValue:
    """Lowers ``any`` or ``all``."""
    result = g.reduce(cast_to(g, x, torch.bool), kind, all_dims(dim, x.ndim), keepdim)
    # For historical reasons, the result for uint8 is uint8.
    return cast_to(g, result, torch.uint8) if x.dtype is torch.uint8 else result


# ---------------------------------------------------------------- extremes
def _extreme(g: GraphLowering, kind: str, x: TensorValue, dim: Dims, keepdim: bool) -> TensorValue:
    """Lowers a maximum ("max") or minimum ("min")."""
    if x.dtype is torch.bool:
        return g.reduce(x, "any" if kind == "max" else "all", all_dims(dim, x.ndim), keepdim)
    return g.reduce(x, kind, all_dims(dim, x.ndim), keepdim)


@register_lowering(aten.amax.default)
def amax(g: GraphLowering, self: TensorValue, dim: Dims = (), keepdim: bool = False) -> Any:
    return _extreme(g, "max", self, dim, keepdim)


@register_lowering(aten.amin.default)
def amin(g: GraphLowering, self: TensorValue, dim: Dims = (), keepdim: bool = False) -> Any:
    return _extreme(g, "min", self, dim, keepdim)


@register_lowering(aten.aminmax.default)
def aminmax(g: GraphLowering, self: TensorValue, dim: int | None = None, keepdim: bool = False) -> Any:
    return _extreme(g, "min", self, dim, keepdim), _extreme(g, "max", self, dim, keepdim)


@register_lowering(aten.max.default)
def max_all(g: GraphLowering, self: TensorValue) -> Any:
    return _extreme(g, "max", self, None, False)


@register_lowering(aten.min.default)
def min_all(g: GraphLowering, self: TensorValue) -> Any:
    return _extreme(g, "min", self, None, False)


@register_lowering(aten.max.dim)
def max_dim(g: GraphLowering, self: TensorValue, dim: int, keepdim: bool = False) -> Any:
    return _extreme_with_position(g, "max", self, dim, keepdim)


@register_lowering(aten.min.dim)
def min_dim(g: GraphLowering, self: TensorValue, dim: int, keepdim: bool = False) -> Any:
    return _extreme_with_position(g, "min", self, dim, keepdim)


def _extreme_with_position(g: GraphLowering, kind: str, x: TensorValue, dim: int, keepdim: bool) -> Any:
    """Lowers ``max`` or ``min`` along one dimension, whose results are the extremes and their positions."""
    if not x.ndim:
        return NotImplemented
    g.realize(x)
    return _extreme(g, kind, x, dim, keepdim), _position(g, f"arg{kind}", x, dim, keepdim)


def _position(g: GraphLowering, kind: str, x: TensorValue, dim: Dims, keepdim: bool) -> TensorValue:
    """The positions of maxima ("argmax") or minima ("argmin")."""
    if x.dtype is torch.bool:
        x = cast_to(g, x, torch.uint8)
    return g.reduce(x, kind, all_dims(dim, x.ndim), keepdim)


@register_lowering(aten.argmax.default)
def argmax(g: GraphLowering, self: TensorValue, dim: int | None = None, keepdim: bool = False) -> Any:
    return _position(g, "argmax", self, dim, keepdim) if self.dtype is not torch.bool else NotImplemented


@register_lowering(aten.argmin.default)
def argmin(g: GraphLowering, self: TensorValue, dim: int | None = None, keepdim: bool = False) -> Any:
    return _position(g, "argmin", self, dim, keepdim) if self.dtype is not torch.bool else NotImplemented


# ---------------------------------------------------------------- moments
def _variance(
    g: GraphLowering, x: TensorValue, dim: Dims, correction: Number | None, keepdim: bool, root: bool
) -> tuple[TensorValue, TensorValue] | Any:
    """The variance, or the standard deviation if ``root``, and the mean; ``NotImplemented`` if the library has to
    compute them."""
    dims = all_dims(dim, x.ndim)
    n = count(x, dims)
    if not x.dtype.is_floating_point or not _has_divisor(g, n, correction):
        return NotImplemented
    mean, squares = moments(g, x, dims)
    var = elementwise(g, lambda m: g.ops.op("div", m, _divisor(g, m, n, correction)), squares)
    if root:
        var = elementwise(g, lambda v: g.ops.op("sqrt", v), var)
    return tuple(cast_to(g, without(g, v, dims, keepdim), x.dtype) for v in (var, mean))


def _has_divisor(g: GraphLowering, n: ix.Index, correction: Number | None) -> bool:
    """Whether the divisor of a variance of ``n`` elements can be computed: ``n`` is a number, or ``n - correction`` is
    known to be positive in every call."""
    if isinstance(n, int):
        return True
    less = 1 if correction is None else correction
    return less == int(less) and g.sizes.below(int(less), n, "the variance of more elements than its correction")


def _divisor(g: GraphLowering, m: Node, n: ix.Index, correction: Number | None) -> Node:
    """The divisor of a variance, ``n - correction``, in the dtype of ``m``."""
    less = 1 if correction is None else correction
    if isinstance(n, int):
        return like(g.ops, m, max(0.0, n - less))
    return g.ops.cast(g.ops.index(ix.add(n, -int(less))), m.dtype)


@register_lowering(aten.var.correction)
def var(
    g: GraphLowering, self: TensorValue, dim: Dims = None, correction: Number | None = None, keepdim: bool = False
) -> Any:
    result = _variance(g, self, dim, correction, keepdim, False)
    return result if result is NotImplemented else result[0]


@register_lowering(aten.var_mean.correction)
def var_mean(
    g: GraphLowering, self: TensorValue, dim: Dims = None, correction: Number | None = None, keepdim: bool = False
) -> Any:
    return _variance(g, self, dim, correction, keepdim, False)


@register_lowering(aten.std.correction)
def std(
    g: GraphLowering, self: TensorValue, dim: Dims = None, correction: Number | None = None, keepdim: bool = False
) -> Any:
    result = _variance(g, self, dim, correction, keepdim, True)
    return result if result is NotImplemented else result[0]


@register_lowering(aten.std_mean.correction)
def std_mean(
    g: GraphLowering, self: TensorValue, dim: Dims = None, correction: Number | None = None, keepdim: bool = False
) -> Any:
    return _variance(g, self, dim, correction, keepdim, True)


@register_lowering(aten.linalg_vector_norm.default)
def vector_norm(
    g: GraphLowering,
    self: TensorValue,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Any:
    dtype = dtype or self.dtype
    dims = all_dims(dim, self.ndim)
    if not dtype.is_floating_point or is_size(count(self, dims), 0) or ord not in (1, 2, math.inf):
        return NotImplemented
    wide = cast_to(g, self, opmath(dtype))
    if ord == 2:
        squares = g.reduce(elementwise(g, lambda x: g.ops.op("mul", x, x), wide), "sum", dims, keepdim)
        return cast_to(g, elementwise(g, lambda x: g.ops.op("sqrt", x), squares), dtype)
    size = elementwise(g, lambda x: g.ops.op("abs", x), wide)
    return cast_to(g, g.reduce(size, "sum" if ord == 1 else "max", dims, keepdim), dtype)


@register_lowering(aten.logsumexp.default)
def logsumexp(g: GraphLowering, self: TensorValue, dim: Dims, keepdim: bool = False) -> Any:
    dims = all_dims(dim, self.ndim)
    if not self.dtype.is_floating_point or is_size(count(self, dims), 0):
        return NotImplemented
    wide = cast_to(g, self, opmath(self.dtype))
    top = g.reduce(wide, "max", dims, True)

    def finite(m: Node) -> Node:
        infinite = g.ops.op("eq", g.ops.op("abs", m), like(g.ops, m, math.inf))
        return g.ops.op("where", infinite, like(g.ops, m, 0), m)

    top = elementwise(g, finite, top)
    shifted = elementwise(g, lambda x, m: g.ops.op("exp", g.ops.op("sub", x, m)), wide, top)
    total = g.reduce(shifted, "sum", dims, True)
    result = elementwise(g, lambda s, m: g.ops.op("add", g.ops.op("log", s), m), total, top)
    return cast_to(g, without(g, result, dims, keepdim), self.dtype)


# ---------------------------------------------------------------- losses
def reduced_loss(g: GraphLowering, x: TensorValue, reduction: int, dtype: torch.dtype) -> TensorValue:
    """Reduces the losses of the elements: 0 leaves them as they are, 1 is the mean, 2 the sum."""
    if reduction == 0:
        return cast_to(g, x, dtype)
    dims = tuple(range(x.ndim))
    total = mean_of(g, x, dims, False) if reduction == 1 else sum_of(g, x, dims, False)
    return cast_to(g, total, dtype)


@register_lowering(aten.mse_loss.default)
def mse_loss(g: GraphLowering, self: TensorValue, target: TensorValue, reduction: int = 1) -> Any:
    if not self.dtype.is_floating_point or self.dtype is not target.dtype or self.dtype in HALF:
        return NotImplemented

    def squared(a: Node, b: Node) -> Node:
        d = g.ops.op("sub", a, b)
        return g.ops.op("mul", d, d)

    return reduced_loss(g, elementwise(g, squared, self, target), reduction, self.dtype)
