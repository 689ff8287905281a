"""Lowerings of views and other rearrangements of elements. They copy nothing, but replace loop variables.

Where memory is needed (a library call's argument, an output), ``GraphLowering`` finds out whether the resulting
expression is a plain strided view, and copies only if it is not.

Invariant: a view makes no buffer (except that ``as_strided`` may realize its operand).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.aot import ops as recorded
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.values import (
    Shape,
    TensorValue,
    dim_var,
    expanded,
    is_size,
    reindexed,
    shape_vars,
)
from dynamo_lite.backends.inductor.lowering_registry import LOWERINGS, register_lowering

aten = torch.ops.aten


def wrap(dim: int, rank: int) -> int:
    """A dimension's number as a non-negative one."""
    return dim + max(rank, 1) if dim < 0 else dim


def make_view(g: GraphLowering, x: TensorValue, shape: Sequence[ix.Index], indices: Sequence[ix.Index]) -> TensorValue:
    """A tensor of ``shape`` whose element is that of ``x`` at ``indices`` (in terms of ``shape_vars(shape)``)."""
    return TensorValue(tuple(shape), x.dtype, reindexed(g.ops, x, indices), device=x.device)


@register_lowering(aten.expand.default, view=True)
def expand(g: GraphLowering, self: TensorValue, size: Sequence[ix.Index], implicit: bool = False) -> TensorValue:
    lead = len(size) - self.ndim
    shape = tuple(self.shape[d - lead] if is_size(n, -1) else n for d, n in enumerate(size))
    return TensorValue(shape, self.dtype, expanded(g.ops, self, shape), device=self.device)


@register_lowering(aten.permute.default, view=True)
def permute(g: GraphLowering, self: TensorValue, dims: Sequence[int]) -> TensorValue:
    order = [wrap(d, self.ndim) for d in dims]
    shape = tuple(self.shape[d] for d in order)
    indices: list[ix.Index] = [0] * self.ndim
    for new, old in enumerate(order):
        indices[old] = dim_var(new, shape[new])
    return make_view(g, self, shape, indices)


@register_lowering(aten.t.default, view=True)
def t(g: GraphLowering, self: TensorValue) -> TensorValue:
    return permute(g, self, (1, 0) if self.ndim == 2 else range(self.ndim))


@register_lowering(aten.transpose.int, view=True)
def transpose(g: GraphLowering, self: TensorValue, dim0: int, dim1: int) -> TensorValue:
    if not self.ndim:
        return self
    order = list(range(self.ndim))
    a, b = wrap(dim0, self.ndim), wrap(dim1, self.ndim)
    order[a], order[b] = order[b], order[a]
    return permute(g, self, order)


def infer_shape(size: Sequence[ix.Index], numel: ix.Index) -> Shape:
    """``size`` with a -1 in it replaced by the size that gives ``numel`` elements."""
    if not any(is_size(n, -1) for n in size):
        return tuple(size)
    rest = ix.product(n for n in size if not is_size(n, -1))
    return tuple(ix.floordiv(numel, rest) if is_size(n, -1) else n for n in size)


def reshaped(g: GraphLowering, x: TensorValue, size: Sequence[ix.Index]) -> TensorValue:
    """``x`` with another shape, in which one size may be -1."""
    shape = infer_shape(size, x.numel)
    if shape == x.shape:
        return TensorValue(shape, x.dtype, x.node, device=x.device)
    vars_ = shape_vars(shape)
    if tuple(n for n in shape if not is_size(n, 1)) == tuple(n for n in x.shape if not is_size(n, 1)):
        rest = iter([v for v, n in zip(vars_, shape) if not is_size(n, 1)])
        return make_view(g, x, shape, [0 if is_size(n, 1) else next(rest) for n in x.shape])
    if any(is_size(n, 0) for n in shape):
        return make_view(g, x, shape, [0] * x.ndim)
    flat = ix.dot(vars_, ix.contiguous_strides(shape))
    return make_view(g, x, shape, ix.unflatten(flat, x.shape))


@register_lowering(aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, view=True)
def view(g: GraphLowering, self: TensorValue, size: Sequence[ix.Index], *_: Any) -> TensorValue:
    return reshaped(g, self, size)


@register_lowering(aten.reshape.default, view=True)
def reshape(g: GraphLowering, self: TensorValue, shape: Sequence[ix.Index]) -> TensorValue:
    return reshaped(g, self, shape)


@register_lowering(aten.unsqueeze.default, view=True)
def unsqueeze(g: GraphLowering, self: TensorValue, dim: int) -> TensorValue:
    at = wrap(dim, self.ndim + 1)
    return reshaped(g, self, (*self.shape[:at], 1, *self.shape[at:]))


@register_lowering(aten.squeeze.default, view=True)
def squeeze(g: GraphLowering, self: TensorValue) -> TensorValue:
    return reshaped(g, self, [n for n in self.shape if not is_size(n, 1)])


