"""Values that have changed from call to call: counters and growing lists.

The first compile of a frame specializes on the value of a number and on the elements of a list. If that is why a cache
entry did not fit, the next compile uses the trackers of this module: as long as the program only computes with a
number, compares it, and appends to a list, one entry fits all calls. An int is a symbol, and a float is an
``OutsideNumber`` (``symbolic_ints``): the guard program computes with it, or the graph, which gets it as an input.
Invariant: other uses of such a value fix it by the guard that the first compile would have added. Only the last entry
that the config allows breaks the graph instead, so that this entry fits all calls.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

from ...guards import GuardSet
from ...guards.source import Source
from ...symbols.environment import HIGHEST
from ...symbols.nodes import symbolic_int
from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from ..containers.sequences import ListVariable, lazy_items
from .symbolic_ints import LOWEST, OutsideNumber, int_variable

if TYPE_CHECKING:
    from ..protocols import OutputGraph, Tracer

def _may_fix(output: OutputGraph, source: Source) -> None:
    if output.fits_all:
        unsupported("changing_value", f"{source.name} matters here")


class GrowingListVariable(ListVariable):
    """A list from outside that the program appends to. Its elements are looked at only when they are asked for.

    Args:
        value: the list.
        source: where it lives.
        output: holds the trace's guards and says whether the list's length may be fixed.
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
        """Whether the trace has only appended elements (`added`) and has not looked at the list itself."""
        return self._items is None

    @property
    def items(self) -> list[VariableTracker]:
        """The elements. Asking for them guards the length of the list."""
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
    """The tracker of a value that has changed between calls; None for a value of any other kind."""
    guards: GuardSet = tx.output.guards
    if type(value) is int and abs(value) < HIGHEST:
        return _counter(tx, value, source)
    if type(value) is float:
        guards.add(source, "type_is", float)
        return OutsideNumber(tx.output, float, value, source, frozenset({source.key}))
    if type(value) is list:
        guards.add(source, "type_is", list)
        return GrowingListVariable(value, source, tx.output)
    return None


def _counter(tx: Tracer, value: int, source: Source) -> VariableTracker:
    def node(tx: Tracer) -> fx.Node:
        return tx.output.add_number(source, int, symbolic_int(symbols.env, expr)).node

    # The guard is added at once, because a part of the trace tells by its guards what it reads from outside.
    tx.output.guards.add(source, "type_is", int)
    symbols = tx.output.symbols
    expr = symbols.add(tx, source, value, LOWEST, node)
    return int_variable(expr, tx.output)
