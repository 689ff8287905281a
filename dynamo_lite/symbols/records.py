"""Conditions as data for another process: nested tuples of numbers and strings.

Invariant: a condition that is read equals the one that was written, or ``Malformed`` is raised; reading constructs
nothing but integers and relations.
"""
from __future__ import annotations

from typing import Any

from . import integers as ints
from .integers import Atom, Expr, FloorDiv, Index, Mod, Sym
from .relations import Relation, relation


class Malformed(Exception):
    """The data does not describe a condition."""


def condition_as_data(condition: Relation) -> tuple[Any, ...]:
    return condition.op, _as_data(condition.expr)


def condition_of(data: Any) -> Relation | bool:
    """The condition that data describes; a bool if the condition's expression alone decides it."""
    if not isinstance(data, tuple) or len(data) != 2 or data[0] not in ("==", "!=", ">="):
        raise Malformed(f"{data!r} is no condition")
    found = relation(data[0], _of(data[1]))
    assert isinstance(found, (Relation, bool))
    return found


def _as_data(x: Index) -> Any:
    if isinstance(x, int):
        return x
    terms = tuple((k, tuple(map(_atom_as_data, monomial))) for monomial, k in x.terms.items())
    return x.const, terms


def _atom_as_data(a: Atom) -> tuple[Any, ...]:
    if isinstance(a, Sym):
        return "symbol", a.name, a.lower
    assert isinstance(a, (FloorDiv, Mod)), f"{a} is no size"
    return "//" if isinstance(a, FloorDiv) else "%", _as_data(a.expr), _as_data(a.divisor)


def _of(data: Any) -> Index:
    if type(data) is int:
        return data
    if not isinstance(data, tuple) or len(data) != 2 or type(data[0]) is not int:
        raise Malformed(f"{data!r} is no integer")
    total: Index = data[0]
    for term in data[1]:
        k, atoms = term
        if type(k) is not int:
            raise Malformed(f"{k!r} is no coefficient")
        total = ints.add(total, ints.mul(ints.product(map(_atom_of, atoms)), k))
    return total


def _atom_of(data: Any) -> Expr:
    kind, first, second = data
    if kind == "symbol" and isinstance(first, str) and type(second) is int:
        return ints.atom(Sym(first, second))
    if kind not in ("//", "%"):
        raise Malformed(f"{data!r} is no part of an integer")
    x, divisor = _of(first), _of(second)
    found = ints.floordiv(x, divisor) if kind == "//" else ints.mod(x, divisor)
    return found if isinstance(found, Expr) else Expr({}, found)
