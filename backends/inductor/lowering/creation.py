"""Tensors out of nothing, and copies: full, arange, clone, casts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.ops import ANY
from dynamo_lite.backends.inductor.lowering.registry import register_lowering
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, dim_var, expanded

if TYPE_CHECKING:
    from dynamo_lite.backends.inductor.lowering.graph import GraphLowering

aten = torch.ops.aten


def filled(g: GraphLowering, size: Sequence[ix.Index], value: Number, dtype: torch.dtype) -> TensorValue:
    return TensorValue(tuple(size), dtype, g.ops.const(value, dtype))


def _plain(device: Any, layout: Any) -> bool:
    return (device is None or torch.device(device).type == "cpu") and layout in (None, torch.strided)


@register_lowering(aten.full.default)
def full(
    g: GraphLowering,
    size: Sequence[ix.Index],
    fill_value: Number,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    if dtype is None:
        dtype = (
            torch.bool
            if isinstance(fill_value, bool)
            else torch.int64
            if isinstance(fill_value, int)
            else torch.get_default_dtype()
        )
    return filled(g, size, fill_value, dtype) if _plain(device, layout) and dtype in ANY else NotImplemented


@register_lowering(aten.zeros.default)
def zeros(
    g: GraphLowering,
    size: Sequence[ix.Index],
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return full(g, size, 0, dtype or torch.get_default_dtype(), layout, device)


@register_lowering(aten.ones.default)
def ones(
    g: GraphLowering,
    size: Sequence[ix.Index],
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return full(g, size, 1, dtype or torch.get_default_dtype(), layout, device)


@register_lowering(aten.full_like.default)
def full_like(
    g: GraphLowering,
    self: TensorValue,
    fill_value: Number,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: Any = None,
) -> Any:
    return full(g, self.shape, fill_value, dtype or self.dtype, layout, device)


@register_lowering(aten.zeros_like.default)
def zeros_like(
    g: GraphLowering,
    self: TensorValue,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: Any = None,
) -> Any:
    return full(g, self.shape, 0, dtype or self.dtype, layout, device)


@register_lowering(aten.ones_like.default)
def ones_like(
    g: GraphLowering,
    self: TensorValue,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: Any = None,
) -> Any:
    return full(g, self.shape, 1, dtype or self.dtype, layout, device)


@register_lowering(aten.new_zeros.default)
def new_zeros(
    g: GraphLowering,
    self: TensorValue,
    size: Sequence[ix.Index],
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return full(g, size, 0, dtype or self.dtype, layout, device)


@register_lowering(aten.new_ones.default)
def new_ones(
    g: GraphLowering,
    self: TensorValue,
    size: Sequence[ix.Index],
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return full(g, size, 1, dtype or self.dtype, layout, device)


@register_lowering(aten.new_full.default)
def new_full(
    g: GraphLowering,
    self: TensorValue,
    size: Sequence[ix.Index],
    fill_value: Number,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return full(g, size, fill_value, dtype or self.dtype, layout, device)


@register_lowering(aten.scalar_tensor.default)
def scalar_tensor(
    g: GraphLowering,
    s: Number,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return full(g, (), s, dtype or torch.get_default_dtype(), layout, device)


@register_lowering(aten.fill.Scalar)
def fill(g: GraphLowering, self: TensorValue, value: Number) -> TensorValue:
    return filled(g, self.shape, value, self.dtype)


# ---------------------------------------------------------------- contents that nobody may rely on
@register_lowering(aten.new_empty.default)
def new_empty(
    g: GraphLowering,
    self: TensorValue,
    size: Sequence[ix.Index],
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    """Zeros, which the writes into its parts usually replace before they are stored."""
    return full(g, size, 0, dtype or self.dtype, layout, device)


@register_lowering(aten.empty.memory_format)
def empty(
    g: GraphLowering,
    size: Sequence[ix.Index],
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: Any = None,
) -> Any:
    return full(g, size, 0, dtype or torch.get_default_dtype(), layout, device)


# ---------------------------------------------------------------- ranges
@register_lowering(aten.arange.start_step)
def arange(
    g: GraphLowering,
    start: Number,
    end: Number,
    step: Number = 1,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    if not all(isinstance(x, int) for x in (start, end, step)) or dtype not in (None, torch.int64, torch.int32):
        return NotImplemented  # eager's way of rounding floats is its own
    if not _plain(device, layout):
        return NotImplemented
    length = max(0, -(-(int(end) - int(start)) // int(step)))
    index = ix.add(ix.mul(dim_var(0, length), int(step)), int(start)) if length else 0
    return TensorValue((length,), dtype or torch.int64, g.ops.index(index, dtype or torch.int64))


@register_lowering(aten.arange.default)
def arange_end(
    g: GraphLowering,
    end: Number,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return arange(g, 0, end, 1, dtype, layout, device)


@register_lowering(aten.arange.start)
def arange_start(
    g: GraphLowering,
    start: Number,
    end: Number,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return arange(g, start, end, 1, dtype, layout, device)


def _triangle(g: GraphLowering, x: TensorValue, diagonal: int, keep: str) -> Any:
    if not all(isinstance(n, int) for n in x.shape[-2:]):
        return NotImplemented
    row, column = (g.ops.index(dim_var(x.ndim + d, x.shape[d])) for d in (-2, -1))
    below = g.ops.op(keep, g.ops.op("sub", column, row), g.ops.const(diagonal, torch.int64))
    return TensorValue(x.shape, x.dtype, g.ops.op("where", below, x.node, g.ops.const(0, x.dtype)))


@register_lowering(aten.tril.default)
def tril(g: GraphLowering, self: TensorValue, diagonal: int = 0) -> Any:
    return _triangle(g, self, diagonal, "le")


@register_lowering(aten.triu.default)
def triu(g: GraphLowering, self: TensorValue, diagonal: int = 0) -> Any:
    return _triangle(g, self, diagonal, "ge")


# ---------------------------------------------------------------- copies and casts
@register_lowering(aten.clone.default)
def clone(g: GraphLowering, self: TensorValue, memory_format: Any = None) -> TensorValue:
    return TensorValue(self.shape, self.dtype, self.node)


@register_lowering(aten.contiguous.default)
def contiguous(g: GraphLowering, self: TensorValue, memory_format: Any = None) -> TensorValue:
    return TensorValue(self.shape, self.dtype, self.node)


@register_lowering(aten._to_copy.default)
def to_copy(
    g: GraphLowering,
    self: TensorValue,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:
    if not _plain(device, layout):
        return NotImplemented
    dtype = dtype or self.dtype
    return TensorValue(self.shape, dtype, g.ops.cast(self.node, dtype))


@register_lowering(aten.copy.default)
def copy(g: GraphLowering, self: TensorValue, src: TensorValue, non_blocking: bool = False) -> TensorValue:
    return TensorValue(self.shape, self.dtype, g.ops.cast(expanded(g.ops, src, self.shape), self.dtype))
