"""The lazy iterators of the builtins (enumerate, zip, map, filter, iter(callable, sentinel)) and itertools.tee.

Invariant: the inner iterators of each are at the same position as those of the real iterator would be, so that
generated code rebuilds it as a new iterator over them.
"""
from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...polyfills.iteration import Steps
from ..base import IteratorVariable, ObservedException, VariableTracker
from ..constant import ConstantVariable
from ..functions.equivalents import check_asked_again
from .sequences import TupleVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class IteratorAdapterVariable(IteratorVariable):
    """The base class of iterators that take their elements from other iterators or from a function."""

    cls: type = object

    def python_type(self) -> type:
        return self.cls


class CallingIteratorVariable(IteratorAdapterVariable):
    """The base class of iterators that call a function for each element: a StopIteration of the function ends that
    step, but does not exhaust the iterator."""

    stopped: Any = None  # the StopIteration of the last step

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        self.stopped = None
        try:
            return self.step(tx)
        except ObservedException as error:
            if not issubclass(error.value.python_type(), StopIteration):
                raise
            self.stopped = error
            return None

    def step(self, tx: Tracer) -> VariableTracker | None:
        """The next element, None at the end."""
        raise NotImplementedError


class EnumerateVariable(IteratorAdapterVariable):
    """enumerate(iterator, count)."""

    cls = enumerate

    def __init__(self, inner: VariableTracker, count: int) -> None:
        super().__init__()
        self.inner = inner
        self.count = count

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        value = self.inner.next(tx)
        if value is None:
            return None
        self.count += 1
        return TupleVariable([ConstantVariable(self.count - 1), value])

    def reconstruct(self, cg: Codegen) -> None:
        check_asked_again(self.inner)
        cg.build_new(
            self, lambda: cg.call_function(enumerate, [self.inner, ConstantVariable(self.count)], {}), lambda: None
        )


class ZipVariable(IteratorAdapterVariable):
    """zip(*iterators, strict)."""

    cls = zip

    def __init__(self, inner: list[VariableTracker], strict: bool) -> None:
        super().__init__()
        self.inner = inner
        self.strict = strict

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if not self.inner:
            return None
        items: list[VariableTracker] = []
        for position, iterator in enumerate(self.inner):
            value = iterator.next(tx)
            if value is None:
                if self.strict:
                    self._check_strict(tx, position)
                return None
            items.append(value)
        return TupleVariable(items)

    def _check_strict(self, tx: Tracer, position: int) -> None:
        if position:
            plural = " " if position == 1 else "s 1-"
            tx.raise_error(ValueError, f"zip() argument {position + 1} is shorter than argument{plural}{position}")
        for later, iterator in enumerate(self.inner[1:], 1):
            if iterator.next(tx) is not None:
                plural = " " if later == 1 else "s 1-"
                tx.raise_error(ValueError, f"zip() argument {later + 1} is longer than argument{plural}{later}")

    def reconstruct(self, cg: Codegen) -> None:
        check_asked_again(*self.inner)
        kwargs: dict[str, VariableTracker] = {"strict": ConstantVariable(True)} if self.strict else {}
        cg.build_new(self, lambda: cg.call_function(zip, self.inner, kwargs), lambda: None)


class MapVariable(CallingIteratorVariable):
    """map(function, *iterators)."""

    cls = map

    def __init__(self, function: VariableTracker, inner: list[VariableTracker]) -> None:
        super().__init__()
        self.function = function
        self.inner = inner

    def step(self, tx: Tracer) -> VariableTracker | None:
        items: list[VariableTracker] = []
        for iterator in self.inner:
            value = iterator.next(tx)
            if value is None:
                return None
            items.append(value)
        return tx.call(self.function, items, {})

    def reconstruct(self, cg: Codegen) -> None:
        check_asked_again(*self.inner)
        cg.build_new(self, lambda: cg.call_function(map, [self.function, *self.inner], {}), lambda: None)


class FilterVariable(CallingIteratorVariable):
    """filter(function, iterator)."""

    cls = filter

    def __init__(self, function: VariableTracker, inner: VariableTracker) -> None:
        super().__init__()
        self.function = function
        self.inner = inner

    def step(self, tx: Tracer) -> VariableTracker | None:
        keep_true = self.function.is_constant() and self.function.constant() in (None, bool)
        while (value := self.inner.next(tx)) is not None:
            if tx.truth(value if keep_true else tx.call(self.function, [value], {})):
                return value
        return None

    def reconstruct(self, cg: Codegen) -> None:
        check_asked_again(self.inner)
        cg.build_new(self, lambda: cg.call_function(filter, [self.function, self.inner], {}), lambda: None)


