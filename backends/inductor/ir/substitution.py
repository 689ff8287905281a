"""Atoms of an index replaced by other indices, or by their values.

Invariant: ``evaluate_index(substitute(x, mapping), values)`` is ``evaluate_index(x, values)`` with the atoms of
``mapping`` standing for the values of what replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dynamo_lite.backends.inductor.ir.index import Atom, Index, Indirect, atom
from dynamo_lite.symbols.integers import evaluate, replace


def substitute(x: Index, mapping: Mapping[Any, Index], indirect: Callable[[Any], Any] | None = None) -> Index:
    """``x`` with atoms replaced. ``indirect`` maps the node behind an ``Indirect`` atom, whose value moves along."""
    if indirect is None:
        return replace(x, mapping.get)

    def value(a: Atom) -> Index | None:
        new = mapping.get(a)
        if new is None and isinstance(a, Indirect):
            return atom(Indirect(indirect(a.node), replace(a.size, value)))
        return new

    return replace(x, value)


def evaluate_index(x: Index, values: Mapping[Any, Any], indirect: Callable[[Any], Any] | None = None) -> Any:
    """The index's value; ``values`` by atom, ints or arrays of ints."""
    if indirect is None:
        return evaluate(x, values.__getitem__)
    return evaluate(x, lambda a: indirect(a.node) if isinstance(a, Indirect) else values[a])
