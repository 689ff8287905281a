"""Lowerings of less common operators: masks, special values of floats, shifts, further activations, losses, counts."""

from __future__ import annotations

import math
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node
from dynamo_lite.backends.inductor.ir.ops import FLOAT, HALF
from dynamo_lite.backends.inductor.lowering.activations import _Math, formula
from dynamo_lite.backends.inductor.lowering.formulas import is_nan, like
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.promotion import elementwise, result_type, to_float
from dynamo_lite.backends.inductor.lowering.reduction import all_dims, cast_to, reduced_loss, sum_of
from dynamo_lite.backends.inductor.lowering.tails import either, scalar_tail
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, broadcast_shapes, expanded
from dynamo_lite.backends.inductor.lowering.views import split_with_sizes, wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering
from dynamo_lite.runtime import raising

aten = torch.ops.aten


# ---------------------------------------------------------------- masks
@register_lowering(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(g: GraphLowering, self: TensorValue, mask: TensorValue, value: Any) -> Any:
    if mask.dtype is not torch.bool or isinstance(value, TensorValue) and raising.narrows(value.dtype, self.dtype):
        return NotImplemented
    shape = broadcast_shapes(self.shape, mask.shape)
    if isinstance(value, TensorValue):
        fill = g.ops.cast(expanded(g.ops, value, shape), self.dtype)
    else:
        fill = g.ops.const(value, self.dtype)
    node = g.ops.op("where", expanded(g.ops, mask, shape), fill, expanded(g.ops, self, shape))
    return TensorValue(shape, self.dtype, node)


@register_lowering(aten.native_dropout_backward.default)
def dropout_backward(g: GraphLowering, grad_output: TensorValue, mask: TensorValue, scale: float) -> Any:
    if not grad_output.dtype.is_floating_point or grad_output.dtype in HALF and g.device == "cpu":
        return NotImplemented  # eager's CPU kernel rounds in between
    if grad_output.dtype in HALF:
        if grad_output.shape != mask.shape:
            return NotImplemented
        single = torch.float32
        wide = g.ops.op("mul", g.ops.cast(mask.node, single), g.ops.cast(grad_output.node, single))
        wide = g.ops.op("mul", wide, g.ops.const(scale, single))
        return TensorValue(grad_output.shape, grad_output.dtype, g.ops.cast(wide, grad_output.dtype))

    def make(d: Node, m: Node) -> Node:
        return g.ops.op("mul", d, g.ops.op("mul", m, like(g.ops, m, scale)))

    return elementwise(g, make, grad_output, cast_to(g, mask, grad_output.dtype))


# ---------------------------------------------------------------- special values
@register_lowering(aten.nan_to_num.default)
def nan_to_num(
    g: GraphLowering,
    self: TensorValue,
    nan: Number | None = None,
    posinf: Number | None = None,
    neginf: Number | None = None,
) -> Any:
    if not self.dtype.is_floating_point:
        return TensorValue(self.shape, self.dtype, self.node)
    info = torch.finfo(self.dtype)
    high = info.max if posinf is None else posinf
    low = info.min if neginf is None else neginf

    def make(x: Node) -> Node:
        x = g.ops.op("where", g.ops.op("eq", x, like(g.ops, x, math.inf)), like(g.ops, x, high), x)
        x = g.ops.op("where", g.ops.op("eq", x, like(g.ops, x, -math.inf)), like(g.ops, x, low), x)
        return g.ops.op("where", is_nan(g.ops, x), like(g.ops, x, 0.0 if nan is None else nan), x)

    return elementwise(g, make, self)


def _is_infinity(target: Any, value: float) -> None:
    def lower(g: GraphLowering, self: TensorValue) -> TensorValue:
        if not self.dtype.is_floating_point:
            return TensorValue(self.shape, torch.bool, g.ops.const(False, torch.bool))
        return elementwise(g, lambda x: g.ops.op("eq", x, like(g.ops, x, value)), self, result=torch.bool)

    register_lowering(target)(lower)


_is_infinity(aten.isposinf.default, math.inf)
_is_infinity(aten.isneginf.default, -math.inf)


@register_lowering(aten.signbit.default)
def signbit(g: GraphLowering, self: TensorValue) -> Any:
    if self.dtype is torch.bool:
        return TensorValue(self.shape, torch.bool, g.ops.const(False, torch.bool))

    def make(x: Node) -> Node:
        if x.dtype.is_floating_point:
            x = g.ops.op("copysign", like(g.ops, x, 1), x)
        return g.ops.op("lt", x, like(g.ops, x, 0))

    return elementwise(g, make, self, result=torch.bool)


def _logarithm(ops: Builder, x: Node, log: str, dtype: torch.dtype) -> Node:
    """The logarithm, rounded to ``dtype``: for 16-bit floats, eager rounds it before it multiplies."""
    return ops.cast(ops.cast(ops.op(log, x), dtype), x.dtype)


def _xlog(ops: Builder, x: Node, y: Node, log: str, dtype: torch.dtype) -> Node:
    """``x * log(y)``, which is 0 where ``x`` is 0, and NaN where ``y`` is NaN."""
    product = ops.op("mul", x, _logarithm(ops, y, log, dtype))
    zero = ops.op("where", ops.op("eq", x, like(ops, x, 0)), like(ops, x, 0), product)
    return ops.op("where", is_nan(ops, y), like(ops, x, math.nan), zero)


@register_lowering(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other)
def xlogy(g: GraphLowering, self: Any, other: Any) -> TensorValue:
    dtype = to_float(result_type((self, other)))
    return elementwise(g, lambda a, b: _xlog(g.ops, a, b, "log", dtype), self, other, dtype=dtype)


@register_lowering(aten.special_xlog1py.default, aten.special_xlog1py.self_scalar, aten.special_xlog1py.other_scalar)
def xlog1py(g: GraphLowering, self: Any, other: Any) -> TensorValue:
    dtype = to_float(result_type((self, other)))
    return elementwise(g, lambda a, b: _xlog(g.ops, a, b, "log1p", dtype), self, other, dtype=dtype)


@register_lowering(aten.heaviside.default)
def heaviside(g: GraphLowering, self: TensorValue, values: TensorValue) -> Any:
    if self.dtype is torch.bool:
        return NotImplemented

    def make(x: Node, v: Node) -> Node:
        step = g.ops.op("where", g.ops.op("gt", x, like(g.ops, x, 0)), like(g.ops, x, 1), like(g.ops, x, 0))
        return g.ops.op("where", g.ops.op("eq", x, like(g.ops, x, 0)), v, step)

    return elementwise(g, make, self, values)


@register_lowering(aten.logaddexp.default)
def logaddexp(g: GraphLowering, self: TensorValue, other: TensorValue) -> Any:
    def make(a: _Math, b: _Math) -> _Math:
        equal = a._do("and", a._do("eq", a, b), a._do("eq", a.f("abs"), math.inf))
        top = a._do("maximum", a, b)
        return equal.select(a, top + (-(a - b).f("abs")).f("exp").f("log1p"))

    return formula(g, make, self, other)


@register_lowering(aten.logit.default)
def logit(g: GraphLowering, self: TensorValue, eps: float | None = None) -> Any:
    dtype = self.dtype
    if dtype not in HALF:
        return formula(g, lambda x: _odds(x if eps is None else x.clamp(eps, 1 - eps)).f("log"), self)
    # Eager rounds the bounds, and the result of each step.
    if eps is not None:
        low = torch.tensor(eps, dtype=dtype)
        bounds = low.item(), (1 - low).item()
        self = formula(g, lambda x: x.clamp(*bounds), self)
    rest = formula(g, lambda x: 1 - x, self)
    return formula(g, lambda x: x.f("log"), formula(g, lambda x, r: x / r, self, rest))


def _odds(x: _Math) -> _Math:
    return x / (1 - x)


@register_lowering(aten.sinc.default)
def sinc(g: GraphLowering, self: TensorValue) -> Any:
    def make(x: Node) -> Node:
        product = g.ops.op("mul", like(g.ops, x, math.pi), x)
        ratio = g.ops.op("div", g.ops.op("sin", product), product)
        return g.ops.op("where", g.ops.op("eq", x, like(g.ops, x, 0)), like(g.ops, x, 1), ratio)

    return elementwise(g, make, self, dtype=to_float(self.dtype))


@register_lowering(aten.special_entr.default)
def entropy(g: GraphLowering, self: TensorValue) -> Any:
    dtype = to_float(self.dtype)

    def make(x: Node) -> Node:
        positive = g.ops.op("mul", g.ops.op("neg", x), _logarithm(g.ops, x, "log", dtype))
        rest = g.ops.op("where", g.ops.op("eq", x, like(g.ops, x, 0)), like(g.ops, x, 0), like(g.ops, x, -math.inf))
        result = g.ops.op("where", g.ops.op("gt", x, like(g.ops, x, 0)), positive, rest)
        return g.ops.op("where", is_nan(g.ops, x), x, result)

    return elementwise(g, make, self, dtype=dtype)


def _angle(target: Any, factor: float) -> None:
    """Registers the conversion of an angle, which multiplies by a factor."""
    def lower(g: GraphLowering, self: TensorValue) -> TensorValue:
        dtype = to_float(self.dtype)
        return elementwise(g, lambda x: g.ops.op("mul", x, like(g.ops, x, factor)), self, dtype=dtype)

    register_lowering(target)(lower)


_angle(aten.deg2rad.default, math.pi / 180)
_angle(aten.rad2deg.default, 180 / math.pi)


@register_lowering(aten.nextafter.default)
def nextafter(g: GraphLowering, self: TensorValue, other: TensorValue) -> Any:
    if result_type((self, other)) not in FLOAT:
        return NotImplemented
    return elementwise(g, lambda a, b: g.ops.op("nextafter", a, b), self, other)


# ---------------------------------------------------------------- bits
def _shift(name: str, *targets: Any) -> None:
    """Registers the lowering of a shift. A negative amount, or one of at least the dtype's width, gives 0; but a right
    shift of a signed number gives its sign (0 or -1)."""

    def lower(g: GraphLowering, self: Any, other: Any) -> Any:
        dtype = result_type((self, other))
        if dtype is torch.bool or dtype.is_floating_point:
            return NotImplemented
        width = 8 * dtype.itemsize

        def make(a: Node, b: Node) -> Node:
            too_far = g.ops.op("ge", b, like(g.ops, b, width))
            if dtype.is_signed:
                too_far = g.ops.op("or", g.ops.op("lt", b, like(g.ops, b, 0)), too_far)
            by = g.ops.op("where", too_far, like(g.ops, b, 0), b)
            if name == "shl" or not dtype.is_signed:
                rest = like(g.ops, a, 0)
            else:
                rest = g.ops.op("shr", a, like(g.ops, a, width - 1))
            return g.ops.op("where", too_far, rest, g.ops.op(name, a, by))

        return elementwise(g, make, self, other, dtype=dtype)

    register_lowering(*targets)(lower)


_shift("shl", aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar, aten.__lshift__.Tensor,
       aten.__lshift__.Scalar, aten.bitwise_left_shift.Scalar_Tensor)
_shift("shr", aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar, aten.__rshift__.Tensor,
       aten.__rshift__.Scalar, aten.bitwise_right_shift.Scalar_Tensor)


# ---------------------------------------------------------------- activations
@register_lowering(aten.celu.default)
def celu(g: GraphLowering, self: TensorValue, alpha: Number = 1.0) -> Any:
    return formula(g, lambda x: (x <= 0).select((x * (1.0 / alpha)).f("expm1") * alpha, x), self)


@register_lowering(aten.log_sigmoid_forward.default)
def log_sigmoid(g: GraphLowering, self: TensorValue) -> Any:
    """The second result, ``exp(-abs(x))``, is saved for the backward pass."""
    out = formula(g, lambda x: x._do("minimum", 0, x) - (-x.f("abs")).f("exp").f("log1p"), self)
    return out if out is NotImplemented else (out, formula(g, lambda x: (-x.f("abs")).f("exp"), self))


@register_lowering(aten._prelu_kernel.default)
def prelu(g: GraphLowering, self: TensorValue, weight: TensorValue) -> Any:
    return formula(g, lambda x, w: (x > 0).select(x, x * w), self, weight)


@register_lowering(aten.glu.default)
def glu(g: GraphLowering, self: TensorValue, dim: int = -1) -> Any:
    dim = wrap(dim, self.ndim)
    size = self.shape[dim]
    half = ix.floordiv(size, 2)
    left, right = split_with_sizes(g, self, (half, ix.add(size, ix.mul(half, -1))), dim)
    return formula(g, lambda a, b: a * b.sigmoid(), left, right)


@register_lowering(aten.hardswish_backward.default)
def hardswish_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue) -> Any:
    tail = scalar_tail(g, grad_output, self, wide=True)

    def make(d: _Math, x: _Math) -> _Math:
        # The two formulas differ at NaN.
        slope = d * (x / 3 + 0.5)
        in_vector = (x <= -3).select(0, (x >= 3).select(d, slope))
        alone = (x <= -3).select(0, (x < 3).select(slope, d))
        return _Math(g, either(g, tail, lambda: alone.node, lambda: in_vector.node))

    return formula(g, make, grad_output, self)


