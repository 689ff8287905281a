"""Substitution of the atoms of an index, and its evaluation.

Invariant: ``evaluate_index(substitute(x, mapping), values)`` equals ``evaluate_index(x, values)`` if ``values`` gives
each atom of ``mapping`` the value of its replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dynamo_lite.backends.inductor.ir.index import Atom, Index, Indirect, atom
from dynamo_lite.symbols.integers import evaluate, replace


def substitute(x: Index, mapping: Mapping[Any, Index], indirect: Callable[[Any], Any] | None = None) -> Index:
    """``x`` with atoms replaced according to ``mapping``. ``indirect`` gives the replacement of the node behind an
    ``Indirect`` atom."""
    if indirect is None:
        return replace(x, mapping.get)

    def value(a: Atom) -> Index | None:
        new = mapping.get(a)
        if new is None and isinstance(a, Indirect):
            return atom(Indirect(indirect(a.node), replace(a.size, value)))
        return new

    return replace(x, value)


def evaluate_index(x: Index, values: Mapping[Any, Any], indirect: Callable[[Any], Any] | None = None) -> Any:
    """The value of an index.

    Args:
        values: the value of each atom, an int or an array of ints.
        indirect: gives the value of the node behind an ``Indirect`` atom.
    """
    if indirect is None:
        return evaluate(x, values.__getitem__)
    return evaluate(x, lambda a: indirect(a.node) if isinstance(a, Indirect) else values[a])
