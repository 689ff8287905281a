"""Ranges with symbolic bounds: ``len(range(n))``, ``3 in range(n)``, ``range(n)[-1]``.

Invariant: an answer that does not fix the bounds holds for every call that the trace is for, as each comparison that
CPython makes is decided, and so guarded. Asking for the range itself fixes its bounds.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...rules.table import handles
from ...symbols.environment import HIGHEST
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from .ranges import RangeIteratorVariable, RangeVariable, SliceVariable
from .slice_bounds import ZERO, bounds_in, holds, is_between, is_plain_int, is_symbolic_int, plus

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_ONE = ConstantVariable(1)


class SymbolicRangeVariable(RangeVariable):
    """A range whose bounds are expressions over symbols.

    Args:
        start: the first number.
        stop: the bound that the numbers do not reach.
        step: the step, which is known and not 0.
    """

    def __init__(self, start: VariableTracker, stop: VariableTracker, step: int) -> None:
        VariableTracker.__init__(self)
        self.start = start
        self.stop = stop
        self.step = step

    @property
    def value(self) -> range:
        """The range. Asking for it fixes its bounds."""
        return range(self.start.constant(), self.stop.constant(), self.step)

    def describe(self) -> str:
        return f"range from {self.start.describe()} to {self.stop.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return holds(tx, "<" if self.step > 0 else ">", self.start, self.stop)

    def length(self, tx: Tracer) -> VariableTracker:
        if not self.truth(tx):
            return ZERO
        low, high = (self.start, self.stop) if self.step > 0 else (self.stop, self.start)
        whole = plus(tx, tx.operators.binary("-", high, low), abs(self.step) - 1)
        number = tx.operators.binary("//", whole, ConstantVariable(abs(self.step)))
        if holds(tx, "<", number, ConstantVariable(HIGHEST - 1)):
            return number
        return super().length(tx)  # len() may refuse it

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        key = realized(tx, key)
        if isinstance(key, SliceVariable):
            part = bounds_in(tx, key.parts, self.length(tx))
            return super().getitem(tx, key) if part is None else new_range(
                tx, self._at(tx, part[0]), self._at(tx, part[1]), part[2] * self.step)
        if not is_plain_int(key):
            return super().getitem(tx, key)
        length = self.length(tx)
        if holds(tx, "<", key, ZERO):
            key = tx.operators.binary("+", key, length)
        if holds(tx, "<", key, ZERO) or holds(tx, ">=", key, length):
            tx.raise_error(IndexError, "range object index out of range")
        return self._at(tx, key)

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        if not is_plain_int(item):
            return super().contains(tx, item)
        return is_between(tx, item, self.start, self.stop, self.step)

    def iterator(self, tx: Tracer) -> VariableTracker:
        return RangeIteratorVariable(self._numbers(tx))

    def reversed(self, tx: Tracer) -> VariableTracker:
        return RangeIteratorVariable(self._numbers(tx)[::-1])

    def _numbers(self, tx: Tracer) -> range:
        """The numbers. Where the first one is known, only the count of numbers is guarded."""
        if self.start.is_symbolic:
            return self.value
        start, count = self.start.constant(), self.length(tx).constant()
        return range(start, start + count * self.step, self.step)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        own = {"start": self.start, "stop": self.stop, "step": ConstantVariable(self.step)}.get(name)
        return own if own is not None else super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_function(range, [self.start, self.stop, ConstantVariable(self.step)], {})

    def _at(self, tx: Tracer, index: VariableTracker) -> VariableTracker:
        steps = tx.operators.binary("*", index, ConstantVariable(self.step))
        return tx.operators.binary("+", self.start, steps)


@handles(range)
def _range(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    given = [realized(tx, a) for a in args]
    if 1 <= len(given) <= 3 and all(map(is_plain_int, given)) and any(map(is_symbolic_int, given)):
        start, stop, step = (given if len(given) > 1 else [ZERO, *given]) + ([] if len(given) == 3 else [_ONE])
        if type(step) is ConstantVariable and step.value:
            return SymbolicRangeVariable(start, stop, step.value)
    return RangeVariable(tx.run_python(range, *(tx.operators.as_index(a) for a in given)))


def new_range(tx: Tracer, start: VariableTracker, stop: VariableTracker, step: int) -> RangeVariable:
    """The range with these bounds, which may be symbolic."""
    if is_symbolic_int(start) or is_symbolic_int(stop):
        return SymbolicRangeVariable(start, stop, step)
    return RangeVariable(range(start.constant(), stop.constant(), step))
