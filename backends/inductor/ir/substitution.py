"""Atoms of an index replaced by other indices, or by their values.

Invariant: ``evaluate_index(substitute(x, mapping), values)`` is ``evaluate_index(x, values)`` with the atoms of
``mapping`` standing for the values of what replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dynamo_lite.backends.inductor.ir.index import (
    Atom,
    FloorDiv,
    Index,
    Indirect,
    Mod,
    Monomial,
    Sym,
    Var,
    add,
    atom,
    floordiv,
    mod,
    mul,
    polynomial,
)


def substitute(x: Index, mapping: Mapping[Any, Index], indirect: Callable[[Any], Any] | None = None) -> Index:
    """``x`` with atoms replaced. ``indirect`` maps the node behind an ``Indirect`` atom, whose value moves along."""
    if isinstance(x, int):
        return x
    total: Index = x.const
    kept: dict[Monomial, int] = {}
    for monomial, k in x.terms.items():
        if all(type(a) in (Var, Sym) and a not in mapping for a in monomial):
            kept[monomial] = k
            continue
        value: Index = k
        for a in monomial:
            value = mul(value, _substitute_atom(a, mapping, indirect))
        total = add(total, value)
    return add(total, polynomial(kept, 0)) if kept else total


def _substitute_atom(a: Atom, mapping: Mapping[Any, Index], indirect: Callable[[Any], Any] | None) -> Index:
    new = mapping.get(a)
    if new is not None:
        return new
    if isinstance(a, FloorDiv):
        return floordiv(substitute(a.expr, mapping, indirect), substitute(a.divisor, mapping, indirect))
    if isinstance(a, Mod):
        return mod(substitute(a.expr, mapping, indirect), substitute(a.divisor, mapping, indirect))
    if isinstance(a, Indirect) and indirect is not None:
        return atom(Indirect(indirect(a.node), substitute(a.size, mapping, indirect)))
    return atom(a)


def evaluate_index(x: Index, values: Mapping[Any, Any], indirect: Callable[[Any], Any] | None = None) -> Any:
    """The index's value; ``values`` by atom, ints or arrays of ints."""
    if isinstance(x, int):
        return x
    total: Any = x.const
    for monomial, k in x.terms.items():
        value: Any = k
        for a in monomial:
            if isinstance(a, FloorDiv):
                part = evaluate_index(a.expr, values, indirect) // evaluate_index(a.divisor, values, indirect)
            elif isinstance(a, Mod):
                part = evaluate_index(a.expr, values, indirect) % evaluate_index(a.divisor, values, indirect)
            elif isinstance(a, Indirect) and indirect is not None:
                part = indirect(a.node)
            else:
                part = values[a]
            value = value * part
        total = total + value
    return total
