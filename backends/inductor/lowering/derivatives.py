"""Lowerings of operators of backward graphs: gradients of losses, of less common activations, and of views.

The formulas are those of eager's kernels. Losses of 16-bit floats are left to the library, which rounds between steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.lowering.activations import _Math, formula
from dynamo_lite.backends.inductor.lowering.creation import filled
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.indexing import is_empty
from dynamo_lite.backends.inductor.lowering.joining import cat, select_scatter, slice_scatter
from dynamo_lite.backends.inductor.lowering.reduction import reduced_loss
from dynamo_lite.backends.inductor.lowering.tails import either, scalar_tail
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue
from dynamo_lite.backends.inductor.lowering.views import slice_, wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten
_MEAN = 1


# ---------------------------------------------------------------- activations
@register_lowering(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue, buffer: TensorValue) -> Any:
    def make(d: _Math, x: _Math, z: _Math) -> _Math:
        negative = x < 0
        share = z / (z + 1)
        return negative.select(1 - share, share + 0) * d  # adding 0 turns -0.0 into 0.0

    return formula(g, make, grad_output, self, buffer)


@register_lowering(aten.glu_backward.default)
def glu_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue, dim: int) -> Any:
    dim = wrap(dim, self.ndim)
    size = self.shape[dim]
    if not isinstance(size, int) or self.dtype in HALF:
        return NotImplemented
    left, right = slice_(g, self, dim, 0, size // 2), slice_(g, self, dim, size // 2, size)

    def of_right(d: _Math, a: _Math, b: _Math) -> _Math:
        s = b.sigmoid()
        return (1 - s) * s * a * d

    first = formula(g, lambda d, b: b.sigmoid() * d, grad_output, right)
    return cat(g, [first, formula(g, of_right, grad_output, left, right)], dim)


def _shrink_backward(g: GraphLowering, d: TensorValue, x: TensorValue, lambd: Number) -> Any:
    tail = scalar_tail(g, d, x)

    def make(d: _Math, x: _Math) -> _Math:
        # The two formulas differ at NaN.
        in_vector = ((x < -lambd) | (x > lambd)).select(d, 0)
        alone = (x >= -lambd)._do("and", x >= -lambd, x <= lambd).select(0, d)
        return _Math(g, either(g, tail, lambda: alone.node, lambda: in_vector.node))

    return formula(g, make, d, x)


@register_lowering(aten.hardshrink_backward.default)
def hardshrink_backward(g: GraphLowering, grad_out: TensorValue, self: TensorValue, lambd: Number) -> Any:
    return _shrink_backward(g, grad_out, self, lambd)


@register_lowering(aten.softshrink_backward.default)
def softshrink_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue, lambd: Number) -> Any:
    return _shrink_backward(g, grad_output, self, lambd)


@register_lowering(aten._prelu_kernel_backward.default)
def prelu_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue, weight: TensorValue) -> Any:
    to_input = formula(g, lambda d, x, w: (x > 0).select(d, w * d), grad_output, self, weight)
    return to_input, formula(g, lambda d, x: (x > 0).select(0, x * d), grad_output, self)


@register_lowering(aten.logit_backward.default)
def logit_backward(g: GraphLowering, grad_output: TensorValue, self: TensorValue, eps: float | None = None) -> Any:
    bound = torch.tensor(eps or 0.0, dtype=self.dtype if self.dtype.is_floating_point else torch.float32)
    low, high = bound.item(), (1 - bound).item()
    outside = math.nan if eps is None else 0.0
    tail = scalar_tail(g, grad_output, self, wide=True)

    def make(d: _Math, x: _Math) -> _Math:
        # The two formulas differ at NaN and at -0.0.
        slope = d / (x * (1 - x))
        in_vector = (x >= low)._do("and", x >= low, x <= high).select(slope, outside)
        at_end = x._do("or", x._do("eq", x, 0), x._do("eq", x, 1))
        alone = ((x < low) | (x > high)).select(outside, at_end.select(d * math.inf, slope))
        return _Math(g, either(g, tail, lambda: alone.node, lambda: in_vector.node))

    return formula(g, make, grad_output, self)


# ---------------------------------------------------------------- losses
def _loss_gradient(
    g: GraphLowering, make: Callable[[_Math, _Math, _Math | float], _Math], d: TensorValue, x: TensorValue,
    y: TensorValue, reduction: int,
) -> Any:
    """Lowers a loss's gradient as ``make(d, x - y, factor)`` for each element; for a mean, ``factor`` is the reciprocal
    of the number of elements, otherwise 1."""
    if len({t.dtype for t in (d, x, y)}) != 1 or x.dtype in HALF or x.shape != y.shape or is_empty(x):
        return NotImplemented
    factor = _share(g, x) if reduction == _MEAN else 1.0
    return formula(g, lambda d, x, y: make(d, x - y, factor), d, x, y)


def _share(g: GraphLowering, x: TensorValue) -> _Math | float:
    """The reciprocal of the number of elements, which may be symbolic; computed in double precision, as in eager."""
    count = x.numel
    if isinstance(count, int):
        return 1.0 / count
    ops = g.ops
    quotient = ops.op("div", ops.const(1.0, torch.float64), ops.cast(ops.index(count), torch.float64))
    return _Math(g, ops.cast(quotient, x.dtype))


@register_lowering(aten.mse_loss_backward.default)
def mse_loss_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, target: TensorValue, reduction: int
) -> Any:
    return _loss_gradient(g, lambda d, z, n: 2 * n * z * d, grad_output, self, target, reduction)


@register_lowering(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, target: TensorValue, reduction: int, beta: float
) -> Any:
    if beta == 0:
        return NotImplemented

    def make(d: _Math, z: _Math, n: _Math | float) -> _Math:
        return (z <= -beta).select(-n * d, (z >= beta).select(n * d, n * z * d / beta))

    return _loss_gradient(g, make, grad_output, self, target, reduction)


@register_lowering(aten.huber_loss_backward.default)
def huber_loss_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, target: TensorValue, reduction: int, delta: float
) -> Any:
    def make(d: _Math, z: _Math, n: _Math | float) -> _Math:
        return (z <= -delta).select(-n * d * delta, (z >= delta).select(n * d * delta, n * z * d))

    return _loss_gradient(g, make, grad_output, self, target, reduction)


@register_lowering(aten.binary_cross_entropy_with_logits.default)
def bce_with_logits(
    g: GraphLowering,
    self: TensorValue,
    target: TensorValue,
    weight: TensorValue | None = None,
    pos_weight: TensorValue | None = None,
    reduction: int = 1,
) -> Any:
    given = [t for t in (self, target, weight, pos_weight) if t is not None]
    if len({t.dtype for t in given}) != 1 or self.dtype in HALF:
        return NotImplemented

    def make(x: _Math, y: _Math, *rest: _Math) -> _Math:
        log_sigmoid = x._do("minimum", 0, x) - (-x.f("abs")).f("exp").f("log1p")
        if pos_weight is not None:
            log_sigmoid = log_sigmoid * ((rest[-1] - 1) * y + 1)
        loss = (1 - y) * x - log_sigmoid
        return loss if weight is None else loss * rest[0]

    return reduced_loss(g, formula(g, make, *given), reduction, self.dtype)


@register_lowering(aten.soft_margin_loss.default)
def soft_margin_loss(g: GraphLowering, self: TensorValue, target: TensorValue, reduction: int = 1) -> Any:
    if self.dtype is not target.dtype or self.dtype in HALF:
        return NotImplemented
    each = formula(g, lambda x, y: (-y * x).f("exp").f("log1p"), self, target)
    return each if each is NotImplemented else reduced_loss(g, each, reduction, self.dtype)


@register_lowering(aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, target: TensorValue, reduction: int
) -> Any:
    if len({t.dtype for t in (grad_output, self, target)}) != 1 or self.dtype in HALF or is_empty(self):
        return NotImplemented
    factor = _share(g, self) if reduction == _MEAN else 1.0

    def make(d: _Math, x: _Math, y: _Math) -> _Math:
        z = (-y * x).f("exp")
        return (-factor) * y * z / (z + 1) * d

    return formula(g, make, grad_output, self, target)


# ---------------------------------------------------------------- views
@register_lowering(aten.slice_backward.default)
def slice_backward(
    g: GraphLowering, grad_output: TensorValue, input_sizes: Sequence[ix.Index], dim: int, start: ix.Index,
    end: ix.Index, step: ix.Index,
) -> Any:
    return slice_scatter(g, filled(g, input_sizes, 0, grad_output.dtype), grad_output, dim, start, end, step)


@register_lowering(aten.select_backward.default)
def select_backward(
    g: GraphLowering, grad_output: TensorValue, input_sizes: Sequence[ix.Index], dim: int, index: ix.Index
) -> Any:
    return select_scatter(g, filled(g, input_sizes, 0, grad_output.dtype), grad_output, dim, index)
