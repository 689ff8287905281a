"""The hash tables of sets while tracing, which determine the iteration order of a set.

The order depends on the set's whole history: the sizes that its table had, the slots of removed members, the operands
of unions and other operations. So each state of a set records the operation that led to it, and where all members are
constants, also a real set to which CPython has applied the same operations.

Invariants: a state never changes, and two sets never share a state; a `real` set has exactly the table that the
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
    """Whether equal constants have the same hash everywhere in this process."""
    cls = type(value)
    if cls in (int, str, bool, bytes, types.NoneType):
        return True
    if cls in (tuple, frozenset):
        return all(map(is_fixed, value))
    if cls is type:
        return not is_stand_in(value)
    return bool(value == value) if cls in (float, complex) else not isinstance(value, type) or not is_stand_in(value)


def constants(members: Iterable[VariableTracker]) -> list[Any] | None:
    """The values of the members, if each is a constant with a fixed hash; None otherwise."""
    found = []
    for member in members:
        if not member.is_constant() or not is_fixed(value := member.constant()):
            return None
        found.append(value)
    return found


# ---------------------------------------------------------------- operands
class Elements:
    """Members that are added or removed one by one, in this order; `wrap` converts the list of constants into the
    operand that CPython gets."""

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
        function: the operation that made the state, called with `first` and the operands; it changes `first` in place
            or makes a new set.
        first: the previous state, if there is one.
        operands: the operands; `first` itself among them stands for the set that is operated on.
    """

    function: Callable[..., Any] | None = None
    first: SetState | None = None
    operands: tuple[SetState | Elements, ...] = ()
    real: _Real | None = None

    def __init__(self, members: _Members) -> None:
        self.members = members
        self.given: GivenState | None = None  # the set from outside of which this is a later state

    def describe(self) -> str:
        return "set"

    # -- the real sets
    def _apply(self) -> None:
        """Computes the real set, if those of the previous state and of the operands are known."""
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
        """Whether its function changes the previous state's set in place."""
        return self.function in _CHANGES

    def fixed(self, tx: Tracer) -> _Real | None:
        """The real set, with guards on the tables of sets from outside where necessary; None if it can't be known."""
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
        """The states without a real set from which this one was made directly."""
        for part in (self.first, *self.operands):
            if isinstance(part, SetState) and part.real is None:
                yield part

    def _can_be_fixed(self) -> bool:
        return all(isinstance(operand, SetState) or operand.real is not None for operand in self.operands)

    def _fix(self, tx: Tracer) -> None:
        self._apply()

    # -- generated code
    def steps(self, *, to_given: bool = False) -> tuple[SetState | None, list[tuple[Any, tuple[Any, ...]]]]:
        """The state at which generated code starts (None for an empty set), and the operations since; with `to_given`
        those since the set came from outside."""
        state: SetState = self
        found: list[tuple[Any, tuple[Any, ...]]] = []
        while state.in_place and (to_given or state.real is None):
            assert state.first is not None
            found.append((state.function, tuple(None if o is state.first else o for o in state.operands)))
            state = state.first
        return (None if _is_fresh(state.real) else state), _joined(found[::-1])

    def _parts(self) -> Iterator[SetState]:
        """The states from which generated code makes this one."""
        if self.real is not None:
            return
        start, steps = self.steps() if self.in_place else (self.first, [(None, self.operands)])
        if start is not None:
            yield start
        for _, operands in steps:
            yield from (operand for operand in operands if isinstance(operand, SetState))

    def push(self, cg: Codegen) -> None:
        """Emits code that pushes a set with this table, which only generated code may use."""
        self._prepare(cg)
        self._push_once(cg)

    def _prepare(self, cg: Codegen) -> None:
        """Emits code that computes all states from which this one is made, one by one, as recursion over a long chain
        of states would overflow the stack."""
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
        """Emits code that pushes a new set with the table of the real one, which is known."""
        arguments = self._template()
        cg.call_constant(clone_table, lambda: _push_template(cg, arguments), len(arguments))

    def _template(self) -> list[Any]:
        """The real set; if members come from outside, also a list of all members in the real set's order."""
        assert self.real is not None
        if all(type(member) is ConstantVariable and member.source is None for member in self.members.values()):
            return [self.real]
        by_value = {member.constant(): member for member in self.members.values()}
        return [self.real, [by_value[value] for value in self.real]]

    def fill(self, cg: Codegen) -> None:
        """Emits code that gives this table to the empty set on top of the stack, and leaves it there."""
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
    """The initial state of a set from outside.

    Args:
        members: the members by hash key.
        source: where the set lives.
        value: the set, which is not changed during the trace.
    """

    def __init__(self, members: _Members, source: Source, value: _Real) -> None:
        super().__init__(members)
        self.given = self
        self.source = source
        self.value = value
        self.changed = False  # whether the trace has changed the set
        self.is_part = False  # whether another set's state refers to it

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
        """Emits code that keeps a copy of the initial set before generated code changes it, if another set's state
        refers to it."""
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
    """The state after a call of `function` with the previous state and the operands."""
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
        state.function, state.first, state.operands = None, None, ()  # the history is no longer needed
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
    """The state and all states that are reachable through `parts`, in topological order: each after its parts."""
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
    """The steps, with consecutive additions or removals of single members joined to one step."""
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
    """Discards members like calls of ``discard``; ``difference_update`` might shrink the table."""
    for member in members:
        set.discard(target, member)


def replay_set(target: set[Any], steps: tuple[tuple[Any, ...], ...]) -> None:
    """Repeats the program's operations on a set; an operand None stands for the set itself."""
    for function, *operands in steps:
        function(target, *(target if operand is None else operand for operand in operands))


_RUNS: dict[Any, Any] = {set.add: set.update, set.discard: discard_each}
