"""How functions that are written in C iterate over their arguments (Objects/abstract.c).

Some store each element as it comes, some take all elements first; some ask for a length before they begin, and some
ask an iterator for its iterator once more. Invariant: the program's own methods are called as often and in the order
in which CPython calls them.
"""
from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..bytecode.facts import facts
from ..variables import error_texts
from ..variables.base import IteratorVariable, ObservedException, VariableTracker, realized
from ..variables.constant import ConstantVariable
from ..variables.containers.iterators import ReversedObjectVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import is_plain_sequence
from ..variables.functions.generators import GeneratorVariable
from ..variables.objects.classes import NO_ATTRIBUTE
from ..variables.objects.objects import GetItemIteratorVariable, ObjectVariable
from ..variables.tensors.tensor import TensorVariable
from .part import Part


@functools.cache
def _tuple_asks_for_lengths() -> bool:
    """Whether tuple() calls ``__length_hint__`` of an iterable, as it does up to Python 3.13."""
    asked = []

    class Items:
        def __iter__(self) -> Iterator[int]:
            return iter(())

        def __length_hint__(self) -> int:
            asked.append(self)
            return 0

    tuple(Items())
    return bool(asked)


class Iteration(Part):
    """Iterators and the elements taken from them; a part of the tracer."""

    def close_generator(self, generator: GeneratorVariable) -> VariableTracker:
        """generator.close() (Objects/genobject.c, gen_close)."""
        if not generator.started:
            generator.begin(self.tx)
            generator.finished = True
        if generator.finished:
            return ConstantVariable(None)
        try:
            value = generator.resume(self.tx, None, ObservedException(self.tx.errors.new_exception(GeneratorExit, [])))
        except ObservedException as error:
            if issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
                return ConstantVariable(None)
            raise
        if value is not None:
            self.tx.raise_error(RuntimeError, "generator ignored GeneratorExit")
        return generator.returned if facts.CLOSE_RETURNS else ConstantVariable(None)

    def get_iter(self, value: VariableTracker) -> VariableTracker:
        """iter(value)."""
        tx = self.tx
        found = realized(tx, realized(tx, value).iterator(tx))
        if not isinstance(found, (IteratorVariable, GeneratorVariable)):
            cls = found.python_type()
            if not hasattr(cls, "__next__") and tx.classes.lookup(cls, "__next__") is None:
                tx.raise_error(TypeError, error_texts.wrong_result("__iter__", value.python_type(), cls))
        return found

    def steps(self, iterator: VariableTracker) -> Iterator[VariableTracker]:
        """The remaining elements of an iterator; unlike a loop, doesn't call its ``__iter__``."""
        while (item := iterator.next(self.tx)) is not None:
            yield item

    def steps_with_hint(self, items: VariableTracker) -> Iterator[VariableTracker]:
        """The elements one by one, after a call of the iterable's length hint."""
        iterator = self.get_iter(items)
        self.length_hint(items)
        yield from self.steps(iterator)

    def listed(self, items: VariableTracker, into: type = list) -> list[VariableTracker]:
        """The elements, read in the way of list() and tuple()."""
        items = realized(self.tx, items)
        if is_plain_sequence(items):
            return list(items.iterate(self.tx))
        hinted = into is list or _tuple_asks_for_lengths()
        return list(self.steps_with_hint(items) if hinted else self.steps(self.get_iter(items)))

    def fast_sequence(self, items: VariableTracker, said: str, owner: Any = None) -> list[VariableTracker]:
        """The elements, read in the way of functions that need all of them at once (PySequence_Fast); `said`: the text
        of the TypeError for a value that isn't iterable; `owner`: the list that receives the elements."""
        items = realized(self.tx, items)
        if is_plain_sequence(items) or items is owner:
            return list(items.iterate(self.tx))
        return self.listed(self.iterator_or(items, said))

    def iterator_or(self, items: VariableTracker, said: str) -> VariableTracker:
        """iter(items), but a TypeError is raised with another text."""
        tx = self.tx
        try:
            return self.get_iter(items)
        except ObservedException as error:
            if not issubclass(error.value.python_type(), TypeError):
                raise
        tx.raise_error(TypeError, said)

    def plain_dict(self, value: VariableTracker) -> dict[Any, tuple[VariableTracker, VariableTracker]] | None:
        """The entries by hash key of a value whose type is exactly dict; None for other values."""
        value = realized(self.tx, value)
        plain = isinstance(value, DictVariable) and value.cls is dict and value.holder is None
        return value.items if plain else None  # type: ignore[attr-defined]

    def next_of(self, iterator: VariableTracker) -> VariableTracker:
        """next(iterator); raises StopIteration at its end."""
        tx = self.tx
        if isinstance(iterator, ObjectVariable):
            method = tx.classes.special(iterator.cls, "__next__")
            if isinstance(method, types.FunctionType):
                return tx.classes.call_attribute(iterator, iterator.cls, "__next__", method, [], {})
        value = iterator.next(tx)
        if value is not None:
            return value
        if iterator.stopped is not None:
            raise iterator.stopped
        tx.errors.raise_stop_iteration(iterator.returned or ConstantVariable(None))

    def length_hint(self, owner: VariableTracker) -> VariableTracker | None:
        """The length or length hint of an object; None if it has neither (Objects/abstract.c, PyObject_LengthHint)."""
        tx = self.tx
        for ask in self._hints(realized(self.tx, owner)):
            try:
                said = ask()
            except ObservedException as error:
                if issubclass(error.value.python_type(), TypeError):
                    continue
                raise
            if said is None or said.is_not_implemented():
                continue
            if not issubclass(said.python_type(), int):
                tx.raise_error(TypeError, error_texts.wrong_result(
                    "__length_hint__", owner.python_type(), said.python_type()))
            if said.python_type() is not int:
                said = ConstantVariable(int(tx.operators.as_index(said)))
            if said.is_constant() and said.constant() < 0:
                tx.raise_error(ValueError, error_texts.negative_length(owner.python_type()))
            if said.is_constant() and said.constant() > sys.maxsize:
                tx.raise_error(OverflowError, "Python int too large to convert to C ssize_t")
            return said
        return None

    def _hints(self, owner: VariableTracker) -> Iterator[Callable[[], VariableTracker | None]]:
        """User-defined methods that tell the number of elements; builtin values have none. A tensor's own length
        matters only where ``__torch_function__`` sees that it is asked."""
        tx = self.tx
        if isinstance(owner, TensorVariable) and (tx.output.overrides.active() or tx.overrides_torch([owner])):
            yield lambda: owner.length(tx)
        if isinstance(owner, (GetItemIteratorVariable, ReversedObjectVariable)):
            yield lambda: owner.remaining(tx)
        if not isinstance(owner, ObjectVariable):
            return
        if not isinstance(tx.classes.lookup(owner.cls, "__len__"), (types.NoneType, types.WrapperDescriptorType)):
            yield lambda: owner.length(tx)
        if tx.classes.lookup(owner.cls, "__length_hint__", NO_ATTRIBUTE) is not NO_ATTRIBUTE:
            yield lambda: tx.call_special(owner, "__length_hint__")
