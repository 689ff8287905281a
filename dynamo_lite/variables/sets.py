"""Sets and frozensets.

Invariant: the order of a set is known only where its members are constants; nothing else depends on it.
"""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..source import ComputedSource, SequenceItemSource, Source
from .base import IteratorVariable, VariableTracker, realized, unsupported, wraps_type
from .bound import BoundMethodVariable
from .constant import ConstantVariable, is_constant_value
from .identity import as_key, check_together
from .sequences import TupleVariable
from .user_keys import check_rebuildable

if TYPE_CHECKING:
    from ..codegen import Codegen


class SetVariable(VariableTracker):
    """A set or frozenset; `members` is hash key -> member."""

    has_identity = True

    def __init__(
        self, members: dict[Any, VariableTracker], source: Source | None = None, cls: type = set,
        in_order: bool = False,
    ) -> None:
        super().__init__(source)
        self._in_order = in_order  # whether guards fix the order of the members given
        self.members = members
        self.cls = cls
        self._given = members  # replaced, never changed: while it is the same, so is the order

    @classmethod
    def of(cls, tx: Any, items: list[VariableTracker], python_class: type = set) -> SetVariable:
        members: dict[Any, VariableTracker] = {}
        for item in items:
            members.setdefault(tx.hash_key(as_key(tx, item, members)), item)
        return cls(members, cls=python_class)

    def python_type(self) -> type:
        return self.cls

    def hashed_elements(self, tx: Any) -> dict[Any, VariableTracker]:
        return dict(self.members)

    def is_constant(self) -> bool:
        return self.cls is frozenset and all(m.is_constant() for m in self.members.values())

    def constant(self) -> Any:
        return self.cls(m.constant() for m in self.members.values())

    def same_object(self, other: VariableTracker) -> bool | None:
        if self is other:
            return True
        frozen = isinstance(other, SetVariable) and self.cls is other.cls is frozenset
        if frozen and not self.members and not other.members:  # type: ignore[attr-defined]
            return None  # there is one empty frozenset, but for what C makes
        return False

    def hash_key(self) -> Any:
        if self.cls is set:
            raise TypeError("unhashable type: 'set'")
        return frozenset(self.members)

    def contains_tensor(self) -> bool:
        return any(m.contains_tensor() for m in self.members.values())

    def truth(self, tx: Any) -> bool:
        return bool(self.members)

    def length(self, tx: Any) -> VariableTracker:
        return ConstantVariable(len(self.members))

    def ordered(self, tx: Any) -> list[VariableTracker]:
        """The members in the order in which the real set gives them."""
        if len(self.members) <= 1:
            return list(self.members.values())
        if self.source is not None:
            # Equal sets may differ in order, by what they held before.
            if self.members is not self._given:
                unsupported("unsupported_iteration", f"the order of {self.source.name}, a changed set from outside")
            if self._in_order:
                return list(self.members.values())
            tx.guard(self.source, "set_order", tuple(m.constant() for m in self.members.values()))
            return list(self.members.values())
        if not all(m.is_constant() for m in self.members.values()):
            unsupported("unsupported_iteration", "the order of a set of objects")
        by_value = {m.constant(): m for m in self.members.values()}
        return [by_value[value] for value in set(list(by_value))]  # noqa: C414 - a dict would make a larger table

    def iterator(self, tx: Any) -> VariableTracker:
        return SetIteratorVariable(self, self.ordered(tx))

    def contains(self, tx: Any, item: VariableTracker) -> bool:
        return self._key_of(tx, item) in self.members

    def _elements_of(self, tx: Any, other: VariableTracker) -> dict[Any, VariableTracker]:
        elements = other.hashed_elements(tx)
        check_together(tx, self.members, elements)
        return elements

    def _key_of(self, tx: Any, item: VariableTracker) -> Any:
        return tx.hash_key(as_key(tx, item, self.members))

    _OPS: dict[str, Callable[[dict[Any, Any], dict[Any, Any]], dict[Any, Any]]] = {
        "|": lambda a, b: {**a, **{k: v for k, v in b.items() if k not in a}},
        "&": lambda a, b: {k: v for k, v in a.items() if k in b},
        "-": lambda a, b: {k: v for k, v in a.items() if k not in b},
        "^": lambda a, b: {**{k: v for k, v in a.items() if k not in b}, **{k: v for k, v in b.items() if k not in a}},
    }

    def binary(self, tx: Any, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op not in self._OPS or not isinstance(other, SetVariable):
            return None
        check_together(tx, self.members, other.members)
        first, second = (other, self) if reflected else (self, other)
        return SetVariable(self._OPS[op](first.members, second.members), cls=first.cls)

    def inplace(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if self.cls is frozenset or op not in self._OPS or not isinstance(other, SetVariable):
            return None
        check_together(tx, self.members, other.members)
        tx.output.effects.mutate(self)
        self.members = self._OPS[op](self.members, other.members)
        return self

    def compare(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if not isinstance(other, SetVariable):
            return None
        check_together(tx, self.members, other.members)
        a, b = self.members.keys(), other.members.keys()
        results = {"==": a == b, "!=": a != b, "<=": a <= b, "<": a < b, ">=": a >= b, ">": a > b}
        return ConstantVariable(results[op])

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        if name in self.methods:
            return BoundMethodVariable(self, name)
        return tx.class_getattr(self, self.cls, name)

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        method = self.methods.get(name)
        if method is None or (self.cls is frozenset and name in _SET_MUTATORS):
            return super().call_method(tx, name, args, kwargs)
        return tx.checked_call(method, self, tx, *args, **kwargs)

    def _add(self, tx: Any, item: VariableTracker) -> VariableTracker:
        new = {self._key_of(tx, item): item}
        tx.output.effects.mutate(self)
        self.members = {**new, **self.members} if next(iter(new)) in self.members else {**self.members, **new}
        return ConstantVariable(None)

    def _discard(self, tx: Any, item: VariableTracker) -> VariableTracker:
        tx.output.effects.mutate(self)
        key = self._key_of(tx, item)
        self.members = {k: m for k, m in self.members.items() if k != key}
        return ConstantVariable(None)

    def _remove(self, tx: Any, item: VariableTracker) -> VariableTracker:
        if not self.contains(tx, item):
            tx.raise_value(KeyError, [item])
        return self._discard(tx, item)

    def _pop(self, tx: Any) -> VariableTracker:
        if not self.members:
            tx.raise_error(KeyError, "pop from an empty set")
        item = self.ordered(tx)[0]
        self._discard(tx, item)
        return item

    def _clear(self, tx: Any) -> VariableTracker:
        tx.output.effects.mutate(self)
        self.members = {}
        return ConstantVariable(None)

    def _copy(self, tx: Any) -> VariableTracker:
        return self if self.cls is frozenset else SetVariable(dict(self.members), cls=self.cls)

    def _update(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        for other in others:
            new = self._elements_of(tx, other)
            tx.output.effects.mutate(self)
            self.members = {**self.members, **{h: m for h, m in new.items() if h not in self.members}}
        return ConstantVariable(None)

    @staticmethod
    def _combine(op: str) -> Callable[..., VariableTracker]:
        def method(self: SetVariable, tx: Any, *others: VariableTracker) -> VariableTracker:
            result = dict(self.members)
            for other in others:
                result = self._OPS[op](result, self._elements_of(tx, other))
            return SetVariable(result, cls=self.cls)

        return method

    @staticmethod
    def _test(op: str) -> Callable[..., VariableTracker]:
        def method(self: SetVariable, tx: Any, other: VariableTracker) -> VariableTracker:
            theirs = SetVariable.of(tx, list(other.iterate(tx)))
            if op == "disjoint":
                return ConstantVariable(self.members.keys().isdisjoint(theirs.members.keys()))
            result = self.compare(tx, op, theirs)
            assert result is not None
            return result

        return method

    @staticmethod
    def _combine_update(op: str) -> Callable[..., VariableTracker]:
        def method(self: SetVariable, tx: Any, *others: VariableTracker) -> VariableTracker:
            members = self.members
            for other in others:
                members = self._OPS[op](members, self._elements_of(tx, other))
            tx.output.effects.mutate(self)
            self.members = members
            return ConstantVariable(None)

        return method

    methods: dict[str, Callable[..., VariableTracker]] = {
        "intersection_update": _combine_update("&"), "difference_update": _combine_update("-"),
        "symmetric_difference_update": _combine_update("^"),
        "add": _add, "discard": _discard, "remove": _remove, "pop": _pop, "clear": _clear, "copy": _copy,
        "update": _update, "union": _combine("|"), "intersection": _combine("&"), "difference": _combine("-"),
        "symmetric_difference": _combine("^"), "issubset": _test("<="), "issuperset": _test(">="),
        "isdisjoint": _test("disjoint"),
    }

    def reconstruct(self, cg: Codegen) -> None:
        members = list(self.members.values())
        check_rebuildable(self.members, "a set")
        if self.cls is frozenset:
            cg.build_new(
                self, lambda: cg.call_constant(frozenset, lambda: cg.push(TupleVariable(members))), lambda: None
            )
        else:
            cg.build_new(self, lambda: cg.emit.build_set(0), lambda: self.fill(cg))

    def fill(self, cg: Codegen) -> None:
        """With the empty set on the stack, emits what puts the members in (keeps the set on the stack)."""
        check_rebuildable(self.members, "a set")
        if self.members:
            cg.push(TupleVariable(list(self.members.values())))
            cg.emit.emit("SET_UPDATE", 1)


class SetIteratorVariable(IteratorVariable):
    """An iterator over a set."""

    def __init__(self, owner: SetVariable, members: list[VariableTracker]) -> None:
        super().__init__()
        self.owner = owner
        self.rest = members
        self.size = len(self.rest)

    def python_type(self) -> type:
        return type(iter(set()))

    def next(self, tx: Any) -> VariableTracker | None:
        if len(self.owner.members) != self.size:
            tx.raise_error(RuntimeError, "Set changed size during iteration")
        if not self.rest:
            return None
        tx.output.effects.advance(self)
        return self.rest.pop(0)

    def reconstruct(self, cg: Codegen) -> None:
        if len(self.owner.members) != self.size:
            unsupported("unsupported_iteration", "a set whose size changes while it is iterated")
        # Over the members that are left: a set made of them would have an order of its own.
        cg.build_new(self, lambda: cg.call_constant(iter, lambda: cg.push(TupleVariable(self.rest))), lambda: None)


_SET_MUTATORS = frozenset({
    "intersection_update", "difference_update", "symmetric_difference_update",
    "add", "discard", "remove", "pop", "clear", "update"})


@wraps_type(set, frozenset)
def _wrap_set(tx: Any, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    if all(is_constant_value(item) for item in value):
        tx.guard(source, "set_items", frozenset(value))
        return SetVariable({item: ConstantVariable(item) for item in value}, source, type(value))
    # The members in the order in which the set has them: nothing else tells one from another at the next call.
    listed = ComputedSource(source, tuple, f"tuple({source.name})")
    tx.guard(listed, "len", len(value))
    made = SetVariable({}, source, type(value), in_order=True)
    tx.output.effects.track(value, made)  # members may lead to it
    for place, item in enumerate(value):
        hasher = tx.class_lookup(type(item), "__hash__")
        if isinstance(hasher, types.FunctionType) and hasher is not torch.Tensor.__hash__:
            unsupported("unsupported_value", f"{source.name}, a set with a member that defines __hash__")
        member = realized(tx, tx.wrap_at(item, SequenceItemSource(listed, place, False)))
        made.members[tx.hash_key(member)] = member
    return made
