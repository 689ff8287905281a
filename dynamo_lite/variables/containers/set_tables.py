"""The tables of sets while tracing, which decide the order in which a set gives its members.

A set's order depends on its whole history: the sizes that its table had, the slots of removed members, what was merged
with what. So each state of a set is known by how it came about, and where all members are constants also by a real set
to which CPython has done the same.

Invariants: a state never changes, and two sets never have one state; a `real` set has exactly the table that the
program's set has at that point, and nobody changes it.
"""
from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..._guards import clone_table, copy_table, same_table
from ...guards.source import Source
from ..base import VariableTracker
from ..constant import ConstantVariable
from ..objects.classes import is_stand_in
from .user_keys import UserKey, check_rebuildable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_Members = dict[Any, VariableTracker]
_Real = Any  # a set or frozenset


def is_fixed(value: Any) -> bool:
    """Whether a constant has the same hash wherever it is made in this process."""
    cls = type(value)
    if cls in (int, str, bool, bytes, types.NoneType):
        return True
    if cls in (tuple, frozenset):
        return all(map(is_fixed, value))
    if cls is type:
        return not is_stand_in(value)
    return bool(value == value) if cls in (float, complex) else not isinstance(value, type) or not is_stand_in(value)


def constants(members: Iterable[VariableTracker]) -> list[Any] | None:
    """The members themselves, if each is a constant with a fixed hash."""
    found = []
    for member in members:
        if not member.is_constant() or not is_fixed(value := member.constant()):
            return None
        found.append(value)
    return found


# ---------------------------------------------------------------- operands
class Elements:
    """What is added or removed one by one, in this order; `wrap` makes of the constants what is given to CPython."""

    def __init__(self, members: _Members, wrap: Callable[[list[Any]], Any] = list) -> None:
        self.members = members
        self.wrap = wrap
        found = None if any(type(key) is UserKey for key in members) else constants(members.values())
        self.real = None if found is None else wrap(found)

    def push(self, cg: Codegen) -> None:
        """Emits code that pushes the operand."""
        def values() -> None:
            cg.push_all(self.members.values())
            cg.emit.build_tuple(len(self.members))

        values() if self.wrap is list else cg.call_constant(self.wrap, values)


class One(Elements):
    """One member."""

    def __init__(self, key: Any, member: VariableTracker) -> None:
        super().__init__({key: member}, operator.itemgetter(0))

    def push(self, cg: Codegen) -> None:
        cg.push_all(self.members.values())


