"""Type promotion and rounding: the dtypes of results, and the points at which elementwise operators round.

Eager computes an operator in the promoted dtype of its operands; it computes bfloat16 and float16 in float32, and
rounds once at the end of the operator. ``elementwise`` writes exactly these casts into the loop body, so that a fused
chain gives eager's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.size_floats import OPERATIONS
from dynamo_lite.backends.inductor.lowering.values import Number, TensorValue, broadcast_shapes, expanded
from dynamo_lite.symbols.nodes import FloatNode

Operand = Union[TensorValue, Number]


def _category(dtype: torch.dtype) -> int:
    """Rank of a dtype's category in type promotion: bool, integer, floating-point."""
    return 0 if dtype is torch.bool else 1 if not dtype.is_floating_point else 2


def result_type(operands: Sequence[Operand]) -> torch.dtype:
    """The promoted dtype, as ``torch.result_type`` computes it. Tensors with dimensions have priority over 0-dim
    tensors, and these over numbers, unless an operand of lower priority has a higher category."""
    ranked: list[torch.dtype | None] = [None, None, None]
    for x in operands:
        if isinstance(x, TensorValue):
            rank, dtype = (0 if x.ndim else 1), x.dtype
        elif isinstance(x, bool):
            rank, dtype = 2, torch.bool
        elif isinstance(x, (int, ix.Expr)):
            rank, dtype = 2, torch.int64
        else:
            rank, dtype = 2, torch.get_default_dtype()
        old = ranked[rank]
        ranked[rank] = dtype if old is None else torch.promote_types(old, dtype)
    best: torch.dtype | None = None
    for at, dtype_ in enumerate(ranked):
        if dtype_ is None:
            continue
        if best is None:
            best = dtype_
        elif _category(dtype_) > _category(best):
            best = dtype_ if at < 2 or _category(dtype_) != 2 else torch.get_default_dtype()
    assert best is not None
    return best


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which eager computes and accumulates: float32 for 16-bit floats."""
    return torch.float32 if dtype in HALF else dtype


def to_float(dtype: torch.dtype) -> torch.dtype:
    """The result's dtype of a function of real numbers (exp, true division)."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def number(g: GraphLowering, x: Any, dtype: torch.dtype) -> Node:
    """A node for a numeric argument: a constant, a symbolic size, or a float that is computed from sizes."""
    if isinstance(x, FloatNode):
        return g.ops.cast(_computed(g, x), dtype)
    return g.ops.cast(g.ops.index(x), dtype) if isinstance(x, ix.Expr) else g.ops.const(x, dtype)


def _computed(g: GraphLowering, x: FloatNode) -> Node:
    """A float64 node for a float that is computed from sizes."""
    if x.function == "constant":
        return g.ops.const(x.hint, torch.float64)
    args = [_computed(g, a) if isinstance(a, FloatNode) else number(g, a.expr, torch.float64) for a in x.args]
    return args[0] if x.function is float else g.ops.op(OPERATIONS[x.function], *args)


def operand(
    g: GraphLowering, x: Operand, dtype: torch.dtype, compute: torch.dtype, shape: Any, exact_scalar: bool
) -> Node:
    """One operand's element in the dtype of the computation, converted as TensorIterator would convert it.

    Args:
        dtype: the promoted dtype, to which the operand is rounded first.
        compute: dtype of the computation.
        shape: shape of the result.
        exact_scalar: whether a number or 0-dim tensor is not rounded to ``dtype`` first.
    """
    if not isinstance(x, TensorValue):
        if not exact_scalar and dtype is not compute:
            return g.ops.cast(g.ops.cast(number(g, x, torch.float64), dtype), compute)
        return number(g, x, compute)
    node = expanded(g.ops, x, shape)
    if exact_scalar and not x.ndim and x.dtype is not torch.float64:
        return g.ops.cast(node, compute)
    return g.ops.cast(g.ops.cast(node, dtype), compute)


def elementwise(
    g: GraphLowering,
    fn: Callable[..., Node],
    *operands: Operand,
    dtype: torch.dtype | None = None,
    result: torch.dtype | None = None,
    exact_scalar: bool = False,
) -> TensorValue:
    """Applies ``fn`` to the elements of the operands, which are broadcast against each other.

    Args:
        fn: function that takes a node for each operand in the computation's dtype, and returns the result's node.
        dtype: dtype to which the operands are converted; their promoted dtype if not given.
        result: the result's dtype; ``dtype`` if not given.
        exact_scalar: whether a number or 0-dim tensor as the last operand is not rounded to a 16-bit ``dtype`` first
            (as in eager's mul and div).
    """
    dtype = dtype or result_type(operands)
    compute = opmath(dtype)
    shape = broadcast_shapes(*[x.shape for x in operands if isinstance(x, TensorValue)])
    last = len(operands) - 1
    node = fn(*[operand(g, x, dtype, compute, shape, exact_scalar and at == last) for at, x in enumerate(operands)])
    result = result or dtype
    return TensorValue(shape, result, g.ops.cast(node, result))
