"""Text of indices, in a language whose operators are those of C but for the sign of an integer quotient.

Invariant: the text computes the index for every value of its variables and symbols: quotients and remainders round
down, as Python's do, although the language's round toward zero.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node

Indirect = Callable[[Node], str]


def index_text(x: ix.Index, names: Mapping[ix.Var, str], quotient: str, indirect: Indirect | None = None) -> str:
    """An index as text.

    Args:
        names: of the loop variables.
        quotient: the operator of an integer quotient, "/" or "//".
        indirect: the text of a value that is read from memory.
    """
    if isinstance(x, int):
        return str(x)
    parts = []
    for monomial, k in x.terms.items():
        factors = [_atom_text(a, names, quotient, indirect) for a in monomial]
        parts.append(" * ".join(factors if k == 1 else [*factors, str(k)]))
    if x.const:
        parts.append(str(x.const))
    return " + ".join(parts).replace("+ -", "- ")


def _atom_text(a: ix.Atom, names: Mapping[ix.Var, str], quotient: str, indirect: Indirect | None) -> str:
    if isinstance(a, ix.Var):
        return names[a]
    if isinstance(a, ix.Sym):
        return a.name
    if isinstance(a, ix.Division):
        value, divisor = (index_text(part, names, quotient, indirect) for part in (a.expr, a.divisor))
        if not ix.never_negative(a.expr):
            # The divisor is positive.
            rest = f"((({value}) % ({divisor}) + ({divisor})) % ({divisor}))"
            return f"((({value}) - {rest}) {quotient} ({divisor}))" if isinstance(a, ix.FloorDiv) else rest
        return f"(({value}) {quotient if isinstance(a, ix.FloorDiv) else '%'} ({divisor}))"
    assert isinstance(a, ix.Indirect) and indirect is not None
    return indirect(a.node)
