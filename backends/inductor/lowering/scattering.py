"""Lowerings of writes to parts of a tensor: scatter and related operators, index_put, index_add, gradients that are
accumulated by index, and writes through views.

Each is a loop nest with an ``Update`` (``ir.loops``): first the old content of the tensor, then the writes in eager's
order, so that sums are rounded as in eager. All indices are checked before anything is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import LoopNest, Update
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.lowering.creation import filled
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.indexing import (
    INDEX_DTYPES,
    checked_place,
    indexed_places,
    is_empty,
    place_of,
)
from dynamo_lite.backends.inductor.lowering.values import (
    Number,
    TensorValue,
    dim_var,
    expanded,
    is_size,
    loop_vars,
    reindexed,
    shape_vars,
)
from dynamo_lite.backends.inductor.lowering.views import reshaped, wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten


def _fixed(*values: TensorValue) -> bool:
    """Whether all sizes are numbers, and none is 0."""
    return all(isinstance(n, int) and n for x in values for n in x.shape)


def _are_equal(g: GraphLowering, a: Sequence[ix.Index], b: Sequence[ix.Index]) -> bool:
    """Whether two shapes are equal in every call, by new guards if need be; eager raises where they are not."""
    return len(a) == len(b) and all(n == m or g.sizes.at_most(n, m) and g.sizes.at_most(m, n) for n, m in zip(a, b))


def written(
    g: GraphLowering, x: TensorValue, shape: Sequence[ix.Index], places: Sequence[ix.Index], value: Node,
    add: bool | str,
) -> TensorValue:
    """``x`` after writes to parts of it.

    Args:
        x: the tensor before the writes.
        shape: shape of the iteration space: one write for each index into it, in order.
        places: the index into each dimension of ``x`` that a write goes to.
        value: the value that is written, in terms of ``shape_vars(shape)``.
        add: False: the value replaces the element; True: it is added to it; the name of an operation: that operation
            combines the two.
    """
    stride = g.dense_stride(x.shape)
    buffer = g.new_buffer(x.shape, stride, x.dtype, x.device)
    variables = shape_vars(x.shape)
    before = Update(loop_vars(variables), x.node, buffer.load_index(variables))
    mode = add if isinstance(add, str) else "add" if add else "set"
    node = g.ops.update(g.ops.cast(value, x.dtype), ix.dot(places, stride), mode)
    g.emit(LoopNest(buffer, loop_vars(shape_vars(shape)), node, 0, origin=g.origin, update=before))
    return TensorValue(x.shape, x.dtype, g.ops.load(buffer.name, before.index, x.dtype), stride, x.device)


def _can_add(x: TensorValue) -> bool:
    """Whether sums by index have eager's roundings in this dtype. Eager accumulates 16-bit floats in float32 in some of
    its loops only, so they are excluded."""
    return x.dtype is not torch.bool and x.dtype not in HALF


# ---------------------------------------------------------------- along one dimension
def _scatter(g: GraphLowering, x: TensorValue, dim: int, index: TensorValue, src: Any, add: bool | str) -> Any:
    """Lowers ``scatter`` of a tensor or a number ``src``; ``add`` is as in ``written``."""
    if not x.ndim or index.ndim != x.ndim or is_empty(x, index) or index.dtype is not torch.int64:
        return NotImplemented
    dim = wrap(dim, x.ndim)
    size = x.shape[dim]
    if is_size(size, 1) or add and not _can_add(x):
        return NotImplemented
    places = list(shape_vars(index.shape))
    if isinstance(src, TensorValue):
        if src.dtype is not x.dtype or is_empty(src):
            return NotImplemented
        value = reindexed(g.ops, src, places)
    else:
        value = g.ops.const(src, x.dtype)
    message = f"index {{}} is out of bounds for dimension {dim} with size {size}"
    if not add and g.is_read_on() and x.node.op == "const" and is_size(index.shape[dim], 1) and all(
            n == m for d, (n, m) in enumerate(zip(index.shape, x.shape)) if d != dim):
        return _at_one_place(g, x, dim, index, value, message)
    places[dim] = place_of(g, index.node, size, False, RuntimeError, message)
    return written(g, x, index.shape, places, value, add)


def _at_one_place(
    g: GraphLowering, x: TensorValue, dim: int, index: TensorValue, value: Node, message: str
) -> TensorValue:
    """A constant tensor except for one element of each row, as in ``one_hot``, as an expression that compares positions
    with the index. It is computed where it is read, and not stored."""
    row = [0 if d == dim else v for d, v in enumerate(shape_vars(x.shape))]
    size = x.shape[dim]
    place = checked_place(g, reindexed(g.ops, index, row), size, False, RuntimeError, message)
    here = g.ops.op("eq", g.ops.index(dim_var(dim, size)), place)
    node = g.ops.op("where", here, value, x.node)
    return TensorValue(x.shape, x.dtype, node, device=x.device)


@register_lowering(aten.scatter.src)
def scatter(g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> Any:
    return _scatter(g, self, dim, index, src, False)


@register_lowering(aten.scatter.value)
def scatter_value(g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, value: Number) -> Any:
    return _scatter(g, self, dim, index, value, False)


@register_lowering(aten.scatter_add.default)
def scatter_add(g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> Any:
    return _scatter(g, self, dim, index, src, True)


_REDUCTIONS = {
    "sum": "add", "add": "add", "mean": "add", "prod": "mul", "multiply": "mul", "amax": "maximum", "amin": "minimum",
}


@register_lowering(aten.scatter_reduce.two)
def scatter_reduce(
    g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, src: TensorValue, reduce: str,
    include_self: bool = True,
) -> Any:
    """Without ``include_self``, the elements that are reduced into are first set to the neutral element."""
    if not self.dtype.is_floating_point and (reduce == "mean" or self.dtype is torch.bool):
        return NotImplemented
    before = self
    if not include_self:
        before = _scatter(g, self, dim, index, _unit(reduce, self.dtype), False)
    if before is NotImplemented:
        return before
    result = _scatter(g, before, dim, index, src, _REDUCTIONS[reduce])
    if result is NotImplemented or reduce != "mean":
        return result
    start = filled(g, self.shape, 1 if include_self else 0, self.dtype)
    counts = _scatter(g, start, dim, index, 1, True)
    one = g.ops.const(1, self.dtype)
    count = counts.node if include_self else g.ops.op("where", g.ops.op("eq", counts.node, g.ops.const(0, self.dtype)),
                                                      one, counts.node)
    return TensorValue(self.shape, self.dtype, g.ops.op("div", result.node, count), device=self.device)


def _unit(reduce: str, dtype: torch.dtype) -> Number:
    """The neutral element of a reduction."""
    if reduce in ("amax", "amin"):
        if dtype.is_floating_point:
            return -math.inf if reduce == "amax" else math.inf
        return torch.iinfo(dtype).min if reduce == "amax" else torch.iinfo(dtype).max
    return 1 if reduce == "prod" else 0


@register_lowering(aten.scatter.reduce)
def scatter_reduced(
    g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, src: TensorValue, reduce: str
) -> Any:
    return scatter_reduce(g, self, dim, index, src, reduce)


@register_lowering(aten.scatter.value_reduce)
def scatter_value_reduced(
    g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, value: Number, reduce: str
) -> Any:
    return _scatter(g, self, dim, index, value, _REDUCTIONS[reduce])


def _by_slices(
    g: GraphLowering, x: TensorValue, dim: int, index: TensorValue, source: TensorValue | Number, add: bool,
    wraps: bool, error: type[Exception], message: str,
) -> Any:
    """Writes whole slices: slice ``k`` of the source to the position that element ``k`` of the index gives.

    Args:
        source: a tensor, or a number that fills the slices.
        add: whether slices are added to the old content.
        wraps: whether a negative index counts from the end.
        error, message: the exception that eager raises for an index out of bounds. In the message, ``{}`` stands for
            the index, ``{dim}`` and ``{size}`` for the dimension and its size.
    """
    if not x.ndim or index.ndim > 1 or is_empty(x, index) or index.dtype is not torch.int64:
        return NotImplemented
    dim = wrap(dim, x.ndim)
    size = x.shape[dim]
    if is_size(size, 1) or add and not _can_add(x):
        return NotImplemented
    flat = reshaped(g, index, (1,)) if not index.ndim else index
    shape = (*x.shape[:dim], flat.shape[0], *x.shape[dim + 1 :])
    places = list(shape_vars(shape))
    if isinstance(source, TensorValue):
        if source.dtype is not x.dtype or not _are_equal(g, source.shape, shape):
            return NotImplemented
        shape = source.shape  # equal, but with the size expressions that the source's loops have
        places = list(shape_vars(shape))
        value = source.node
    else:
        value = g.ops.const(source, x.dtype)
    node = reindexed(g.ops, flat, (places[dim],))
    places[dim] = place_of(g, node, size, wraps, error, message.format("{}", dim=dim, size=size))
    return written(g, x, shape, places, value, add)


@register_lowering(aten.index_copy.default)
def index_copy(g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, source: TensorValue) -> Any:
    message = "index_copy_(): index {} is out of bounds for dimension {dim} with size {size}"
    return _by_slices(g, self, dim, index, source, False, False, IndexError, message)


@register_lowering(aten.index_add.default)
def index_add(
    g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, source: TensorValue, alpha: Number = 1
) -> Any:
    if alpha != 1 or self.ndim < 2:
        return NotImplemented
    message = "index {} is out of bounds for dimension {dim} with size {size}"
    return _by_slices(g, self, dim, index, source, True, False, RuntimeError, message)


@register_lowering(aten.index_fill.int_Scalar)
def index_fill(g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, value: Number) -> Any:
    message = "index {} is out of bounds for dimension {dim} with size {size}"
    return _by_slices(g, self, dim, index, value, False, True, IndexError, message)


# ---------------------------------------------------------------- by tensors of indices
@register_lowering(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    g: GraphLowering,
    self: TensorValue,
    indices: Sequence[TensorValue | None],
    values: TensorValue,
    accumulate: bool = False,
) -> Any:
    if values.dtype is not self.dtype or not self.ndim:
        return NotImplemented
    masked = _masked(g, self, indices, values) if not accumulate else None
    if masked is not None:
        return masked
    if is_empty(self, values, *(t for t in indices if t is not None)) or accumulate and not _can_add(self):
        return NotImplemented
    found = indexed_places(g, self, indices)
    if found is None:
        return NotImplemented
    shape, places = found
    if len(values.shape) > len(shape) or any(
        not is_size(n, 1) and n != m for n, m in zip(values.shape[::-1], shape[::-1])
    ):
        return NotImplemented  # eager raises
    return written(g, self, shape, places, expanded(g.ops, values, shape), accumulate)


def _masked(
    g: GraphLowering, x: TensorValue, indices: Sequence[TensorValue | None], values: TensorValue
) -> TensorValue | None:
    """``index_put`` of one value wherever a boolean mask over the first dimensions is true, as a choice; None if the
    arguments are of another kind."""
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.dtype is not torch.bool or not mask.ndim or not is_size(values.numel, 1):
        return None
    if mask.shape != x.shape[: mask.ndim]:
        return None
    condition = reindexed(g.ops, mask, [dim_var(d, n) for d, n in enumerate(mask.shape)])
    return TensorValue(x.shape, x.dtype, g.ops.op("where", condition, values.node, x.node), device=x.device)


# ---------------------------------------------------------------- gradients
@register_lowering(aten.embedding_dense_backward.default)
def embedding_backward(
    g: GraphLowering,
    grad_output: TensorValue,
    indices: TensorValue,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Any:
    """Like eager, skips indices that are out of range: it adds zero to row 0 instead, which changes nothing, since no
    sum is -0.0."""
    if scale_grad_by_freq or grad_output.dtype in HALF or indices.dtype not in INDEX_DTYPES:
        return NotImplemented
    if is_empty(grad_output, indices):
        return NotImplemented
    if num_weights < 2 or grad_output.ndim != indices.ndim + 1:
        return NotImplemented
    shape = grad_output.shape
    variables = shape_vars(shape)
    at = g.ops.cast(indices.node, torch.int64)

    def number(n: int) -> Node:
        return g.ops.const(n, torch.int64)

    counts = g.ops.op("and", g.ops.op("ge", at, number(0)), g.ops.op("lt", at, number(num_weights)))
    if padding_idx >= 0:
        counts = g.ops.op("and", counts, g.ops.op("ne", at, number(padding_idx)))
    place = ix.atom(ix.Indirect(g.ops.op("where", counts, at, number(0)), num_weights))
    value = g.ops.op("where", counts, grad_output.node, g.ops.const(0, grad_output.dtype))
    base = filled(g, (num_weights, shape[-1]), 0, grad_output.dtype)
    return written(g, base, shape, (place, variables[-1]), value, True)


# ---------------------------------------------------------------- through views
@register_lowering(aten.diagonal_scatter.default)
def diagonal_scatter(
    g: GraphLowering, self: TensorValue, src: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    if not _fixed(self, src) or src.dtype is not self.dtype:
        return NotImplemented
    a, b = wrap(dim1, self.ndim), wrap(dim2, self.ndim)
    variables = shape_vars(src.shape)
    others = iter(variables[:-1])
    places: list[ix.Index] = []
    for d in range(self.ndim):
        if d == a:
            places.append(ix.add(variables[-1], max(-offset, 0)))
        elif d == b:
            places.append(ix.add(variables[-1], max(offset, 0)))
        else:
            places.append(next(others))
    return written(g, self, src.shape, places, src.node, False)


@register_lowering(aten.diagonal_backward.default)
def diagonal_backward(
    g: GraphLowering, grad_output: TensorValue, input_sizes: Sequence[ix.Index], offset: int, dim1: int, dim2: int
) -> Any:
    base = filled(g, input_sizes, 0, grad_output.dtype)
    return diagonal_scatter(g, base, grad_output, offset, dim1, dim2) if _fixed(base) else NotImplemented