@register_lowering(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue) -> Any:
    sixth = float.fromhex("0x1.555556p-3")  # eager's constant is a float32, also for float64

    def make(d: _Math, x: _Math) -> _Math:
        return x._do("and", x > -3, x < 3).select(d * sixth, 0)

    return formula(g, make, grad_output, self)


@register_lowering(aten.softplus_backward.default)
def softplus_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, beta: Number, threshold: Number
) -> Any:
    def make(d: _Math, x: _Math) -> _Math:
        z = (x * beta).f("exp")
        return (x * beta > threshold).select(d, d * z / (z + 1))

    return formula(g, make, grad_output, self)


# ---------------------------------------------------------------- losses
def _lossy(g: GraphLowering, make: Any, self: TensorValue, target: TensorValue, reduction: int) -> Any:
    """Lowers a loss of two operands, given the formula for one element."""
    if self.dtype is not target.dtype or not self.dtype.is_floating_point or self.dtype in HALF:
        return NotImplemented
    return reduced_loss(g, formula(g, make, self, target), reduction, self.dtype)


@register_lowering(aten.smooth_l1_loss.default)
def smooth_l1_loss(
    g: GraphLowering, self: TensorValue, target: TensorValue, reduction: int = 1, beta: float = 1.0
) -> Any:
    if beta == 0:
        return NotImplemented

    def make(x: _Math, y: _Math) -> _Math:
        z = (x - y).f("abs")
        return (z < beta).select(0.5 * z * z / beta, z - 0.5 * beta)

    return _lossy(g, make, self, target, reduction)


