"""Lowerings of padding by reflection or replication, and of its gradients.

Invariant: each element is read at positions that follow from the position in the result, and the scheduler splits the
loops at the edges of the padding, so that no guard is left in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import FLOAT
from dynamo_lite.backends.inductor.lowering.formulas import like
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.values import TensorValue, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten
_RANKS = (1, 2, 3)
# Elements of a replicating padding at one edge up to which the sum of their gradients is written out, which bounds the
# length of the code. The value is chosen.
_MOST_REPEATED = 16


def _is_padded(g: GraphLowering, x: TensorValue, padding: Sequence[int]) -> bool:
    """Whether ``x`` can be padded so by loops: the padded sizes are numbers, and no size is 0."""
    known = g.sizes.are_known(x.shape, len(padding) // 2, "a padded image")
    return known and all(isinstance(p, int) and p >= 0 for p in padding) and not is_size(ix.product(x.shape), 0)


def _padded(g: GraphLowering, x: TensorValue, padding: Sequence[int], reflect: bool) -> Any:
    """Pads the last dimensions, all in one pass, with elements of the tensor.

    Args:
        padding: numbers of elements before and after each dimension, from the last dimension on.
        reflect: whether the elements next to the edge are mirrored; if not, the edge's element is repeated.
    """
    if not _is_padded(g, x, padding):
        return NotImplemented
    if not any(padding):
        return TensorValue(x.shape, x.dtype, x.node)
    g.realize_if_dear(x)  # its expression would be repeated in each part of the loops
    shape, first = list(x.shape), x.ndim - len(padding) // 2
    for k in range(len(padding) // 2):
        shape[x.ndim - 1 - k] = ix.add(shape[x.ndim - 1 - k], padding[2 * k] + padding[2 * k + 1])
    places = list(shape_vars(shape))

    def element(d: int, indices: list[ix.Index]) -> Node:
        """The element of the result, where the source indices of the dimensions before ``d`` are already chosen."""
        if d == x.ndim:
            return reindexed(g.ops, x, indices)
        before, n, here = padding[2 * (x.ndim - 1 - d)], x.shape[d], places[d]
        assert isinstance(n, int)
        left: ix.Index = ix.add(before, ix.mul(here, -1)) if reflect else 0
        right: ix.Index = ix.add(before + 2 * (n - 1), ix.mul(here, -1)) if reflect else n - 1
        inner, outer, behind = (element(d + 1, [*indices[:d], at, *indices[d + 1:]])
                                for at in (ix.add(here, -before) if n > 1 else 0, left, right))
        node = g.ops.op("where", g.ops.inside(here, before, before + n), inner, behind)
        return g.ops.op("where", g.ops.inside(here, 0, before), outer, node)

    result = TensorValue(tuple(shape), x.dtype, element(first, list(places)), device=x.device)
    g.realize_result(result)
    return result


@register_lowering(*[getattr(aten, f"reflection_pad{rank}d").default for rank in _RANKS])
def reflection_pad(g: GraphLowering, self: TensorValue, padding: Sequence[int]) -> Any:
    return _padded(g, self, padding, True)


@register_lowering(*[getattr(aten, f"replication_pad{rank}d").default for rank in _RANKS])
def replication_pad(g: GraphLowering, self: TensorValue, padding: Sequence[int]) -> Any:
    return _padded(g, self, padding, False)


# ---------------------------------------------------------------- gradients
def _gradient(g: GraphLowering, d: TensorValue, x: TensorValue, padding: Sequence[int], reflect: bool) -> Any:
    """The gradient of ``_padded``, by one pass for each dimension that is padded: with one pass for all, the loops
    would be split in all dimensions at once."""
    if d.dtype not in FLOAT or not _is_padded(g, x, padding) or not reflect and max(padding) > _MOST_REPEATED:
        return NotImplemented
    g.realize_if_dear(d)  # its expression would be repeated for each copy
    # The sum of no gradients is 0, to which eager adds: -0.0 becomes 0.0.
    result = TensorValue(d.shape, d.dtype, g.ops.op("add", d.node, like(g.ops, d.node, 0)), device=d.device)
    for k in range(len(padding) // 2):
        before, after = padding[2 * k : 2 * k + 2]
        if before or after:
            result = _folded(g, result, x.ndim - 1 - k, x.shape[x.ndim - 1 - k], before, after, reflect)
            if result.shape != x.shape:
                g.realize(result)
    g.realize_result(result)
    return result


def _folded(
    g: GraphLowering, d: TensorValue, dim: int, size: ix.Index, before: int, after: int, reflect: bool
) -> TensorValue:
    """The sums, along one dimension of ``size`` elements before padding, of the gradients of each element's copies."""
    assert isinstance(size, int)
    shape = (*d.shape[:dim], size, *d.shape[dim + 1 :])
    places, ops = list(shape_vars(shape)), g.ops
    here = places[dim]

    def at(place: ix.Index) -> Node:
        return reindexed(ops, d, [*places[:dim], place, *places[dim + 1 :]])

    none = like(ops, d.node, 0)
    node = at(ix.add(here, before) if size > 1 else before)
    if reflect:
        copies = [(1, before + 1, ix.add(before, ix.mul(here, -1))),
                  (size - 1 - after, size - 1, ix.add(before + 2 * (size - 1), ix.mul(here, -1)))]
    else:
        copies = [(0, 1, place) for place in range(before)]
        copies += [(size - 1, size, before + size + place) for place in range(after)]
    for low, high, place in copies:
        node = ops.op("add", node, ops.op("where", ops.inside(here, low, high), at(place), none))
    return TensorValue(shape, d.dtype, node, device=d.device)


@register_lowering(*[getattr(aten, f"reflection_pad{rank}d_backward").default for rank in _RANKS])
def reflection_pad_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, padding: Sequence[int]
) -> Any:
    return _gradient(g, grad_output, self, padding, True)


@register_lowering(*[getattr(aten, f"replication_pad{rank}d_backward").default for rank in _RANKS])
def replication_pad_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, padding: Sequence[int]
) -> Any:
    return _gradient(g, grad_output, self, padding, False)
