"""Lowering of the negative log likelihood: targets from memory select the scores, so that only those are computed."""

from __future__ import annotations

from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import FLOAT
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.indexing import place_of, prepare_source
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
