"""Values that were seen to change from call to call: counters and growing lists.

The first compile of a frame takes a number for a constant and a list for its elements. When that is what kept an entry
from fitting, the next compile uses these: as long as the program only computes with a number, compares an int, and
appends to a list, one entry fits all calls. What an int is added to is known of it; arithmetic with tensors, and all
arithmetic of floats, is the graph's, whose input the number is then (``scalars``). Invariant: whatever else is done
with such a value fixes it, by the guard that it would have had at once; only in the last entry that config allows it
breaks the graph, so that this one fits them all.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ...guards import GuardSet
from ...guards.source import Source
from ..base import VariableTracker, unsupported
from ..constant import COMPARE, ConstantVariable
from ..containers.sequences import ListVariable, lazy_items
from .scalars import ScalarVariable, is_number, scalar_node

if TYPE_CHECKING:
    from ..protocols import Codegen, OutputGraph, Tracer

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_SAFE = 1 << 60


class CountVariable(ConstantVariable):
    """An int from outside, plus a constant.

    Args:
        number: its value in this trace.
        base: where the int lives.
        offset: what has been added to it.
        output: the trace's guards, and whether its value may be fixed.
    """

    def __init__(self, number: int, base: Source, offset: int, output: OutputGraph) -> None:
        VariableTracker.__init__(self, base if not offset else None)
        self._number = number
        self._base = base
        self._offset = offset
        self._output = output

    @property
    def value(self) -> Any:
        """The number; whoever asks depends on it."""
        _may_fix(self._output, self._base)
        self._output.guards.add(self._base, "const", self._number - self._offset)
        return self._number

    def describe(self) -> str:
        return f"number {self._base.name!r}"

    def python_type(self) -> type:
        return int

    def example(self) -> Any:
        return self._number

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_source(self._base)
        if self._offset:
            cg.emit.load_const(abs(self._offset))
            cg.emit.binary("+" if self._offset > 0 else "-")

    def as_number(self, tx: Tracer) -> ScalarVariable:
        """The same as a number of the graph."""
        number = self._output.add_number(self._base, int)
        if self._offset:
            number = scalar_node(tx, operator.add, [number, ConstantVariable(self._offset)], int)
        return number

    def as_argument(self, tx: Tracer) -> Any:
        return self.as_number(tx).node

    def truth(self, tx: Tracer) -> bool:
        return bool(self._compare("!=", 0))

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op in ("*", "/") and is_number(other) or other.python_type() is float:
            return self.as_number(tx).binary(tx, op, other, reflected)
        step = _plain_int(other)
        if step is None or op not in ("+", "-") or (reflected and op == "-") or abs(self._number) + abs(step) > _SAFE:
            return super().binary(tx, op, other, reflected)
        step = step if op == "+" else -step
        return CountVariable(self._number + step, self._base, self._offset + step, self._output)

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        limit = _plain_int(other)
        if limit is None:
            return super().compare(tx, op, other)
        return ConstantVariable(self._compare(op, limit))

    def _compare(self, op: str, limit: int) -> bool:
        """The answer, with a guard on the range of numbers that give it and lie on the same side."""
        number, low, high = self._number, _LOWEST, _HIGHEST
        if number == limit and op in ("==", "!="):
            low = high = limit
        elif number < limit or (number == limit and op in ("<=", ">")):
            high = limit if op in ("<=", ">") else limit - 1
        else:
            low = limit if op in ("<", ">=") else limit + 1
        low, high = max(low - self._offset, _LOWEST), min(high - self._offset, _HIGHEST)
        self._output.guards.add(self._base, "int_range", low, high)
        return COMPARE[op](number, limit)


def _may_fix(output: OutputGraph, source: Source) -> None:
    if output.fits_all:
        unsupported("changing_value", f"{source.name} matters here")


def _plain_int(value: VariableTracker) -> int | None:
    is_int = type(value) is ConstantVariable and type(value.value) is int
    return value.value if is_int and abs(value.value) < _SAFE else None


class GrowingListVariable(ListVariable):
    """A list from outside that the program appends to; its elements are looked at when they are asked for.

    Args:
        value: the list.
        source: where it lives.
        output: the trace's guards, and whether its length may be fixed.
    """

    def __init__(self, value: list[Any], source: Source, output: OutputGraph) -> None:
        VariableTracker.__init__(self, source)
        self.cls = list
        self._value = value
        self._output = output
        self._items: list[VariableTracker] | None = None
        self.added: list[VariableTracker] = []

    @property
    def only_grows(self) -> bool:
        """Whether nothing but `added` is known of it."""
        return self._items is None

    @property
    def items(self) -> list[VariableTracker]:
        """The elements; whoever asks depends on how many there are."""
        if self._items is None:
            assert self.source is not None
            _may_fix(self._output, self.source)
            self._output.guards.add(self.source, "len", len(self._value))
            self._items = [*lazy_items(self._value, self.source, True), *self.added]
        return self._items

    @items.setter
    def items(self, items: list[VariableTracker]) -> None:
        self._items = items

    def describe(self) -> str:
        return f"list {self.source.name!r}" if self.source is not None else "list"

    def _append_unseen(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        tx.output.effects.mutate(self)
        (self.added if self._items is None else self._items).append(item)
        return ConstantVariable(None)

    methods = {**ListVariable.methods, "append": _append_unseen}


def wrap_dynamic(tx: Tracer, value: Any, source: Source) -> VariableTracker | None:
    """The tracker of a value that has changed between calls; None if it is of another kind."""
    guards: GuardSet = tx.output.guards
    if type(value) is int and abs(value) < _SAFE:
        guards.add(source, "type_is", int)
        return CountVariable(value, source, 0, tx.output)
    if type(value) is float:
        guards.add(source, "type_is", float)
        return tx.output.add_number(source, float)
    if type(value) is list:
        guards.add(source, "type_is", list)
        return GrowingListVariable(value, source, tx.output)
    return None
