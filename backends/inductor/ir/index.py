"""Index arithmetic: expressions for the buffer elements that a loop body accesses.

An index is an int or an immutable ``Expr``: a polynomial with integer coefficients over atoms. Atoms are loop variables
(``Var``), symbolic sizes (``Sym``), values read from memory (``Indirect``), and the divisions ``FloorDiv`` and ``Mod``,
which don't distribute over sums. All functions take and return ``int | Expr``; the arithmetic is that of all symbolic
sizes (``symbols.integers``).

Invariants: a ``Var`` knows its size and runs over ``range(size)``; a dimension of size 1 has no variable, its index is
0. ``//`` and ``%`` round down: code generators write C's division only where a value is ``never_negative``.

``substitution`` replaces atoms of an index, or evaluates it; ``symbolic`` converts sizes of fake tensors to indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynamo_lite.symbols.integers import (
    Atom,
    Division,
    Expr,
    FloorDiv,
    Index,
    Mod,
    Monomial,
    Sym,
    add,
    always_positive,
    atom,
    atoms_of,
    fits,
    floordiv,
    mod,
    mul,
    never_negative,
    polynomial,
    product,
    sum_of,
    symbols_of,
    value_range,
)

__all__ = [
    "Atom", "Division", "Expr", "FloorDiv", "Index", "Indirect", "Mod", "Monomial", "Sym", "Var", "add",
    "affine_terms", "always_positive", "atom", "atoms_of", "coefficient", "contiguous_strides", "dot", "floordiv",
    "free_vars", "mod", "mul", "never_negative", "polynomial", "product", "sum_of", "symbols_of", "unflatten",
    "value_range", "var",
]


class Var(Atom):
    """A loop variable over ``range(size)``."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: Index):
        super().__init__(("v", name, size))
        self.name = name
        self.size = size

    def __str__(self) -> str:
        return self.name

    def bounds(self) -> tuple[Index, Index] | None:
        return 0, add(self.size, -1)

    def least(self) -> int | None:
        return 0


class Indirect(Atom):
    """The integer that an IR node computes, known to lie in ``range(size)``; for example an embedding's row."""

    __slots__ = ("node", "size")

    def __init__(self, node: Any, size: Index):
        super().__init__(("i", node.id, size))
        self.node = node
        self.size = size

    def __str__(self) -> str:
        return f"[n{self.node.id}]"

    def bounds(self) -> tuple[Index, Index] | None:
        return 0, add(self.size, -1)

    def least(self) -> int | None:
        return 0


def var(name: str, size: Index) -> Index:
    """The index that a loop over ``range(size)`` counts; 0 if the loop has a single iteration."""
    return 0 if isinstance(size, int) and size == 1 else atom(Var(name, size))


# ---------------------------------------------------------------- questions
def free_vars(x: Index) -> set[Var]:
    """The loop variables that occur in the index itself, not those that the node of an ``Indirect`` depends on."""
    if isinstance(x, int):
        return set()
    return {a for a in atoms_of(x) if isinstance(a, Var)}


def coefficient(x: Index, v: Var) -> Index | None:
    """``c`` in ``x == c*v + rest``, where ``rest`` does not contain ``v``; None if ``x`` does not have that form."""
    if isinstance(x, int):
        return 0
    c: Index = 0
    for monomial, k in x.terms.items():
        if len(monomial) == 1:  # nearly always
            a, = monomial
            if a == v:
                c = add(c, k)
            elif _mentions(a, v):
                return None
        elif v in monomial:
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
    return isinstance(a, Division) and (v in free_vars(a.expr) or v in free_vars(a.divisor))


def affine_terms(x: Index) -> tuple[dict[Var, Index], Index] | None:
    """``({v: coefficient}, offset)`` of an index that is affine in its loop variables and whose other atoms are sizes;
    None for any other index."""
    if isinstance(x, int):
        return {}, x
    strides: dict[Var, Index] = {}
    offset: Index = x.const
    for monomial, k in x.terms.items():
        variables = [a for a in monomial if isinstance(a, Var)]
        rest = tuple(a for a in monomial if not isinstance(a, Var))
        if len(variables) > 1 or not all(_is_size(a) for a in rest):
            return None
        value: Index = Expr({rest: k}, 0) if rest else k
        if variables:
            strides[variables[0]] = add(strides.get(variables[0], 0), value)
        else:
            offset = add(offset, value)
    return strides, offset


def _is_size(a: Atom) -> bool:
    """Whether the atom is computed from symbolic sizes alone."""
    if isinstance(a, Division):
        return all(isinstance(part, (Sym, Division)) for x in (a.expr, a.divisor) for part in atoms_of(x))
    return isinstance(a, Sym)


# ---------------------------------------------------------------- shapes
def contiguous_strides(sizes: Sequence[Index]) -> tuple[Index, ...]:
    """The row-major strides of a contiguous tensor of these sizes."""
    strides: list[Index] = []
    step: Index = 1
    for size in reversed(sizes):
        strides.append(step)
        step = mul(step, size if not isinstance(size, int) else max(size, 1))
    return tuple(reversed(strides))


def dot(indices: Sequence[Index], strides: Sequence[Index]) -> Index:
    """The sum of the products of indices and strides."""
    return sum_of(mul(i, s) for i, s in zip(indices, strides))


def unflatten(flat: Index, sizes: Sequence[Index]) -> tuple[Index, ...]:
    """The index along each dimension of the element whose position in row-major order is ``flat``."""
    out: list[Index] = []
    strides = contiguous_strides(sizes)
    for at, (size, stride) in enumerate(zip(sizes, strides)):
        if isinstance(size, int) and size == 1:
            out.append(0)
            continue
        part = floordiv(flat, stride)
        out.append(mod(part, size) if at or not fits(part, size) else part)
    return tuple(out)
