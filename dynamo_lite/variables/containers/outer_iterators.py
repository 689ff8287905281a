"""Iterators over builtin containers that come in from outside, like that of a comprehension with a frame of its own.

Invariant: the tracker's container is the one over which the real iterator goes; guards reach it through the iterator.
After the graph, generated code has advanced the iterator by the number of elements that the program took.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...guards.source import ComputedSource, LocalSource, Source
from ..base import VariableTracker, realized, unsupported, wraps_type
from ..numbers.ranges import RangeIteratorVariable
from ..objects.objects import wrap_object
from .dict_views import DictIteratorVariable
from .foreign_iterators import (
    FOLLOWED,
    ITEMS,
    KEYS,
    LIST,
    RANGE,
    TUPLE,
    VALUES,
    Inner,
    container_of,
    count_of,
    function_of,
    inner_of,
    is_followed,
    is_new,
    is_strict,
    position_of,
)
from .iterators import EnumerateVariable, MapVariable, ZipVariable
from .mappings import DictVariable
from .resumed_loops import loop_iterator
from .sequence_iterators import SequenceIteratorVariable, exhaust
from .sequences import TupleVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class _Outer(VariableTracker):
    """Mixin for iterators from outside, which generated code advances to the position where the program left them."""

    taken = 0  # number of elements taken
    at_end = False
    replayed = 1

    def take(self, tx: Tracer) -> VariableTracker | None:
        """next(); counts the elements that are taken."""
        tx.output.effects.mutate(self, [])
        found = super().next(tx)  # the next class in the method resolution order
        if found is None:
            self.at_end = True
        else:
            self.taken += 1
        return found

    def check_replay(self, effects: Any) -> None:
        """Breaks the graph if the real iterator can't be advanced to the position where the program left it."""

    def replay(self, cg: Codegen) -> None:
        """Emits code that advances the real iterator to that position."""
        cg.load_source(self.source)
        self.move(cg)
        cg.emit.pop()

    def move(self, cg: Codegen) -> None:
        """Emits code that advances the iterator on top of the stack and leaves it there."""
        if self.at_end:
            cg.call_constant_on_top(exhaust, lambda: None, count=0)
        else:
            cg.emit.dup()
            cg.emit.load_attr("__setstate__")
            cg.call_top(lambda: cg.emit.load_const(self.taken))
            cg.emit.pop()


class OuterSequenceIteratorVariable(_Outer, SequenceIteratorVariable):
    """An iterator of a list or tuple."""

    next = _Outer.take


class OuterRangeIteratorVariable(_Outer, RangeIteratorVariable):
    """An iterator of a range."""

    next = _Outer.take


class OuterDictIteratorVariable(_Outer, DictIteratorVariable):
    """An iterator of a dict's keys, values or items; generated code takes the elements one by one."""

    next = _Outer.take

    def check_replay(self, effects: Any) -> None:
        if effects.is_mutated(self.owner):
            unsupported("side_effect_unsupported", f"{self.describe()}, over a dict that changes")

    def move(self, cg: Codegen) -> None:
        left = -1 if self.at_end else self.size - self.taken
        cg.call_constant_on_top(take_down_to, lambda: cg.emit.load_const(left), count=1)


class OuterEnumerateVariable(_Outer, EnumerateVariable):
    """An enumerate(); generated code takes its elements one by one, and afterwards advances the inner iterator to its
    own position."""

    next = _Outer.take
    replayed = 0

    def check_replay(self, effects: Any) -> None:
        over = self.inner.sequence
        if over is not None and effects.is_mutated(over):
            unsupported("side_effect_unsupported", f"{self.describe()}, over a list that changes")

    def move(self, cg: Codegen) -> None:
        cg.call_constant_on_top(take, lambda: cg.emit.load_const(self.taken), count=1)


def take(iterator: Any, steps: int) -> None:
    """Takes `steps` elements from an iterator of a builtin container; called by generated code."""
    for _ in range(steps):
        next(iterator, None)


def take_down_to(iterator: Any, left: int) -> None:
    """Takes elements from an iterator over a dict until `left` remain, or until it is exhausted for -1; an enumerate()
    over it may already have taken some."""
    for _ in range(iterator.__length_hint__() - left):
        next(iterator, None)


# ---------------------------------------------------------------- wrapping
@wraps_type(*FOLLOWED)
def _wrap_iterator(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    # The iterator of a loop with a graph break in its body counts as partly consumed, even if generated code has made
    # a new iterator for the remaining elements.
    if isinstance(source, LocalSource) and source.left_on_stack:
        return loop_iterator(tx, value, source) or wrap_object(tx, value, source)
    if source.is_frozen or not is_followed(value):
        return wrap_object(tx, value, source)
    tx.guard(source, "type_is", type(value))
    made: VariableTracker
    if type(value) in (LIST, TUPLE, RANGE):
        made = _over_sequence(tx, value, source)
    elif type(value) in (KEYS, VALUES, ITEMS):
        made = _over_dict(tx, value, source)
    else:
        made = _over_iterators(tx, value, source)
    made.source = source
    return made


def _part(tx: Tracer, value: Any, source: Source, function: Any, words: str) -> VariableTracker:
    """The result of a function of an iterator, with a source through which guards reach it."""
    part = ComputedSource(source, function, f"{words} of {source.name}")
    return realized(tx, tx.values.wrap_at(function(value), part))


def _over_sequence(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    position = ComputedSource(source, position_of, f"the position of {source.name}")
    tx.guard(position, "const", position_of(value))
    if type(value) is RANGE:
        over = ComputedSource(source, container_of, f"the range of {source.name}")
        tx.guard(over, "const", container_of(value))
        rest = container_of(value)
        return OuterRangeIteratorVariable(rest if position_of(value) is not None else rest[:0])
    if position_of(value) is None:
        ended = OuterSequenceIteratorVariable(TupleVariable([]))
        ended.at_end = True
        return ended
    whole = _part(tx, value, source, container_of, "the container")
    # For an instance of a subclass of list, the iterator goes over the builtin content.
    held: Any = whole.content or whole
    return OuterSequenceIteratorVariable(held)


def _over_dict(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    new = is_new(value)
    tx.guard(ComputedSource(source, is_new, f"whether {source.name} is new"), "const", new)
    what = {KEYS: "keys", VALUES: "values", ITEMS: "items"}[type(value)]
    if new is None:
        return OuterDictIteratorVariable(tx.values.new_dict({}), what)
    over = _part(tx, value, source, container_of, "the dict")
    if not isinstance(over, DictVariable) or tx.output.effects.is_mutated(over):
        unsupported("unsupported_iteration", f"{source.name}, an iterator over {over.describe()}")
    return OuterDictIteratorVariable(over, what)


def _over_iterators(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    length = ComputedSource(source, inner_of, f"the iterators of {source.name}")
    tx.guard(length, "len", len(inner_of(value)))
    inner = [_part(tx, value, source, Inner(n), f"iterator {n}") for n in range(len(inner_of(value)))]
    if type(value) is zip:
        strict = ComputedSource(source, is_strict, f"whether {source.name} is strict")
        tx.guard(strict, "const", is_strict(value))
        return ZipVariable(inner, is_strict(value))
    if type(value) is map:
        return MapVariable(_part(tx, value, source, function_of, "the function"), inner)
    count = ComputedSource(source, count_of, f"the count of {source.name}")
    tx.guard(count, "const", count_of(value))
    return OuterEnumerateVariable(inner[0], count_of(value))


__all__ = ["take", "take_down_to"]
