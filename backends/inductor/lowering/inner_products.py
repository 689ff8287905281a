"""Lowerings of products with a vector: dot, vdot, mv, addmv, and the cross product of vectors of three elements.

Each element is read once, so these products are bound by memory bandwidth. They are ordinary reductions, which fuse
with the operations around them. Matrix products are in ``products``.
"""

from __future__ import annotations

from typing import Any

import torch

from dynamo_lite.backends.inductor.ir.ops import FLOAT
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.joining import cat
from dynamo_lite.backends.inductor.lowering.products import scaled_sum
from dynamo_lite.backends.inductor.lowering.promotion import elementwise
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.lowering.views import part_of, wrap
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten


def _product(g: GraphLowering, x: TensorValue, vector: TensorValue) -> Any:
    """The product of ``x`` and a vector, summed over the last dimension."""
    if x.dtype not in FLOAT or vector.dtype is not x.dtype:
        return NotImplemented
    most = g.abilities.near_vector
    if not isinstance(x.numel, int) or x.numel == 0 or (most is not None and x.numel > most):
        return NotImplemented
    places = [0] if is_size(vector.shape[0], 1) else shape_vars(x.shape)[-1:]
    node = g.ops.op("mul", x.node, reindexed(g.ops, vector, places))
    return g.reduce(TensorValue(x.shape, x.dtype, node, device=x.device), "sum", (x.ndim - 1,), False)


@register_lowering(aten.dot.default)
def dot(g: GraphLowering, self: TensorValue, tensor: TensorValue) -> Any:
    return _product(g, self, tensor)


@register_lowering(aten.vdot.default)
def vdot(g: GraphLowering, self: TensorValue, other: TensorValue) -> Any:
    return _product(g, self, other)


@register_lowering(aten.mv.default)
def mv(g: GraphLowering, self: TensorValue, vec: TensorValue) -> Any:
    return _product(g, self, vec)


@register_lowering(aten.addmv.default)
def addmv(
    g: GraphLowering, self: TensorValue, mat: TensorValue, vec: TensorValue, beta: Number = 1, alpha: Number = 1
) -> Any:
    product = _product(g, mat, vec)
    return product if product is NotImplemented else scaled_sum(g, self, product, beta, alpha)


@register_lowering(aten.linalg_cross.default)
def linalg_cross(g: GraphLowering, self: TensorValue, other: TensorValue, *, dim: int = -1) -> Any:
    if self.dtype not in FLOAT or other.dtype is not self.dtype or self.ndim != other.ndim:
        return NotImplemented
    if is_size(self.numel, 0) or is_size(other.numel, 0):
        return NotImplemented
    at = wrap(dim, self.ndim)

    def element(k: int) -> TensorValue:
        (a, b), (c, d) = ([part_of(g, x, at, (k + n) % 3, 1) for x in (self, other)] for n in (1, 2))
        ops = g.ops
        return elementwise(g, lambda a, b, c, d: ops.op("sub", ops.op("mul", a, d), ops.op("mul", c, b)), a, b, c, d)

    return cat(g, [element(k) for k in range(3)], at)
