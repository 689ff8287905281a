"""Formulas: values that Python code computes from numbers outside of the frame, before a graph runs.

Invariant: a formula calls only functions implemented in C, on numbers only; guards on its operands ensure that they are
numbers.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ...guards.source import FormulaSource, NumberSource, Source
from ...symbols.integers import Division, FloorDiv, Index, Sym
from ..constant import BINARY, COMPARE

if TYPE_CHECKING:
    from ..protocols import OutputGraph

_BITS = 63  # value bits of a signed 64-bit int
_SYMBOLS = {function: symbol for table in (BINARY, COMPARE) for symbol, function in table.items()}


def power(base: int, exponent: int) -> int | None:
    """``base ** exponent`` where it is certain to fit into a signed 64-bit int, else None."""
    return base ** exponent if 0 <= exponent * base.bit_length() < _BITS else None


def shifted(number: int, places: int) -> int | None:
    """``number << places`` where it is certain to fit into a signed 64-bit int, else None."""
    return number << places if 0 <= places < _BITS - number.bit_length() else None


BOUNDED = {"**": power, "<<": shifted}
"""Operators whose results may be arbitrarily long, each with the bounded function that formulas use instead."""


def formula_of(target: Any, operands: tuple[Source, ...]) -> FormulaSource:
    """The formula that applies a function to operands."""
    names = [operand.name for operand in operands]
    symbol = _SYMBOLS.get(target)
    if symbol is not None and len(names) == 2:
        words = f"({names[0]} {symbol} {names[1]})"
    else:
        words = f"{getattr(target, '__name__', target)}({', '.join(names)})"
    return FormulaSource(target, operands, words)


def source_of_index(output: OutputGraph, x: Index) -> Source:
    """The formula that computes an expression over symbols."""
    if isinstance(x, int):
        return NumberSource(x)
    total: Source | None = None
    for monomial, k in x.terms.items():
        part: Source | None = NumberSource(k) if k != 1 else None
        for a in monomial:
            if isinstance(a, Division):
                parts = source_of_index(output, a.expr), source_of_index(output, a.divisor)
                factor: Source = formula_of(operator.floordiv if isinstance(a, FloorDiv) else operator.mod, parts)
            else:
                assert isinstance(a, Sym)
                factor = output.symbols.sources[a]
            part = factor if part is None else formula_of(operator.mul, (part, factor))
        assert part is not None
        total = part if total is None else formula_of(operator.add, (total, part))
    assert total is not None
    return formula_of(operator.add, (total, NumberSource(x.const))) if x.const else total
