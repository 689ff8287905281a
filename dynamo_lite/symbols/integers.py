"""Integer arithmetic over symbols: sizes and, in the back end, loop variables.

A value is an int or an immutable ``Expr``: a polynomial with integer coefficients over atoms. Atoms are symbols
(``Sym``), divisions (``FloorDiv``, ``Mod``), over which multiplication does not distribute, and the classes that other
modules derive from :class:`Atom`. All functions here take and return ``int | Expr``.

Invariants: an ``Expr`` is never constant (a constant is an int), has no zero coefficient, and is simplified when it
is made, so that equal values of affine form compare equal. ``//`` and ``%`` round down, as Python's do; every
simplification holds for negative values, too, as long as the divisor is positive.

These are polynomials of our own because importing sympy takes longer than the rest of a first call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Union

from .atoms import Atom

Index = Union[int, "Expr"]
Monomial = tuple[Atom, ...]


class Sym(Atom):
    """An integer that is known when the program runs, such as a size. A guard ensures that it is at least ``lower``."""

    __slots__ = ("name", "lower")

    def __init__(self, name: str, lower: int = 2):
        super().__init__(("s", name))
        self.name = name
        self.lower = lower

    def __str__(self) -> str:
        return self.name

    def bounds(self) -> tuple[Index, Index] | None:
        return atom(self), atom(self)

    def least(self) -> int | None:
        return self.lower


class Division(Atom):
    """The result of dividing `expr` by `divisor`, at least one of which is not an int.

    Attributes:
        of: the operation on ints, or on arrays of ints.
    """

    __slots__ = ("expr", "divisor")
    sign: ClassVar[str]
    of: ClassVar[Any]

    def __init__(self, expr: Index, divisor: Index):
        super().__init__((self.sign, expr, divisor))
        self.expr = expr
        self.divisor = divisor

    def __str__(self) -> str:
        return f"({_paren(self.expr)} {self.sign} {_paren(self.divisor)})"

    @staticmethod
    def made(x: Index, divisor: Index) -> Index:
        """The result of the operation on indices, simplified."""
        raise NotImplementedError


class FloorDiv(Division):
    """A quotient, rounded down."""

    __slots__ = ()
    sign = "//"
    of = staticmethod(operator.floordiv)

    @staticmethod
    def made(x: Index, divisor: Index) -> Index:
        return floordiv(x, divisor)

    def bounds(self) -> tuple[Index, Index] | None:
        inner = value_range(self.expr)
        if inner is None:
            return None
        if isinstance(self.divisor, int):
            low, high = inner if self.divisor > 0 else inner[::-1]
            return floordiv(low, self.divisor), floordiv(high, self.divisor)
        quotient, rest = _split(inner[1], self.divisor)
        if _maybe_negative(inner[0]) or not isinstance(rest, int) or not always_positive(self.divisor):
            return None
        if rest < 0 and not _maybe_negative(add(self.divisor, rest)):
            return 0, add(quotient, -1)
        return (0, quotient) if fits(rest, self.divisor) else None

    def least(self) -> int | None:
        low = _least(self.expr)
        if low is None or not always_positive(self.divisor):
            return None
        return low // self.divisor if isinstance(self.divisor, int) else min(low, 0)


class Mod(Division):
    """A remainder."""

    __slots__ = ()
    sign = "%"
    of = staticmethod(operator.mod)

    @staticmethod
    def made(x: Index, divisor: Index) -> Index:
        return mod(x, divisor)

    def bounds(self) -> tuple[Index, Index] | None:
        return (0, add(self.divisor, -1)) if not isinstance(self.divisor, int) or self.divisor > 0 else None

    def least(self) -> int | None:
        return 0 if always_positive(self.divisor) else None


class Expr:
    """``const + sum(coefficient * product of atoms)``. Instances are made by the functions and operators of this
    module, not directly."""

    __slots__ = ("terms", "const", "_hash")

    def __init__(self, terms: dict[Monomial, int], const: int):
        self.terms = terms
        self.const = const
        self._hash = hash((const, frozenset(terms.items())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Expr)
            and self._hash == other._hash
            and self.const == other.const
            and self.terms == other.terms
        )

    def __str__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms.items():
            product = "*".join(map(str, monomial))
            parts.append(product if coefficient == 1 else f"{coefficient}*{product}")
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)

    __repr__ = __str__

    def __add__(self, other: Index) -> Index:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Index) -> Index:
        return add(self, mul(other, -1))

    def __rsub__(self, other: Index) -> Index:
        return add(other, mul(self, -1))

    def __mul__(self, other: Index) -> Index:
        return mul(self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Index:
        return mul(self, -1)

    def __floordiv__(self, other: Index) -> Index:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Index) -> Index:
        return floordiv(other, self)

    def __mod__(self, other: Index) -> Index:
        return mod(self, other)

    def __rmod__(self, other: Index) -> Index:
        return mod(other, self)


def _paren(value: Index) -> str:
    return str(value) if isinstance(value, int) else f"({value})"


def atom(value: Atom) -> Expr:
    return Expr({(value,): 1}, 0)


def polynomial(terms: dict[Monomial, int], const: int) -> Index:
    if not terms:
        return const
    if len(terms) > 1 or const:
        for monomial in terms:
            if type(monomial[-1]) is Mod or type(monomial[0]) is Mod:
                return _join_mods(terms, const)
    return Expr(terms, const)


def _join_mods(terms: dict[Monomial, int], const: int) -> Index:
    """Combines remainders with other terms: ``c*(x % d) + c*d*(x // d)`` is ``c*x``, ``c*(x % d) - c*x`` is
    ``-c*d*(x // d)``, and ``c*(x % a) + c*a*((x // a) % b)`` is ``c*(x % (a*b))``."""
    for monomial, c in terms.items():
        for at, part in enumerate(monomial):
            if type(part) is not Mod:
                continue
            rest = monomial[:at] + monomial[at + 1 :]
            rest_terms: Index = Expr({rest: 1}, 0) if rest else 1
            high = mul(mul(floordiv(part.expr, part.divisor), part.divisor), mul(rest_terms, c))
            if isinstance(high, Expr) and all(terms.get(m) == k for m, k in high.terms.items()) and not high.const:
                left = {m: k for m, k in terms.items() if m != monomial and m not in high.terms}
                return add(polynomial(left, const), mul(mul(part.expr, rest_terms), c))
            whole = mul(mul(part.expr, rest_terms), c)
            if isinstance(whole, Expr) and all(terms.get(m) == -k for m, k in whole.terms.items()):
                left = {m: k for m, k in terms.items() if m != monomial and m not in whole.terms}
                return add(add(polynomial(left, const), whole.const), mul(high, -1))
            if not isinstance(part.divisor, int) or rest:
                continue
            quotient = floordiv(part.expr, part.divisor)
            for other, k in terms.items():
                top = other[0]
                if (len(other) == 1 and type(top) is Mod and k == c * part.divisor and top.expr == quotient
                        and isinstance(top.divisor, int)):
                    left = {m: n for m, n in terms.items() if m != monomial and m != other}
                    return add(polynomial(left, const), mul(mod(part.expr, part.divisor * top.divisor), c))
    return Expr(terms, const)


def add(a: Index, b: Index) -> Index:
    if isinstance(a, int):
        if isinstance(b, int):
            return a + b
        a, b = b, a
    if isinstance(b, int):
        return Expr(a.terms, a.const + b) if b else a
    if len(a.terms) < len(b.terms):
        a, b = b, a
    terms = dict(a.terms)
    for monomial, coefficient in b.terms.items():
        total = terms.get(monomial, 0) + coefficient
        if total:
            terms[monomial] = total
        else:
            del terms[monomial]
    return polynomial(terms, a.const + b.const)


def mul(a: Index, b: Index) -> Index:
    if isinstance(a, int):
        if isinstance(b, int):
            return a * b
        a, b = b, a
    if isinstance(b, int):
        if b == 1:
            return a
        return Expr({m: c * b for m, c in a.terms.items()}, a.const * b) if b else 0
    total: Index = a.const * b.const
    if a.const:
        total = add(total, Expr({m: c * a.const for m, c in b.terms.items()}, 0))
    if b.const:
        total = add(total, Expr({m: c * b.const for m, c in a.terms.items()}, 0))
    products: dict[Monomial, int] = {}
    for m, c in a.terms.items():
        for n, d in b.terms.items():
            key = tuple(sorted(m + n, key=_order))
            products[key] = products.get(key, 0) + c * d
    return add(total, polynomial({m: c for m, c in products.items() if c}, 0))


def _order(value: Atom) -> str:
    return repr(value.key)


def sum_of(parts: Iterable[Index]) -> Index:
    total: Index = 0
    for part in parts:
        total = add(total, part)
    return total


def product(parts: Iterable[Index]) -> Index:
    total: Index = 1
    for part in parts:
        total = mul(total, part)
    return total


# ---------------------------------------------------------------- division
def _divide_exactly(monomial: Monomial, coefficient: int, divisor: Index) -> tuple[Monomial, int] | None:
    """``coefficient * monomial / divisor`` if there is no remainder, else None."""
    if isinstance(divisor, int):
        return (monomial, coefficient // divisor) if coefficient % divisor == 0 else None
    if len(divisor.terms) != 1 or divisor.const:
        return None
    ((factors, k),) = divisor.terms.items()
    if coefficient % k:
        return None
    rest = list(monomial)
    for factor in factors:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest), coefficient // k


def _split(x: Index, divisor: Index) -> tuple[Index, Index]:
    """``(q, r)`` with ``x == q*divisor + r``, where ``q`` has all terms that are divisible."""
    if isinstance(x, int):
        return divmod(x, divisor) if isinstance(divisor, int) else (0, x)
    quotient: Index = 0
    remainder: dict[Monomial, int] = {}
    for monomial, coefficient in x.terms.items():
        whole = _divide_exactly(monomial, coefficient, divisor)
        if whole is None:
            remainder[monomial] = coefficient
        else:
            quotient = add(quotient, Expr({whole[0]: whole[1]}, 0) if whole[0] else whole[1])
    const = x.const
    if isinstance(divisor, int):
        quotient = add(quotient, const // divisor)
        const %= divisor
    return quotient, polynomial(remainder, const)


def fits(r: Index, divisor: Index) -> bool:
    """Whether ``0 <= r < divisor`` certainly holds."""
    if isinstance(r, int):
        return (
            r == 0 or (isinstance(divisor, int) and 0 <= r < divisor) or (r > 0 and always_positive(add(divisor, -r)))
        )
    if isinstance(divisor, int) and _grows(r):
        return False
    bounds = value_range(r)
    if bounds is None:
        return False
    low, high = bounds
    return not _maybe_negative(low) and always_positive(add(divisor, mul(high, -1)))


def _grows(x: Index) -> bool:
    """Whether `x` grows without bound in its symbols. Avoids bounds, which take long to find for nested quotients."""
    return isinstance(x, Expr) and all(k > 0 for k in x.terms.values()) and all(
        isinstance(a, Sym) and a.lower >= 0 or isinstance(a, FloorDiv) and isinstance(a.divisor, int)
        and a.divisor > 0 and _grows(a.expr) for monomial in x.terms for a in monomial)


def never_negative(x: Index) -> bool:
    """Whether ``x >= 0`` certainly holds."""
    if (least := _least(x)) is not None and least >= 0:
        return True
    bounds = value_range(x)
    return bounds is not None and not _maybe_negative(bounds[0])


def _maybe_negative(x: Index) -> bool:
    return x < 0 if isinstance(x, int) else not always_positive(add(x, 1))


def always_positive(x: Index) -> bool:
    """Whether ``x > 0`` certainly holds, given the lower bounds of the symbols."""
    least = _least(x)
    return least is not None and least > 0


def _least(x: Index) -> int | None:
    """An int that is a lower bound of `x`, or None if none is known."""
    if isinstance(x, int):
        return x
    total = x.const
    for monomial, coefficient in x.terms.items():
        lowest = [low for a in monomial if (low := a.least()) is not None]
        if len(lowest) < len(monomial) or coefficient < 0 or len(lowest) > 1 and min(lowest) < 0:
            return _least_above(x)
        total += coefficient * math.prod(lowest)
    return total


def _least_above(x: Expr) -> int | None:
    """A lower bound of a difference: each symbol is rewritten as its lower bound plus its excess over that; if then no
    coefficient is negative, the constant is a lower bound."""
    shifts: dict[Atom, Index] = {}
    for a in atoms_of(x):
        if not isinstance(a, Sym):
            return None
        shifts[a] = add(atom(a), a.lower)
    shifted = replace(x, shifts.get)
    if isinstance(shifted, int):
        return shifted
    return shifted.const if all(k >= 0 for k in shifted.terms.values()) else None


def floordiv(x: Index, divisor: Index) -> Index:
    if isinstance(divisor, int) and divisor == 1:
        return x
    if isinstance(x, int) and isinstance(divisor, int):
        return x // divisor
    quotient, rest = _split(x, divisor)
    if fits(rest, divisor):
        return quotient
    factored = _by_factor(rest, divisor)
    if factored is not None:
        return add(quotient, floordiv(factored[1], factored[3]))
    if isinstance(rest, Expr) and isinstance(divisor, int):
        steps = _in_steps(rest, divisor)
        if steps is not None:
            return add(quotient, floordiv(steps[1], divisor // steps[0]))
    return add(quotient, _quotient(rest, divisor))


def _quotient(rest: Index, divisor: Index) -> Index:
    """``rest // divisor``, where ``rest`` has no term that the divisor divides."""
    if isinstance(rest, int):
        return atom(FloorDiv(rest, divisor))
    if isinstance(divisor, int) and len(rest.terms) == 1 and not rest.const:
        ((monomial, coefficient),) = rest.terms.items()
        top = monomial[0]
        if len(monomial) == 1 and coefficient == 1 and isinstance(top, Division) and isinstance(top.divisor, int):
            if type(top) is FloorDiv:
                return floordiv(top.expr, top.divisor * divisor)
            if top.divisor % divisor == 0:
                return mod(floordiv(top.expr, divisor), top.divisor // divisor)
    if all(k < 0 for k in rest.terms.values()) and always_positive(divisor):
        # Rounding up, so that ``-(-n // 4)`` and ``(n + 3) // 4`` are equal; a nonnegative dividend stays nonnegative.
        return mul(floordiv(add(add(divisor, -1), mul(rest, -1)), divisor), -1)
    return atom(FloorDiv(rest, divisor))


def mod(x: Index, divisor: Index) -> Index:
    if isinstance(x, int) and isinstance(divisor, int):
        return x % divisor
    rest = _split(x, divisor)[1]
    if fits(rest, divisor):
        return rest
    factored = _by_factor(rest, divisor)
    if factored is not None:
        return add(mul(mod(factored[1], factored[3]), factored[0]), factored[2])
    if isinstance(rest, Expr) and isinstance(divisor, int):
        steps = _in_steps(rest, divisor)
        if steps is not None:
            return add(mul(mod(steps[1], divisor // steps[0]), steps[0]), steps[2])
    if isinstance(rest, Expr):
        plain = _without_mods(rest, divisor)
        if plain is not rest:
            return mod(plain, divisor)
    return atom(Mod(rest, divisor))


def _without_mods(x: Expr, divisor: Index) -> Index:
    """Removes a remainder, modulo `divisor`: ``k*(y % d)`` becomes ``k*y`` if the divisor divides ``k*d``."""
    for monomial, k in x.terms.items():
        for at, part in enumerate(monomial):
            if type(part) is Mod and _split(mul(part.divisor, k), divisor)[1] == 0:
                rest = monomial[:at] + monomial[at + 1 :]
                others = polynomial({m: c for m, c in x.terms.items() if m != monomial}, x.const)
                return add(others, mul(mul(part.expr, Expr({rest: 1}, 0) if rest else 1), k))
    return x


def _by_factor(x: Index, divisor: Index) -> tuple[Index, Index, Index, Index] | None:
    """``(g, y, r, d)`` with ``x == g*y + r``, ``0 <= r < g`` and ``divisor == g*d``, for a `divisor` that is no int."""
    if isinstance(x, int) or isinstance(divisor, int):
        return None
    factors: list[Index] = [k] if (k := math.gcd(divisor.const, *divisor.terms.values())) > 1 else []
    if len(divisor.terms) == 1 and not divisor.const:
        ((monomial, k),) = divisor.terms.items()
        factors += [atom(a) for a in monomial] if len(monomial) > 1 else []
        factors += {Expr({shared: math.gcd(k, c)}, 0): None for m, c in x.terms.items()
                    if (shared := _shared(m, monomial))}
    for g in factors:
        y, r = _split(x, g)
        if g != divisor and fits(r, g):
            d = _split(divisor, g)[0]
            if never_negative(g) or never_negative(d):  # as the divisor, their product, is positive, both are
                return g, y, r, d
    return None


def _shared(a: Monomial, b: Monomial) -> Monomial:
    """The atoms that two monomials have in common."""
    return tuple(part for at, part in enumerate(a) if a[:at].count(part) < b.count(part))


def _in_steps(x: Expr, divisor: int) -> tuple[int, Index, Index] | None:
    """``(g, y, r)`` with ``x == g*y + r``, ``0 <= r < g`` and ``g`` a factor of ``divisor``: ``r`` has no influence on
    ``x // divisor``."""
    for g in sorted({math.gcd(divisor, k) for k in x.terms.values()}, reverse=True):
        if g > 1:
            y, r = _split(x, g)
            if fits(r, g):
                return g, y, r
    return None


# ---------------------------------------------------------------- questions
def value_range(x: Index) -> tuple[Index, Index] | None:
    """Lower and upper bound, which need not be attained, or None if unknown."""
    if isinstance(x, int):
        return x, x
    low: Index = x.const
    high: Index = x.const
    for monomial, coefficient in x.terms.items():
        lo: Index = 1
        hi: Index = 1
        for a in monomial:
            bounds = a.bounds()
            if bounds is None or len(monomial) > 1 and _maybe_negative(bounds[0]):
                return None
            lo, hi = mul(lo, bounds[0]), mul(hi, bounds[1])
        if coefficient < 0:
            lo, hi = hi, lo
        low, high = add(low, mul(lo, coefficient)), add(high, mul(hi, coefficient))
    return low, high


def atoms_of(x: Index) -> Iterable[Atom]:
    """All atoms of a value, including those inside divisions."""
    if isinstance(x, Expr):
        for monomial in x.terms:
            for a in monomial:
                yield a
                if isinstance(a, Division):
                    yield from atoms_of(a.expr)
                    yield from atoms_of(a.divisor)


def symbols_of(x: Index) -> set[Sym]:
    """The symbols that a value is computed from."""
    return {a for a in atoms_of(x) if isinstance(a, Sym)}


def evaluate(x: Index, values: Callable[[Any], Any]) -> Any:
    """The value as a number, where ``values`` gives the number for each atom that is no division."""
    if isinstance(x, int):
        return x
    total: Any = x.const
    for monomial, k in x.terms.items():
        total = total + _evaluate_term(monomial, k, values)
    return total


def _evaluate_term(monomial: Monomial, k: int, values: Callable[[Any], Any]) -> Any:
    value: Any = k
    for a in monomial:
        if isinstance(a, Division):
            part = a.of(evaluate(a.expr, values), evaluate(a.divisor, values))
        else:
            part = values(a)
        value = value * part
    return value


def evaluate_size(x: Index, values: Callable[[Any], int]) -> int:
    """The sum of the absolute values of the terms, which bounds each term and each partial sum."""
    if isinstance(x, int):
        return abs(x)
    return abs(x.const) + sum(abs(_evaluate_term(monomial, k, values)) for monomial, k in x.terms.items())


def replace(x: Index, values: Callable[[Atom], Index | None]) -> Index:
    """The value after replacing atoms.

    Args:
        values: gives the replacement of an atom; None keeps the atom, or redoes a division whose parts were replaced.
    """
    if isinstance(x, int):
        return x
    total: Index = x.const
    kept: dict[Monomial, int] = {}
    for monomial, k in x.terms.items():
        parts = [_replaced(a, values) for a in monomial]
        if all(part is None for part in parts):
            kept[monomial] = k
            continue
        value: Index = k
        for a, part in zip(monomial, parts):
            value = mul(value, atom(a) if part is None else part)
        total = add(total, value)
    if len(kept) == len(x.terms):
        return x
    return add(total, polynomial(kept, 0)) if kept else total


def _replaced(a: Atom, values: Callable[[Atom], Index | None]) -> Index | None:
    """The replacement of an atom; None if the atom stays."""
    new = values(a)
    if new is None and isinstance(a, Division):
        expr, divisor = replace(a.expr, values), replace(a.divisor, values)
        if expr is not a.expr or divisor is not a.divisor:
            return a.made(expr, divisor)
    return new
