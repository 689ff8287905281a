"""Lowerings of reads at indices from memory: gather, index_select, embedding, take, indexing with tensors.

An index from memory becomes an ``Indirect`` atom in the index of a load, so that the read fuses with the operations
around it. The index is bounded first (``Builder.bounded``): a negative one counts from the end where it does in eager,
and one out of bounds is reported where eager raises.

Invariant: every index is checked, as in eager, whichever elements are used: where no loop checks it, a loop is added
that does (``GraphLowering.checked``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.values import (
    TensorValue,
    broadcast_shapes,
    expanded,
    is_size,
    reindexed,
    shape_vars,
)
from dynamo_lite.backends.inductor.lowering.views import reshaped, wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten

INDEX_DTYPES = (torch.int64, torch.int32)


def place_of(
    g: GraphLowering, node: Node, size: ix.Index, wraps: bool, error: type[Exception], message: str
) -> ix.Index:
    """The integer that ``node`` computes, as an index into a dimension of ``size`` elements.

    Args:
        wraps: whether a negative index counts from the end.
        error, message: the exception that eager raises for an index out of bounds; ``{}`` stands for that index.
    """
    node = g.ops.cast(node, torch.int64)
    if node.op == "index" and _lies_inside(g, node.attr, size):
        return node.attr
    bounded = checked_place(g, node, size, wraps, error, message)
    return bounded.attr if bounded.op == "const" else ix.atom(ix.Indirect(bounded, size))


def checked_place(
    g: GraphLowering, node: Node, size: ix.Index, wraps: bool, error: type[Exception], message: str
) -> Node:
    """The index of ``place_of`` as a bounded node of int64, the dtype of ``node``; the arguments are the same. The
    index is checked in all iterations, whichever elements are read."""
    bounded = g.ops.bounded(node, size, wraps, g.fault(error, message))
    if bounded.op != "const":
        g.checked.append(bounded)
    return bounded


def _lies_inside(g: GraphLowering, index: ix.Index, size: ix.Index) -> bool:
    """Whether an index made of loop variables is known to be one of ``range(size)``."""
    bounds = None if ix.affine_terms(index) is None else ix.value_range(index)
    return bounds is not None and g.ops.is_at_most(0, bounds[0]) and g.ops.is_at_most(ix.add(bounds[1], 1), size)


def is_empty(*values: TensorValue) -> bool:
    """Whether one of the tensors is known to have no elements."""
    return any(is_size(n, 0) for x in values for n in x.shape)


def prepare_source(g: GraphLowering, x: TensorValue, taken: ix.Index) -> None:
    """Realizes a tensor from which ``taken`` elements will be read, if they may be more than it has and are not cheap
    to recompute."""
    if not (isinstance(taken, int) and isinstance(x.numel, int) and taken <= x.numel):
        g.realize_if_dear(x)


def _taken(g: GraphLowering, x: TensorValue, shape: Sequence[ix.Index], indices: Sequence[ix.Index]) -> TensorValue:
    """The elements of ``x`` at ``indices``, as a realized tensor of ``shape``."""
    result = TensorValue(tuple(shape), x.dtype, reindexed(g.ops, x, indices), device=x.device)
    g.realize_result(result)
    return result


def _select(
    g: GraphLowering, x: TensorValue, dim: int, index: TensorValue, error: type[Exception], message: str
) -> TensorValue:
    """``x`` with dimension ``dim`` replaced by the dimensions of ``index``, whose elements select the positions."""
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    variables = shape_vars(shape)
    prepare_source(g, x, ix.product(shape))
    node = reindexed(g.ops, index, variables[dim : dim + index.ndim])
    place = place_of(g, node, x.shape[dim], False, error, message)
    return _taken(g, x, shape, (*variables[:dim], place, *variables[dim + index.ndim :]))


@register_lowering(aten.embedding.default)
def embedding(
    g: GraphLowering,
    weight: TensorValue,
    indices: TensorValue,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if weight.ndim != 2 or indices.dtype not in INDEX_DTYPES or is_empty(weight, indices):
        return NotImplemented
    if is_size(weight.shape[0], 1):
        return NotImplemented
    return _select(g, weight, 0, indices, IndexError, "index out of range in self")


@register_lowering(aten.index_select.default)
def index_select(g: GraphLowering, self: TensorValue, dim: int, index: TensorValue) -> Any:
    if not self.ndim or index.dtype not in INDEX_DTYPES or is_empty(self, index):
        return NotImplemented
    dim = wrap(dim, self.ndim)
    if is_size(self.shape[dim], 1):
        return NotImplemented
    if not index.ndim:
        index = reshaped(g, index, (1,))
    if self.ndim > 1 and all(is_size(n, 1) for n in self.shape[dim + 1 :]) and self.node.op == "load":
        return NotImplemented  # single elements are selected from each row, for which the library has a special loop
    if dim == 0:
        return _select(g, self, dim, index, IndexError, "index out of range in self")
    message = f"INDICES element is out of DATA bounds, id={{}} axis_dim={self.shape[dim]}"
    return _select(g, self, dim, index, RuntimeError, message)


@register_lowering(aten.gather.default)
def gather(g: GraphLowering, self: TensorValue, dim: int, index: TensorValue, sparse_grad: bool = False) -> Any:
    if not self.ndim or self.ndim != index.ndim or index.dtype not in INDEX_DTYPES or is_empty(self, index):
        return NotImplemented
    dim = wrap(dim, self.ndim)
    if is_size(self.shape[dim], 1):
        return NotImplemented
    prepare_source(g, self, index.numel)
    indices = list(shape_vars(index.shape))
    message = f"index {{}} is out of bounds for dimension {dim} with size {self.shape[dim]}"
    indices[dim] = place_of(g, index.node, self.shape[dim], False, RuntimeError, message)
    return _taken(g, self, index.shape, indices)


@register_lowering(aten.take.default)
def take(g: GraphLowering, self: TensorValue, index: TensorValue) -> Any:
    numel = self.numel
    if index.dtype is not torch.int64 or is_empty(self, index) or not isinstance(numel, int) or numel == 1:
        return NotImplemented
    flat = reshaped(g, self, (numel,))
    message = f"out of range: tried to access index {{}} on a tensor of {numel} elements."
    return _taken(g, flat, index.shape, [place_of(g, index.node, numel, True, IndexError, message)])


def indexed_shape(
    x: TensorValue, indices: Sequence[TensorValue | None]
) -> tuple[tuple[int, ...], tuple[ix.Index, ...], int] | None:
    """The structure of ``x[indices]``: the indexed dimensions, the broadcast shape of the indices, and the position of
    that shape's first dimension in the result. None if the library has to do the indexing, for instance with indices
    that are not integers.

    Dimensions of one element have no loop variable, so an index into one would never be checked: the library does it.
    """
    dims = tuple(d for d, t in enumerate(indices) if t is not None)
    given = [t for t in indices if t is not None]
    if not given or any(t.dtype not in INDEX_DTYPES for t in given) or is_empty(x, *given):
        return None
    if any(is_size(x.shape[d], 1) and indices[d].node.op != "const" for d in dims):  # type: ignore[union-attr]
        return None
    adjacent = dims == tuple(range(dims[0], dims[0] + len(dims)))
    return dims, broadcast_shapes(*[t.shape for t in given]), dims[0] if adjacent else 0


def indexed_places(
    g: GraphLowering, x: TensorValue, indices: Sequence[TensorValue | None]
) -> tuple[tuple[ix.Index, ...], list[ix.Index]] | None:
    """The shape of ``x[indices]``, and for each dimension of ``x`` the index that an element of the result has in it;
    None as in ``indexed_shape``."""
    found = indexed_shape(x, indices)
    if found is None:
        return None
    dims, together, at = found
    rest = [n for d, n in enumerate(x.shape) if d not in dims]
    shape = (*rest[:at], *together, *rest[at:])
    variables = shape_vars(shape)
    inside = variables[at : at + len(together)]
    others = iter([*variables[:at], *variables[at + len(together) :]])
    places: list[ix.Index] = []
    for d, n in enumerate(x.shape):
        t = indices[d] if d < len(indices) else None
        if t is None:
            places.append(next(others))
            continue
        wide = TensorValue(together, t.dtype, expanded(g.ops, t, together))
        message = f"index {{}} is out of bounds for dimension {d} with size {n}"
        places.append(place_of(g, reindexed(g.ops, wide, inside), n, True, IndexError, message))
        if is_size(n, 1) and not isinstance(places[-1], int):
            return None
    return shape, places


@register_lowering(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(g: GraphLowering, self: TensorValue, indices: Sequence[TensorValue | None]) -> Any:
    found = indexed_places(g, self, indices)
    if found is None:
        return NotImplemented
    shape, places = found
    prepare_source(g, self, ix.product(shape))
    return _taken(g, self, shape, places)
