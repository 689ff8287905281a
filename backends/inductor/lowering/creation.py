"""Lowerings of tensor factories and copies: full, arange, eye, tril, clone, casts."""

from __future__ import annotations

import fractions
import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.ops import ANY, FLOAT
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, dim_var, expanded, is_size
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten


def filled(g: GraphLowering, size: Sequence[ix.Index], value: Number, dtype: torch.dtype) -> TensorValue:
    """A tensor of one constant value throughout."""
    return TensorValue(tuple(size), dtype, g.ops.const(value, dtype))


def _plain(layout: Any) -> bool:
    """Whether a layout argument means an ordinary strided tensor."""
    return layout in (None, torch.strided)


# ---------------------------------------------------------------- one value throughout
_FILL_VALUE = object()  # stands for the operator's argument of that name
_NOTHING = object()  # stands for the content of uninitialized memory
_ONE_VALUE: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (_FILL_VALUE, (aten.full.default, aten.full_like.default, aten.new_full.default)),
    (0, (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)),
    (1, (aten.ones.default, aten.ones_like.default, aten.new_ones.default)),
    (_NOTHING, (aten.empty.memory_format, aten.new_empty.default)),
)


def _register_one_value(target: Any, value: Any) -> None:
    """Registers the lowering of an operator whose result is one value throughout. Arguments are identified by their
    names in the schema; size and dtype, if not given, are those of `self`."""
    names = [a.name for a in target._schema.arguments]

    @register_lowering(target)
    def lowering(g: GraphLowering, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args)), **kwargs}
        like: TensorValue | None = given.get("self")
        content = given["fill_value"] if value is _FILL_VALUE else value
        size = given["size"] if like is None or "size" in given else like.shape
        dtype = given.get("dtype") or (like.dtype if like is not None else None)
        if dtype is None:
            dtype = _dtype_of(content) if value is _FILL_VALUE else torch.get_default_dtype()
        if content is _NOTHING:
            content = _unwritten(dtype)
        return _full(g, size, content, dtype, given.get("layout"), given.get("device"))


def _unwritten(dtype: torch.dtype) -> Number:
    """The value used for the content of uninitialized memory, on which nobody may rely. It is zero, since writes into
    parts of the tensor usually replace it before it is stored. With deterministic algorithms it is the value that eager
    fills in (``torch.utils.deterministic.fill_uninitialized_memory``)."""
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    if not (torch.are_deterministic_algorithms_enabled() and fills):
        return 0
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype is torch.bool else torch.iinfo(dtype).max


def _dtype_of(number: Number) -> torch.dtype:
    """The dtype of a tensor made of a Python number."""
    if isinstance(number, bool):
        return torch.bool
    return torch.get_default_dtype() if isinstance(number, float) else torch.int64


def _full(
    g: GraphLowering, size: Sequence[ix.Index], value: Number, dtype: torch.dtype, layout: Any, device: Any
) -> Any:
    """``filled`` by a factory's arguments; ``NotImplemented`` for layouts and dtypes that loops do not handle."""
    return filled(g, size, value, dtype) if _plain(layout) and dtype in ANY else NotImplemented


for _value, _targets in _ONE_VALUE:
    for _target in _targets:
        _register_one_value(_target, _value)