@register_lowering(aten.huber_loss.default)
def huber_loss(g: GraphLowering, self: TensorValue, target: TensorValue, reduction: int = 1, delta: float = 1.0) -> Any:
    def make(x: _Math, y: _Math) -> _Math:
        z = (x - y).f("abs")
        return (z <= delta).select(0.5 * z * z, delta * (z - 0.5 * delta))

    return _lossy(g, make, self, target, reduction)


# ---------------------------------------------------------------- counts
@register_lowering(aten.count_nonzero.dim_IntList)
def count_nonzero(g: GraphLowering, self: TensorValue, dim: Any) -> TensorValue:
    flags = cast_to(g, cast_to(g, self, torch.bool), torch.int64)
    return g.reduce(flags, "sum", all_dims(dim, self.ndim), False)


@register_lowering(aten.count_nonzero.default)
def count_nonzero_all(g: GraphLowering, self: TensorValue, dim: int | None = None) -> TensorValue:
    return count_nonzero(g, self, dim)


@register_lowering(aten.nansum.default)
def nansum(g: GraphLowering, self: TensorValue, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if not self.dtype.is_floating_point:
        return NotImplemented
    kept = elementwise(g, lambda x: g.ops.op("where", is_nan(g.ops, x), like(g.ops, x, 0), x), self)
    dtype = dtype or self.dtype
    return cast_to(g, sum_of(g, cast_to(g, kept, dtype), all_dims(dim, self.ndim), keepdim), dtype)