# ---------------------------------------------------------------- states
class SetState:
    """A set at one point of the program.

    Args:
        members: the members by hash key.
        function: what made it, called with `first` and the operands; it changes `first` in place, or makes a new set.
        first: the state before, if there is one.
        operands: the state itself where it stands for `first`.
    """

    function: Callable[..., Any] | None = None
    first: SetState | None = None
    operands: tuple[SetState | Elements, ...] = ()
    real: _Real | None = None

    def __init__(self, members: _Members) -> None:
        self.members = members
        self.given: GivenState | None = None  # the set from outside that it is a later state of

    def describe(self) -> str:
        return "set"

    # -- what CPython does
    def _apply(self) -> None:
        """Finds the real set, if what it is made from is known."""
        assert self.function is not None
        first = None if self.first is None else self.first.real
        if any(operand.real is None for operand in self.operands) or (first is None and self.first is not None):
            return
        target = clone_table(first) if self.in_place and first is not None else first
        given = [target if operand is self.first and self.in_place else operand.real for operand in self.operands]
        made = self.function(*([] if target is None else [target]), *given)
        self.real = target if self.in_place else made

    @property
    def in_place(self) -> bool:
        """Whether its function changes the set before."""
        return self.function in _CHANGES

    def fixed(self, tx: Tracer) -> _Real | None:
        """The real set, also where guards have to fix the tables of sets from outside; None if it can't be known."""
        if self.real is not None:
            return self.real
        unknown = list(_needed(self, SetState._made_from))
        for state in unknown:
            if not state._can_be_fixed():
                return None
        for state in unknown:
            state._fix(tx)
        return self.real

    def _made_from(self) -> Iterator[SetState]:
        """The states without a real set that it goes back to directly."""
        for part in (self.first, *self.operands):
            if isinstance(part, SetState) and part.real is None:
                yield part

    def _can_be_fixed(self) -> bool:
        return all(isinstance(operand, SetState) or operand.real is not None for operand in self.operands)

    def _fix(self, tx: Tracer) -> None:
        self._apply()

    # -- generated code
    def steps(self, *, to_given: bool = False) -> tuple[SetState | None, list[tuple[Any, tuple[Any, ...]]]]:
        """The state to start from, None for an empty set, and the changes since; `to_given`: since it came from
        outside."""
        state: SetState = self
        found: list[tuple[Any, tuple[Any, ...]]] = []
        while state.in_place and (to_given or state.real is None):
            assert state.first is not None
            found.append((state.function, tuple(None if o is state.first else o for o in state.operands)))
            state = state.first
        return (None if _is_fresh(state.real) else state), _joined(found[::-1])

    def _parts(self) -> Iterator[SetState]:
        """The states that generated code makes this one from."""
        if self.real is not None:
            return
        start, steps = self.steps() if self.in_place else (self.first, [(None, self.operands)])
        if start is not None:
            yield start
        for _, operands in steps:
            yield from (operand for operand in operands if isinstance(operand, SetState))

    def push(self, cg: Codegen) -> None:
        """Emits code that pushes a set with this table, which only generated code may look at."""
        self._prepare(cg)
        self._push_once(cg)

    def _prepare(self, cg: Codegen) -> None:
        """Emits what computes all that it is made from: a chain of states may be longer than the stack is deep."""
        for state in _needed(self, SetState._parts)[:-1]:
            if not isinstance(state, GivenState):
                state._push_once(cg)
                cg.emit.pop()

    def _push_once(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: self._make(cg), lambda: None)

    def _make(self, cg: Codegen) -> None:
        check_rebuildable(self.members, "a set")
        if self.real is not None:
            self.push_new(cg)
        elif self.in_place:
            cg.emit.build_set(0)
            self.fill(cg)
        else:
            parts = (*filter(None, (self.first,)), *self.operands)
            cg.call_constant(self.function, lambda: [part.push(cg) for part in parts], len(parts))

    def push_new(self, cg: Codegen) -> None:
        """Emits code that pushes a new set, of which the real one is known."""
        arguments = self._template()
        cg.call_constant(clone_table, lambda: _push_template(cg, arguments), len(arguments))

    def _template(self) -> list[Any]:
        """The real set, and if the members come from outside these, in its order."""
        assert self.real is not None
        if all(type(member) is ConstantVariable and member.source is None for member in self.members.values()):
            return [self.real]
        by_value = {member.constant(): member for member in self.members.values()}
        return [self.real, [by_value[value] for value in self.real]]

    def fill(self, cg: Codegen) -> None:
        """With an empty set on the stack, emits what gives it this table (keeps the set on the stack)."""
        check_rebuildable(self.members, "a set")
        if self.real is not None:
            arguments = self._template()
            if not _is_fresh(self.real):
                cg.call_constant_on_top(copy_table, lambda: _push_template(cg, arguments), len(arguments))
            return
        self._prepare(cg)
        start, steps = self.steps()
        if start is not None:
            cg.call_constant_on_top(copy_table, lambda: start.push(cg))
        if steps:
            for _, operands in steps:
                for operand in operands:
                    if isinstance(operand, Elements):
                        check_rebuildable(operand.members, "a set")
            cg.call_constant_on_top(replay_set, lambda: push_steps(cg, steps))


class GivenState(SetState):
    """A set from outside as it came.

    Args:
        members: the members by hash key.
        source: where it is found.
        value: the set, which is as it came while the trace lasts.
    """

    def __init__(self, members: _Members, source: Source, value: _Real) -> None:
        super().__init__(members)
        self.given = self
        self.source = source
        self.value = value
        self.changed = False  # in the trace
        self.is_part = False  # of another set's state

    def describe(self) -> str:
        return self.source.name

    def _can_be_fixed(self) -> bool:
        return not any(type(key) is UserKey for key in self.members) and all(
            member.is_constant() for member in self.members.values())

    def _fix(self, tx: Tracer) -> None:
        kind: Any = frozenset if isinstance(self.value, frozenset) else set
        template = clone_table(self.value)
        assert type(template) is kind
        tx.guard(self.source, "set_table", template)
        self.real = template

    def keep(self, cg: Codegen) -> None:
        """Emits what holds it as it came, before generated code changes it, if another set goes back to it."""
        if self.is_part:
            self._push_once(cg)
            cg.emit.pop()

    def push(self, cg: Codegen) -> None:
        if self.changed:
            self._push_once(cg)
        else:
            cg.load_source(self.source)

    def _make(self, cg: Codegen) -> None:
        cg.call_constant(clone_table, lambda: cg.load_source(self.source))


