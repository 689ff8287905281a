"""Sets and frozensets.

Invariant: the order of a set is known only where its members are constants; nothing else depends on it.
"""
from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..source import ComputedSource, SequenceItemSource, Source
from .base import IteratorVariable, VariableTracker, realized, unsupported, wraps_type
from .bound import BoundMethodVariable
from .constant import ConstantVariable, is_constant_value
from .identity import as_key, check_together
from .sequences import TupleVariable, is_plain_sequence, started_iterator
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

    def _elements_of(self, tx: Any, other: VariableTracker) -> Iterator[tuple[Any, VariableTracker]]:
        return hashed_elements(tx, other, lambda: self.members)

    def _key_of(self, tx: Any, item: VariableTracker) -> Any:
        return tx.hash_key(as_key(tx, item, self.members))

    _OPS: dict[str, Callable[[dict[Any, Any], dict[Any, Any]], dict[Any, Any]]] = {
        "|": lambda a, b: {**a, **{k: v for k, v in b.items() if k not in a}},
        "&": lambda a, b: _common(a, b),
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
        key = self._key_of(tx, item)
        members = dict(self.members)
        if members.pop(key, None) is not None:
            self._store(tx, members)
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

    def changes(self) -> tuple[list[VariableTracker], list[VariableTracker]]:
        """The members to remove from the real set and those to add to it, so that it becomes this one."""
        now, before = self.members, self._given
        return [m for h, m in before.items() if h not in now], [m for h, m in now.items() if h not in before]

    def _store(self, tx: Any, members: dict[Any, VariableTracker]) -> None:
        tx.output.effects.mutate(self)
        self.members = members

    def _update(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        """Stores each element as it comes, so that what gives them sees it."""
        for other in others:
            if _asks_nothing(other):
                new = set_of(tx, other).members
                check_together(tx, self.members, new)
                self._store(tx, {**self.members, **{h: m for h, m in new.items() if h not in self.members}})
                continue
            for hashed, item in self._elements_of(tx, other):
                if hashed not in self.members:
                    self._store(tx, {**self.members, hashed: item})
        return ConstantVariable(None)

    def _difference_update(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        for other in others:
            for hashed, _ in self._elements_of(tx, other):
                members = dict(self.members)
                if members.pop(hashed, None) is not None:
                    self._store(tx, members)
        return ConstantVariable(None)

    def _symmetric_difference_update(self, tx: Any, other: VariableTracker) -> VariableTracker:
        theirs = set_of(tx, other).members
        check_together(tx, self.members, theirs)
        self._store(tx, self._OPS["^"](self.members, theirs))
        return ConstantVariable(None)

    def _intersection_update(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        self._store(tx, self._intersection(tx, *others).members)
        return ConstantVariable(None)

    def _union(self, tx: Any, *others: VariableTracker) -> SetVariable:
        result = SetVariable(self.members, cls=self.cls)
        for other in others:
            result._update(tx, other)
        return result

    def _difference(self, tx: Any, *others: VariableTracker) -> SetVariable:
        result = SetVariable(self.members, cls=self.cls)
        for other in others:
            result._difference_update(tx, other)
        return result

    def _symmetric_difference(self, tx: Any, other: VariableTracker) -> SetVariable:
        theirs = set_of(tx, other).members
        check_together(tx, self.members, theirs)
        return SetVariable(self._OPS["^"](self.members, theirs), cls=self.cls)

    def _intersection(self, tx: Any, *others: VariableTracker) -> SetVariable:
        """Looks each element up in the set as it is by then."""
        result = self
        for other in others:
            content = set_content(other)
            if content is not None:
                check_together(tx, result.members, content.members)
                result = SetVariable(_common(result.members, content.members), cls=self.cls)
                continue
            found: dict[Any, VariableTracker] = {}
            for hashed, item in result._elements_of(tx, other):
                if hashed in result.members:
                    found.setdefault(hashed, item)
                    if len(found) >= len(result.members):
                        break
            result = SetVariable(found, cls=self.cls)
        return result if result is not self else SetVariable(self.members, cls=self.cls)

    def _is_subset(self, tx: Any, other: VariableTracker) -> VariableTracker:
        content = set_content(other)
        if content is not None:
            check_together(tx, self.members, content.members)
            return ConstantVariable(self.members.keys() <= content.members.keys())
        found = self._intersection(tx, other)
        return ConstantVariable(len(found.members) == len(self.members))

    def _is_superset(self, tx: Any, other: VariableTracker) -> VariableTracker:
        return ConstantVariable(all(hashed in self.members for hashed, _ in self._elements_of(tx, other)))

    def _is_disjoint(self, tx: Any, other: VariableTracker) -> VariableTracker:
        return ConstantVariable(not any(hashed in self.members for hashed, _ in self._elements_of(tx, other)))

    methods: dict[str, Callable[..., VariableTracker]] = {
        "intersection_update": _intersection_update, "difference_update": _difference_update,
        "symmetric_difference_update": _symmetric_difference_update,
        "add": _add, "discard": _discard, "remove": _remove, "pop": _pop, "clear": _clear, "copy": _copy,
        "update": _update, "union": _union, "intersection": _intersection, "difference": _difference,
        "symmetric_difference": _symmetric_difference, "issubset": _is_subset, "issuperset": _is_superset,
        "isdisjoint": _is_disjoint,
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
            cg.emit.set_update()


class SetIteratorVariable(IteratorVariable):
    """An iterator over a set."""

    def __init__(self, owner: SetVariable, members: list[VariableTracker]) -> None:
        super().__init__()
        self.owner = owner
        self.rest = members
        self.members = owner.members  # replaced, never changed
        self.size: int | None = len(self.rest)

    def python_type(self) -> type:
        return type(iter(set()))

    def next(self, tx: Any) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if self.size is None:
            return None
        if len(self.owner.members) != self.size:
            self.size = -1  # it raises from now on
            tx.raise_error(RuntimeError, "Set changed size during iteration")
        if self.owner.members is not self.members and self.owner.members.keys() != self.members.keys():
            unsupported("unsupported_iteration", "a set whose members change while it is iterated")
        if not self.rest:
            self.size = None  # at its end, whatever becomes of the set
            return None
        return self.rest.pop(0)

    def reconstruct(self, cg: Codegen) -> None:
        same = self.owner.members is self.members or self.owner.members.keys() == self.members.keys()
        if self.size is not None and not same:
            unsupported("unsupported_iteration", "a set whose members change while it is iterated")
        steps = ConstantVariable(self.size - len(self.rest) if self.size is not None else None)
        arguments = [self.owner, steps, ConstantVariable(False)]
        cg.build_new(self, lambda: cg.call_function(started_iterator, arguments, {}), lambda: None)


def constant_part(tx: Any, value: Any) -> VariableTracker:
    """A constant that is a key or member: a tuple or frozenset is one to iterate over, too."""
    return ConstantVariable(value) if type(value) is str else tx.from_result(value, "key")  # type: ignore[no-any-return]


def set_content(value: VariableTracker) -> SetVariable | None:
    """The members of a set, or of an object that is one; None for other values."""
    content = getattr(value, "content", None) or value
    return content if isinstance(content, SetVariable) else None


def hashed_elements(
    tx: Any, value: VariableTracker, keys: Callable[[], Iterable[Any]]
) -> Iterator[tuple[Any, VariableTracker]]:
    """The elements with their hash keys as a set takes them: those of sets and plain dicts without asking for their
    hashes again, others one by one, each hashed before the next is asked for. `keys`: those that they meet."""
    content = set_content(value)
    if content is not None:
        check_together(tx, keys(), content.members)
        yield from content.members.items()
    elif (entries := tx.plain_dict(value)) is not None:
        check_together(tx, keys(), entries)
        for hashed, (key, _) in list(entries.items()):
            yield hashed, key
    else:
        for item in tx.steps(tx.get_iter(value)):
            yield tx.hash_key(as_key(tx, item, keys())), item


def _asks_nothing(value: VariableTracker) -> bool:
    """Whether to take and hash the elements runs none of the program's code."""
    return value.is_constant() or is_plain_sequence(value) and all(m.is_constant() for m in value.items)  # type: ignore


def set_of(tx: Any, value: VariableTracker, cls: type = set) -> SetVariable:
    """set(value)"""
    members: dict[Any, VariableTracker] = {}
    for hashed, item in hashed_elements(tx, value, lambda: members):
        members.setdefault(hashed, item)
    return SetVariable(members, cls=cls)


def _common(a: dict[Any, VariableTracker], b: dict[Any, VariableTracker]) -> dict[Any, VariableTracker]:
    """The members of both: those of the smaller set (Objects/setobject.c, set_intersection)."""
    small, large = (a, b) if len(b) > len(a) else (b, a)
    return {hashed: member for hashed, member in small.items() if hashed in large}


_SET_MUTATORS = frozenset({
    "intersection_update", "difference_update", "symmetric_difference_update",
    "add", "discard", "remove", "pop", "clear", "update"})


@wraps_type(set, frozenset)
def _wrap_set(tx: Any, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    if all(is_constant_value(item) for item in value):
        tx.guard(source, "set_items", frozenset(value))
        return SetVariable({item: constant_part(tx, item) for item in value}, source, type(value))
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
