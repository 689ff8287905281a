"""Lowerings of concatenation and related operators: cat, stack, pad, roll, writes into a slice of a tensor.

Guards on the element's position (``inside`` nodes) choose the operand that an element comes from, and an operand is
read only where its guard holds. The result is always realized; the scheduler splits the loop at the borders of the
parts, so that no guard is left in the loops.

Invariant: no iteration reads outside of the tensor that its element comes from.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.scattering import written
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering.views import begin_of_slice, part_of, reshaped, wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten

# Largest number of parts of a concatenation: each part is a loop of its own.
MAX_PARTS = 16
# A write into an input touches only the written part if the whole has at least this many times its elements.
MUCH_LARGER = 4


def _realized(g: GraphLowering, x: TensorValue) -> TensorValue:
    """Realizes a result in eager's layout, and returns it."""
    g.realize_result(x)
    return x


@register_lowering(aten.cat.default)
def cat(g: GraphLowering, tensors: Sequence[TensorValue], dim: int = 0) -> Any:
    # For historical reasons, torch.cat accepts an empty tensor of one dimension beside tensors of any shape.
    parts = [t for t in tensors if not (t.ndim == 1 and is_size(t.shape[0], 0))]
    if not parts or len(parts) > MAX_PARTS:
        return NotImplemented
    dtype = parts[0].dtype
    for t in tensors:
        dtype = torch.promote_types(dtype, t.dtype)
    dim = wrap(dim, parts[0].ndim)
    if len(parts) == 1:
        return TensorValue(parts[0].shape, dtype, g.ops.cast(parts[0].node, dtype))
    total = ix.sum_of(t.shape[dim] for t in parts)
    shape = (*parts[0].shape[:dim], total, *parts[0].shape[dim + 1 :])
    if is_size(ix.product(shape), 0) or not _in_order(g, [t.shape[dim] for t in parts]):
        return NotImplemented
    indices = list(shape_vars(shape))
    here = indices[dim]
    node: Node | None = None
    end = total
    for t in reversed(parts):
        start = ix.add(end, ix.mul(t.shape[dim], -1))
        indices[dim] = ix.add(here, ix.mul(start, -1)) if not is_size(t.shape[dim], 1) else 0
        value = g.ops.cast(reindexed(g.ops, t, indices), dtype)
        node = value if node is None else g.ops.op("where", g.ops.inside(here, start, end), value, node)
        end = start
    assert node is not None
    return _realized(g, TensorValue(shape, dtype, node))


def _in_order(g: GraphLowering, lengths: Sequence[ix.Index]) -> bool:
    """Whether the borders between parts of these lengths are known to be in ascending order, as the scheduler needs to
    split the loop; notes their order in the builder."""
    edges = list(itertools.accumulate(lengths, ix.add, initial=0))
    if not g.sizes.is_ordered(edges, "no part of a joined tensor has fewer than no elements"):
        return False
    g.ops.know_order(edges)
    return True


@register_lowering(aten.stack.default)
def stack(g: GraphLowering, tensors: Sequence[TensorValue], dim: int = 0) -> Any:
    at = wrap(dim, tensors[0].ndim + 1)
    return cat(g, [reshaped(g, t, (*t.shape[:at], 1, *t.shape[at:])) for t in tensors], at)


