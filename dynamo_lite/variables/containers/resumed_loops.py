"""Iterators of loops with a graph break in their body: a resume function may take one element from such an iterator.

Guards read that element ahead without advancing the iterator: whether there is a next element and what it is, but not
how many have been taken. So all iterations of the loop share their code, and an iteration breaks only in its body.
Invariant: after the graph the iterator has yielded the element, or is exhausted. If the trace has changed the container
before, or takes a second element, the graph breaks: a trace that took all elements would be specific to one iteration.
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
    """A loop's iterator, whose position differs from iteration to iteration."""

    replayed = 0  # replayed before changes of the containers and of the iterators from which it takes
    _asked = False

    def next(self, tx: Tracer) -> VariableTracker | None:
        assert self.source is not None
        effects = tx.output.effects
        found = None if self._asked else next_of(self.value)
        containers = containers_of(self.value)
        if found is None or any(effects.is_tracked(c) or effects.is_kept(c) for c in containers):
            return super().next(tx)  # breaks the graph
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
        """Never breaks the graph: the element that was read ahead can't have changed before the graph runs."""

    def replay(self, cg: Codegen) -> None:
        """Emits code that takes the element."""
        cg.load_source(self.source)
        cg.call_constant_on_top(next, lambda: cg.emit.load_const(None), count=1)
        cg.emit.pop()


def loop_iterator(tx: Tracer, value: Any, source: Source) -> VariableTracker | None:
    """The tracker of an iterator that a break has left on the stack; None if its next element can't be read ahead."""
    if next_of(value) is None:
        return None
    tx.guard(source, "type_is", type(value))
    return LoopIteratorVariable(type(value), value, source)
