"""Lowerings of activation functions and their gradients, with the formulas of eager's vectorized kernels.

Invariant: a result is rounded at the points where eager's kernel rounds it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.formulas import clamp_max, clamp_min, like, sigmoid
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.promotion import elementwise
from dynamo_lite.backends.inductor.lowering.tails import either, scalar_tail
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, is_size
from dynamo_lite.backends.inductor.lowering_registry import register_lowering
from dynamo_lite.runtime.neutral_state import probe

aten = torch.ops.aten

_SQRT_HALF = math.sqrt(0.5)
_GELU_BETA = math.sqrt(2) * (2 / math.sqrt(math.pi)) * 0.5
_GELU_KAPPA = 0.044715


class _Math:
    """A node with overloaded operators, so that a formula reads like mathematics. Numbers take the dtype of the other
    operand."""

    __slots__ = ("g", "node")

    def __init__(self, g: GraphLowering, node: Node):
        self.g = g
        self.node = node

    def _of(self, x: _Math | Number) -> Node:
        return x.node if isinstance(x, _Math) else like(self.g.ops, self.node, x)

    def _do(self, name: str, *args: _Math | Number) -> _Math:
        return _Math(self.g, self.g.ops.op(name, *map(self._of, args)))

    def __add__(self, o: _Math | Number) -> _Math:
        return self._do("add", self, o)

    def __radd__(self, o: Number) -> _Math:
        return self._do("add", o, self)

    def __sub__(self, o: _Math | Number) -> _Math:
        return self._do("sub", self, o)

    def __rsub__(self, o: Number) -> _Math:
        return self._do("sub", o, self)

    def __mul__(self, o: _Math | Number) -> _Math:
        return self._do("mul", self, o)

    def __rmul__(self, o: Number) -> _Math:
        return self._do("mul", o, self)

    def __truediv__(self, o: _Math | Number) -> _Math:
        return self._do("div", self, o)

    def __neg__(self) -> _Math:
        return self._do("neg", self)

    def __lt__(self, o: _Math | Number) -> _Math:
        return self._do("lt", self, o)

    def __le__(self, o: _Math | Number) -> _Math:
        return self._do("le", self, o)

    def __gt__(self, o: _Math | Number) -> _Math:
        return self._do("gt", self, o)

    def __ge__(self, o: _Math | Number) -> _Math:
        return self._do("ge", self, o)

    def __or__(self, o: _Math) -> _Math:
        return self._do("or", self, o)

    def f(self, name: str) -> _Math:
        """A function of this expression, by its name in ``ir.ops``."""
        return self._do(name, self)

    def clamp(self, low: Number, high: Number) -> _Math:
        ops = self.g.ops
        return _Math(self.g, clamp_max(ops, clamp_min(ops, self.node, self._of(low)), self._of(high)))

    def at_least(self, low: Number) -> _Math:
        return _Math(self.g, clamp_min(self.g.ops, self.node, self._of(low)))

    def sigmoid(self) -> _Math:
        return _Math(self.g, sigmoid(self.g.ops, self.node))

    def select(self, a: _Math | Number, b: _Math | Number) -> _Math:
        """``a`` where this condition holds, otherwise ``b``; at least one of the two is an expression."""
        typed = a if isinstance(a, _Math) else b
        assert isinstance(typed, _Math)
        return _Math(self.g, self.g.ops.op("where", self.node, typed._of(a), typed._of(b)))


def formula(g: GraphLowering, fn: Callable[..., _Math], *operands: TensorValue) -> Any:
    """Lowers an elementwise operator of floating-point operands, given a formula on their elements.

    ``fn`` gets an expression for each operand, which supports arithmetic and comparisons with other expressions and
    numbers; ``x.f("exp")`` applies a function (``ir.ops`` lists them), ``(x > 0).select(a, b)`` is a choice.
    """
    if not all(x.dtype.is_floating_point for x in operands):
        return NotImplemented
    return elementwise(g, lambda *nodes: fn(*[_Math(g, n) for n in nodes]).node, *operands)


# ---------------------------------------------------------------- functions
@register_lowering(aten.gelu.default)
def gelu(g: GraphLowering, self: TensorValue, approximate: str = "none") -> Any:
    if approximate == "tanh":

        def by_tanh(x: _Math) -> _Math:
            cube = x * x * x
            return (0.5 * x) * (1 + (_GELU_BETA * (x + _GELU_KAPPA * cube)).f("tanh"))

        return formula(g, by_tanh, self)
    if not _by_onednn(self):
        return formula(g, lambda x: (x * 0.5) * (x * _SQRT_HALF).f("erf_plus_one"), self)

    edges = _edges_of_onednn(self.dtype)

    def as_onednn(x: _Math) -> _Math:
        if edges.most_is_infinite:
            y = (x * (x * _SQRT_HALF).f("erf_plus_one")) * 0.5
        else:
            y = (x * 0.5) * (x * _SQRT_HALF).f("erf_plus_one")
        if edges.zero_is_positive:
            y = y + 0.0
        return x._do("eq", x, math.inf).select(math.nan, y) if edges.infinity_is_nan else y

    return formula(g, as_onednn, self)


def _by_onednn(x: TensorValue) -> bool:
    """Whether eager computes ``gelu`` by oneDNN instead of its own kernel (ATen/native/cpu/Activation.cpp)."""
    if is_size(x.numel, 1) or not torch.backends.mkldnn.enabled or not _onednn_takes(x.dtype):
        return False
    return x.stride is None or x.stride == ix.contiguous_strides(x.shape)


@functools.cache
def _onednn_takes(dtype: torch.dtype) -> bool:
    """Whether oneDNN supports a dtype on this processor, by the same query that eager uses."""
    if not torch.backends.mkldnn.is_available():
        return False
    asked = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return dtype is torch.float32 or dtype in asked and bool(getattr(torch.ops.mkldnn, asked[dtype])())


@dataclasses.dataclass(frozen=True)
class _Edges:
    """Results of ``gelu`` at special inputs, at which mathematically equal formulas differ."""

    infinity_is_nan: bool  # gelu(inf) is NaN
    most_is_infinite: bool  # the largest number gives infinity: it is doubled before it is halved
    zero_is_positive: bool  # gelu(-0.0) is 0.0: the formula adds a positive term


@probe
def _edges_of_onednn(dtype: torch.dtype) -> _Edges:
    """The results of oneDNN's ``gelu`` at special inputs. oneDNN's code, and with it the formula, depends on the
    processor's instruction set, so eager is called to find out."""
    def of(value: float) -> torch.Tensor:
        return torch.nn.functional.gelu(torch.full((64,), value, dtype=dtype))  # enough elements to fill vectors

    return _Edges(
        infinity_is_nan=bool(of(math.inf).isnan().any()),
        most_is_infinite=bool(of(torch.finfo(dtype).max).isinf().any()),
        zero_is_positive=not bool(of(-0.0).signbit().any()))


