"""``collections.deque``.

Invariant: `items` is what the deque would hold at this point of the program, never more than `maxlen`.
"""
from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from ..source import ItemSource, Source
from .base import LazyVariable, VariableTracker, wraps_type
from .constant import ConstantVariable
from .sequences import ListVariable, SequenceVariable, TupleVariable

if TYPE_CHECKING:
    from ..codegen import Codegen


class DequeVariable(ListVariable):
    """A deque."""

    base_type: type = collections.deque

    def __init__(self, items: list[VariableTracker], maxlen: int | None, source: Source | None = None) -> None:
        super().__init__(items, source, collections.deque)
        self.maxlen = maxlen

    def like(self, tx: Any, items: list[VariableTracker]) -> VariableTracker:
        return DequeVariable(_last(items, self.maxlen), self.maxlen)

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        return ConstantVariable(self.maxlen) if name == "maxlen" else super().getattr(tx, name)

    def getitem(self, tx: Any, key: VariableTracker) -> VariableTracker:
        if isinstance(tx.as_index(key), slice):
            tx.raise_error(TypeError, "sequence index must be integer, not 'slice'")
        return super().getitem(tx, key)

    def setitem(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        self._change(tx)
        super().setitem(tx, key, value)

    def delitem(self, tx: Any, key: VariableTracker) -> None:
        self._change(tx)
        super().delitem(tx, key)

    def inplace(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if op == "+":
            self._extend_right(tx, other)
            return self
        return None

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in _CHANGES:
            self._change(tx)
        return super().call_method(tx, name, args, kwargs)

    def _change(self, tx: Any) -> None:
        tx.output.effects.mutate(self)

    def _append_right(self, tx: Any, item: VariableTracker) -> VariableTracker:
        self.items[:] = _last([*self.items, item], self.maxlen)
        return ConstantVariable(None)

    def _append_left(self, tx: Any, item: VariableTracker) -> VariableTracker:
        items = [item, *self.items]
        self.items[:] = items if self.maxlen is None else items[: self.maxlen]
        return ConstantVariable(None)

    def _extend_right(self, tx: Any, items: VariableTracker) -> VariableTracker:
        for item in list(items.iterate(tx)):
            self._append_right(tx, item)
        return ConstantVariable(None)

    def _extend_left(self, tx: Any, items: VariableTracker) -> VariableTracker:
        for item in list(items.iterate(tx)):
            self._append_left(tx, item)
        return ConstantVariable(None)

    def _pop_right(self, tx: Any) -> VariableTracker:
        if not self.items:
            tx.raise_error(IndexError, "pop from an empty deque")
        value = self.item(tx, len(self.items) - 1)
        del self.items[-1]
        return value

    def _pop_left(self, tx: Any) -> VariableTracker:
        if not self.items:
            tx.raise_error(IndexError, "pop from an empty deque")
        value = self.item(tx, 0)
        del self.items[0]
        return value

    def _rotate(self, tx: Any, steps: VariableTracker | None = None) -> VariableTracker:
        if self.items:
            n = (1 if steps is None else tx.as_index(steps)) % len(self.items)
            self.items[:] = self.items[-n:] + self.items[:-n] if n else self.items
        return ConstantVariable(None)

    def _copied(self, tx: Any) -> VariableTracker:
        return DequeVariable(list(self.items), self.maxlen)

    def _insert_at(self, tx: Any, index: VariableTracker, item: VariableTracker) -> VariableTracker:
        if self.maxlen is not None and len(self.items) >= self.maxlen:
            tx.raise_error(IndexError, "deque already at its maximum size")
        self.items.insert(tx.as_index(index), item)
        return ConstantVariable(None)

    methods = {
        **SequenceVariable.methods, "append": _append_right, "appendleft": _append_left, "extend": _extend_right,
        "extendleft": _extend_left, "pop": _pop_right, "popleft": _pop_left, "rotate": _rotate, "copy": _copied,
        "insert": _insert_at, "remove": ListVariable._remove, "clear": ListVariable._clear,
        "reverse": ListVariable._reverse,
    }

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            cg.call_function(collections.deque, [], {"maxlen": ConstantVariable(self.maxlen)})

        cg.build_new(
            self, make,
            lambda: cg.call_constant_on_top(collections.deque.extend, lambda: cg.push(TupleVariable(self.items))),
        )


_CHANGES = frozenset({
    "append", "appendleft", "extend", "extendleft", "pop", "popleft", "rotate", "insert", "remove", "clear", "reverse",
})


def _last(items: list[VariableTracker], maxlen: int | None) -> list[VariableTracker]:
    return items if maxlen is None or len(items) <= maxlen else items[len(items) - maxlen :]


@wraps_type(collections.deque)
def _wrap_deque(tx: Any, value: collections.deque[Any], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", collections.deque)
    tx.guard(source, "len", len(value))
    items: list[VariableTracker] = [LazyVariable(item, ItemSource(source, i)) for i, item in enumerate(value)]
    maxlen = tx.wrap_slot(source, collections.deque, value, "maxlen")
    return DequeVariable(items, maxlen.constant(), source)
