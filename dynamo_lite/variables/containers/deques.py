"""``collections.deque``.

Invariant: `items` holds the elements that the deque would have at this point of the program, at most `maxlen`.
"""
from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...guards.source import ItemSource, Source
from .. import error_texts
from ..base import IteratorVariable, LazyVariable, VariableTracker, type_name, unsupported, wraps_type
from ..constant import COMPARE, ConstantVariable
from .sequence_iterators import started_iterator
from .sequences import MAX_LENGTH, ListVariable, TupleVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class DequeVariable(ListVariable):
    """A deque."""

    base_type: type = collections.deque

    def to_plain(self, tx: Tracer) -> Any:
        return collections.deque((tx.values.as_plain(item) for item in self.iterate(tx)), self.maxlen)

    def __init__(self, items: list[VariableTracker], maxlen: int | None, source: Source | None = None) -> None:
        super().__init__(items, source, collections.deque)
        self.maxlen = maxlen
        self.state = 0  # number of changes that invalidate its iterators

    def like(self, tx: Tracer, items: list[VariableTracker]) -> VariableTracker:
        return DequeVariable(_last(items, self.maxlen), self.maxlen)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return ConstantVariable(self.maxlen) if name == "maxlen" else super().getattr(tx, name)

    def iterator(self, tx: Tracer) -> VariableTracker:
        return DequeIteratorVariable(self)

    def reversed(self, tx: Tracer) -> VariableTracker:
        return DequeIteratorVariable(self, backwards=True)

    def iterate(self, tx: Tracer) -> Iterable[VariableTracker]:
        return tx.iteration.steps(self.iterator(tx))

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        return self._position(tx, item, range(len(self.items)), RuntimeError, _MUTATED) is not None

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        """Elements are compared while both iterators advance, so that changes by comparisons are noticed."""
        if not isinstance(other, DequeVariable):
            return None
        if op in ("==", "!=") and len(self.items) != len(other.items):
            return ConstantVariable(op == "!=")
        first, second = self.iterator(tx), other.iterator(tx)
        while True:
            mine, theirs = first.next(tx), second.next(tx)
            if mine is None or theirs is None:
                break
            if not tx.operators.same_or_equal(mine, theirs):
                return tx.operators.compare(op, mine, theirs)
        return ConstantVariable(COMPARE[op](mine is not None, theirs is not None))

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        self._check_index(tx, key)
        return super().getitem(tx, key)

    def _check_index(self, tx: Tracer, key: VariableTracker) -> int:
        """The index as an integer; raises IndexError in the program if it is out of range."""
        cls = key.python_type()
        if not hasattr(cls, "__index__") and tx.classes.lookup(cls, "__index__") is None:
            tx.raise_error(TypeError, f"sequence index must be integer, not {type_name(cls)!r}")
        index: int = tx.operators.as_index(key)
        if not -len(self.items) <= index < len(self.items):
            tx.raise_error(IndexError, "deque index out of range")
        return index

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        index = self._check_index(tx, key)
        tx.output.effects.mutate(self)
        self.items[index] = value

    def delitem(self, tx: Tracer, key: VariableTracker) -> None:
        index = self._check_index(tx, key)
        self._change(tx)
        del self.items[index]

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op == "+" and not isinstance(other, DequeVariable) and not reflected:
            tx.raise_error(TypeError, f'can only concatenate deque (not "{type_name(other.python_type())}") to deque')
        return super().binary(tx, op, other, reflected)

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op == "+":
            self._extend_right(tx, other)
            return self
        if op == "*" and other.is_constant() and isinstance(other.constant(), int):
            times = min(other.constant(), self.maxlen) if self.maxlen is not None else other.constant()
            if times * len(self.items) > MAX_LENGTH:
                unsupported("unsupported_operator", f"{self.describe()} *= {times} is too large to follow")
            if self.items and times != 1:
                self._change(tx)
                self.items[:] = _last(self.items * times, self.maxlen)
            return self
        return None

    def _change(self, tx: Tracer) -> None:
        tx.output.effects.mutate(self)
        self.state += 1

    def _append_right(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        self._change(tx)
        self.items[:] = _last([*self.items, item], self.maxlen)
        return ConstantVariable(None)

    def _append_left(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        self._change(tx)
        items = [item, *self.items]
        self.items[:] = items if self.maxlen is None else items[: self.maxlen]
        return ConstantVariable(None)

    def _extend_right(self, tx: Tracer, items: VariableTracker) -> VariableTracker:
        self._extend_by(tx, items, self._append_right)
        return ConstantVariable(None)

    def _extend_left(self, tx: Tracer, items: VariableTracker) -> VariableTracker:
        self._extend_by(tx, items, self._append_left)
        return ConstantVariable(None)

    def _extend_by(self, tx: Tracer, items: VariableTracker, append: Any) -> None:
        """Stores each element when it is taken, so that the code that yields the elements observes it; a deque that
        extends itself takes a copy first."""
        given: Iterable[VariableTracker] = (
            list(self.iterate(tx)) if items is self else tx.iteration.steps(tx.iteration.get_iter(items))
        )
        for item in given:
            if self.maxlen != 0:
                append(tx, item)

    def _pop_right(self, tx: Tracer) -> VariableTracker:
        if not self.items:
            tx.raise_error(IndexError, "pop from an empty deque")
        value = self.item(tx, len(self.items) - 1)
        self._change(tx)
        del self.items[-1]
        return value

    def _pop_left(self, tx: Tracer) -> VariableTracker:
        if not self.items:
            tx.raise_error(IndexError, "pop from an empty deque")
        value = self.item(tx, 0)
        self._change(tx)
        del self.items[0]
        return value

    def _rotate(self, tx: Tracer, steps: VariableTracker | None = None) -> VariableTracker:
        n = 1 if steps is None else tx.operators.as_index(steps)
        if len(self.items) > 1:
            self._change(tx)
            n %= len(self.items)
            self.items[:] = self.items[-n:] + self.items[:-n] if n else self.items
        return ConstantVariable(None)

    def _copied(self, tx: Tracer) -> VariableTracker:
        return DequeVariable(list(self.items), self.maxlen)

    def _insert_at(self, tx: Tracer, index: VariableTracker, item: VariableTracker) -> VariableTracker:
        position = tx.operators.as_index(index)
        if self.maxlen is not None and len(self.items) >= self.maxlen:
            tx.raise_error(IndexError, "deque already at its maximum size")
        self._change(tx)
        self.items.insert(position, item)
        return ConstantVariable(None)

    def _clear_all(self, tx: Tracer) -> VariableTracker:
        if self.items:
            self._change(tx)
            self.items.clear()
        return ConstantVariable(None)

    def _position(self, tx: Tracer, item: VariableTracker, where: range, error: type, said: str) -> int | None:
        """The index of the first equal element among the indices `where`, None if there is none; raises `error` in the
        program if a comparison changes the deque."""
        state = self.state
        for position in where:
            found = tx.operators.same_or_equal(self.item(tx, position), item)
            if self.state != state:
                tx.raise_error(error, said)
            if found:
                return position
        return None

    def _remove_first(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        position = self._position(tx, item, range(len(self.items)), IndexError, _MUTATED)
        if position is None:
            tx.raise_error(ValueError, error_texts.not_found("deque.remove", tx.texts.to_text(item, "r").constant()))
        self._change(tx)
        del self.items[position]
        return ConstantVariable(None)

    def _index_of(self, tx: Tracer, item: VariableTracker, start: Any = None, stop: Any = None) -> VariableTracker:
        bounds = slice(tx.values.as_plain(start) if start else None, tx.values.as_plain(stop) if stop else None)
        where = range(*bounds.indices(len(self.items)))
        position = self._position(tx, item, where, RuntimeError, _MUTATED)
        if position is None:
            tx.raise_error(ValueError, error_texts.not_found("deque.index", tx.texts.to_text(item, "r").constant()))
        return ConstantVariable(position)

    def _count_of(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        state, number = self.state, 0
        for position in range(len(self.items)):
            number += tx.operators.same_or_equal(self.item(tx, position), item)
            if self.state != state:
                tx.raise_error(RuntimeError, _MUTATED)
        return ConstantVariable(number)

    methods = {
        "append": _append_right, "appendleft": _append_left, "extend": _extend_right, "extendleft": _extend_left,
        "pop": _pop_right, "popleft": _pop_left, "rotate": _rotate, "copy": _copied, "insert": _insert_at,
        "remove": _remove_first, "clear": _clear_all, "reverse": ListVariable._reverse, "index": _index_of,
        "count": _count_of,
    }

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            cg.call_function(collections.deque, [], {"maxlen": ConstantVariable(self.maxlen)})

        cg.build_new(
            self, make,
            lambda: cg.call_constant_on_top(collections.deque.extend, lambda: cg.push(TupleVariable(self.items))),
        )


class DequeIteratorVariable(IteratorVariable):
    """An iterator of a deque in either direction; it raises RuntimeError once the deque has changed."""

    def __init__(self, owner: DequeVariable, backwards: bool = False) -> None:
        super().__init__()
        self.owner = owner
        self.backwards = backwards
        self.state = owner.state
        self.size = self.left = len(owner.items)

    def python_type(self) -> type:
        deque: collections.deque[int] = collections.deque()
        return type(reversed(deque)) if self.backwards else type(iter(deque))

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if self.backwards and not self.left:
            return None
        if self.owner.state != self.state:
            self.left = 0
            tx.raise_error(RuntimeError, _MUTATED)
        if not self.left:
            return None
        self.left -= 1
        return self.owner.item(tx, self.left if self.backwards else self.size - self.left - 1)

    def reconstruct(self, cg: Codegen) -> None:
        if self.owner.state != self.state:
            unsupported("unsupported_iteration", "a deque that changes while it is iterated")
        steps = [self.owner, ConstantVariable(self.size - self.left), ConstantVariable(self.backwards)]
        cg.build_new(self, lambda: cg.call_function(started_iterator, steps, {}), lambda: None)


_MUTATED = "deque mutated during iteration"


def _last(items: list[VariableTracker], maxlen: int | None) -> list[VariableTracker]:
    return items if maxlen is None or len(items) <= maxlen else items[len(items) - maxlen :]


@wraps_type(collections.deque)
def _wrap_deque(tx: Tracer, value: collections.deque[Any], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", collections.deque)
    tx.guard(source, "len", len(value))
    items: list[VariableTracker] = [LazyVariable(item, ItemSource(source, i)) for i, item in enumerate(value)]
    maxlen = tx.values.wrap_slot(source, collections.deque, value, "maxlen")
    return DequeVariable(items, maxlen.constant(), source)
