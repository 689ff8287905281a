"""Formulas on IR nodes that lowerings of several families share, with eager's own order of operations.

Each function takes the builder and nodes of one dtype, and returns a node of that dtype (``is_nan`` returns a boolean).

Invariant: a formula adds no rounding that eager does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dynamo_lite.backends.inductor.ir.nodes import Builder, Node
from dynamo_lite.backends.inductor.lowering.values import Number


def like(ops: Builder, x: Node, value: Number) -> Node:
    """A constant of the same dtype as ``x``."""
    return ops.const(value, x.dtype)


def reciprocal(ops: Builder, x: Node) -> Node:
    """``1 / x``."""
    return ops.op("div", like(ops, x, 1), x)


def rsqrt(ops: Builder, x: Node) -> Node:
    """``1 / sqrt(x)``, rounded twice as eager does."""
    return reciprocal(ops, ops.op("sqrt", x))


def sigmoid(ops: Builder, x: Node) -> Node:
    """``1 / (1 + exp(-x))``."""
    one = like(ops, x, 1)
    return ops.op("div", one, ops.op("add", one, ops.op("exp", ops.op("neg", x))))


def clamp_min(ops: Builder, x: Node, low: Node) -> Node:
    """``max(x, low)`` that keeps a NaN of x, and keeps x itself (and so its -0.0) where the two are equal."""
    return ops.op("where", ops.op("gt", low, x), low, x)


def clamp_max(ops: Builder, x: Node, high: Node) -> Node:
    """``min(x, high)`` that keeps a NaN of x, and keeps x itself where the two are equal."""
    return ops.op("where", ops.op("lt", high, x), high, x)


def is_nan(ops: Builder, x: Node) -> Node:
    """Whether x is NaN."""
    return ops.op("ne", x, x)


def sign(ops: Builder, x: Node) -> Node:
    """The sign of x as -1, 0 or 1; 0 for NaN."""
    zero, one = like(ops, x, 0), like(ops, x, 1)
    up = ops.op("where", ops.op("lt", zero, x), one, zero)
    return ops.op("sub", up, ops.op("where", ops.op("lt", x, zero), one, zero))


def remainder(ops: Builder, a: Node, b: Node) -> Node:
    """Python's ``%``, whose result has the sign of the divisor."""
    zero = like(ops, a, 0)
    m = ops.op("fmod" if a.dtype.is_floating_point else "tmod", a, b)
    wrong = ops.op("and", ops.op("ne", m, zero), ops.op("xor", ops.op("lt", b, zero), ops.op("lt", m, zero)))
    return ops.op("where", wrong, ops.op("add", m, b), m)


def floor_divide(ops: Builder, a: Node, b: Node, rounded: Callable[[Node], Node] = lambda x: x) -> Node:
    """Python's ``//``. ``rounded`` is applied to each intermediate result: for 16-bit operands eager rounds them to 16
    bits."""
    zero = like(ops, a, 0)
    if not a.dtype.is_floating_point:
        q = ops.op("tdiv", a, b)
        if not a.dtype.is_signed:
            return q
        inexact = ops.op("ne", ops.op("tmod", a, b), zero)
        down = ops.op("and", inexact, ops.op("xor", ops.op("lt", a, zero), ops.op("lt", b, zero)))
        return ops.op("where", down, ops.op("sub", q, like(ops, q, 1)), q)
    quotient = rounded(ops.op("div", a, b))
    m = rounded(ops.op("fmod", a, b))
    # Where the quotient overflows, eager's fmod is NaN.
    infinite = like(ops, a, math.inf)
    beyond = ops.op("and", ops.op("eq", ops.op("abs", quotient), infinite), ops.op("ne", ops.op("abs", a), infinite))
    div = rounded(ops.op("div", ops.op("where", beyond, a, rounded(ops.op("sub", a, m))), b))
    wrong = ops.op("and", ops.op("ne", m, zero), ops.op("xor", ops.op("lt", b, zero), ops.op("lt", m, zero)))
    div = ops.op("where", wrong, rounded(ops.op("sub", div, like(ops, a, 1))), div)
    low = ops.op("floor", div)
    far = ops.op("gt", rounded(ops.op("sub", div, low)), like(ops, a, 0.5))
    low = ops.op("where", far, rounded(ops.op("add", low, like(ops, a, 1))), low)
    result = ops.op("where", ops.op("ne", div, zero), low, ops.op("copysign", zero, quotient))
    return ops.op("where", ops.op("eq", b, zero), quotient, result)


def power(ops: Builder, x: Node, exponent: Number) -> Node:
    """``pow(x, exponent)``, with the special cases that eager has for small exponents."""
    if not x.dtype.is_floating_point:
        result = like(ops, x, 1)
        base, n = x, int(exponent)
        while n:
            if n & 1:
                result = base if result.op == "const" else ops.op("mul", result, base)
            n >>= 1
            if n:
                base = ops.op("mul", base, base)
        return result
    if exponent == 0.5:
        return ops.op("sqrt", x)
    if exponent == -0.5:
        return rsqrt(ops, x)
    if exponent == 1:
        return x
    if exponent == 0:
        return like(ops, x, 1)
    if exponent == -1:
        return reciprocal(ops, x)
    if exponent in (2, -2):
        square = ops.op("mul", x, x)
        return square if exponent == 2 else reciprocal(ops, square)
    if exponent == 3:
        return ops.op("mul", ops.op("mul", x, x), x)
    return ops.op("pow", x, like(ops, x, exponent))
