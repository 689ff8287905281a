"""Replaces sums whose terms are all zero except one by that term.

The gradient of a negative log likelihood is zero except at the target's class, ``where(classes == target, g, 0)``, and
the gradient of a softmax sums it over the classes. A loop over all classes would search for the known one.

Invariant: the result is the same as the loop's; in particular, a term of -0.0 gives 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.formulas import like
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.promotion import elementwise
from dynamo_lite.backends.inductor.lowering.values import TensorValue, shape_vars


def summed(g: GraphLowering, x: TensorValue, dims: Sequence[int], keepdim: bool) -> TensorValue:
    """The sum of ``x`` over ``dims``, in the dtype of ``x``; dimensions with only one nonzero term have no loop."""
    rest = []
    for d in dims:
        term = _only_term(g, x.node, shape_vars(x.shape)[d])
        if term is None:
            rest.append(d)
        else:
            x = TensorValue((*x.shape[:d], 1, *x.shape[d + 1:]), x.dtype, term, device=x.device)
    if len(rest) == len(dims):
        return g.reduce(x, "sum", dims, keepdim)
    if x.dtype.is_floating_point:
        x = elementwise(g, lambda a: g.ops.op("add", a, like(g.ops, a, 0)), x)  # for the zeros that the sum adds
    if rest:
        return g.reduce(x, "sum", dims, keepdim)
    if keepdim:
        return x
    shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    return TensorValue(shape, x.dtype, g.without_ones(x, dims), device=x.device)


def _only_term(g: GraphLowering, n: Node, along: ix.Index) -> Node | None:
    """The value of ``n`` at the only position along a loop where it may be nonzero, or 0 if that position is outside of
    the loop's range; None if no such position is known.

    Args:
        along: the index of the loop: its variable, or 0 for a dimension of size 1.
    """
    ops = g.ops
    if n.op == "cast" and n.args[0].dtype.is_floating_point:
        inner = _only_term(g, n.args[0], along)
        return None if inner is None else ops.cast(inner, n.dtype)
    (v, *_) = ix.free_vars(along) or (None,)
    if v is None or n.op != "where" or n.args[2].op != "const" or n.args[2].attr != 0 or v in n.args[1].vars:
        return None
    conditions = _conjunction(n.args[0])
    for at, condition in enumerate(conditions):
        others = [*conditions[:at], *conditions[at + 1:]]
        if condition.op != "eq" or any(v in other.vars for other in others):
            continue
        for position, place in (condition.args, condition.args[::-1]):
            if _counts(position, v) and v not in place.vars:
                first = ops.substitute(position, {v: 0})
                end = ops.substitute(position, {v: v.size})
                inside = ops.op("and", ops.op("ge", place, first), ops.op("lt", place, end))
                for other in others:
                    inside = ops.op("and", inside, other)
                return ops.op("where", inside, n.args[1], n.args[2])
    return None


def _counts(position: Node, v: ix.Var) -> bool:
    """Whether a node is an int64 index that grows by one with each iteration of the loop over ``v``."""
    return position.op == "index" and position.dtype is torch.int64 and ix.coefficient(position.attr, v) == 1


def _conjunction(condition: Node) -> list[Node]:
    """The operands of nested "and" nodes; a single one if the condition is not an "and"."""
    if condition.op != "and":
        return [condition]
    return [c for a in condition.args for c in _conjunction(a)]
