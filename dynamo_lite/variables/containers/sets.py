"""Sets and frozensets.

Invariant: the iteration order of a set is known only where its members are constants, from its table (``set_tables``),
and for a set from outside as long as it is unchanged; otherwise a use of the order breaks the graph.
"""
from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..._guards import clone_table
from ...guards.source import ComputedSource, SequenceItemSource, Source
from ..base import IteratorVariable, VariableTracker, realized, type_name, unsupported, wraps_type
from ..bound import BoundMethodVariable
from ..constant import ConstantVariable, is_constant_value
from ..identity import as_key, check_together
from .sequence_iterators import started_iterator
from .sequences import is_plain_sequence
from .set_tables import (
    Elements,
    GivenState,
    One,
    SetState,
    added_state,
    constants,
    known_state,
    made_state,
    push_steps,
)
from .symbolic_keys import lacks_number
from .user_keys import UserKey, check_given, check_rebuildable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class SetVariable(VariableTracker):
    """A set or frozenset; `members` maps hash keys to members, and is replaced, never changed.

    Args:
        state: the state with its history; None if the members were added one by one.
        in_order: whether guards fix the order in which the members are given.
    """

    has_identity = True

    def __init__(
        self, members: dict[Any, VariableTracker], source: Source | None = None, cls: Any = set,
        in_order: bool = False, state: SetState | None = None,
    ) -> None:
        super().__init__(source)
        self._in_order = in_order
        self.members = members
        self.cls = cls
        self.state = state if state is not None else added_state(members, cls)
        self._popped = False

    @classmethod
    def of(cls, tx: Tracer, items: list[VariableTracker], python_class: type = set) -> SetVariable:
        members: dict[Any, VariableTracker] = {}
        for item in items:
            members.setdefault(tx.operators.hash_key(as_key(tx, item, members), "set element"), item)
        return cls(members, cls=python_class)

    @classmethod
    def known(cls, real: Any, members: dict[Any, VariableTracker]) -> SetVariable:
        """The tracker of a set that Python made while tracing and that nobody changes."""
        fixed = constants(members.values()) is not None
        return cls(members, cls=type(real), state=known_state(members, real) if fixed else None)

    def duplicate(self) -> SetVariable:
        """A new set, like the result of ``copy``."""
        members = dict(self.members)
        return SetVariable(members, cls=self.cls, state=made_state(self.cls.union, self.state, (), members))

    def python_type(self) -> type:
        return self.cls

    def is_constant(self) -> bool:
        known = self.cls is frozenset and (self.state.real is not None or len(self.members) < 2)
        return known and all(m.is_constant() for m in self.members.values())

    def constant(self) -> Any:
        real = self.state.real
        return real if real is not None else self.cls(m.constant() for m in self.members.values())

    def same_object(self, other: VariableTracker) -> bool | None:
        if self is other:
            return True
        frozen = isinstance(other, SetVariable) and self.cls is other.cls is frozenset
        if frozen and not self.members and not other.members:  # type: ignore[attr-defined]
            return None  # the empty frozenset is one object, except those made in C
        return False

    def hash_key(self) -> Any:
        if self.cls is set:
            raise TypeError(f"unhashable type: {type_name(self.python_type())!r}")
        return frozenset(self.members)

    def contains_tensor(self) -> bool:
        return any(m.contains_tensor() for m in self.members.values())

    def initialize(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        super().initialize(tx, args, kwargs)
        if self.cls is not frozenset:
            self.call_method(tx, "clear", [], {})
            if args:
                self.call_method(tx, "update", args, {})

    def truth(self, tx: Tracer) -> bool:
        return bool(self.members)

    def asks_own(self, tx: Tracer, *names: str) -> bool:
        return any(member.asks_own(tx, *names) for member in self.members.values())

    def check_plain(self, tx: Tracer, texts: bool = True) -> None:
        for member in self.members.values():
            member.check_plain(tx, texts)

    def to_plain(self, tx: Tracer) -> Any:
        self.check_plain(tx)
        if all(member.is_constant() for member in self.members.values()):
            return clone_table(self.real(tx)) if len(self.members) > 1 else self.cls(
                member.constant() for member in self.members.values())
        return self.constant() if self.is_constant() else self.python_type()(
            tx.values.as_plain(member) for member in self.members.values())

    def length(self, tx: Tracer) -> VariableTracker:
        return ConstantVariable(len(self.members))

    def ordered(self, tx: Tracer) -> list[VariableTracker]:
        """The members in the iteration order of the real set."""
        if len(self.members) <= 1:
            return list(self.members.values())
        if self.state is self.state.given and self.source is not None:
            # Equal sets may differ in order, as that depends on former members.
            if not self._in_order:
                tx.guard(self.source, "set_order", tuple(m.constant() for m in self.members.values()))
            return list(self.members.values())
        by_value = {m.constant(): m for m in self.members.values() if m.is_constant()}
        return [by_value[value] for value in self.real(tx)]

    def real(self, tx: Tracer) -> Any:
        """A real set with the same table."""
        found = self.state.fixed(tx)
        if found is None:
            outside = self.source.name if self.source is not None else None
            what = f"{outside}, a changed set from outside" if outside else "a set of objects"
            unsupported("unsupported_iteration", f"the order of {what}")
        return found

    def iterator(self, tx: Tracer) -> VariableTracker:
        return SetIteratorVariable(self, self.ordered(tx))

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        return not lacks_number(tx, item, lambda: self.members) and self._key_of(tx, item) in self.members

    def _elements_of(self, tx: Tracer, other: VariableTracker) -> Iterator[tuple[Any, VariableTracker]]:
        return hashed_elements(tx, other, lambda: self.members)

    def _key_of(self, tx: Tracer, item: VariableTracker) -> Any:
        return tx.operators.hash_key(as_key(tx, item, self.members), "set element")

    _OPS: dict[str, Callable[[dict[Any, Any], dict[Any, Any]], dict[Any, Any]]] = {
        "|": lambda a, b: {**a, **{k: v for k, v in b.items() if k not in a}},
        "&": lambda a, b: _common(a, b),
        "-": lambda a, b: {k: v for k, v in a.items() if k not in b},
        "^": lambda a, b: {**{k: v for k, v in a.items() if k not in b}, **{k: v for k, v in b.items() if k not in a}},
    }

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        content = set_content(other)
        if op not in self._OPS or content is None:
            return None
        check_together(tx, self.members, content.members)
        first, second = (content, self) if reflected else (self, content)
        members = self._OPS[op](first.members, second.members)
        function = getattr(first.cls, _METHODS[op])
        return SetVariable(members, cls=first.cls, state=made_state(function, first.state, (second.state,), members))

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        content = set_content(other)
        if self.cls is frozenset or op not in self._OPS or content is None:
            return None
        check_together(tx, self.members, content.members)
        self._change(tx, self._OPS[op](self.members, content.members), _UPDATES[op], content.state)
        return self

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        content = set_content(other)
        if content is None:
            return None
        check_together(tx, self.members, content.members)
        a, b = self.members.keys(), content.members.keys()
        results = {"==": a == b, "!=": a != b, "<=": a <= b, "<": a < b, ">=": a >= b, ">": a > b}
        return ConstantVariable(results[op])

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in self.methods:
            return BoundMethodVariable(self, name)
        return tx.classes.builtin_attribute(self, self.cls, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        method = self.methods.get(name)
        if method is None or (self.cls is frozenset and name in _SET_MUTATORS):
            return super().call_method(tx, name, args, kwargs)
        return tx.checked_call(method, self, tx, *args, **kwargs)

    def _add(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        key = self._key_of(tx, item)
        if key in self.members:
            tx.output.effects.mutate(self)
        else:
            self._change(tx, {**self.members, key: item}, set.add, One(key, item))
        return ConstantVariable(None)

    def _discard(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        self._take_out(tx, self._key_of(tx, item))
        return ConstantVariable(None)

    def _take_out(self, tx: Tracer, key: Any) -> None:
        members = dict(self.members)
        removed = members.pop(key, None)
        if removed is not None:
            self._change(tx, members, set.discard, One(key, removed))

    def _remove(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        if not self.contains(tx, item):
            tx.errors.raise_value(KeyError, [item])
        return self._discard(tx, item)

    def _pop(self, tx: Tracer) -> VariableTracker:
        if not self.members:
            tx.raise_error(KeyError, "pop from an empty set")
        if len(self.members) == 1:
            item = next(iter(self.members.values()))
        else:
            # Not always the first member in order: each pop starts its search where the previous one ended.
            by_value = {m.constant(): m for m in self.members.values() if m.is_constant()}
            item = by_value[clone_table(self.real(tx)).pop()]
        self._popped = True
        self._change(tx, {h: m for h, m in self.members.items() if m is not item}, set.pop)
        return item

    def _clear(self, tx: Tracer) -> VariableTracker:
        self._change(tx, {}, set.clear)
        if self.state.given is None and not self._popped:
            self.state = known_state({}, set())  # the former members don't affect the table
        return ConstantVariable(None)

    def _copy(self, tx: Tracer) -> VariableTracker:
        return self if self.cls is frozenset else self.duplicate()

    def _change(
        self, tx: Tracer, members: dict[Any, VariableTracker], function: Callable[..., Any], *operands: Any
    ) -> None:
        tx.output.effects.mutate(self)
        self.members = members
        self.state = made_state(function, self.state, operands, members)

    def _update(self, tx: Tracer, *others: VariableTracker) -> VariableTracker:
        """Stores each element when it is taken, so that the code that yields the elements observes it."""
        for other in others:
            new = _at_once(tx, other, self.members)
            if new is not None:
                check_together(tx, self.members, new)
                members = {**self.members, **{h: m for h, m in new.items() if h not in self.members}}
                self._change(tx, members, set.update, _operand(tx, other, new))
                continue
            for hashed, item in self._elements_of(tx, other):
                if hashed not in self.members:
                    self._change(tx, {**self.members, hashed: item}, set.add, One(hashed, item))
        return ConstantVariable(None)

    def _difference_update(self, tx: Tracer, *others: VariableTracker) -> VariableTracker:
        for other in others:
            new = _at_once(tx, other, self.members)
            if new is not None:
                check_together(tx, self.members, new)
                members = {h: m for h, m in self.members.items() if h not in new}
                self._change(tx, members, set.difference_update, _operand(tx, other, new))
                continue
            for hashed, _ in self._elements_of(tx, other):
                self._take_out(tx, hashed)
            self._change(tx, self.members, set.difference_update, Elements({}))  # it may shrink the table
        return ConstantVariable(None)

    def _symmetric_difference_update(self, tx: Tracer, other: VariableTracker) -> VariableTracker:
        theirs = set_of(tx, other).members
        check_together(tx, self.members, theirs)
        members = self._OPS["^"](self.members, theirs)
        self._change(tx, members, set.symmetric_difference_update, _operand(tx, other, theirs))
        return ConstantVariable(None)

    def _intersection_update(self, tx: Tracer, *others: VariableTracker) -> VariableTracker:
        state = self.state
        members, operands = self._common(tx, others)
        if self.state is not state:
            unsupported("unsupported_iteration", "a set that changes while what it has in common with others is found")
        self._change(tx, members, set.intersection_update, *operands)
        return ConstantVariable(None)

    def _union(self, tx: Tracer, *others: VariableTracker) -> SetVariable:
        state, members, operands = self.state, dict(self.members), []
        for other in others:
            new = _collected(tx, other, members)
            operands.append(_operand(tx, other, new))
            members = {**members, **{h: m for h, m in new.items() if h not in members}}
        return SetVariable(members, cls=self.cls, state=made_state(self.cls.union, state, tuple(operands), members))

    def _difference(self, tx: Tracer, *others: VariableTracker) -> SetVariable:
        state, members, operands = self.state, dict(self.members), []
        for other in others:
            new = _collected(tx, other, members)
            operands.append(_operand(tx, other, new))
            members = {h: m for h, m in members.items() if h not in new}
        made = made_state(self.cls.difference, state, tuple(operands), members)
        return SetVariable(members, cls=self.cls, state=made)

    def _symmetric_difference(self, tx: Tracer, other: VariableTracker) -> SetVariable:
        theirs = set_of(tx, other).members
        check_together(tx, self.members, theirs)
        members = self._OPS["^"](self.members, theirs)
        made = made_state(self.cls.symmetric_difference, self.state, (_operand(tx, other, theirs),), members)
        return SetVariable(members, cls=self.cls, state=made)

    def _intersection(self, tx: Tracer, *others: VariableTracker) -> SetVariable:
        state = self.state
        members, operands = self._common(tx, others)
        if self.state is not state and len(others) == 1:
            return SetVariable(members, cls=self.cls)  # CPython, too, adds the members that it finds one by one
        if self.state is not state:
            unsupported("unsupported_iteration", "a set that changes while what it has in common with others is found")
        return SetVariable(members, cls=self.cls, state=made_state(self.cls.intersection, state, operands, members))

    def _common(
        self, tx: Tracer, others: tuple[VariableTracker, ...]
    ) -> tuple[dict[Any, VariableTracker], tuple[SetState | Elements, ...]]:
        """The members that all others have, too, and the others as operands. Each element is looked up in the set's
        state at that time."""
        operands: list[SetState | Elements] = []
        known: dict[Any, VariableTracker] | None = None
        for other in others:
            content = set_content(other)
            if content is not None:
                mine = self.members if known is None else known
                check_together(tx, mine, content.members)
                known = _common(mine, content.members)
                operands.append(content.state)
                continue
            found: dict[Any, VariableTracker] = {}
            before = known
            current = lambda: self.members if before is None else before  # noqa: B023 - called within this iteration
            for hashed, item in hashed_elements(tx, other, current):
                if hashed in current():
                    found.setdefault(hashed, item)
                    if len(found) >= len(current()):
                        break
            known = found
            operands.append(Elements(found))
        return (dict(self.members) if known is None else known), tuple(operands)

    def _is_subset(self, tx: Tracer, other: VariableTracker) -> VariableTracker:
        content = set_content(other)
        if content is not None:
            check_together(tx, self.members, content.members)
            return ConstantVariable(self.members.keys() <= content.members.keys())
        return ConstantVariable(len(self._common(tx, (other,))[0]) == len(self.members))

    def _is_superset(self, tx: Tracer, other: VariableTracker) -> VariableTracker:
        return ConstantVariable(all(hashed in self.members for hashed, _ in self._elements_of(tx, other)))

    def _is_disjoint(self, tx: Tracer, other: VariableTracker) -> VariableTracker:
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
        check_rebuildable(self.members, "a set")
        if self.cls is frozenset:
            cg.build_new(self, lambda: self.state.push(cg), lambda: None)
        else:
            cg.build_new(self, lambda: cg.emit.build_set(0), lambda: self.fill(cg))

    def fill(self, cg: Codegen) -> None:
        """Emits code that stores the members in the empty set on top of the stack, and leaves it there."""
        self.state.fill(cg)

    def hold_changes(self, cg: Codegen) -> None:
        """Emits code that pushes the operations on a set from outside, as ``set_tables.replay_set`` takes them."""
        assert self.state.given is not None
        self.state.given.keep(cg)
        push_steps(cg, self.state.steps(to_given=True)[1])


class SetIteratorVariable(IteratorVariable):
    """An iterator over a set."""

    def __init__(self, owner: SetVariable, members: list[VariableTracker]) -> None:
        super().__init__()
        self.owner = owner
        self.rest = members
        self.state = owner.state
        self.size: int | None = len(self.rest)

    def python_type(self) -> type:
        return type(iter(set()))

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if self.size is None:
            return None
        if len(self.owner.members) != self.size:
            self.size = -1  # so that each later step raises, too
            tx.raise_error(RuntimeError, "Set changed size during iteration")
        if self.owner.state is not self.state:
            unsupported("unsupported_iteration", "a set whose members change while it is iterated")
        if not self.rest:
            self.size = None  # exhausted, even if the set changes
            return None
        return self.rest.pop(0)

    def reconstruct(self, cg: Codegen) -> None:
        if self.size is not None and self.owner.state is not self.state:
            unsupported("unsupported_iteration", "a set whose members change while it is iterated")
        steps = ConstantVariable(self.size - len(self.rest) if self.size is not None else None)
        arguments = [self.owner, steps, ConstantVariable(False)]
        cg.build_new(self, lambda: cg.call_function(started_iterator, arguments, {}), lambda: None)


def constant_part(tx: Tracer, value: Any) -> VariableTracker:
    """The tracker of a constant key or member; those of tuples and frozensets can be iterated over."""
    return ConstantVariable(value) if type(value) is str else tx.values.from_result(value, "key")


def given_set(tx: Tracer, value: Any, items: Iterable[Any], source: Source, cls: type) -> SetVariable:
    """The tracker of a set of constants from outside, or of the content of an instance of a subclass of set."""
    members = {item: constant_part(tx, item) for item in items}
    return SetVariable(members, source, cls, state=GivenState(members, source, value))


def set_content(value: VariableTracker) -> SetVariable | None:
    """The tracker of a set, or of the content of an instance of a subclass of set; None for other values."""
    content = value.content or value
    return content if isinstance(content, SetVariable) else None


def hashed_elements(
    tx: Tracer, value: VariableTracker, keys: Callable[[], Iterable[Any]]
) -> Iterator[tuple[Any, VariableTracker]]:
    """The elements with their hash keys, as a set collects them: those of sets and plain dicts without hashing them
    again, others one by one, each hashed before the next is taken. `keys` gives the hash keys with which they are
    compared."""
    content = set_content(value)
    if content is not None:
        check_together(tx, keys(), content.members)
        yield from content.members.items()
    elif (entries := tx.iteration.plain_dict(value)) is not None:
        check_together(tx, keys(), entries)
        for hashed, (key, _) in list(entries.items()):
            yield hashed, key
    else:
        for item in tx.iteration.steps(tx.iteration.get_iter(value)):
            yield tx.operators.hash_key(as_key(tx, item, keys()), "set element"), item


def _asks_nothing(value: VariableTracker) -> bool:
    """Whether taking and hashing the elements runs none of the program's code."""
    return value.is_constant() or is_plain_sequence(value) and all(m.is_constant() for m in value.items)  # type: ignore


def _collected(tx: Tracer, value: VariableTracker, keys: Iterable[Any] | None = None) -> dict[Any, VariableTracker]:
    """All elements, the first of equal ones; `keys` are the hash keys with which they are compared, None for each
    other's."""
    found: dict[Any, VariableTracker] = {}
    for hashed, item in hashed_elements(tx, value, lambda: found if keys is None else keys):
        found.setdefault(hashed, item)
    return found


def _at_once(tx: Tracer, value: VariableTracker, keys: Iterable[Any]) -> dict[Any, VariableTracker] | None:
    """The elements, if taking and hashing them and comparing them with `keys` runs none of the program's code; None
    otherwise."""
    content, entries = set_content(value), tx.iteration.plain_dict(value)
    if content is None and entries is None and not _asks_nothing(value):
        return None
    new = _collected(tx, value, keys)
    return None if any(type(key) is UserKey for key in (*new, *keys)) else new


def _operand(tx: Tracer, value: VariableTracker, elements: dict[Any, VariableTracker]) -> SetState | Elements:
    """The operand that represents a value with these elements for CPython's set methods, whose result depends on the
    table of a set and the size of a plain dict."""
    content = set_content(value)
    if content is not None:
        return content.state
    return Elements(elements, dict.fromkeys) if tx.iteration.plain_dict(value) is not None else Elements(elements)


def set_of(tx: Tracer, value: VariableTracker, cls: type = set) -> SetVariable:
    """set(value) or frozenset(value), by `cls`."""
    members = _collected(tx, value)
    operand = _operand(tx, value, members)
    if cls is set:
        state = made_state(set.update, known_state({}, set()), (operand,), members)
    elif isinstance(operand, SetState) and set_content(value).cls is frozenset:  # type: ignore[union-attr]
        state = made_state(frozenset.union, operand, (), members)  # frozenset() would return the same object
    else:
        state = made_state(frozenset, None, (operand,), members)
    return SetVariable(members, cls=cls, state=state)


def _common(a: dict[Any, VariableTracker], b: dict[Any, VariableTracker]) -> dict[Any, VariableTracker]:
    """The common members, taken from the smaller set (Objects/setobject.c, set_intersection)."""
    small, large = (a, b) if len(b) > len(a) else (b, a)
    return {hashed: member for hashed, member in small.items() if hashed in large}


_METHODS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
_UPDATES = {
    "|": set.update, "&": set.intersection_update, "-": set.difference_update, "^": set.symmetric_difference_update,
}
_SET_MUTATORS = frozenset({
    "intersection_update", "difference_update", "symmetric_difference_update",
    "add", "discard", "remove", "pop", "clear", "update"})


@wraps_type(set, frozenset)
def _wrap_set(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    check_given(tx, value, source.name)
    if all(is_constant_value(item) for item in value):
        tx.guard(source, "set_items", frozenset(value))
        return given_set(tx, value, value, source, type(value))
    # Members are guarded by their place in the iteration order, the only way to find them at the next call.
    listed = ComputedSource(source, tuple, f"tuple({source.name})")
    tx.guard(listed, "len", len(value))
    members: dict[Any, VariableTracker] = {}
    made = SetVariable(members, source, type(value), True, GivenState(members, source, value))
    tx.output.effects.track(value, made)  # members may refer to the set
    for place, item in enumerate(value):
        hasher = tx.classes.lookup(type(item), "__hash__")
        if isinstance(hasher, types.FunctionType) and hasher is not torch.Tensor.__hash__:
            unsupported("unsupported_value", f"{source.name}, a set with a member that defines __hash__")
        member = realized(tx, tx.values.wrap_at(item, SequenceItemSource(listed, place, False)))
        members[tx.operators.hash_key(member)] = member
    return made
