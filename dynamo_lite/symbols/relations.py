"""Conditions on integers: comparisons with zero, and their combinations by "and", "or" and "not".

Invariants: a ``Relation`` is never decided by its expression alone (:func:`relation` returns a bool in that case), and
two relations that say the same about an affine expression are equal.
"""
from __future__ import annotations

import math
from typing import NamedTuple, Union

from . import integers as ints
from .integers import Division, Expr, Index, Sym

# Limits of a condition's postfix code in the guard program (csrc/guards/sizes.c): number of codes (numbers, symbols and
# operations), and depth of the stack. 512 codes take about a microsecond, as long as all guards of a small model.
MOST_CODES, MOST_ON_STACK = 512, 32


def is_short(x: Index, share: int = 1) -> bool:
    """Whether a guard can compute an expression, or each of `share` parts of a condition. As postfix code,
    ``n // (n + 1) + n`` doubles its length each time that a loop assigns it to ``n``."""
    return _codes(x, 0, MOST_CODES // share, MOST_ON_STACK // share) <= MOST_CODES // share


def _codes(x: Index, below: int, most: int, stack: int) -> int:
    """Number of codes that compute `x` on a stack that holds `below` values; more than `most` if `x` does not fit."""
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
        """The condition that holds exactly where this one does not."""
        if self.op == ">=":
            return relation(">=", ints.add(ints.mul(self.expr, -1), -1))
        return Relation("!=" if self.op == "==" else "==", self.expr)

    def holds(self, value: int) -> bool:
        """Whether the relation holds if its expression has this value."""
        return value >= 0 if self.op == ">=" else (value == 0) == (self.op == "==")


class Compound(NamedTuple):
    """A conjunction (`op` "and") or disjunction ("or") of conditions."""

    op: str
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f" {self.op} ".join(f"({part})" for part in self.parts)

    def negated(self) -> Condition:
        """The condition that holds exactly where this one does not."""
        return compound("or" if self.op == "and" else "and", *map(negated, self.parts))


Condition = Union[bool, Relation, Compound]


def relation(op: str, x: Index) -> Condition:
    """The condition ``x op 0``; a bool if ``x`` alone decides it."""
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
    """Divides out positive symbols, which have no influence on the sign: ``s*t - 4*s`` becomes ``t - 4``."""
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
    """The condition ``a op b``, where `op` is one of Python's comparisons."""
    if op in ("<", ">="):
        found = relation(">=", ints.add(a, ints.mul(b, -1)))
    elif op in (">", "<="):
        found = relation(">=", ints.add(b, ints.mul(a, -1)))
    else:
        return relation(op, ints.add(a, ints.mul(b, -1)))
    return found if op in (">=", "<=") else negated(found)


def negated(condition: Condition) -> Condition:
    """The condition that holds exactly where `condition` does not."""
    return not condition if isinstance(condition, bool) else condition.negated()


def compound(op: str, *parts: Condition) -> Condition:
    """The conjunction or disjunction of some conditions."""
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
