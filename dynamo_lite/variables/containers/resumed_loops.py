"""Iterators of loops that a graph break has left: what goes on behind the break may take one element.

The element is looked at by guards, without moving the iterator: that there is a next one, and what it is like, but not
how many have been taken. So all turns of a loop that breaks in its body share their code, and a turn breaks in its body
alone. Invariant: behind the graph the iterator has given the element, or is at its end; a container that the trace has
changed before is left to Python, and so is a second element, as a trace that takes all of them would be another one for
each turn.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...guards.source import ComputedSource, SequenceItemSource, Source
from ..base import VariableTracker
from ..objects.objects import ObjectVariable
from .foreign_iterators import Container, containers_of, next_of

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class LoopIteratorVariable(ObjectVariable):
    """A loop's iterator, at a place that is another one in each turn."""

    replayed = 0  # before the containers change, and the iterators that it takes from
    _asked = False

    def next(self, tx: Tracer) -> VariableTracker | None:
        assert self.source is not None
        effects = tx.output.effects
        found = None if self._asked else next_of(self.value)
        containers = containers_of(self.value)
        if found is None or any(effects.is_tracked(c) or effects.is_kept(c) for c in containers):
            return super().next(tx)  # breaks
        self._asked = True
        for place, container in enumerate(containers):
            effects.note_iterated(container, ComputedSource(
                self.source, Container(place), f"container {place} of {self.source.name}"))
        peeked = ComputedSource(self.source, next_of, f"the next element of {self.source.name}")
        tx.guard(peeked, "type_is", tuple)
        tx.guard(peeked, "len", len(found))
        effects.mutate(self, [])
        if not found:
            return None
        return tx.values.wrap_at(found[0], SequenceItemSource(peeked, 0, False))

    def check_replay(self, effects: Any) -> None:
        """Nothing that was looked at before the graph can have changed."""

    def replay(self, cg: Codegen) -> None:
        """Emits what takes the element."""
        cg.load_source(self.source)
        cg.call_constant_on_top(next, lambda: cg.emit.load_const(None), count=1)
        cg.emit.pop()


def loop_iterator(tx: Tracer, value: Any, source: Source) -> VariableTracker | None:
    """The tracker of an iterator that a break has left on the stack; None if nothing can look ahead in it."""
    if next_of(value) is None:
        return None
    tx.guard(source, "type_is", type(value))
    return LoopIteratorVariable(type(value), value, source)
