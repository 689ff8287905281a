"""Lowerings of elementwise operators: arithmetic, comparisons, bit operations, functions, choices.

Each is written once on IR nodes, with eager's own formula, so that rounding, NaN and signed zeros are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dynamo_lite import torch_versions
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, wrapped
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.lowering.formulas import (
    clamp_max,
    clamp_min,
    floor_divide,
    is_nan,
    like,
    power,
    reciprocal,
    remainder,
    rsqrt,
    sigmoid,
    sign,
)
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.promotion import Operand, elementwise, result_type, to_float
from dynamo_lite.backends.inductor.lowering.tails import Tail, either, scalar_tail
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, broadcast_shapes, expanded
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten
Make = Callable[..., Node]


# ---------------------------------------------------------------- unary
def _unary_float(target: Any, make: Make) -> None:
    """Registers a function of real numbers, which converts integers to floats first."""

    def lower(g: GraphLowering, self: TensorValue) -> TensorValue:
        return elementwise(g, lambda x: make(g.ops, x), self, dtype=to_float(self.dtype))

    register_lowering(target)(lower)


def _table(name: str) -> Make:
    """A function that makes a node of the operation ``name`` of ``ir.ops.OPS``."""
    return lambda ops, *args: ops.op(name, *args)


for _name in (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "atanh",
    "erf",
    "erfc",
    "lgamma",
):
    _unary_float(getattr(aten, _name).default, _table(_name))
_unary_float(aten.reciprocal.default, reciprocal)
_unary_float(aten.rsqrt.default, rsqrt)
_unary_float(aten.sigmoid.default, sigmoid)


def _unary_wide(name: str) -> None:
    """Registers a function whose version in Sleef overflows too early. It is computed in float64; for large arguments
    as log(2 |x|)."""

    def make(ops: Builder, x: Node) -> Node:
        if x.dtype is not torch.float64:
            return ops.cast(ops.op(name, ops.cast(x, torch.float64)), x.dtype)
        size = ops.op("abs", x)
        by_log = ops.op("add", ops.op("log", size), like(ops, x, math.log(2)))
        if name == "asinh":
            by_log = ops.op("copysign", by_log, x)
        large = ops.op("gt", size if name == "asinh" else x, like(ops, x, 1e150))
        return ops.op("where", large, by_log, ops.op(name, x))

    _unary_float(getattr(aten, name).default, make)


for _name in ("asinh", "acosh"):
    _unary_wide(_name)


def _unary_same(target: Any, make: Make, *, integer: bool = True, boolean: bool = False) -> None:
    """Registers an operation whose result has the operand's dtype. ``boolean`` says whether ``make`` handles bools too
    (otherwise the library does), ``integer`` whether it handles integers (otherwise they are returned unchanged)."""

    def lower(g: GraphLowering, self: TensorValue) -> Any:
        if self.dtype is torch.bool and not boolean:
            return NotImplemented
        if not integer and not self.dtype.is_floating_point:
            return TensorValue(self.shape, self.dtype, self.node)  # rounding does not change an integer
        return elementwise(g, lambda x: make(g.ops, x), self)

    register_lowering(target)(lower)


for _name in ("floor", "ceil", "trunc", "round"):
    _unary_same(getattr(aten, _name).default, _table(_name), integer=False)
_unary_same(aten.neg.default, _table("neg"))


@register_lowering(aten.bitwise_not.default)
def bitwise_not(g: GraphLowering, self: TensorValue) -> Any:
    if self.dtype.is_floating_point:
        return NotImplemented  # the library call raises
    return elementwise(g, lambda x: g.ops.op("not", x), self)


_unary_same(aten.relu.default, lambda ops, x: clamp_min(ops, x, like(ops, x, 0)))
_unary_same(aten.frac.default, lambda ops, x: ops.op("sub", x, ops.op("trunc", x)))
_unary_same(aten.sign.default, sign)
_unary_same(aten.sgn.default, sign)


@register_lowering(aten.abs.default)
def abs_(g: GraphLowering, self: TensorValue) -> TensorValue:
    if not self.dtype.is_signed:
        return TensorValue(self.shape, self.dtype, self.node)
    return elementwise(g, lambda x: g.ops.op("abs", x), self)


def _predicate(target: Any, make: Make) -> None:
    """Registers an operator of one operand that returns bools."""
    def lower(g: GraphLowering, self: TensorValue) -> TensorValue:
        return elementwise(g, lambda x: make(g.ops, x), self, result=torch.bool)

    register_lowering(target)(lower)


def _is_inf(ops: Builder, x: Node) -> Node:
    if not x.dtype.is_floating_point:
        return ops.const(False, torch.bool)
    return ops.op("eq", ops.op("abs", x), like(ops, x, math.inf))


_predicate(aten.isnan.default, is_nan)
_predicate(aten.isinf.default, _is_inf)
_predicate(aten.logical_not.default, lambda ops, x: ops.op("not", ops.cast(x, torch.bool)))


# ---------------------------------------------------------------- binary arithmetic
def _scaled(g: GraphLowering, self: Operand, other: Operand, alpha: Number, add: str) -> Callable[[Node, Node], Node]:
    """A function of two nodes that computes ``self + alpha * other`` or, if ``add`` is "sub", the difference. For
    16-bit floats, eager rounds the product in its scalar loops (``tails``), but not in its vectorized ones."""
    dtype = result_type((self, other))
    tail = dtype in HALF and alpha != 1 and scalar_tail(g, self, other)

    def make(a: Node, b: Node) -> Node:
        if a.dtype is torch.bool:
            return g.ops.op("or", a, b) if alpha else a
        if alpha == 1:
            return g.ops.op(add, a, b)
        scale = g.ops.cast(g.ops.const(-alpha if add == "sub" else alpha, dtype), b.dtype)
        if not a.dtype.is_floating_point:
            return g.ops.op("add", a, g.ops.op("mul", b, scale))

        def alone() -> Node:
            return g.ops.op("add", a, g.ops.cast(g.ops.cast(g.ops.op("mul", b, scale), dtype), b.dtype))

        return either(g, tail, alone, lambda: g.ops.op("fma", b, scale, a))

    return make


@register_lowering(aten.add.Tensor, aten.add.Scalar)
def add(g: GraphLowering, self: Operand, other: Operand, alpha: Number = 1) -> TensorValue:
    return elementwise(g, _scaled(g, self, other, alpha, "add"), self, other)


@register_lowering(aten.sub.Tensor, aten.sub.Scalar)
def sub(g: GraphLowering, self: Operand, other: Operand, alpha: Number = 1) -> TensorValue:
    return elementwise(g, _scaled(g, self, other, alpha, "sub"), self, other)


@register_lowering(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(g: GraphLowering, self: Operand, other: Operand, alpha: Number = 1) -> TensorValue:
    make = _scaled(g, other, self, alpha, "sub")
    return elementwise(g, lambda a, b: make(b, a), self, other)


@register_lowering(aten.mul.Tensor, aten.mul.Scalar)
def mul(g: GraphLowering, self: Operand, other: Operand) -> TensorValue:
    return elementwise(
        g, lambda a, b: g.ops.op("and" if a.dtype is torch.bool else "mul", a, b), self, other, exact_scalar=True
    )


@register_lowering(aten.div.Tensor, aten.div.Scalar)
def div(g: GraphLowering, self: Operand, other: Operand) -> TensorValue:
    return elementwise(
        g,
        lambda a, b: g.ops.op("div", a, b),
        self,
        other,
        dtype=to_float(result_type((self, other))),
        exact_scalar=True,
    )


def _safe_divisor(x: Operand, dtype: torch.dtype) -> bool:
    """Whether generated code may divide by ``x`` in this dtype. Dividing an integer by zero is an error that only the
    library raises, and dividing the smallest integer by -1 would end the process."""
    if dtype.is_floating_point:
        return True
    if dtype is torch.bool or isinstance(x, TensorValue):
        return False
    return wrapped(int(x), dtype) not in (0, -1)


@register_lowering(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(g: GraphLowering, self: Operand, other: Operand, rounding_mode: str | None = None) -> Any:
    dtype = result_type((self, other))
    if rounding_mode is None:
        return div(g, self, other)
    if not _safe_divisor(other, dtype):
        return NotImplemented

    def rounded(x: Node) -> Node:
        """Rounds an intermediate result as eager does, which divides two 16-bit tensors step by step in their own
        dtype, but divides by a number in float32."""
        one = not isinstance(other, TensorValue) or not other.ndim
        return x if one or dtype not in HALF else g.ops.cast(g.ops.cast(x, dtype), x.dtype)

    if rounding_mode == "floor":
        return elementwise(g, lambda a, b: floor_divide(g.ops, a, b, rounded), self, other, exact_scalar=True)
    if not dtype.is_floating_point:
        return elementwise(g, lambda a, b: g.ops.op("tdiv", a, b), self, other, exact_scalar=True)

    def truncated(a: Node, b: Node) -> Node:
        return g.ops.op("trunc", rounded(g.ops.op("div", a, b)))

    return elementwise(g, truncated, self, other, exact_scalar=True)


@register_lowering(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide_(g: GraphLowering, self: Operand, other: Operand) -> Any:
    return div_mode(g, self, other, rounding_mode="floor")


@register_lowering(aten.remainder.Tensor, aten.remainder.Scalar)
def remainder_(g: GraphLowering, self: Operand, other: Operand) -> Any:
    if not _safe_divisor(other, result_type((self, other))):
        return NotImplemented
    return elementwise(g, lambda a, b: remainder(g.ops, a, b), self, other)


@register_lowering(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(g: GraphLowering, self: Operand, other: Operand) -> Any:
    dtype = result_type((self, other))
    if not _safe_divisor(other, dtype):
        return NotImplemented
    name = "fmod" if dtype.is_floating_point else "tmod"
    return elementwise(g, lambda a, b: g.ops.op(name, a, b), self, other)


def _binary(
    *targets: Any,
    make: Make,
    to: Callable[[torch.dtype], torch.dtype] = lambda d: d,
    result: torch.dtype | None = None,
    float_only: bool = False,
) -> None:
    """Registers an elementwise operator of two operands.

    Args:
        make: makes the result's node, given the builder and both operands in the computation's dtype.
        to: the dtype of the computation, given the promoted dtype of the operands.
        result: dtype of the result; if not given, that of the computation.
        float_only: whether the library computes the operator for all other dtypes.
    """
    def lower(g: GraphLowering, self: Operand, other: Operand) -> Any:
        dtype = to(result_type((self, other)))
        if float_only and not dtype.is_floating_point:
            return NotImplemented
        return elementwise(g, lambda a, b: make(g.ops, a, b), self, other, dtype=dtype, result=result)

    register_lowering(*targets)(lower)


def _extreme(name: str) -> Make:
    """A function that makes the maximum or minimum of two nodes, for bools as "or" or "and"."""
    def make(ops: Builder, a: Node, b: Node) -> Node:
        if a.dtype is torch.bool:
            return ops.op("or" if name == "maximum" else "and", a, b)
        return ops.op(name, a, b)

    return make


def _ignoring_nan(name: str, compare: str) -> None:
    """Registers fmax or fmin, which give the other operand if one is NaN. Of two zeros eager takes the first, but for
    bfloat16 the second."""

    def lower(g: GraphLowering, self: Operand, other: Operand) -> TensorValue:
        sign = compare[0] + ("t" if result_type((self, other)) is torch.bfloat16 else "e")

        def make(a: Node, b: Node) -> Node:
            if a.dtype is torch.bool:
                return g.ops.op("or" if name == "fmax" else "and", a, b)
            take_a = g.ops.op(sign, a, b)
            if a.dtype.is_floating_point:
                take_a = g.ops.op("or", is_nan(g.ops, b), take_a)
            return g.ops.op("where", take_a, a, b)

        return elementwise(g, make, self, other)

    register_lowering(getattr(aten, name).default)(lower)


def _extreme_of(
    g: GraphLowering, name: str, self: Operand, other: Operand, tail: Tail | None = None
) -> TensorValue:
    """Elementwise maximum or minimum. Of equal operands, which may be zeros of different signs, it takes the one that
    eager takes: the first one in scalar loops (``tails``)."""
    tail = scalar_tail(g, self, other) if tail is None else tail

    def make(a: Node, b: Node) -> Node:
        def first() -> Node:
            return g.ops.op("where", g.ops.op("eq", a, b), a, _extreme(name)(g.ops, a, b))

        return either(g, tail, first, lambda: _extreme(name)(g.ops, a, b))

    return elementwise(g, make, self, other)


@register_lowering(aten.maximum.default)
def maximum(g: GraphLowering, self: Operand, other: Operand) -> TensorValue:
    return _extreme_of(g, "maximum", self, other)


@register_lowering(aten.minimum.default)
def minimum(g: GraphLowering, self: Operand, other: Operand) -> TensorValue:
    return _extreme_of(g, "minimum", self, other)


_ignoring_nan("fmax", "greater")
_ignoring_nan("fmin", "less")
_binary(aten.atan2.default, make=_table("atan2"), to=to_float)
_binary(aten.hypot.default, make=_table("hypot"), float_only=True)
_binary(aten.copysign.Tensor, aten.copysign.Scalar, make=_table("copysign"), to=to_float)

for _name in ("and", "or", "xor"):
    _packet = getattr(aten, f"bitwise_{_name}")
    _binary(_packet.Tensor, _packet.Scalar, make=_table(_name))
    _dunder = getattr(aten, f"__{_name}__")
    _binary(_dunder.Tensor, _dunder.Scalar, make=_table(_name))

    def _logical(ops: Builder, a: Node, b: Node, name: str = _name) -> Node:
        return ops.op(name, ops.cast(a, torch.bool), ops.cast(b, torch.bool))

    _binary(getattr(aten, f"logical_{_name}").default, make=_logical, result=torch.bool)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _packet = getattr(aten, _name)
    _binary(_packet.Tensor, _packet.Scalar, make=_table(_name), result=torch.bool)


@register_lowering(aten.pow.Tensor_Scalar)
def pow_tensor_scalar(g: GraphLowering, self: TensorValue, exponent: Number) -> Any:
    dtype = result_type((self, exponent))
    if dtype is torch.bool or (not dtype.is_floating_point and exponent < 0):
        return NotImplemented
    rounded = g.ops.const(exponent, dtype).attr
    if dtype is torch.float16:
        return elementwise(g, lambda x: g.ops.op("pow", x, like(g.ops, x, rounded)), self, dtype=dtype)
    if dtype is torch.bfloat16 and rounded in (3, -2):
        # Eager rounds the square to bfloat16, too.
        square = elementwise(g, lambda x: g.ops.op("mul", x, x), self, dtype=dtype)
        if rounded == -2:
            return elementwise(g, lambda x: reciprocal(g.ops, x), square)
        return elementwise(g, lambda a, b: g.ops.op("mul", a, b), square, self, dtype=dtype)
    return elementwise(g, lambda x: power(g.ops, x, rounded), self, dtype=dtype)


@register_lowering(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def pow_tensor_tensor(g: GraphLowering, self: Operand, exponent: Operand) -> Any:
    dtype = result_type((self, exponent))
    if not dtype.is_floating_point:
        return NotImplemented
    if self == 2 and isinstance(exponent, TensorValue):
        return elementwise(g, lambda x: g.ops.op("exp2", x), exponent, dtype=dtype)
    return elementwise(g, lambda a, b: g.ops.op("pow", a, b), self, exponent, dtype=dtype)


# ---------------------------------------------------------------- choice
@register_lowering(aten.where.self)
def where(g: GraphLowering, condition: TensorValue, self: TensorValue, other: TensorValue) -> Any:
    if condition.dtype is not torch.bool:
        return NotImplemented
    dtype = result_type((self, other))
    shape = broadcast_shapes(condition.shape, self.shape, other.shape)
    picked = g.ops.op(
        "where",
        expanded(g.ops, condition, shape),
        *[g.ops.cast(expanded(g.ops, x, shape), dtype) for x in (self, other)],
    )
    return TensorValue(shape, dtype, picked)


@register_lowering(aten.hardtanh.default)
def hardtanh(g: GraphLowering, self: TensorValue, min_val: Number = -1, max_val: Number = 1) -> Any:
    if self.dtype.is_floating_point:
        return clamp(g, self, min_val, max_val)
    # The dtype stays the same; for unsigned dtypes the library call raises.
    return clamp(g, self, int(min_val), int(max_val)) if self.dtype.is_signed else NotImplemented


@register_lowering(aten.clamp.default)
def clamp_(g: GraphLowering, self: TensorValue, min: Number | None = None, max: Number | None = None) -> TensorValue:
    bounds = [b for b in (min, max) if b is not None]
    if len(bounds) == 1 and math.isnan(bounds[0]) and torch_versions.clamp_ignores_nan():
        return elementwise(g, lambda x: x, self, dtype=result_type((self, *bounds)))
    return clamp(g, self, min, max)


def clamp(g: GraphLowering, self: TensorValue, min: Number | None = None, max: Number | None = None) -> TensorValue:
    """``clamp`` with numbers as bounds; a bound that is NaN makes all results NaN."""
    bounds = [b for b in (min, max) if b is not None]
    dtype = result_type((self, *bounds))

    def make(x: Node) -> Node:
        if any(math.isnan(b) for b in bounds):
            return like(g.ops, x, math.nan)
        if min is not None:
            x = clamp_min(g.ops, x, like(g.ops, x, min))
        return x if max is None else clamp_max(g.ops, x, like(g.ops, x, max))

    return elementwise(g, make, self, dtype=dtype)


@register_lowering(aten.clamp_min.default)
def clamp_min_(g: GraphLowering, self: TensorValue, min: Number) -> TensorValue:
    return clamp(g, self, min, None)


@register_lowering(aten.clamp_max.default)
def clamp_max_(g: GraphLowering, self: TensorValue, max: Number) -> TensorValue:
    return clamp(g, self, None, max)


@register_lowering(aten.clamp_min.Tensor)
def clamp_min_tensor(g: GraphLowering, self: TensorValue, min: TensorValue) -> Any:
    return clamp_tensor(g, self, min, None)


@register_lowering(aten.clamp_max.Tensor)
def clamp_max_tensor(g: GraphLowering, self: TensorValue, max: TensorValue) -> Any:
    return clamp_tensor(g, self, None, max)


@register_lowering(aten.clamp.Tensor)
def clamp_tensor(
    g: GraphLowering, self: TensorValue, min: TensorValue | None = None, max: TensorValue | None = None
) -> Any:
    tail = scalar_tail(g, *[x for x in (self, min, max) if x is not None])
    if min is not None:
        self = _extreme_of(g, "maximum", self, min, tail)
    if max is not None:
        self = _extreme_of(g, "minimum", self, max, tail)
    return self


# ---------------------------------------------------------------- three operands
@register_lowering(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(g: GraphLowering, self: TensorValue, end: TensorValue, weight: Operand) -> Any:
    dtype = result_type((self, end))
    if not dtype.is_floating_point:
        return NotImplemented
    tail = scalar_tail(g, self, end, *[weight] * isinstance(weight, TensorValue))

    def make(a: Node, b: Node, w: Node) -> Node:
        near = g.ops.op("lt", g.ops.op("abs", w), like(g.ops, w, 0.5))
        difference = g.ops.op("sub", b, a)

        def alone() -> Node:
            rest = g.ops.op("sub", like(g.ops, w, 1), w)
            back = g.ops.op("fma", g.ops.op("neg", difference), rest, b)
            return g.ops.op("where", near, g.ops.op("fma", w, difference, a), back)

        def in_vector() -> Node:
            by = g.ops.op("where", near, w, g.ops.op("sub", w, like(g.ops, w, 1)))
            return g.ops.op("fma", by, difference, g.ops.op("where", near, a, b))

        return either(g, tail, alone, in_vector)

    return elementwise(g, make, self, end, weight, dtype=dtype, exact_scalar=True)


@register_lowering(aten.addcmul.default)
def addcmul(g: GraphLowering, self: TensorValue, tensor1: TensorValue, tensor2: TensorValue, value: Number = 1) -> Any:
    if not self.dtype.is_floating_point:
        return NotImplemented

    def make(a: Node, b: Node, c: Node) -> Node:
        scaled = b if value == 1 else g.ops.op("mul", like(g.ops, b, value), b)
        return g.ops.op("fma", scaled, c, a)

    return elementwise(g, make, self, tensor1, tensor2)


@register_lowering(aten.addcdiv.default)
def addcdiv(g: GraphLowering, self: TensorValue, tensor1: TensorValue, tensor2: TensorValue, value: Number = 1) -> Any:
    if not self.dtype.is_floating_point:
        return NotImplemented

    def make(a: Node, b: Node, c: Node) -> Node:
        scaled = b if value == 1 else g.ops.op("mul", like(g.ops, b, value), b)
        return g.ops.op("add", a, g.ops.op("div", scaled, c))

    return elementwise(g, make, self, tensor1, tensor2)
