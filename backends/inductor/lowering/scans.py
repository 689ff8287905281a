"""Lowerings of scans: running sums, products and extremes along one dimension.

Each is a loop nest with a ``Scan`` (``ir.loops``). It carries the same values as eager's loops, in the same dtype
(``_carried_dtype``), element by element in order: the results are eager's, bit for bit where the step is exact.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir.loops import Carried, LoopNest, Scan
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import FLOAT, HALF, INT
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.reduction import cast_to
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, is_size, loop_vars, shape_vars
from dynamo_lite.backends.inductor.lowering.views import wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten

# Least number of rows for a vectorized loop (``scheduler.loop_transforms.MIN_VECTOR``).
FEW_ROWS = 4


def _carried_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype in which eager accumulates: float32 for 16-bit floats, int64 for integers; for other floats, float64 on
    a CPU, and the dtype itself on a GPU."""
    if dtype in HALF:
        return torch.float32
    if device.type == "cuda":
        return dtype if dtype.is_floating_point else torch.int64
    return torch.float64 if dtype.is_floating_point else torch.int64


class _Steps:
    """A scan under construction: its loop, and the values that it carries from one iteration to the next."""

    def __init__(self, g: GraphLowering, x: TensorValue, dim: int):
        self.g, self.x = g, x
        self.variables = shape_vars(x.shape)
        self.dims = loop_vars(self.variables)
        (self.over,) = loop_vars([self.variables[dim]])
        self.carried: list[Carried] = []

    def carry(self, name: str, start: Number, dtype: torch.dtype) -> Node:
        """Declares a carried value, and returns its node. In the step (``becomes``) the node stands for the value
        before an iteration, in the stored result (``store``) for the value after it."""
        self.carried.append(Carried(name, self.g.ops.const(start, dtype), self.g.ops.const(start, dtype)))
        return self.g.ops.acc(name, dtype, frozenset(self.dims))

    def becomes(self, *pairs: tuple[Node, Node]) -> None:
        """Sets the step of each carried value: its value after an iteration, and the node in it that is the iteration's
        own element (``Carried.element``)."""
        for c, (value, element) in zip(self.carried, pairs):
            c.value, c.element = value, element

    def store(self, value: Node, dtype: torch.dtype) -> TensorValue:
        """Emits the scan's loop nest, which stores ``value``; returns the result, which is in memory."""
        x, g = self.x, self.g
        stride = g.dense_stride(x.shape)
        buffer = g.new_buffer(x.shape, stride, dtype, x.device)
        scan = Scan(self.over, tuple(self.carried))
        index = buffer.load_index(self.variables)
        g.emit(LoopNest(buffer, self.dims, g.ops.cast(value, dtype), index, origin=g.origin, scan=scan))
        return TensorValue(x.shape, dtype, g.ops.load(buffer.name, index, dtype), stride, x.device)


def _can_scan(x: TensorValue, dim: int) -> bool:
    """Whether there is a loop along ``dim`` to scan over."""
    # Along a dimension of size 1, the result is the element itself, but there is no loop to scan over.
    return x.ndim > 0 and not is_size(x.shape[wrap(dim, x.ndim)], 1) and not is_size(x.numel, 0)


def _rows(x: TensorValue, dim: int) -> int | float:
    """Number of independent scans side by side; infinity if it is symbolic."""
    others = [size for d, size in enumerate(x.shape) if d != wrap(dim, x.ndim)]
    return math.prod(size if isinstance(size, int) else math.inf for size in others)


def _accumulated(g: GraphLowering, kind: str, x: TensorValue, dim: int, dtype: torch.dtype | None) -> Any:
    """Lowers a running sum ("add") or product ("mul")."""
    result = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    if not _can_scan(x, dim) or result not in FLOAT | HALF | INT:
        return NotImplemented
    dim = wrap(dim, x.ndim)
    x = cast_to(g, x, result)
    steps = _Steps(g, x, dim)
    wide = _carried_dtype(result, x.device)
    total = steps.carry(f"running_{kind}", 0 if kind == "add" else 1, wide)
    element = g.ops.cast(x.node, wide)
    steps.becomes((g.ops.op(kind, total, element), element))
    return steps.store(total, result)