class CallIteratorVariable(IteratorAdapterVariable):
    """iter(function, sentinel)."""

    cls = type(iter(int, 1))

    def __init__(self, function: VariableTracker, sentinel: VariableTracker) -> None:
        super().__init__()
        self.function = function
        self.sentinel = sentinel
        self.done = False

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if self.done:
            return None
        try:
            value = tx.call(self.function, [], {})
            if not self.done and not tx.operators.same_or_equal(self.sentinel, value):
                return value
        except ObservedException as error:
            if not issubclass(error.value.python_type(), StopIteration):
                raise
        self.done = True
        return None

    def reconstruct(self, cg: Codegen) -> None:
        if self.done:
            cg.build_new(self, lambda: cg.call_constant(finished_call_iterator, lambda: None, count=0), lambda: None)
        else:
            cg.build_new(self, lambda: cg.call_function(iter, [self.function, self.sentinel], {}), lambda: None)


class ReversedObjectVariable(IteratorAdapterVariable):
    """reversed() of an object with ``__len__`` and ``__getitem__`` (Objects/enumobject.c)."""

    cls = reversed

    def __init__(self, owner: VariableTracker, index: int) -> None:
        super().__init__()
        self.owner = owner
        self.index = index  # index of the next element, negative when exhausted

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if self.index < 0:
            return None
        try:
            value: VariableTracker = self.owner.getitem(tx, ConstantVariable(self.index))
        except ObservedException as error:
            self.index = -1
            if not issubclass(error.value.python_type(), (IndexError, StopIteration)):
                raise
            return None
        self.index -= 1
        return value

    def remaining(self, tx: Tracer) -> VariableTracker:
        """The result of ``__length_hint__``."""
        if self.index < 0:
            return ConstantVariable(0)
        return ConstantVariable(self.index + 1 if tx.operators.as_index(self.owner.length(tx)) > self.index else 0)


class StepsVariable(IteratorAdapterVariable):
    """The remaining elements of an iterator of the program's, for a polyfill that has already called iter()."""

    cls = Steps

    def __init__(self, inner: VariableTracker) -> None:
        super().__init__()
        self.inner = inner

    def next(self, tx: Tracer) -> VariableTracker | None:
        return self.inner.next(tx)


class TeeSourceVariable(VariableTracker):
    """The shared state of the iterators of one itertools.tee(): an iterator, and the elements taken from it so far."""

    has_identity = True

    def __init__(self, inner: VariableTracker) -> None:
        super().__init__()
        self.inner = inner
        self.taken: list[VariableTracker] = []

    def reconstruct(self, cg: Codegen) -> None:
        check_asked_again(self.inner)
        cg.build_new(self, lambda: cg.call_function(tee_source, [self.inner, TupleVariable(self.taken)], {}),
                     lambda: None)


class TeeVariable(IteratorAdapterVariable):
    """One of the iterators that itertools.tee() returns."""

    cls = itertools._tee  # type: ignore[attr-defined]

    def __init__(self, shared: TeeSourceVariable, position: int = 0) -> None:
        super().__init__()
        self.shared = shared
        self.position = position

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        taken = self.shared.taken
        if self.position == len(taken):
            tx.output.effects.advance(self.shared)
            value = self.shared.inner.next(tx)
            if value is None:
                return None
            taken.append(value)
        self.position += 1
        return taken[self.position - 1]

    def copied(self) -> TeeVariable:
        """copy.copy(self)."""
        return TeeVariable(self.shared, self.position)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return tx.builtin_method(self, name) if name == "__copy__" else super().getattr(tx, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name == "__copy__" and not args:
            return self.copied()
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(
            self, lambda: cg.call_function(tee_at, [self.shared, ConstantVariable(self.position)], {}), lambda: None)


def tee_source(inner: Iterator[Any], taken: tuple[Any, ...]) -> Any:
    """A tee iterator at its beginning, which `tee_at` copies."""
    return itertools.tee(itertools.chain(taken, inner) if taken else inner, 1)[0]


def tee_at(first: Any, position: int) -> Any:
    """A copy of a tee iterator, advanced by `position` steps."""
    made = copy.copy(first)
    for _ in range(position):
        next(made)
    return made


def finished_call_iterator() -> Any:
    """An exhausted iterator of two-argument iter()."""
    iterator = iter(int, 0)
    next(iterator, None)
    return iterator

