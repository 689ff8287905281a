"""Symbolic sizes: sympy expressions, which torch's shape environment uses, as indices and back.

Invariant: sympy is not imported here; integers stay integers both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynamo_lite.backends.inductor.ir.index import (
    FloorDiv,
    Index,
    Mod,
    Sym,
    atom,
    floordiv,
    mod,
    product,
    sum_of,
)


def from_sympy(x: Any) -> Index:
    """An index from a sympy expression over symbolic sizes (or an int, or a SymInt)."""
    if isinstance(x, int):
        return x
    if hasattr(x, "node"):
        return from_sympy(x.node.expr)
    if x.is_Integer:
        return int(x)
    if x.is_Symbol:
        return atom(Sym(x.name))
    if x.is_Add:
        return sum_of(map(from_sympy, x.args))
    if x.is_Mul:
        return product(map(from_sympy, x.args))
    if x.is_Pow and x.exp.is_Integer and x.exp > 0:
        return product([from_sympy(x.base)] * int(x.exp))
    name = type(x).__name__
    if name in ("FloorDiv", "CleanDiv"):
        return floordiv(from_sympy(x.args[0]), from_sympy(x.args[1]))
    if name in ("Mod", "PythonMod"):
        return mod(from_sympy(x.args[0]), from_sympy(x.args[1]))
    raise NotImplementedError(f"a size of the form {x}")


def to_sympy(x: Index, symbols: Mapping[str, Any]) -> Any:
    """The sympy expression of a size; ``symbols`` by name. Ints stay ints, so that static programs never import
    sympy."""
    if isinstance(x, int):
        return x
    total: Any = x.const
    for monomial, k in x.terms.items():
        value: Any = k
        for a in monomial:
            if isinstance(a, Sym):
                value = value * symbols[a.name]
            elif isinstance(a, FloorDiv):
                value = value * (to_sympy(a.expr, symbols) // to_sympy(a.divisor, symbols))
            elif isinstance(a, Mod):
                value = value * (to_sympy(a.expr, symbols) % to_sympy(a.divisor, symbols))
            else:
                raise AssertionError(f"{a} is no size")
        total = total + value
    return total
