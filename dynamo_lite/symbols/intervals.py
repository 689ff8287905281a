"""Interval arithmetic: lower and upper bounds of expressions from the limits of their symbols.

Invariant: bounds are exact integers or infinite. A finite float would round a number that is compared with 0.
"""
from __future__ import annotations

import functools
import math

from . import integers as ints
from .integers import Atom, Expr, FloorDiv, Index, Mod, Sym

Interval = tuple[float, float]


class Intervals:
    """Computes the lowest and the highest value of expressions.

    Attributes:
        limits: the lowest and the highest value of each symbol.
    """

    def __init__(self) -> None:
        self.limits: dict[Sym, tuple[int, int]] = {}

    def shifted(self, x: Expr) -> Interval:
        """Bounds of an expression, computed after each atom has been rewritten as its lowest value plus its excess over
        that. This shows that ``s * t - s`` is positive if both symbols are at least 2."""
        shifts: dict[Atom, Index] = {}
        tops: dict[Atom, float] = {}
        for monomial in x.terms:
            for a in monomial:
                low, high = self._of_atom(a)
                if not isinstance(low, int):
                    return self.of(x)
                shifts[a] = ints.add(ints.atom(a), low)
                tops[a] = _plus(high, -low)
        shifted = ints.replace(x, shifts.get)
        if isinstance(shifted, int):
            return shifted, shifted
        lowest: float = shifted.const
        highest: float = shifted.const
        for monomial, k in shifted.terms.items():
            factors: tuple[float, ...] = (k, *(tops.get(a, math.inf) for a in monomial))
            end = functools.reduce(_times, factors)
            lowest, highest = _plus(lowest, min(end, 0)), _plus(highest, max(end, 0))
        return lowest, highest

    def of(self, x: Index) -> Interval:
        """Bounds of an expression, added up term by term."""
        if isinstance(x, int):
            return x, x
        low: float = x.const
        high: float = x.const
        for monomial, k in x.terms.items():
            bounds = self._of_monomial(monomial)
            ends = (_times(k, bounds[0]), _times(k, bounds[1]))
            low, high = _plus(low, min(ends)), _plus(high, max(ends))
        return low, high

    def _of_monomial(self, monomial: tuple[Atom, ...]) -> Interval:
        low: float = 1
        high: float = 1
        for a in monomial:
            bounds = self._of_atom(a)
            ends = [_times(x, y) for x in (low, high) for y in bounds]
            low, high = min(ends), max(ends)
        return low, high

    def _of_atom(self, a: Atom) -> Interval:
        if isinstance(a, Sym):
            return self.limits.get(a, (a.lower, math.inf))
        if isinstance(a, Mod):
            return 0, max(_plus(self.of(a.divisor)[1], -1), 0)
        if isinstance(a, FloorDiv):
            low, high = self.of(a.expr)
            least, most = self.of(a.divisor)
            if least < 1:
                return -math.inf, math.inf
            return (_quotient(low, least if low < 0 else most), _quotient(high, least if high >= 0 else most))
        return -math.inf, math.inf


def _plus(a: float, b: float) -> float:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b if isinstance(a, int) else a


def _times(a: float, b: float) -> float:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return 0 if a == 0 or b == 0 else math.inf if (a > 0) == (b > 0) else -math.inf


def _quotient(a: float, b: float) -> float:
    if not isinstance(a, int):
        return a
    if not isinstance(b, int):
        return 0 if a >= 0 else -1
    return a // b
