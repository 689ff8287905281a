"""Floats that are computed from symbolic sizes, such as the ratio of the number of elements to that number less one.

Invariant: a loop computes such a float in double precision, operation by operation, as Python does. It is accepted only
as an argument of operators that convert it by ``promotion.number``.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from dynamo_lite.symbols.nodes import FloatNode

aten = torch.ops.aten

OPERATIONS: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div", operator.neg: "neg",
    math.sqrt: "sqrt",
}  # fmt: skip
"""Operations of the loop IR, by the Python function that computes the same."""
_TAKE_THEM = frozenset({
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
    aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar,
})  # fmt: skip
"""Operators that accept such floats as their first or second argument."""


def are_for_the_library(node: torch.fx.Node) -> bool:
    """Whether a call has such floats among its arguments, and a loop cannot compute them or cannot take them there."""
    if not any(isinstance(a, torch.SymFloat) for a in (*node.args, *node.kwargs.values())):
        return False
    operands = [a for a in node.args[:2] if isinstance(a, torch.SymFloat)]
    others = [a for a in (*node.args[2:], *node.kwargs.values()) if isinstance(a, torch.SymFloat)]
    return bool(others) or node.target not in _TAKE_THEM or not all(_is_computable(a.node) for a in operands)


def _is_computable(x: Any) -> bool:
    """Whether the loop IR has all operations that a float is computed by."""
    if not isinstance(x, FloatNode) or x.function == "constant":
        return True
    return (x.function is float or x.function in OPERATIONS) and all(map(_is_computable, x.args))