@register_lowering(aten.silu.default)
def silu(g: GraphLowering, self: TensorValue) -> Any:
    return formula(g, lambda x: x / (1 + (-x).f("exp")), self)


@register_lowering(aten.mish.default)
def mish(g: GraphLowering, self: TensorValue) -> Any:
    return formula(g, lambda x: x * x.f("exp").f("log1p").f("tanh"), self)


@register_lowering(aten.hardsigmoid.default)
def hardsigmoid(g: GraphLowering, self: TensorValue) -> Any:
    return formula(g, lambda x: (x + 3).clamp(0, 6) / 6, self)


@register_lowering(aten.hardswish.default)
def hardswish(g: GraphLowering, self: TensorValue) -> Any:
    return formula(g, lambda x: x * (x + 3).clamp(0, 6) / 6, self)


@register_lowering(aten.leaky_relu.default)
def leaky_relu(g: GraphLowering, self: TensorValue, negative_slope: Number = 0.01) -> Any:
    return formula(g, lambda x: (x > 0).select(x, x * negative_slope), self)


@register_lowering(aten.elu.default)
def elu(g: GraphLowering, self: TensorValue, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Any:
    return formula(g, lambda x: (x <= 0).select((x * input_scale).f("expm1") * (alpha * scale), x * scale), self)


@register_lowering(aten.softplus.default)
def softplus(g: GraphLowering, self: TensorValue, beta: Number = 1, threshold: Number = 20) -> Any:
    return formula(g, lambda x: (x * beta > threshold).select(x, (x * beta).f("exp").f("log1p") / beta), self)


@register_lowering(aten.threshold.default)
def threshold_(g: GraphLowering, self: TensorValue, threshold: Number, value: Number) -> Any:
    return formula(g, lambda x: (x <= threshold).select(value, x), self)


@register_lowering(aten.hardshrink.default)
def hardshrink(g: GraphLowering, self: TensorValue, lambd: Number = 0.5) -> Any:
    return formula(g, lambda x: ((x >= -lambd)._do("and", x >= -lambd, x <= lambd)).select(0, x), self)


@register_lowering(aten.softshrink.default)
def softshrink(g: GraphLowering, self: TensorValue, lambd: Number = 0.5) -> Any:
    tail = scalar_tail(g, self)

    def make(x: _Math) -> _Math:
        within = x * 0  # keeps NaN
        positive = (within._do("ne", within, within)).select(within, 0)
        rest = _Math(g, either(g, tail, lambda: within.node, lambda: positive.node))
        return (x > lambd).select(x - lambd, (x < -lambd).select(x + lambd, rest))

    return formula(g, make, self)


# ---------------------------------------------------------------- gradients
@register_lowering(aten.sigmoid_backward.default)
def sigmoid_backward(g: GraphLowering, grad_output: TensorValue, output: TensorValue) -> Any:
    if grad_output.dtype is torch.float16:
        # Eager's kernel does not compute float16 in float32 here: it rounds after every step.
        rest = formula(g, lambda y: 1 - y, output)
        return formula(g, lambda a, b: a * b, formula(g, lambda a, b: a * b, grad_output, rest), output)
    return formula(g, lambda d, y: d * (1 - y) * y, grad_output, output)


@register_lowering(aten.tanh_backward.default)
def tanh_backward(g: GraphLowering, grad_output: TensorValue, output: TensorValue) -> Any:
    return formula(g, lambda d, y: d * (1 - y * y), grad_output, output)


@register_lowering(aten.threshold_backward.default)
def threshold_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue, threshold: Number) -> Any:
    return formula(g, lambda d, x: (x <= threshold).select(0, d), grad_output, self)


