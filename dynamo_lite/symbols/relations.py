"""Conditions on integers: comparisons with zero, and what is made of them by "and", "or" and "not".

Invariant: a ``Relation`` is never decided by its expression alone (:func:`relation` gives a bool then), and two that
say the same of an affine expression are equal.
"""
from __future__ import annotations

import math
from typing import NamedTuple, Union

from . import integers as ints
from .integers import Division, Expr, Index, Sym

# What a guard computes of a condition, written out: numbers, symbols and operations, and how many values are on its
# stack at once (csrc/guards/sizes.c). 512 take about a microsecond, as much as all guards of a small model.
MOST_CODES, MOST_ON_STACK = 512, 32


def is_short(x: Index, share: int = 1) -> bool:
    """Whether a guard can compute it, or one of so many parts of a condition. Written out, ``n // (n + 1) + n`` doubles
    each time that a loop assigns it to ``n``."""
    return _codes(x, 0, MOST_CODES // share, MOST_ON_STACK // share) <= MOST_CODES // share


def _codes(x: Index, below: int, most: int, stack: int) -> int:
    """How many codes compute it on a stack with `below` values; more than `most` where it does not fit."""
    if isinstance(x, int) or below >= stack:
        return 1 if below < stack else most + 1
    codes = 2 if x.const else 0
    for summand, (monomial, k) in enumerate(x.terms.items()):
        held = below + (summand > 0)
        factors = 1 if k != 1 else 0
        codes += factors + (summand > 0)
        for a in monomial:
            at = held + (factors > 0)
            if isinstance(a, Division):
                codes += 1 + _codes(a.expr, at, most, stack) + (
                    _codes(a.divisor, at + 1, most, stack) if codes <= most else 0)
            else:
                codes += 1 if at < stack else most + 1
            codes += factors > 0
            factors += 1
            if codes > most:
                return codes
    return codes if not x.const or below + 1 < stack else most + 1


class Relation(NamedTuple):
    """``expr == 0``, ``expr != 0`` or ``expr >= 0``; `op` says which."""

    op: str
    expr: Expr

    def __str__(self) -> str:
        return f"{self.expr} {self.op} 0"

    def negated(self) -> Condition:
        """What holds where this does not."""
        if self.op == ">=":
            return relation(">=", ints.add(ints.mul(self.expr, -1), -1))
        return Relation("!=" if self.op == "==" else "==", self.expr)

    def holds(self, value: int) -> bool:
        """Whether it holds where the expression has this value."""
        return value >= 0 if self.op == ">=" else (value == 0) == (self.op == "==")


class Compound(NamedTuple):
    """Conditions of which all have to hold (`op` "and"), or one ("or")."""

    op: str
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f" {self.op} ".join(f"({part})" for part in self.parts)

    def negated(self) -> Condition:
        """What holds where this does not."""
        return compound("or" if self.op == "and" else "and", *map(negated, self.parts))


Condition = Union[bool, Relation, Compound]


def relation(op: str, x: Index) -> Condition:
    """``x op 0``; a bool where that is known of ``x`` itself."""
    if isinstance(x, int):
        return x >= 0 if op == ">=" else (x == 0) == (op == "==")
    x = _without_common_factors(x)
    divisor = math.gcd(*x.terms.values())
    if x.const % divisor and op != ">=":
        return op == "!="
    if divisor > 1:
        x = Expr({m: k // divisor for m, k in x.terms.items()}, x.const // divisor)
    if op != ">=" and next(iter(x.terms.values())) < 0:
        x = Expr({m: -k for m, k in x.terms.items()}, -x.const)
    return Relation(op, x)


def _without_common_factors(x: Expr) -> Expr:
    """What remains of ``s*t - 4*s``: symbols that are positive say nothing about its sign."""
    if x.const:
        return x
    first, *others = x.terms
    for a in first:
        if isinstance(a, Sym) and a.lower > 0 and all(a in m for m in others):
            rest = ints.floordiv(x, ints.atom(a))
            if isinstance(rest, Expr):
                return _without_common_factors(rest)
    return x


def compare(op: str, a: Index, b: Index) -> Condition:
    """``a op b`` for Python's comparisons."""
    if op in ("<", ">="):
        found = relation(">=", ints.add(a, ints.mul(b, -1)))
    elif op in (">", "<="):
        found = relation(">=", ints.add(b, ints.mul(a, -1)))
    else:
        return relation(op, ints.add(a, ints.mul(b, -1)))
    return found if op in (">=", "<=") else negated(found)


def negated(condition: Condition) -> Condition:
    """What holds where the condition does not."""
    return not condition if isinstance(condition, bool) else condition.negated()


def compound(op: str, *parts: Condition) -> Condition:
    """All of some conditions, or one of them."""
    decides = op == "or"
    kept: list[Condition] = []
    for part in parts:
        if isinstance(part, bool):
            if part is decides:
                return decides
        elif isinstance(part, Compound) and part.op == op:
            kept += [p for p in part.parts if p not in kept]
        elif part not in kept:
            kept.append(part)
    if not kept:
        return not decides
    return kept[0] if len(kept) == 1 else Compound(op, tuple(kept))
