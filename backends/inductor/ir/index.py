"""Index arithmetic: which element of a buffer a loop body touches.

An index is an int or an immutable ``Expr``: a polynomial with integer coefficients over atoms. Atoms are loop variables
(``Var``), symbolic sizes (``Sym``), values read from memory (``Indirect``) and what doesn't distribute (``FloorDiv``,
``Mod``). Everything here takes and gives ``int | Expr``.

Invariants: an ``Expr`` is never constant (a constant is an int), has no zero coefficient, and is simplified when it is
made, so that equal indices of affine form compare equal. A ``Var`` knows its size and runs over ``range(size)``; a
dimension of size 1 has no variable, its index is 0. All values are non-negative where a division is concerned, so
``//`` and ``%`` have one meaning.

It is polynomials of our own because sympy takes longer than all the rest of a lowering. ``substitution`` replaces the
atoms of an index or computes its value; ``symbolic`` converts sizes from sympy and to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Union

Index = Union[int, "Expr"]
Monomial = tuple["Atom", ...]


class Atom:
    """What an index is a polynomial of. Equal by ``key``."""

    __slots__ = ("key", "_hash")

    def __init__(self, key: tuple[Any, ...]):
        self.key = key
        self._hash = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self._hash == other._hash and self.key == other.key)

    def __repr__(self) -> str:
        return str(self)


class Var(Atom):
    """A loop variable over ``range(size)``."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: Index):
        super().__init__(("v", name, size))
        self.name = name
        self.size = size

    def __str__(self) -> str:
        return self.name


class Sym(Atom):
    """A symbolic size; at least ``lower``, which its guard saw to."""

    __slots__ = ("name", "lower")

    def __init__(self, name: str, lower: int = 2):
        super().__init__(("s", name))
        self.name = name
        self.lower = lower

    def __str__(self) -> str:
        return self.name


class Indirect(Atom):
    """The integer that an IR node computes (an embedding's row), known to lie in ``range(size)``."""

    __slots__ = ("node", "size")

    def __init__(self, node: Any, size: Index):
        super().__init__(("i", node.id, size))
        self.node = node
        self.size = size

    def __str__(self) -> str:
        return f"[n{self.node.id}]"


class FloorDiv(Atom):
    __slots__ = ("expr", "divisor")

    def __init__(self, expr: Expr, divisor: Index):
        super().__init__(("/", expr, divisor))
        self.expr = expr
        self.divisor = divisor

    def __str__(self) -> str:
        return f"(({self.expr}) // {_paren(self.divisor)})"


class Mod(Atom):
    __slots__ = ("expr", "divisor")

    def __init__(self, expr: Expr, divisor: Index):
        super().__init__(("%", expr, divisor))
        self.expr = expr
        self.divisor = divisor

    def __str__(self) -> str:
        return f"(({self.expr}) % {_paren(self.divisor)})"


class Expr:
    """``const + sum(coefficient * product of atoms)``. Made by the functions of this module and by operators, not
    directly."""

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


def var(name: str, size: Index) -> Index:
    """The index of a loop over ``range(size)``; 0 if that is one iteration."""
    return 0 if isinstance(size, int) and size == 1 else atom(Var(name, size))


def polynomial(terms: dict[Monomial, int], const: int) -> Index:
    if not terms:
        return const
    if len(terms) > 1 or const:
        for monomial in terms:
            if type(monomial[-1]) is Mod or type(monomial[0]) is Mod:
                return _join_mods(terms, const)
    return Expr(terms, const)


def _join_mods(terms: dict[Monomial, int], const: int) -> Index:
    """``c*(x % d) + c*d*(x // d)`` is ``c*x``; ``c*(x % a) + c*a*((x // a) % b)`` is ``c*(x % (a*b))``."""
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
            if not isinstance(part.divisor, int) or rest:
                continue
            quotient = floordiv(part.expr, part.divisor)
            for other, k in terms.items():
                top = other[0]
                if (
                    len(other) == 1
                    and type(top) is Mod
                    and k == c * part.divisor
                    and top.expr == quotient
                    and isinstance(top.divisor, int)
                ):
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
    """``coefficient * monomial / divisor`` if that leaves nothing."""
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
    """``(q, r)`` with ``x == q*divisor + r``, all that divides in ``q``."""
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


