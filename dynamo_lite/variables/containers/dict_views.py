"""Views of dicts and their iterators.

Invariant: a view shows the current state of the dict whenever it is read; an iterator notices changes of the dict's
size.
"""
from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from ..base import (
    IteratorVariable,
    VariableTracker,
    unsupported,
)
from ..bound import BoundMethodVariable
from ..constant import ConstantVariable
from .sequence_iterators import started_iterator
from .sequences import TupleVariable
from .view_sets import is_disjoint, view_binary, view_compare

if TYPE_CHECKING:
    from ..protocols import Codegen, DictVariable, Tracer


def _clear_moves() -> bool:
    """Whether an iterator of an OrderedDict raises the same error after ``clear()`` as after a change of its keys."""
    ordered = collections.OrderedDict(a=1, b=2)
    iterator = iter(ordered)
    next(iterator)
    ordered.clear()
    try:
        next(iterator)
    except RuntimeError as error:
        return "mutated" in str(error)
    raise AssertionError("unreachable")


CLEAR_MOVES = _clear_moves()


class DictIteratorVariable(IteratorVariable):
    """An iterator over a dict's keys, values or items."""

    def __init__(self, owner: DictVariable, what: str, backwards: bool = False) -> None:
        super().__init__()
        self.owner = owner
        self.what = what
        self.backwards = backwards
        self.rest: list[Any] | None = list(owner.items)[:: -1 if backwards else 1]  # None once exhausted
        self.size = len(owner.items)
        self.structure = owner.structure
        self.moves = owner.moves

    def python_type(self) -> type:
        made: Any = (collections.OrderedDict if self._is_ordered() else dict)()
        view = getattr(made, self.what)()
        return type(reversed(view) if self.backwards else iter(view))

    def _is_ordered(self) -> bool:
        return issubclass(self.owner.cls, collections.OrderedDict)

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if self.rest is None:
            return None
        if self._is_ordered():
            self._check_ordered(tx)
        else:
            self._check(tx)
        if not self.rest:
            self.rest = None
            return None
        hashed = self.rest.pop(0)
        key = self.owner.items[hashed][0]
        if self.what == "keys":
            return key
        value = self.owner._look_at(tx, hashed)
        return value if self.what == "values" else TupleVariable([key, value])

    def _check(self, tx: Tracer) -> None:
        """Raises in the program if the dict's size has changed (Objects/dictobject.c, dictiter_iternextkey)."""
        if len(self.owner.items) != self.size:
            self.size = -1  # so that each later step raises, too
            tx.raise_error(RuntimeError, "dictionary changed size during iteration")
        if self.owner.structure != self.structure:
            unsupported("unsupported_iteration", "a dict whose keys change while it is iterated")

    def _check_ordered(self, tx: Tracer) -> None:
        """Raises in the program if the OrderedDict has changed (Objects/odictobject.c, odictiter_nextkey)."""
        if not self.rest:
            return
        if self.owner.moves != self.moves:
            self.rest = None
            tx.raise_error(RuntimeError, "OrderedDict mutated during iteration")
        if len(self.owner.items) != self.size:
            tx.raise_error(RuntimeError, "OrderedDict changed size during iteration")

    def reconstruct(self, cg: Codegen) -> None:
        view = DictViewVariable(self.owner, self.what)
        steps = None
        if self.rest is not None:
            if not self.backwards and self.size == len(self.rest) and list(self.owner.items) == self.rest:
                cg.build_new(self, lambda: cg.call_constant(iter, lambda: cg.push(view)), lambda: None)
                return
            if self.owner.structure != self.structure:
                unsupported("unsupported_iteration", "a dict whose keys change while it is iterated")
            steps = self.size - len(self.rest)
        arguments = [view, ConstantVariable(steps), ConstantVariable(self.backwards)]
        cg.build_new(self, lambda: cg.call_function(started_iterator, arguments, {}), lambda: None)


class DictViewVariable(VariableTracker):
    """keys(), values() or items() of a dict."""

    def __init__(self, owner: DictVariable, what: str) -> None:
        super().__init__()
        self.owner = owner
        self.what = what

    def python_type(self) -> type:
        made: Any = (collections.OrderedDict if issubclass(self.owner.cls, collections.OrderedDict) else dict)()
        return type(getattr(made, self.what)())

    def length(self, tx: Tracer) -> VariableTracker:
        return ConstantVariable(len(self.owner.items))

    def truth(self, tx: Tracer) -> bool:
        return bool(self.owner.items)

    def contains_tensor(self) -> bool:
        return self.what != "keys" and self.owner.contains_tensor()

    def iterator(self, tx: Tracer) -> VariableTracker:
        return DictIteratorVariable(self.owner, self.what)

    def reversed(self, tx: Tracer) -> VariableTracker:
        return DictIteratorVariable(self.owner, self.what, backwards=True)

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        if self.what == "keys":
            return self.owner.contains(tx, item)
        if self.what == "values":
            return super().contains(tx, item)
        if not issubclass(item.python_type(), tuple) or tx.operators.as_index(item.length(tx)) != 2:
            return False
        key, value = item.iterate(tx)
        found = self.owner.lookup(tx, key)
        return found is not None and tx.operators.same_or_equal(found, value)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        return view_binary(tx, self, op, other, reflected)

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        return view_compare(tx, self, op, other)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name == "isdisjoint" and self.what != "values" and len(args) == 1 and not kwargs:
            return is_disjoint(tx, self, args[0])
        return super().call_method(tx, name, args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "isdisjoint" and self.what != "values":
            return BoundMethodVariable(self, name)
        if name == "mapping":
            return self.owner.proxy()
        return super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            if self.owner.holder is not None:
                # Its class may define a method of this name, which may be the one that is being compiled.
                cg.call_constant(getattr(self.owner.cls, self.what), lambda: cg.push(self.owner))
                return
            cg.push(self.owner)
            cg.emit.load_attr(self.what)
            cg.emit.ready_to_call()
            cg.emit.call(0)

        cg.build_new(self, make, lambda: None)
