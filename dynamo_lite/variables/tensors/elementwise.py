"""Operations that compute each element of their result from the elements at the same place of their operands.

Invariant: an operation in these tables computes an element to the last bit in the same way wherever it lies in memory,
and may be computed for elements that the program does not ask for: it draws no random numbers. Operations whose kernels
treat the last elements of a row in another way (``sigmoid``, ``silu``, ``pow`` with most exponents) are not among them.
"""
from __future__ import annotations

import operator
from typing import Any

import torch

from ...continuation.deoptimize import is_of_torch

_OPERATORS: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div",
    operator.floordiv: "floor_divide", operator.mod: "remainder", operator.pow: "pow", operator.neg: "neg",
    operator.pos: "positive", operator.invert: "bitwise_not", operator.and_: "bitwise_and", operator.or_: "bitwise_or",
    operator.xor: "bitwise_xor", operator.lt: "lt", operator.le: "le", operator.eq: "eq", operator.ne: "ne",
    operator.gt: "gt", operator.ge: "ge", operator.iadd: "add_", operator.isub: "sub_", operator.imul: "mul_",
    operator.itruediv: "div_", operator.ifloordiv: "floor_divide_", operator.imod: "remainder_",
    operator.ipow: "pow_", operator.iand: "bitwise_and_", operator.ior: "bitwise_or_", operator.ixor: "bitwise_xor_",
}
# Operations by name, as functions of torch and as methods of tensors. With a "_" at the end they change their first
# operand.
_NAMES = frozenset({
    "add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "neg", "negative", "positive", "abs",
    "absolute", "sign", "sgn", "floor", "ceil", "round", "trunc", "fix", "frac", "sqrt", "square", "reciprocal", "exp",
    "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "erf", "erfc", "deg2rad", "rad2deg",
    "nan_to_num", "relu", "relu6", "hardtanh", "leaky_relu", "clamp", "clip", "clamp_min", "clamp_max", "minimum",
    "maximum", "fmin", "fmax", "isnan", "isinf", "isfinite", "signbit", "logical_not", "logical_and", "logical_or",
    "logical_xor", "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "lt", "less", "le", "less_equal", "eq",
    "ne", "not_equal", "gt", "greater", "ge", "greater_equal", "where",
})
# Of these the results are new tensors, or the operand itself where there is nothing to convert.
_CONVERSIONS = frozenset({"float", "double", "half", "bfloat16", "int", "long", "short", "bool", "to", "clone"})
# Integer divisions raise for a divisor of zero, which other elements may hold.
_DIVISIONS = frozenset({"floor_divide", "remainder", "fmod"})
_EXPONENTS = (2, 3, 2.0, 3.0)
_KEYWORDS = frozenset({"min", "max", "dtype", "negative_slope", "min_val", "max_val", "nan", "posinf", "neginf"})
# Functions of metadata, whose results do not depend on the number of elements.
_QUESTIONS = frozenset({"is_floating_point", "is_complex", "is_signed", "dim", "ndimension"})


def name_of(op: str, target: Any) -> str:
    """The name of a node's operation in these tables; "" where it is in none."""
    if op == "call_function":
        found = _OPERATORS.get(target) if target.__hash__ is not None else None
        if found is not None:
            return found
        if not is_of_torch(target):
            return ""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name if isinstance(name, str) else ""


def is_elementwise(name: str, dtype: torch.dtype, constants: list[Any], keywords: Any) -> bool:
    """Whether an operation of that name works element by element.

    Args:
        dtype: the dtype of the first operand.
        constants: the other positional arguments that are no tensors.
        keywords: the names of the named arguments.
    """
    if not _KEYWORDS.issuperset(keywords):
        return False
    if name in _QUESTIONS:
        return True
    if name in _CONVERSIONS:
        return all(isinstance(c, torch.dtype) for c in constants)
    name = name.removesuffix("_")
    if name in _DIVISIONS:
        return dtype.is_floating_point
    if name == "pow":
        return len(constants) == 1 and type(constants[0]) in (int, float) and constants[0] in _EXPONENTS
    return name in _NAMES


def changes_operand(name: str) -> bool:
    """Whether an elementwise operation of that name writes to its first operand."""
    return name.endswith("_")


def is_question(name: str) -> bool:
    return name in _QUESTIONS