@register_lowering(aten.scalar_tensor.default)
def scalar_tensor(
    g: GraphLowering,
    s: Number,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return _full(g, (), s, dtype or torch.get_default_dtype(), layout, device)


@register_lowering(aten.fill.Scalar)
def fill(g: GraphLowering, self: TensorValue, value: Number) -> TensorValue:
    return filled(g, self.shape, value, self.dtype)


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
    if not _plain(layout):
        return NotImplemented
    (dtype,), length = g.result_dtypes(), index_of(g.results()[0].shape[0])
    if not isinstance(length, int) or not all(isinstance(x, (int, float)) for x in (start, end, step)):
        return _symbolic_range(g, start, step, length, dtype)
    first, by = fractions.Fraction(start), fractions.Fraction(step)
    parts = math.lcm(first.denominator, by.denominator)
    if not _is_exact(first * parts, by * parts, length, parts, dtype):
        return NotImplemented
    index = ix.add(ix.mul(dim_var(0, length), int(by * parts)), int(first * parts)) if length else 0
    whole = g.ops.index(index, dtype if dtype in (torch.int64, torch.int32) else torch.int64)
    node = g.ops.cast(whole, dtype)
    return TensorValue((length,), dtype, node if parts == 1 else g.ops.op("mul", node, g.ops.const(1 / parts, dtype)))


def _symbolic_range(g: GraphLowering, start: Any, step: Any, length: ix.Index, dtype: torch.dtype) -> Any:
    """A range of integers whose first number, step or length is a symbol."""
    if not all(isinstance(x, (int, ix.Expr)) and not isinstance(x, bool) for x in (start, step)):
        return NotImplemented
    if dtype.is_floating_point:
        # Up to this limit the dtype holds every whole number, see ``_is_exact``.
        most, why = int(2 / torch.finfo(dtype).eps), "a range of floats whose numbers are exact"
        last = ix.add(start, ix.mul(step, length))
        if not all(g.sizes.at_most(-most, x, why) and g.sizes.at_most(x, most, why) for x in (start, last)):
            return NotImplemented
    elif dtype not in (torch.int64, torch.int32):
        return NotImplemented
    place = dim_var(0, length)
    whole = g.ops.index(ix.add(ix.mul(place, step), start), torch.int64)
    return TensorValue((length,), dtype, g.ops.cast(whole, dtype))


def _is_exact(
    first: fractions.Fraction, by: fractions.Fraction, length: int, parts: int, dtype: torch.dtype
) -> bool:
    """Whether the dtype holds every number of a range exactly. It then does not matter in which order eager adds,
    multiplies and rounds.

    Args:
        first, by: first number and step, multiplied by ``parts`` so that they are whole numbers.
        length: number of elements.
        parts: the common denominator of the original first number and step.
    """
    largest = max(abs(first), abs(first + by * max(length - 1, 0)))
    if not dtype.is_floating_point:
        return parts == 1 and dtype in (torch.int64, torch.int32)
    # The intermediate results, `by` times a position and the position itself, have to be exact as well.
    most = int(max(largest, abs(by) * length, fractions.Fraction(length)))
    return most * torch.finfo(dtype).eps <= 2 and parts <= 1024


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


@register_lowering(aten.linspace.default)
def linspace(
    g: GraphLowering,
    start: Number | ix.Expr,
    end: Number | ix.Expr,
    steps: ix.Index,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    """The first half is counted from the start and the second from the end, each with one rounding
    (ATen's ``linspace_kernel``); a single element is the start."""
    ops, (dtype,) = g.ops, g.result_dtypes()
    if not _plain(layout) or dtype not in FLOAT or not all(isinstance(x, (int, float, ix.Expr)) for x in (start, end)):
        return NotImplemented
    if is_size(steps, 0) or not g.sizes.at_most(1, steps, "linspace has elements"):
        return NotImplemented
    first, last = (ops.cast(ops.index(x), dtype) if isinstance(x, ix.Expr) else ops.const(x, dtype)
                   for x in (start, end))
    if is_size(steps, 1):
        return TensorValue((1,), dtype, first)
    place = dim_var(0, steps)
    number, behind = ops.index(place), ops.index(ix.add(steps, -1))
    parts = ops.op("maximum", behind, ops.const(1, torch.int64))
    step = ops.op("div", ops.op("sub", last, first), ops.cast(parts, dtype))
    rising = ops.op("fma", step, ops.cast(number, dtype), first)
    falling = ops.op("fma", ops.op("neg", step), ops.cast(ops.op("sub", behind, number), dtype), last)
    early = ops.op("lt", ops.op("add", number, number), parts)
    return TensorValue((steps,), dtype, ops.op("where", early, rising, falling))


@register_lowering(aten.eye.m)
def eye_of(
    g: GraphLowering,
    n: ix.Index,
    m: ix.Index,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    if not _plain(layout):
        return NotImplemented
    (dtype,) = g.result_dtypes()
    row, column = (g.ops.index(dim_var(d, k)) for d, k in enumerate((n, m)))
    diagonal = g.ops.op("eq", row, column)
    return TensorValue((n, m), dtype, g.ops.op("where", diagonal, g.ops.const(1, dtype), g.ops.const(0, dtype)))


@register_lowering(aten.eye.default)
def eye(
    g: GraphLowering,
    n: ix.Index,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    return eye_of(g, n, n, dtype, layout, device)


def _triangle(g: GraphLowering, x: TensorValue, diagonal: ix.Index, keep: str) -> Any:
    """``tril`` ("le") or ``triu`` ("ge"): zero where column - row does not compare so with ``diagonal``."""
    row, column = (g.ops.index(dim_var(x.ndim + d, x.shape[d])) for d in (-2, -1))
    below = g.ops.op(keep, g.ops.op("sub", column, row), g.ops.index(diagonal))
    return TensorValue(x.shape, x.dtype, g.ops.op("where", below, x.node, g.ops.const(0, x.dtype)))


@register_lowering(aten.tril.default)
def tril(g: GraphLowering, self: TensorValue, diagonal: ix.Index = 0) -> Any:
    return _triangle(g, self, diagonal, "le")


@register_lowering(aten.triu.default)
def triu(g: GraphLowering, self: TensorValue, diagonal: ix.Index = 0) -> Any:
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
    self: TensorValue | Number,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:
    if not _plain(layout):
        return NotImplemented
    if not isinstance(self, TensorValue):  # a number instead of a tensor: transforms of torch.func leave such calls
        return _full(g, (), self, dtype or _dtype_of(self), layout, device)
    dtype = dtype or self.dtype
    return TensorValue(self.shape, dtype, g.ops.cast(self.node, dtype))


@register_lowering(aten.copy.default)
def copy(g: GraphLowering, self: TensorValue, src: TensorValue, non_blocking: bool = False) -> TensorValue:
    return TensorValue(self.shape, self.dtype, g.ops.cast(expanded(g.ops, src, self.shape), self.dtype))