@register_lowering(aten.silu_backward.default)
def silu_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue) -> Any:
    def make(d: _Math, x: _Math) -> _Math:
        s = x.sigmoid()
        return d * s * (1 + x * (1 - s))

    return formula(g, make, grad_output, self)


@register_lowering(aten.mish_backward.default)
def mish_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue) -> Any:
    def make(d: _Math, x: _Math) -> _Math:
        t = x.f("exp").f("log1p").f("tanh")
        return d * (t + x * x.sigmoid() * (1 - t * t))

    return formula(g, make, grad_output, self)


@register_lowering(aten.gelu_backward.default)
def gelu_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue, approximate: str = "none") -> Any:
    def by_erf(d: _Math, x: _Math) -> _Math:
        cdf = 0.5 * (x * _SQRT_HALF).f("erf_plus_one")
        pdf = (2 / math.sqrt(math.pi) * _SQRT_HALF * 0.5) * (x * x * -0.5).f("exp")
        return d * (cdf + x * pdf)

    def by_tanh(d: _Math, x: _Math) -> _Math:
        square = x * x
        t = (_GELU_BETA * (x + _GELU_KAPPA * (square * x))).f("tanh")
        left = 0.5 * x
        right = 1 + t
        slope = _GELU_BETA * (1 + (3 * _GELU_KAPPA) * square)
        return d * (0.5 * right + left * ((1 - t * t) * slope))

    return formula(g, by_tanh if approximate == "tanh" else by_erf, grad_output, self)


@register_lowering(aten.hardtanh_backward.default)
def hardtanh_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, min_val: Number, max_val: Number
) -> Any:
    tail = scalar_tail(g, grad_output, self)

    def make(d: _Math, x: _Math) -> _Math:
        # The two formulas differ at NaN.
        alone = ((x <= min_val) | (x >= max_val)).select(0, d)
        in_vector = (x > min_val)._do("and", x > min_val, x < max_val).select(d, 0)
        return _Math(g, either(g, tail, lambda: alone.node, lambda: in_vector.node))

    return formula(g, make, grad_output, self)


@register_lowering(aten.leaky_relu_backward.default)
def leaky_relu_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, negative_slope: Number, self_is_result: bool
) -> Any:
    return formula(g, lambda d, x: (x > 0).select(d, d * negative_slope), grad_output, self)


@register_lowering(aten.elu_backward.default)
def elu_backward(
    g: GraphLowering,
    grad_output: TensorValue,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    self_or_result: TensorValue,
) -> Any:
    neg, pos = alpha * scale, scale
    tail = scalar_tail(g, grad_output, self_or_result, wide=True)

    def make(d: _Math, x: _Math) -> _Math:
        if is_result:
            return (x > 0).select(d * pos, d * input_scale * (x + neg))
        slope = d * input_scale * neg * (x * input_scale).f("exp")
        # The two formulas differ at NaN.
        in_vector, alone = (x > 0).select(d * pos, slope), (x <= 0).select(slope, d * pos)
        return _Math(g, either(g, tail, lambda: alone.node, lambda: in_vector.node))

    return formula(g, make, grad_output, self_or_result)
