"""The operations of loop bodies: a table with one row per operation, the only place that lists them.

A row gives the number of operands, the rule for the result's dtype, the supported dtypes, the approximate cost, and the
semantics as a plain torch function, which the interpreter runs and which generated code is tested against. All operands
of an operation have the same dtype (except ``where``'s condition); type promotion and rounding are explicit ``cast``
nodes, which the lowerings insert.

bfloat16 and float16 values are only moved, selected, negated, compared and cast. Arithmetic on them is expressed as
casts around float32 operations, so that it rounds where eager rounds.

Invariant: the operation of a node is a row of this table or one of ``SPECIAL``, which ``nodes.Builder`` makes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

FLOAT = frozenset({torch.float32, torch.float64})
HALF = frozenset({torch.bfloat16, torch.float16})
INT = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
BOOL = frozenset({torch.bool})
NUMBER = FLOAT | INT
ANY = NUMBER | HALF | BOOL

CHEAP, MEDIUM, DEAR = 1, 4, 20


@dataclasses.dataclass(frozen=True, slots=True)
class OpInfo:
    """One operation. ``result`` is the rule for its dtype: "same" (as the operands') or "bool"; ``cost`` is in units of
    an addition."""

    name: str
    arity: int
    dtypes: frozenset[torch.dtype]
    reference: Callable[..., Any]
    result: str = "same"
    cost: int = CHEAP


OPS: dict[str, OpInfo] = {}


def _op(
    name: str,
    arity: int,
    dtypes: frozenset[torch.dtype],
    reference: Callable[..., Any],
    *,
    result: str = "same",
    cost: int = CHEAP,
) -> None:
    OPS[name] = OpInfo(name, arity, dtypes, reference, result, cost)


# ---------------------------------------------------------------- arithmetic
_op("add", 2, NUMBER, torch.add)
_op("sub", 2, NUMBER, torch.sub)
_op("mul", 2, NUMBER, torch.mul)
_op("div", 2, FLOAT, torch.true_divide, cost=MEDIUM)
_op("fma", 3, FLOAT, lambda a, b, c: torch.add(c.double(), a.double() * b.double()).to(a.dtype), cost=CHEAP)
_op("neg", 1, NUMBER | HALF, torch.neg)
_op("abs", 1, NUMBER | HALF, torch.abs)
# Integer division and remainder of C, which round towards zero. The divisor is never 0 (lowerings use constants only).
_op("tdiv", 2, INT, lambda a, b: torch.div(a, b, rounding_mode="trunc"), cost=DEAR)
_op("tmod", 2, INT, torch.fmod, cost=DEAR)
# The result is NaN if either operand is, as in torch.
_op("maximum", 2, NUMBER | HALF, torch.maximum)
_op("minimum", 2, NUMBER | HALF, torch.minimum)

# ---------------------------------------------------------------- bitwise operations; on bool, logical ones
_op("and", 2, INT | BOOL, torch.bitwise_and)
_op("or", 2, INT | BOOL, torch.bitwise_or)
_op("xor", 2, INT | BOOL, torch.bitwise_xor)
_op("not", 1, INT | BOOL, torch.bitwise_not)
_op("shl", 2, INT, torch.bitwise_left_shift)
_op("shr", 2, INT, torch.bitwise_right_shift)

# ---------------------------------------------------------------- comparison and choice
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _op(_name, 2, ANY, getattr(torch, _name), result="bool")
_op("where", 3, ANY, torch.where)

# ---------------------------------------------------------------- rounding
for _name in ("floor", "ceil", "trunc", "round"):
    _op(_name, 1, FLOAT, getattr(torch, _name))

# ---------------------------------------------------------------- functions
_op("sqrt", 1, FLOAT, torch.sqrt, cost=MEDIUM)
for _name in (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
):
    _op(_name, 1, FLOAT, getattr(torch, _name), cost=DEAR)
_op("erf_plus_one", 1, FLOAT, lambda x: torch.erfc(-x), cost=DEAR)
_op("lgamma", 1, FLOAT, torch.lgamma, cost=DEAR)


def philox(counter: Any, stream: Any, key: Any, lane: Any) -> Any:
    """One of the four 32-bit numbers that Philox4x32-10 (Salmon et al. 2011) generates from a 128-bit counter.

    Args:
        counter, stream: the low and the high 64 bits of the counter.
        key: the 64-bit key.
        lane: number of the result, 0 to 3.
    """
    low = 0xFFFFFFFF
    a, b, c, d = counter & low, counter >> 32 & low, stream & low, stream >> 32 & low
    first, second = key & low, key >> 32 & low
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = right >> 32 & low ^ b ^ first, right & low, left >> 32 & low ^ d ^ second, left & low
        first, second = first + 0x9E3779B9 & low, second + 0xBB67AE85 & low
    return torch.where(lane < 2, torch.where(lane == 0, a, b), torch.where(lane == 2, c, d))


# Only targets with ``Abilities.random`` can generate code for this operation.
_op("philox", 4, frozenset({torch.int64}), philox, cost=3 * DEAR)
for _name in ("pow", "atan2", "fmod", "hypot", "copysign", "nextafter"):
    _op(_name, 2, FLOAT, getattr(torch, _name), cost=CHEAP if _name == "copysign" else DEAR)

# Operations outside the table. Those of LEAVES take no operands except the nodes of indirect indices.
LEAVES = frozenset({"load", "const", "index", "inside", "acc"})
SPECIAL = LEAVES | {"cast", "bounded", "update"}

# ---------------------------------------------------------------- reductions
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": torch.sum,
    "prod": torch.prod,
    "max": torch.amax,
    "min": torch.amin,
    "any": torch.any,
    "all": torch.all,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
}
# The binary operation that combines two partial results of a reduction, for reductions that have one.
JOINS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