def made_state(
    function: Callable[..., Any], first: SetState | None, operands: tuple[Any, ...], members: _Members
) -> SetState:
    """The state after `function` has been called with the state before and the operands."""
    state = SetState(members)
    state.function, state.first, state.operands = function, first, operands
    parts = [part for part in operands if isinstance(part, SetState) and part is not first]
    if first is not None and not state.in_place:
        parts.append(first)
    for part in parts:
        if part.given is not None:
            part.given.is_part = True
    if state.in_place:
        assert first is not None
        state.given = first.given
        if state.given is not None:
            state.given.changed = True
    state._apply()
    if state.real is not None and state.given is None:
        state.function, state.first, state.operands = None, None, ()  # what it came from is of no use any more
    return state


def known_state(members: _Members, real: _Real) -> SetState:
    """The state of a set that Python made while tracing."""
    state = SetState(members)
    state.real = real
    return state


def added_state(members: _Members, cls: type) -> SetState:
    """The state of a new set to which the members were added one by one."""
    if cls is frozenset:
        return made_state(frozenset, None, (Elements(members),), members)
    return made_state(set.update, known_state({}, set()), (Elements(members),), members)


def _is_fresh(real: _Real | None) -> bool:
    return type(real) is set and not real and same_table(real, set())


# The functions that change a set in place.
_CHANGES = frozenset({
    set.add, set.discard, set.pop, set.clear, set.update, set.difference_update, set.intersection_update,
    set.symmetric_difference_update,
})


def _needed(state: SetState, parts: Callable[[SetState], Iterator[SetState]]) -> list[SetState]:
    """The state with all that it goes back to, each after its parts."""
    found: list[SetState] = []
    seen: set[int] = set()
    todo = [(state, False)]
    while todo:
        state, ready = todo.pop()
        if ready:
            found.append(state)
        elif id(state) not in seen:
            seen.add(id(state))
            todo.append((state, True))
            todo += [(part, False) for part in parts(state)]
    return found


def _joined(steps: list[tuple[Any, tuple[Any, ...]]]) -> list[tuple[Any, tuple[Any, ...]]]:
    """Steps of which those that add or remove single members, one after another, are one."""
    joined: list[tuple[Any, tuple[Any, ...]]] = []
    run: tuple[Any, list[One]] = (None, [])
    for function, operands in steps:
        if function in _RUNS:
            if run[0] is not function:
                run = (function, [])
                joined.append((_RUNS[function], (run[1],)))
            run[1].append(operands[0])
        else:
            run = (None, [])
            joined.append((function, operands))
    return joined


def _push_template(cg: Codegen, arguments: list[Any]) -> None:
    cg.emit.load_const(arguments[0])
    for members in arguments[1:]:
        cg.push_all(members)
        cg.emit.build_tuple(len(members))


def push_steps(cg: Codegen, steps: list[tuple[Any, tuple[Any, ...]]]) -> None:
    """Emits code that pushes the steps as :func:`replay_set` takes them."""
    for function, operands in steps:
        cg.emit.load_const(function)
        for operand in operands:
            if operand is None:
                cg.emit.load_const(None)
            elif isinstance(operand, list):
                for one in operand:
                    one.push(cg)
                cg.emit.build_tuple(len(operand))
            else:
                operand.push(cg)
        cg.emit.build_tuple(1 + len(operands))
    cg.emit.build_tuple(len(steps))


# ---------------------------------------------------------------- called by generated code
def discard_each(target: set[Any], members: tuple[Any, ...]) -> None:
    """Discards members as calls of ``discard`` do; ``difference_update`` may make the table smaller."""
    for member in members:
        set.discard(target, member)


def replay_set(target: set[Any], steps: tuple[tuple[Any, ...], ...]) -> None:
    """Does to a set what the program has done to it; an operand None stands for the set itself."""
    for function, *operands in steps:
        function(target, *(target if operand is None else operand for operand in operands))


_RUNS: dict[Any, Any] = {set.add: set.update, set.discard: discard_each}
