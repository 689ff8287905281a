"""The bounds of a slice of a sequence, in numbers that may be symbolic, and the operations on such numbers that ranges
need.

Invariant: each comparison that CPython makes of the numbers is decided, and so guarded.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...symbols.environment import HIGHEST
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from .symbolic_ints import SymbolicIntVariable, int_expression

if TYPE_CHECKING:
    from ..protocols import Tracer

ZERO = ConstantVariable(0)


def bounds_in(
    tx: Tracer, parts: list[VariableTracker], length: VariableTracker
) -> tuple[VariableTracker, VariableTracker, int] | None:
    """``slice(*parts).indices(length)`` as CPython computes it (Objects/sliceobject.c,
    _PySlice_GetLongIndices); None where one of them is not an int, or where the step is unknown or 0."""
    parts = [realized(tx, part) for part in parts]
    step = 1 if parts[2].is_none() else parts[2].value if type(parts[2]) is ConstantVariable else 0
    if type(step) is not int or not step or abs(step) >= HIGHEST or not is_plain_int(length):
        return None
    if not all(part.is_none() or is_plain_int(part) for part in parts[:2]):
        return None
    if holds(tx, "<", length, ZERO):
        return None
    low, high = (ZERO, length) if step > 0 else (ConstantVariable(-1), plus(tx, length, -1))
    ends = (low, high) if step > 0 else (high, low)
    start, stop = (
        end if part.is_none() else _clamped(tx, part, length, low, high) for part, end in zip(parts, ends))
    return start, stop, step


def _clamped(
    tx: Tracer, index: VariableTracker, length: VariableTracker, low: VariableTracker, high: VariableTracker
) -> VariableTracker:
    if holds(tx, "<", index, ZERO):
        index = tx.operators.binary("+", index, length)
        return low if holds(tx, "<", index, low) else index
    return high if holds(tx, ">", index, high) else index


def slice_indices(tx: Tracer, parts: list[VariableTracker], length: VariableTracker) -> VariableTracker | None:
    """``slice(*parts).indices(length)`` where some of the numbers are symbolic; None where all are known."""
    length = realized(tx, length)
    if not any(map(is_symbolic_int, [length, *(realized(tx, part) for part in parts)])):
        return None
    found = bounds_in(tx, parts, length)
    return None if found is None else tx.values.new_tuple([*found[:2], ConstantVariable(found[2])])


def is_between(
    tx: Tracer, item: VariableTracker, start: VariableTracker, stop: VariableTracker, step: int
) -> bool:
    """``item in range(start, stop, step)``, decided for the traced call and guarded."""
    reached = ("<=", "<") if step > 0 else (">=", ">")
    if not (holds(tx, reached[0], start, item) and holds(tx, reached[1], item, stop)):
        return False
    rest = tx.operators.binary("%", tx.operators.binary("-", item, start), ConstantVariable(abs(step)))
    return not tx.truth(rest)


def is_plain_int(value: VariableTracker) -> bool:
    """Whether it is an int that the trace can decide conditions about."""
    if isinstance(value, SymbolicIntVariable):
        return not value.is_running()
    return int_expression(value) is not None


def is_symbolic_int(value: VariableTracker) -> bool:
    """Whether it is an expression over symbolic sizes."""
    return isinstance(value, SymbolicIntVariable)


def plus(tx: Tracer, x: VariableTracker, n: int) -> VariableTracker:
    """``x + n``."""
    return tx.operators.binary("+", x, ConstantVariable(n))


def holds(tx: Tracer, op: str, x: VariableTracker, y: VariableTracker) -> bool:
    """``x op y``, decided for the traced call and guarded."""
    return tx.truth(tx.operators.compare(op, x, y))