@register_lowering(aten.squeeze.dim, aten.squeeze.dims, view=True)
def squeeze_dims(g: GraphLowering, self: TensorValue, dim: Any) -> TensorValue:
    gone = {wrap(d, self.ndim) for d in (dim if isinstance(dim, (list, tuple)) else (dim,))}
    return reshaped(g, self, [n for d, n in enumerate(self.shape) if d not in gone or not is_size(n, 1)])


@register_lowering(aten.slice.Tensor, view=True)
def slice_(g: GraphLowering, self: TensorValue, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    dim = wrap(dim, self.ndim)
    size = self.shape[dim]
    start, end = 0 if start is None else start, size if end is None else end
    if all(isinstance(n, int) for n in (size, start, end, step)):
        start, end, step = slice(start, end, step).indices(size)
        length: ix.Index = max(0, -(-(end - start) // step))
    else:
        first = begin_of_slice(g, start, size)
        if first is None:
            return NotImplemented
        start, length = first, index_of(g.results()[0].shape[dim])
        if is_size(start, 0) and length == size and is_size(step, 1):
            return self
    return part_of(g, self, dim, start, length, step)


def part_of(
    g: GraphLowering, x: TensorValue, dim: int, start: ix.Index, length: ix.Index, step: ix.Index = 1
) -> TensorValue:
    """``length`` elements of dimension ``dim`` of ``x``, from index ``start`` on, ``step`` apart."""
    shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
    indices = list(shape_vars(shape))
    indices[dim] = ix.add(ix.mul(indices[dim], step), start)
    return make_view(g, x, shape, indices)


def begin_of_slice(g: GraphLowering, start: ix.Index, size: ix.Index) -> ix.Index | None:
    """The first index of a slice of a dimension of symbolic size, given the slice's ``start``, which may be negative.
    None if no single expression holds for all sizes."""
    if not g.sizes.at_most(0, start):
        start = ix.add(size, start)
        if not g.sizes.at_most(start, ix.add(size, -1)):
            return None
    return start if g.sizes.at_most(0, start) and g.sizes.at_most(start, size) else None


@register_lowering(aten.select.int, view=True)
def select(g: GraphLowering, self: TensorValue, dim: int, index: ix.Index) -> Any:
    dim = wrap(dim, self.ndim)
    if not g.sizes.at_most(0, index):
        if not g.sizes.at_most(index, -1):
            return NotImplemented
        index = ix.add(self.shape[dim], index)
    shape = (*self.shape[:dim], *self.shape[dim + 1 :])
    indices = list(shape_vars(shape))
    indices.insert(dim, index)
    return make_view(g, self, shape, indices)


@register_lowering(aten.split_with_sizes.default, aten.unsafe_split_with_sizes.default, view=True)
def split_with_sizes(
    g: GraphLowering, self: TensorValue, split_sizes: Sequence[ix.Index], dim: int = 0
) -> tuple[TensorValue, ...]:
    dim = wrap(dim, self.ndim)
    out = []
    start: ix.Index = 0
    for n in split_sizes:
        shape = (*self.shape[:dim], n, *self.shape[dim + 1 :])
        indices = list(shape_vars(shape))
        indices[dim] = ix.add(indices[dim], start)
        out.append(make_view(g, self, shape, indices))
        start = ix.add(start, n)
    return tuple(out)


@register_lowering(aten.split.Tensor, aten.unsafe_split.Tensor, view=True)
def split(g: GraphLowering, self: TensorValue, split_size: ix.Index, dim: int = 0) -> Any:
    dim = wrap(dim, self.ndim)
    size = self.shape[dim]
    if not isinstance(size, int) or not isinstance(split_size, int):
        return split_with_sizes(g, self, [index_of(part.shape[dim]) for part in g.results()], dim)
    if not split_size:
        return NotImplemented
    return split_with_sizes(g, self, [min(split_size, size - at) for at in range(0, max(size, 1), split_size)], dim)


@register_lowering(aten.unbind.int, view=True)
def unbind(g: GraphLowering, self: TensorValue, dim: int = 0) -> Any:
    dim = wrap(dim, self.ndim)
    return tuple(select(g, self, dim, at) for at in range(len(g.results())))


@register_lowering(aten.diagonal.default, view=True)
def diagonal(g: GraphLowering, self: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    a, b = wrap(dim1, self.ndim), wrap(dim2, self.ndim)
    rows, columns = self.shape[a], self.shape[b]
    length: ix.Index
    if isinstance(rows, int) and isinstance(columns, int):
        length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    else:
        length = index_of(g.results()[0].shape[-1])
    rest = [n for d, n in enumerate(self.shape) if d not in (a, b)]
    shape = (*rest, length)
    variables = shape_vars(shape)
    others = iter(variables[:-1])
    indices: list[ix.Index] = []
    for d in range(self.ndim):
        if d == a:
            indices.append(ix.add(variables[-1], max(-offset, 0)))
        elif d == b:
            indices.append(ix.add(variables[-1], max(offset, 0)))
        else:
            indices.append(next(others))
    return make_view(g, self, shape, indices)


@register_lowering(aten.alias.default, aten.detach.default, view=True)
def alias(g: GraphLowering, self: TensorValue) -> TensorValue:
    return TensorValue(self.shape, self.dtype, self.node, device=self.device)


@register_lowering(recorded.as_strided, view=True)
def as_strided(
    g: GraphLowering, x: TensorValue, size: Sequence[ix.Index], stride: Sequence[ix.Index], offset: ix.Index
) -> Any:
    """Reads the memory of ``x``, so ``x`` is realized if it has none; ``offset`` counts from the first element of
    ``x``."""
    name, start = g.memory_of(x)
    index = ix.add(ix.dot(shape_vars(size), stride), ix.add(start, offset))
    return TensorValue(tuple(size), x.dtype, g.ops.load(name, index, x.dtype), device=x.device)


@register_lowering(recorded.copy_strided)
def copy_strided(g: GraphLowering, x: TensorValue, stride: Sequence[ix.Index]) -> TensorValue:
    return TensorValue(x.shape, x.dtype, x.node, device=x.device)


# ---------------------------------------------------------------- rearrangements for which eager makes a copy
@register_lowering(aten.flip.default)
def flip(g: GraphLowering, self: TensorValue, dims: Sequence[int]) -> TensorValue:
    indices = list(shape_vars(self.shape))
    for d in dims:
        d = wrap(d, self.ndim) if self.ndim else 0
        if self.ndim:
            indices[d] = ix.add(ix.add(self.shape[d], -1), ix.mul(indices[d], -1))
    return make_view(g, self, self.shape, indices)


@register_lowering(aten.repeat.default)
def repeat(g: GraphLowering, self: TensorValue, repeats: Sequence[ix.Index]) -> TensorValue:
    lead = len(repeats) - self.ndim
    padded: Shape = (*(1,) * lead, *self.shape)
    shape = tuple(ix.mul(n, k) for n, k in zip(padded, repeats))
    variables = shape_vars(shape)
    return make_view(
        g,
        self,
        shape,
        [ix.mod(v, n) if not is_size(n, 1) else 0 for v, n in zip(variables[lead:], self.shape)]
        if not any(is_size(n, 0) for n in shape)
        else [0] * self.ndim,
    )


# Functional variants of views, which are copies by definition.
for _name, _fn in (
    ("alias_copy", alias),
    ("detach_copy", alias),
    ("expand_copy", expand),
    ("permute_copy", permute),
    ("squeeze_copy", squeeze),
    ("t_copy", t),
    ("transpose_copy", transpose),
    ("unsqueeze_copy", unsqueeze),
    ("view_copy", view),
    ("diagonal_copy", diagonal),
    ("select_copy", select),
    ("slice_copy", slice_),
    ("unbind_copy", unbind),
    ("split_with_sizes_copy", split_with_sizes),
):
    _packet = getattr(aten, _name)
    _original = getattr(aten, _name.removesuffix("_copy"))
    for _overload in _packet.overloads():
        _view = getattr(_original, _overload, None)
        if _view is not None and not _overload.endswith("out") and _view in LOWERINGS:
            register_lowering(getattr(_packet, _overload))(LOWERINGS[_view].fn)


@register_lowering(aten.pixel_shuffle.default)
def pixel_shuffle(g: GraphLowering, self: TensorValue, upscale_factor: int) -> Any:
    *lead, c, h, w = self.shape
    r = upscale_factor
    x = reshaped(g, self, (*lead, ix.floordiv(c, r * r), r, r, h, w))
    n = len(lead)
    x = permute(g, x, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshaped(g, x, (*lead, ix.floordiv(c, r * r), ix.mul(h, r), ix.mul(w, r)))


@register_lowering(aten.pixel_unshuffle.default)
def pixel_unshuffle(g: GraphLowering, self: TensorValue, downscale_factor: int) -> Any:
    *lead, c, h, w = self.shape
    r = downscale_factor
    if is_size(self.numel, 0):
        return TensorValue(self.shape, self.dtype, self.node)  # eager leaves an empty tensor's shape as it is
    x = reshaped(g, self, (*lead, c, ix.floordiv(h, r), r, ix.floordiv(w, r), r))
    n = len(lead)
    x = permute(g, x, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshaped(g, x, (*lead, ix.mul(c, r * r), ix.floordiv(h, r), ix.floordiv(w, r)))


@register_lowering(aten.unfold.default, view=True)
def unfold(g: GraphLowering, self: TensorValue, dimension: int, size: int, step: int) -> Any:
    d = wrap(dimension, self.ndim)
    length = self.shape[d] if self.ndim else 1
    if not self.ndim:
        return NotImplemented
    places = (length - size) // step + 1 if isinstance(length, int) else index_of(g.results()[0].shape[d])
    shape = (*self.shape[:d], places, *self.shape[d + 1 :], size)
    variables = shape_vars(shape)
    indices = list(variables[:-1])
    indices[d] = ix.add(ix.mul(variables[d], step), variables[-1])
    return make_view(g, self, shape, indices)