@register_lowering(aten.cumsum.default)
def cumsum(g: GraphLowering, self: TensorValue, dim: int, dtype: torch.dtype | None = None) -> Any:
    return _accumulated(g, "add", self, dim, dtype)


@register_lowering(aten.cumprod.default)
def cumprod(g: GraphLowering, self: TensorValue, dim: int, dtype: torch.dtype | None = None) -> Any:
    return _accumulated(g, "mul", self, dim, dtype)


@register_lowering(aten.logcumsumexp.default)
def logcumsumexp(g: GraphLowering, self: TensorValue, dim: int) -> Any:
    """Carries ``log(exp(x) + exp(total))``, computed as the larger operand plus a correction for the other one; two
    equal infinities give that infinity."""
    if not _can_scan(self, dim) or self.dtype not in FLOAT | HALF:
        return NotImplemented
    if _rows(self, dim) < (FEW_ROWS if self.device.type == "cpu" else 2):
        return NotImplemented  # the library's scalar functions are faster than vectors that are mostly idle
    wide, ops = _carried_dtype(self.dtype, self.device), g.ops
    steps = _Steps(g, self, wrap(dim, self.ndim))
    total = steps.carry("running_logsumexp", -math.inf, wide)
    x = ops.cast(self.node, wide)
    low, high = ops.op("minimum", x, total), ops.op("maximum", x, total)
    same = ops.op("and", ops.op("eq", low, high), ops.op("eq", ops.op("abs", low), ops.const(math.inf, wide)))
    grown = ops.op("add", ops.op("log1p", ops.op("exp", ops.op("sub", low, high))), high)
    steps.becomes((ops.op("where", same, x, grown), x))
    return steps.store(total, self.dtype)


def _extreme(g: GraphLowering, kind: str, x: TensorValue, dim: int) -> Any:
    """Lowers a running maximum or minimum and its position: the last one of equal elements. From a NaN on, the result
    is NaN."""
    if not _can_scan(x, dim) or x.dtype not in FLOAT | HALF | INT:
        return NotImplemented
    dim, ops = wrap(dim, x.ndim), g.ops
    g.realize_if_dear(x)
    results = []
    for position in (False, True):
        if not g.is_read(int(position)):
            unread = ops.const(0, torch.int64) if position else x.node
            results.append(TensorValue(x.shape, unread.dtype, unread))
            continue
        steps = _Steps(g, x, dim)
        best = steps.carry(f"running_{kind}", _least(kind, x.dtype), x.dtype)
        takes = ops.op("ge" if kind == "max" else "le", x.node, best)
        if x.dtype.is_floating_point:
            takes = ops.op("or", takes, ops.op("ne", x.node, x.node))
        if position:
            place = steps.carry("place", 0, torch.int64)
            here = ops.index(steps.variables[dim])
            steps.becomes((ops.op("where", takes, x.node, best), x.node), (ops.op("where", takes, here, place), here))
            results.append(steps.store(place, torch.int64))
        else:
            steps.becomes((ops.op("where", takes, x.node, best), x.node))
            results.append(steps.store(best, x.dtype))
    return tuple(results)


def _least(kind: str, dtype: torch.dtype) -> Number:
    """The start value of a running extreme, which every element replaces."""
    if dtype.is_floating_point:
        return -math.inf if kind == "max" else math.inf
    info = torch.iinfo(dtype)
    return info.min if kind == "max" else info.max


@register_lowering(aten.cummax.default)
def cummax(g: GraphLowering, self: TensorValue, dim: int) -> Any:
    return _extreme(g, "max", self, dim)


@register_lowering(aten.cummin.default)
def cummin(g: GraphLowering, self: TensorValue, dim: int) -> Any:
    return _extreme(g, "min", self, dim)