def _fits(r: Index, divisor: Index) -> bool:
    """Whether ``0 <= r < divisor`` for certain."""
    if isinstance(r, int):
        return (
            r == 0 or (isinstance(divisor, int) and 0 <= r < divisor) or (r > 0 and always_positive(add(divisor, -r)))
        )
    bounds = value_range(r)
    if bounds is None:
        return False
    low, high = bounds
    return not _maybe_negative(low) and always_positive(add(divisor, mul(high, -1)))


def _maybe_negative(x: Index) -> bool:
    return x < 0 if isinstance(x, int) else not always_positive(add(x, 1))


def always_positive(x: Index) -> bool:
    """Whether ``x > 0`` for certain, knowing the lower bounds of symbols."""
    if isinstance(x, int):
        return x > 0
    total = x.const
    for monomial, coefficient in x.terms.items():
        if coefficient < 0 or not all(isinstance(a, Sym) for a in monomial):
            return False
        total += coefficient * math.prod(a.lower for a in monomial if isinstance(a, Sym))
    return total > 0


def floordiv(x: Index, divisor: Index) -> Index:
    if isinstance(divisor, int) and divisor == 1:
        return x
    if isinstance(x, int) and isinstance(divisor, int):
        return x // divisor
    quotient, rest = _split(x, divisor)
    if _fits(rest, divisor):
        return quotient
    if isinstance(rest, Expr) and isinstance(divisor, int):
        steps = _in_steps(rest, divisor)
        if steps is not None:
            return add(quotient, floordiv(steps[1], divisor // steps[0]))
        if len(rest.terms) == 1 and not rest.const:
            ((monomial, coefficient),) = rest.terms.items()
            top = monomial[0]
            if len(monomial) == 1 and coefficient == 1 and type(top) is FloorDiv and isinstance(top.divisor, int):
                return add(quotient, floordiv(top.expr, top.divisor * divisor))
            if (
                len(monomial) == 1
                and coefficient == 1
                and type(top) is Mod
                and isinstance(top.divisor, int)
                and top.divisor % divisor == 0
            ):
                return add(quotient, mod(floordiv(top.expr, divisor), top.divisor // divisor))
    if isinstance(rest, int):
        rest = Expr({}, rest)
    return add(quotient, atom(FloorDiv(rest, divisor)))


def mod(x: Index, divisor: Index) -> Index:
    if isinstance(x, int) and isinstance(divisor, int):
        return x % divisor
    rest = _split(x, divisor)[1]
    if _fits(rest, divisor):
        return rest
    if isinstance(rest, Expr) and isinstance(divisor, int):
        steps = _in_steps(rest, divisor)
        if steps is not None:
            return add(mul(mod(steps[1], divisor // steps[0]), steps[0]), steps[2])
        if len(rest.terms) == 1 and not rest.const:
            ((monomial, coefficient),) = rest.terms.items()
            top = monomial[0]
            if (
                len(monomial) == 1
                and coefficient == 1
                and type(top) is Mod
                and isinstance(top.divisor, int)
                and top.divisor % divisor == 0
            ):
                return mod(top.expr, divisor)
    if isinstance(rest, int):
        rest = Expr({}, rest)
    return atom(Mod(rest, divisor))


def _in_steps(x: Expr, divisor: int) -> tuple[int, Index, Index] | None:
    """``(g, y, r)`` with ``x == g*y + r`` and ``0 <= r < g``, g a divisor of ``divisor``: what is below g can't change
    ``x // divisor``."""
    for g in sorted({math.gcd(divisor, k) for k in x.terms.values()}, reverse=True):
        if g > 1:
            y, r = _split(x, g)
            if _fits(r, g):
                return g, y, r
    return None


# ---------------------------------------------------------------- questions
def atom_range(a: Atom) -> tuple[Index, Index] | None:
    """Smallest and largest value, or None if unknown."""
    if isinstance(a, (Var, Indirect)):
        return 0, add(a.size, -1)
    if isinstance(a, Mod):
        return 0, add(a.divisor, -1)
    if isinstance(a, FloorDiv):
        inner = value_range(a.expr)
        if inner is None or not isinstance(a.divisor, int):
            return None
        return floordiv(inner[0], a.divisor), floordiv(inner[1], a.divisor)
    if isinstance(a, Sym):
        return atom(a), atom(a)
    return None


def value_range(x: Index) -> tuple[Index, Index] | None:
    """Smallest and largest value over all iterations (bounds: they need not be reached), or None if unknown."""
    if isinstance(x, int):
        return x, x
    low: Index = x.const
    high: Index = x.const
    for monomial, coefficient in x.terms.items():
        lo: Index = 1
        hi: Index = 1
        for a in monomial:
            bounds = atom_range(a)
            if bounds is None:
                return None
            lo, hi = mul(lo, bounds[0]), mul(hi, bounds[1])
        if coefficient < 0:
            lo, hi = hi, lo
        low, high = add(low, mul(lo, coefficient)), add(high, mul(hi, coefficient))
    return low, high


def atoms_of(x: Index) -> Iterable[Atom]:
    """All atoms, those inside divisions too."""
    if isinstance(x, Expr):
        for monomial in x.terms:
            for a in monomial:
                yield a
                if isinstance(a, (FloorDiv, Mod)):
                    yield from atoms_of(a.expr)
                    yield from atoms_of(a.divisor)


def free_vars(x: Index) -> set[Var]:
    """Loop variables that the index itself names (not those behind an ``Indirect``)."""
    if isinstance(x, int):
        return set()
    return {a for a in atoms_of(x) if isinstance(a, Var)}


def coefficient(x: Index, v: Var) -> Index | None:
    """``c`` of ``x == c*v + rest`` where rest does not name ``v``; None if ``x`` is not of that form."""
    if isinstance(x, int):
        return 0
    c: Index = 0
    for monomial, k in x.terms.items():
        if v in monomial:
            rest = list(monomial)
            rest.remove(v)
            if v in rest or any(_mentions(a, v) for a in rest):
                return None
            c = add(c, Expr({tuple(rest): k}, 0) if rest else k)
        elif any(_mentions(a, v) for a in monomial):
            return None
    return c


def _mentions(a: Atom, v: Var) -> bool:
    if a == v:
        return True
    return isinstance(a, (FloorDiv, Mod)) and (v in free_vars(a.expr) or v in free_vars(a.divisor))


def affine_terms(x: Index) -> tuple[dict[Var, Index], Index] | None:
    """``({v: coefficient}, offset)`` if the index is affine in its loop variables with no other atom but sizes."""
    if isinstance(x, int):
        return {}, x
    strides: dict[Var, Index] = {}
    offset: Index = x.const
    for monomial, k in x.terms.items():
        variables = [a for a in monomial if isinstance(a, Var)]
        rest = tuple(a for a in monomial if not isinstance(a, Var))
        if len(variables) > 1 or not all(isinstance(a, Sym) for a in rest):
            return None
        value: Index = Expr({rest: k}, 0) if rest else k
        if variables:
            strides[variables[0]] = add(strides.get(variables[0], 0), value)
        else:
            offset = add(offset, value)
    return strides, offset


# ---------------------------------------------------------------- shapes
def contiguous_strides(sizes: Sequence[Index]) -> tuple[Index, ...]:
    strides: list[Index] = []
    step: Index = 1
    for size in reversed(sizes):
        strides.append(step)
        step = mul(step, size if not isinstance(size, int) else max(size, 1))
    return tuple(reversed(strides))


def dot(indices: Sequence[Index], strides: Sequence[Index]) -> Index:
    return sum_of(mul(i, s) for i, s in zip(indices, strides))


def unflatten(flat: Index, sizes: Sequence[Index]) -> tuple[Index, ...]:
    """Indices of the element whose number in row-major order is ``flat``."""
    out: list[Index] = []
    strides = contiguous_strides(sizes)
    for at, (size, stride) in enumerate(zip(sizes, strides)):
        if isinstance(size, int) and size == 1:
            out.append(0)
            continue
        part = floordiv(flat, stride)
        out.append(mod(part, size) if at or not _fits(part, size) else part)
    return tuple(out)
