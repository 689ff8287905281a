"""Lowerings of losses whose operands are checked: targets of the negative log likelihood select scores, so that only
those are computed, and binary cross-entropy takes probabilities.

Invariant: an operand that eager refuses raises eager's exception.
"""

from __future__ import annotations

from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import FLOAT
from dynamo_lite.backends.inductor.lowering.activations import _Math, formula
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.indexing import checked_place, place_of, prepare_source
from dynamo_lite.backends.inductor.lowering.reduction import divided_by, reduced_loss
from dynamo_lite.backends.inductor.lowering.values import TensorValue, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten
_NONE, _MEAN = 0, 1


@register_lowering(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(
    g: GraphLowering,
    self: TensorValue,
    target: TensorValue,
    weight: TensorValue | None,
    reduction: int,
    ignore_index: int,
) -> Any:
    if self.ndim not in (2, 4) or self.dtype not in FLOAT or target.dtype is not torch.int64:
        return NotImplemented
    classes = self.shape[1]
    if not isinstance(classes, int) or classes < 2 or not g.sizes.are_known(self.shape, 0, "a loss has elements"):
        return NotImplemented
    if reduction == _NONE and g.is_read(1) or weight is not None and weight.dtype is not self.dtype:
        return NotImplemented
    ops, shape = g.ops, target.shape
    zero = ops.const(0, self.dtype)
    counts = ops.op("ne", target.node, ops.const(ignore_index, torch.int64))
    label = ops.op("where", counts, target.node, ops.const(0, torch.int64))
    place = place_of(g, label, self.shape[1], False, IndexError, "Target {} is out of bounds.")
    prepare_source(g, self, ix.product(shape))
    variables = shape_vars(shape)
    score = reindexed(ops, self, (variables[0], place, *variables[1:]))
    share: Node = ops.const(1, self.dtype)
    lost = ops.op("neg", score)
    if weight is not None:
        share = reindexed(ops, weight, (place,))
        lost = ops.op("mul", lost, share)
    each = TensorValue(shape, self.dtype, ops.op("where", counts, lost, zero), device=self.device)
    if reduction == _NONE:
        g.realize(each)
        return each, TensorValue((), self.dtype, zero, device=self.device)
    dims = tuple(range(len(shape)))
    total = g.reduce(each, "sum", dims, False)
    shares = TensorValue(shape, self.dtype, ops.op("where", counts, share, zero), device=self.device)
    count = g.reduce(shares, "sum", dims, False)
    if reduction == _MEAN:
        total = TensorValue((), self.dtype, ops.op("div", total.node, count.node), device=self.device)
    return total, count


# ---------------------------------------------------------------- binary cross-entropy
_LEAST_LOGARITHM = -100
_LEAST_VARIANCE = 9.999999960041972e-13  # eager has 1e-12 as a float32 for all dtypes


@register_lowering(aten.binary_cross_entropy.default)
def binary_cross_entropy(
    g: GraphLowering, self: TensorValue, target: TensorValue, weight: TensorValue | None = None, reduction: int = _MEAN
) -> Any:
    given = [t for t in (self, target, weight) if t is not None]
    if not _are_alike(given):
        return NotImplemented

    def make(x: _Math, y: _Math, *weights: _Math) -> _Math:
        lost = (y - 1) * (-x).f("log1p").at_least(_LEAST_LOGARITHM) - y * x.f("log").at_least(_LEAST_LOGARITHM)
        for operand, name in ((x, "input"), (y, "target")):
            lost = lost - _outside(g, operand, f"all elements of {name} should be between 0 and 1")
        return lost * weights[0] if weights else lost

    return reduced_loss(g, formula(g, make, *given), reduction, self.dtype)


def _outside(g: GraphLowering, x: _Math, message: str) -> _Math:
    """0 in the dtype of ``x``. Computing it reports elements of ``x`` that are no probabilities."""
    ops = g.ops
    is_probability = ops.op("and", (x >= 0).node, (x <= 1).node)
    wrong = ops.op("where", is_probability, ops.const(0, torch.int64), ops.const(1, torch.int64))
    return _Math(g, ops.cast(checked_place(g, wrong, 1, False, RuntimeError, message), x.node.dtype))


@register_lowering(aten.binary_cross_entropy_backward.default)
def binary_cross_entropy_backward(
    g: GraphLowering, grad_output: TensorValue, self: TensorValue, target: TensorValue,
    weight: TensorValue | None = None, reduction: int = _MEAN,
) -> Any:
    given = [t for t in (self, target, weight) if t is not None]
    if not _are_alike(given) or grad_output.dtype is not self.dtype or grad_output.shape not in ((), self.shape):
        return NotImplemented

    def make(d: _Math, x: _Math, y: _Math, *weights: _Math) -> _Math:
        gradient = d * (x - y) / ((1 - x) * x).at_least(_LEAST_VARIANCE)
        return gradient * weights[0] if weights else gradient

    gradient = formula(g, make, grad_output, *given)
    return divided_by(g, gradient, self.numel) if reduction == _MEAN else gradient


def _are_alike(operands: list[TensorValue]) -> bool:
    """Whether operands of a loss have one shape, and one dtype in which eager computes without rounding in between."""
    first = operands[0]
    return first.dtype in FLOAT and all((t.shape, t.dtype) == (first.shape, first.dtype) for t in operands)