@register_lowering(aten.constant_pad_nd.default)
def constant_pad(g: GraphLowering, self: TensorValue, pad: Sequence[ix.Index], value: Number = 0) -> Any:
    amounts = [(pad[2 * k], pad[2 * k + 1]) for k in range(len(pad) // 2)]
    shape = list(self.shape)
    for k, (before, after) in enumerate(amounts):
        size, whole = shape[-1 - k], ix.add(shape[-1 - k], ix.add(before, after))
        shape[-1 - k] = whole
        if all(isinstance(n, int) for n in (size, before, after)):
            continue
        if g.sizes.at_most(before, 0) and g.sizes.at_most(after, 0) and g.sizes.at_most(0, whole):
            continue  # nothing is added
        if not (g.sizes.at_most(0, before) and g.sizes.at_most(0, after)):
            return NotImplemented
        if not _in_order(g, (before, size, after)):
            return NotImplemented
    if any(is_size(n, 0) for n in (*shape, *self.shape)):
        return NotImplemented
    indices = list(shape_vars(shape))
    condition: list[Node] = []
    for k, (before, after) in enumerate(amounts):
        d = self.ndim - 1 - k
        if not (g.sizes.at_most(before, 0) and g.sizes.at_most(after, 0)):
            condition.append(g.ops.inside(indices[d], before, ix.add(before, self.shape[d])))
        indices[d] = ix.add(indices[d], ix.mul(before, -1))
    indices = [0 if is_size(n, 1) else i for i, n in zip(indices, self.shape)]
    node = reindexed(g.ops, self, indices)
    fill = g.ops.const(value, self.dtype)
    for inside in condition:
        node = g.ops.op("where", inside, node, fill)
    result = TensorValue(tuple(shape), self.dtype, node)
    return _realized(g, result) if condition else result


@register_lowering(aten.roll.default)
def roll(g: GraphLowering, self: TensorValue, shifts: Sequence[ix.Index], dims: Sequence[int] = ()) -> Any:
    if not dims or is_size(self.numel, 0):
        return NotImplemented
    x = self
    for shift, d in zip(shifts, dims):
        d = wrap(d, x.ndim)
        size = x.shape[d]
        if isinstance(size, int) and isinstance(shift, int):
            shift %= size
        elif not g.sizes.at_most(0, shift):
            shift = ix.add(size, shift)
        if is_size(shift, 0):
            continue
        if not (g.sizes.at_most(0, shift) and g.sizes.at_most(shift, size)):
            return NotImplemented
        cut = ix.add(size, ix.mul(shift, -1))
        x = cat(g, [part_of(g, x, d, cut, shift), part_of(g, x, d, 0, cut)], d)
        if x is NotImplemented:
            return x
    return TensorValue(x.shape, x.dtype, x.node)


# ---------------------------------------------------------------- writes into a part
@register_lowering(aten.slice_scatter.default)
def slice_scatter(
    g: GraphLowering,
    self: TensorValue,
    src: TensorValue,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> Any:
    if is_size(self.numel, 0):
        return NotImplemented
    dim = wrap(dim, self.ndim)
    size = self.shape[dim]
    if not is_size(step, 1):
        return _every_nth(g, self, src, dim, start, step)
    start, end = 0 if start is None else start, size if end is None else end
    last: ix.Index
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        start, last, _ = slice(start, end).indices(size)
        if last <= start:
            return NotImplemented
    else:
        found = begin_of_slice(g, start, size)
        if found is None:
            return NotImplemented
        start, last = found, ix.add(found, src.shape[dim])
    first: ix.Index = start
    if not _in_order(g, (first, ix.add(last, ix.mul(first, -1)), ix.add(size, ix.mul(last, -1)))):
        return NotImplemented
    length = ix.add(last, ix.mul(first, -1))
    part = (*self.shape[:dim], length, *self.shape[dim + 1 :])
    if g.writes_input(self) and src.shape == part and _is_much_larger(g, self.shape, part):
        # For example a cache of keys: the rest of it is not even read.
        places = list(shape_vars(part))
        places[dim] = ix.add(places[dim], first)
        return written(g, self, part, places, src.node, False)
    indices = list(shape_vars(self.shape))
    inside = g.ops.inside(indices[dim], first, last)
    indices[dim] = 0 if is_size(length, 1) else ix.add(indices[dim], ix.mul(first, -1))
    value = g.ops.cast(reindexed(g.ops, src, indices), self.dtype)
    return _realized(g, TensorValue(self.shape, self.dtype, g.ops.op("where", inside, value, self.node)))


def _every_nth(g: GraphLowering, self: TensorValue, src: TensorValue, dim: int, start: Any, step: Any) -> Any:
    """A write to each `step`-th element along a dimension, from `start` on, where such elements make up one row of the
    dimension seen as groups of `step`; as interleaved parts do."""
    size, first = self.shape[dim], 0 if start is None else start
    if not all(isinstance(n, int) for n in (size, first, step)) or not 0 <= first < step or size % step:
        return NotImplemented
    if src.shape[dim] != size // step:
        return NotImplemented
    groups = reshaped(g, self, (*self.shape[:dim], size // step, step, *self.shape[dim + 1 :]))
    made = select_scatter(g, groups, src, dim + 1, first)
    return made if made is NotImplemented else reshaped(g, made, self.shape)


def _is_much_larger(g: GraphLowering, whole: Sequence[ix.Index], part: Sequence[ix.Index]) -> bool:
    """Whether a tensor has many times the elements of its part; if sizes are symbols, in all calls of the graph."""
    return g.sizes.is_certain(ix.mul(ix.product(part), MUCH_LARGER), ix.product(whole))


@register_lowering(aten.select_scatter.default)
def select_scatter(g: GraphLowering, self: TensorValue, src: TensorValue, dim: int, index: Any) -> Any:
    dim = wrap(dim, self.ndim)
    if not g.sizes.at_most(0, index):
        if not g.sizes.at_most(index, -1):
            return NotImplemented
        index = ix.add(self.shape[dim], index)
    wide = reshaped(g, src, (*src.shape[:dim], 1, *src.shape[dim:]))
    return slice_scatter(g, self, wide, dim, index, ix.add(index, 1))
