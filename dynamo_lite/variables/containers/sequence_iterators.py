"""Iterators over lists and tuples, in both directions.

Invariant: like CPython's iterators, each step reads the current state of the sequence, and an exhausted iterator stays
exhausted.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..base import IteratorVariable, VariableTracker
from ..constant import ConstantVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, SequenceVariable, Tracer


class SequenceIteratorVariable(IteratorVariable):
    """An iterator of a list or tuple, at `index`."""

    def __init__(self, sequence: SequenceVariable, index: int = 0) -> None:
        super().__init__()
        self.sequence = sequence
        self.index = index

    def python_type(self) -> type:
        return type(iter([])) if self.sequence.base_type is list else type(iter(()))

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if self.index >= len(self.sequence.items):
            self.index = _EXHAUSTED  # exhausted iterators stay so, even if the list grows
            return None
        self.index += 1
        return self.sequence.item(tx, self.index - 1)

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            own = iter if self.sequence.holder is None else own_iterator
            cg.call_constant(own, lambda: cg.push(self.sequence))

        if self.sequence.base_type not in (list, tuple):
            taken = ConstantVariable(min(self.index, len(self.sequence.items)))
            steps = [self.sequence, taken, ConstantVariable(False)]
            cg.build_new(self, lambda: cg.call_function(started_iterator, steps, {}), lambda: None)
            return

        def position() -> None:
            if self.index >= _EXHAUSTED:
                cg.call_constant_on_top(exhaust, lambda: None, count=0)
            elif self.index:
                cg.emit.dup()
                cg.emit.load_attr("__setstate__")
                cg.call_top(lambda: cg.emit.load_const(self.index))
                cg.emit.pop()

        cg.build_new(self, make, position)


_EXHAUSTED = 1 << 62


def exhaust(iterator: Any) -> None:
    """Takes all remaining elements of an iterator, so that it stays exhausted even if its container grows."""
    for _ in iterator:
        pass


def own_iterator(container: Any) -> Any:
    """The iterator of a container as the library's class makes it. The container's own class may define ``__iter__``,
    and that may be what has asked for this iterator. Called by generated code."""
    for cls in type(container).__mro__:
        method = cls.__dict__.get("__iter__")
        if isinstance(method, types.WrapperDescriptorType):
            return method(container)
    return iter(container)


def own_reversed(container: Any) -> Any:
    """The same for ``reversed(container)``."""
    for cls in type(container).__mro__:
        method = cls.__dict__.get("__reversed__")
        if isinstance(method, types.MethodDescriptorType):
            return method(container)
    return reversed(container)


def started_iterator(container: Any, steps: int | None, backwards: bool) -> Any:
    """A new iterator over a container from which `steps` elements have been taken, or all of them for None, so that it
    stays exhausted. Called by generated code."""
    iterator = own_reversed(container) if backwards else own_iterator(container)
    for _ in range(steps) if steps is not None else iterator:
        if steps is not None:
            next(iterator)
    return iterator


class ReversedVariable(IteratorVariable):
    """reversed(sequence); `index` is the next position, negative when exhausted."""

    def __init__(self, sequence: SequenceVariable) -> None:
        super().__init__()
        self.sequence = sequence
        self.index = len(sequence.items) - 1

    def python_type(self) -> type:
        return type(reversed([])) if self.sequence.base_type is list else reversed

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if not 0 <= self.index < len(self.sequence.items):
            self.index = -1
            return None
        self.index -= 1
        return self.sequence.item(tx, self.index + 1)

    def reconstruct(self, cg: Codegen) -> None:
        def position() -> None:
            cg.emit.dup()
            cg.emit.load_attr("__setstate__")
            cg.call_top(lambda: cg.emit.load_const(self.index))
            cg.emit.pop()

        own = reversed if self.sequence.holder is None else own_reversed
        cg.build_new(self, lambda: cg.call_constant(own, lambda: cg.push(self.sequence)), position)
