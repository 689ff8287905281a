"""Graph breaks: run one instruction in plain Python, then go on in a resume function.

At a break before instruction k of code C, the guarded code holds C's live locals and, on its operand stack, exactly
what C would have there. ``emit_break`` appends instruction k itself and, for each way out of it (the next instruction,
the target of a jump, the handler that covers it), code that takes the stack apart and returns
``Continuation(resume function, locals.., stack..)``. The caller of the guarded code runs the continuation, so a loop
with a break in its body does not nest C frames.

A *resume function* has the same code as C: its reachable instructions, its exception table, its name and lines. Only
its parameters differ, and a prologue that rebuilds the stack and jumps to the instruction. Python 3.11 and later have
no block stack, so a resume point inside loops, ``with`` and ``try`` is an ordinary one. Special cases:

* Cells. The cells and free variables of C are free variables of the resume code. The guarded code passes the cell
  objects themselves as its closure, so inner functions made before the break share them.
* NULL on the stack is dropped and pushed anew; its slot is part of the resume code, not an argument.
* Handlers. A PREV_EXC slot (see ``bytecode.stack``) means that an exception is being handled. Its argument is that
  exception: the guarded code fetches it and restores the caller's exception state before it returns; the prologue makes
  it current again at the same depth of the stack. Hence bare ``raise``, ``__context__`` and ``sys.exc_info()`` behave
  as before, and nothing leaks into the caller.
* An exception raised by instruction k inside a ``try`` is caught in the guarded code and handed to a resume function
  that starts at the handler. An exception without a handler leaves the guarded code, which has C's name and lines.
* ``super()`` reads the first argument from the frame's first slot, so that argument stays in this slot.

Two behaviors differ from plain Python. A variable of C that inner functions share is a free variable in the resume
code, so reading it while it is unbound raises NameError itself, not UnboundLocalError. And an asynchronous exception
(Ctrl-C) that arrives while a continuation is being made is not seen by handlers of C.

Invariant: resume code is always made from the original code object. A break in a resume function maps back to C first;
therefore a loop reuses the same resume code (and its compiled code) however often it breaks.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any

from dynamo_lite.bytecode import roles
from dynamo_lite.bytecode.assembler import HandlerRef, Label, prologue_length
from dynamo_lite.bytecode.code_map import CodeMap
from dynamo_lite.bytecode.emit import Emitter
from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.instructions import Handler, Instruction, loop_landing
from dynamo_lite.bytecode.stack import LASTI, NULL, PREV_EXC, SAVED, VALUE, Stack, StackKind, after, at_handler
from dynamo_lite.continuation.origins import ResumeInfo, is_resume_code, note_origin
from dynamo_lite.continuation.places import BreakSite
from dynamo_lite.continuation.unbound import UNBOUND, peek_local

__all__ = ["StackKind", "UNBOUND", "emit_break", "note_numbers", "resume_code"]

_VARIADIC = 0x04 | 0x08
# Kinds of stack slots that are passed as parameters.
_PARAMETERS = (VALUE, PREV_EXC, SAVED)


_Key = tuple[int, Stack, tuple[str, ...], frozenset[str], frozenset[str]]
# Weak values: resume code lives only as long as guarded code that refers to it, so that a reset frees it.
_made: CodeMap[dict[_Key, weakref.ref[CodeType]]] = CodeMap()


def note_numbers(
    code: CodeType, names: Collection[str], slots: Collection[int], result_of: BreakSite | None = None
) -> None:
    """Records parameters of resume code that are numbers extracted from tensors, so that none is treated as a constant.

    Args:
        names: locals.
        slots: stack slots; those that the resume code does not have are ignored.
        result_of: a place at which an instruction of the original also produces such a number; it counts if the resume
            code starts right behind that instruction.
    """
    info = is_resume_code(code)
    if info is None:
        return
    behind = result_of is not None and result_of.unit[-1].index + 1 == info.index
    places = {*slots, len(info.stack) - 1} if behind else slots
    info.numbers.update({*names, *map(_stack_name, places)}.intersection(info.parameters))


# A tail of at most this many moves up to the end (a return, or the RERAISE after a handler's cleanup) is inlined, since
# it does not justify a frame of its own.
_TAIL_LENGTH = 8


def emit_break(
    e: Emitter,
    site: BreakSite,
    *,
    stack: Sequence[StackKind],
    bound: Collection[str],
    continuation: Callable[..., Any],
    uncertain: Collection[str] = (),
    keep_dead: bool = False,
    keep: Collection[str] = (),
    inline_tail: bool = True,
    parameters: Collection[str] = (),
    foreign: Collection[int] = (),
) -> list[CodeType]:
    """Appends to `e` a break at `site` that ends the code: every path returns or raises.

    On entry the operand stack of the code being built holds `stack` and nothing else, and the exception state is the
    one that its PREV_EXC slots say (for each, the exception was pushed with ``push_exc_info`` and popped again).
    Fast locals that are in `bound` and in ``site.needed`` are stored under their own names; no others are read. The
    cells and free variables of the user's code are cells or free variables of the code being built.

    `stack` gives the kinds as the caller pushed them; usually ``Analysis.stacks`` knows them. `uncertain` are locals
    of `bound` which may have no value; only code that was not traced needs them. `keep` are locals and cells to pass on
    although nothing reads them any more, since the program could observe the finalization of their values; `keep_dead`
    passes on all of `bound`, not just the live locals. `inline_tail` lets a break right before the end of the function
    return without a resume function, and runs instructions that only discard values along with instruction k.
    `parameters` are parameters of the code being built that the user's code does not have; they and locals that are not
    the user's are unbound before instruction k. `foreign` are stack slots of iterators that no trace can follow: a loop
    over one starts its next iteration in the code being built, if that follows directly after instruction k.
    `continuation` is the type to return, called with the resume function and its arguments.

    Returns the resume code objects in which the break may continue.
    """
    # Instruction k must not see these locals, nor may they keep objects alive. super() reads the exempted one.
    for name in sorted(e.local_names().union(parameters).difference(site.analysis.names, {_FIRST_ARGUMENT})):
        e.unbind_fast(name)
    emission = _Break(e, site, tuple(stack), continuation, keep_dead, frozenset(keep), inline_tail, foreign)
    return emission.emit(frozenset(bound), frozenset(uncertain))


class _Break:
    """One call of ``emit_break``."""

    def __init__(
        self,
        e: Emitter,
        site: BreakSite,
        stack: Stack,
        continuation: Callable[..., Any],
        keep_dead: bool,
        keep: frozenset[str],
        inline_tail: bool,
        foreign: Collection[int],
    ) -> None:
        self.e = e
        self.site = site
        self.code = site.code
        self.analysis = site.analysis
        self.instructions = site.analysis.instructions
        self.unit = site.unit
        self.stack = stack
        self.continuation = continuation
        self.keep_dead = keep_dead
        self.keep = keep
        self.inline_tail = inline_tail
        self.foreign = foreign
        self.loops: set[int] = set()  # indices of the loop heads that have been emitted here
        self.resumes: list[CodeType] = []

    def emit(self, bound: frozenset[str], uncertain: frozenset[str]) -> list[CodeType]:
        expected = self.analysis.stacks[self.unit[0].index]
        assert expected is not None and len(self.stack) == len(expected), f"stack {self.stack}, expected {expected}"
        self._emit_unit(self.unit, self.stack, bound, uncertain)
        return self.resumes

    def _emit_unit(
        self, unit: Sequence[Instruction], before: Stack, bound: frozenset[str], uncertain: frozenset[str]
    ) -> None:
        """Emits instructions that run natively as a unit, and every way out of them."""
        e, last = self.e, unit[-1]
        e.set_line(last.positions)
        jump_label = e.label() if last.target is not None else None
        handler = last.handler
        handler_label = None
        if handler is not None and not all(i.roles & roles.NEVER_RAISES for i in unit):
            handler_label = e.label()
            e.handler = HandlerRef(handler_label, handler.depth, handler.lasti)
            e.begin_range()
        if not last.roles & roles.JUMPS_ALWAYS:
            emit_instructions(e, unit, jump_label)
        e.handler = None

        after_bound = bound
        if last.roles & roles.WRITES_LOCAL:
            after_bound, uncertain_after = _bound_by(last, before, bound, uncertain)
        elif last.roles & roles.DELETES_LOCAL:
            after_bound, uncertain_after = bound - {last.argval}, uncertain - {last.argval}
        else:
            uncertain_after = uncertain
        if not last.roles & roles.NO_FALL_THROUGH:
            stack = before
            for instruction in unit:
                stack = after(instruction, stack)
            if last.roles & roles.READS_LOCAL and last.roles & roles.DELETES_LOCAL:
                stack = (*stack[:-1], self._saved(last.argval, bound, uncertain))
            self._emit_exit(last.index + 1, stack, after_bound, uncertain_after)
        if jump_label is not None:
            assert last.target is not None
            e.place(jump_label)
            target, stack = last.target, after(last, before, jumps=True)
            if last.roles & roles.LOOP_HEAD:
                for passed in loop_landing(self.instructions, last):
                    e.raw(passed)
                    target, stack = target + 1, after(passed, stack)
            self._emit_exit(target, stack, after_bound, uncertain_after)
        if handler_label is not None:
            assert handler is not None
            e.place(handler_label)
            self._emit_exit(handler.target, at_handler(handler, before), bound, uncertain)

    def _saved(self, name: str, bound: frozenset[str], uncertain: frozenset[str]) -> StackKind:
        """The kind of the stack slot in which an inlined comprehension saves a local's earlier value."""
        if name in uncertain:
            return SAVED
        return VALUE if name in bound or name not in self.analysis.locals else NULL

    # One way out

    def _emit_exit(self, index: int, stack: Stack, bound: frozenset[str], uncertain: frozenset[str]) -> None:
        if self.inline_tail and self._emit_tail(index, bound - uncertain):
            return
        if self.inline_tail:
            index, stack, bound, uncertain = self._emit_discards(index, stack, bound, uncertain)
            loop = self._loop_at(index)
            iterator = len(stack) - facts.ITERATOR_SLOTS
            if loop is not None and loop.index not in self.loops and iterator in self.foreign:
                self.loops.add(loop.index)
                self._emit_unit([loop], stack, bound, uncertain)
                return
        e = self.e
        carried_set = bound if self.keep_dead else bound & (self.analysis.live(index) | self.keep)
        carried = tuple(name for name in self.analysis.locals if name in carried_set)
        uncertain = uncertain & carried_set
        kept_cells = self.keep.intersection(self.code.co_cellvars)
        target = resume_code(self.site, index, stack, carried, uncertain, kept_cells)
        self.resumes.append(target)
        self._spill_stack(stack)
        e.load_function(self.continuation)
        for name in target.co_freevars:
            e.load_closure(name)
        if target.co_freevars:
            e.build_tuple(len(target.co_freevars))
        e.load_const(target)
        e.make_function(closure=bool(target.co_freevars))
        parameters = target.co_varnames[: target.co_argcount]
        perhaps = uncertain.union(_stack_name(slot) for slot, kind in enumerate(stack) if kind is SAVED)
        for name in parameters:
            if name == _FIRST_ARGUMENT:
                e.load_deref(self.code.co_varnames[0])
            elif name in perhaps:
                e.load_function(peek_local)
                e.load_const(name)
                e.call(1)
            else:
                e.load_fast(name)
        # A traceback may hold this finished frame. If that exception were among its locals, they would form a reference
        # cycle, which would keep all callers' locals alive until garbage collection. In a handler, any local may be it.
        for name in parameters:
            if name != _FIRST_ARGUMENT and (PREV_EXC in stack or name not in carried):
                e.unbind_fast(name)
        e.call(1 + len(parameters))
        e.ret()

    def _emit_discards(
        self, index: int, stack: Stack, bound: frozenset[str], uncertain: frozenset[str]
    ) -> tuple[int, Stack, frozenset[str], frozenset[str]]:
        """Runs instructions natively that only discard values: an unused result, a local whose finalization shows."""
        while True:
            instruction = self.instructions[index]
            if instruction.roles & roles.WRITES_LOCAL and instruction.argval in self.keep:
                bound, uncertain = _bound_by(instruction, stack, bound, uncertain)
            elif not instruction.roles & roles.DROPS or stack[-1] is not VALUE:
                return index, stack, bound, uncertain
            self.e.raw(instruction)
            index, stack = index + 1, after(instruction, stack)

    def _loop_at(self, index: int) -> Instruction | None:
        """The head of a ``for`` loop, if only jumps come before it."""
        seen: set[int] = set()
        while index not in seen:
            seen.add(index)
            instruction = self.instructions[index]
            if instruction.roles & roles.LOOP_HEAD:
                return instruction
            if not instruction.roles & roles.JUMPS_ALWAYS:
                return None
            assert instruction.target is not None
            index = instruction.target
        return None

    def _spill_stack(self, stack: Stack) -> None:
        """Moves the stack into locals named like the resume function's parameters, top first."""
        e = self.e
        for slot in range(len(stack) - 1, -1, -1):
            kind = stack[slot]
            if kind in (VALUE, SAVED):
                e.store_fast(_stack_name(slot))
            elif kind is NULL:
                e.store_fast("___null")  # storing NULL leaves the local unbound: the only way to drop it
            elif kind is LASTI:
                e.pop()
            else:
                e.load_function(sys.exception)
                e.call(0)
                e.store_fast(_stack_name(slot))
                e.pop_except()

    def _emit_tail(self, index: int, surely_bound: frozenset[str]) -> bool:
        tail: list[Instruction] = []
        while len(tail) < _TAIL_LENGTH:
            instruction = self.instructions[index]
            leaves = instruction.roles & roles.RERAISES and instruction.handler is None
            if leaves or instruction.roles & roles.RETURNS:
                tail.append(instruction)
                for instruction in tail:
                    self.e.set_line(instruction.positions)
                    self.e.raw(instruction)
                self.e.set_line(self.unit[-1].positions)
                return True
            if instruction.roles & roles.JUMPS_ALWAYS and instruction.target is not None and instruction.target > index:
                index = instruction.target
                continue
            if not instruction.roles & roles.MOVES:
                return False
            if instruction.roles & roles.READS_LOCAL and instruction.argval not in surely_bound:
                return False
            tail.append(instruction)
            index += 1
        return False


def _bound_by(
    store: Instruction, stack: Stack, bound: frozenset[str], uncertain: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """The locals that are bound after a store, and those that may be unbound."""
    name = {store.argval}
    if stack[-1] is NULL:
        return bound - name, uncertain - name
    return bound | name, uncertain | name if stack[-1] is SAVED else uncertain - name


def emit_instructions(e: Emitter, unit: Sequence[Instruction], jump_label: Label | None) -> None:
    """Emits the instructions as they are, except that a method is always loaded as NULL and a bound method, and that an
    iterator has no second stack slot, since that could not be moved."""
    for instruction in unit:
        if instruction.roles & roles.LOADS_METHOD:
            e.load_attr(instruction.argval)
            e.ready_to_call()
        elif instruction.roles & roles.BEGINS_LOOP and facts.ITERATOR_SLOTS > 1 and not instruction.arg:
            e.loop_over()
        else:
            e.raw(instruction, jump_label, bound=True)


# Resume code

_FIRST_ARGUMENT = "___first_argument"


def _stack_name(slot: int) -> str:
    return f"___stack{slot}"


def resume_code(
    site: BreakSite,
    index: int,
    stack: Stack,
    carried: Sequence[str],
    uncertain: frozenset[str] = frozenset(),
    kept_cells: frozenset[str] = frozenset(),
) -> CodeType:
    """The code object that continues at instruction `index` of the code of `site` with this stack and these locals.

    Parameters, all positional: `carried`, then the VALUE, PREV_EXC and SAVED slots of the stack from the bottom. Where
    ``super()`` needs the first argument and that is a cell, its value precedes all of them.
    """
    key = (index, stack, tuple(carried), uncertain, kept_cells)
    made = _made.get(site.code)
    if made is None:
        made = {}
        _made.set(site.code, made)
    ref = made.get(key)
    code = None if ref is None else ref()
    if code is None:
        code = _make_resume_code(site, *key)
        made[key] = weakref.ref(code, lambda dead: _forget(made, key, dead))
    return code


def _forget(made: dict[_Key, weakref.ref[CodeType]], key: _Key, dead: weakref.ref[CodeType]) -> None:
    if made.get(key) is dead:
        del made[key]


def _make_resume_code(
    site: BreakSite, index: int, stack: Stack, carried: tuple[str, ...], uncertain: frozenset[str],
    kept_cells: frozenset[str],
) -> CodeType:
    original, analysis = site.code, site.analysis
    instructions = analysis.instructions
    reachable = analysis.reachable_from(index)
    body = [i for i in instructions if reachable[i.index]]
    parameters: list[str] = []
    needed: set[str] = set(kept_cells)
    if "__class__" in original.co_freevars and original.co_argcount > 0:
        # super() finds both in the frame; no instruction names them
        needed.add("__class__")
        if original.co_varnames[0] in original.co_cellvars:
            needed.add(original.co_varnames[0])
            parameters.append(_FIRST_ARGUMENT)
    closed = original.co_cellvars + original.co_freevars
    freevars = closed if analysis.sees_frame else _used_variables(closed, body, needed)
    parameters.extend(carried)
    parameters.extend(_stack_name(slot) for slot, kind in enumerate(stack) if kind in _PARAMETERS)

    start = instructions[index]
    labels = {i: Label() for i in _targets(body, index)}
    e = Emitter()
    e.set_line(start.positions)
    _emit_prologue(e, stack, carried, uncertain, lasti=prologue_length((), freevars) - 1)
    if body[0] is not start:
        e.handler = _handler_ref(start.handler, labels)
        e.jump(labels[index])
    length = len(e)
    origins: list[int] = []
    for instruction in body:
        if instruction is start and start.handler is not None and not (index and reachable[index - 1]):
            e.handler = _handler_ref(start.handler, labels)
            origins += [-1] * e.begin_range()
        origins.append(instruction.index)
        if instruction.index in labels:
            e.place(labels[instruction.index])
        e.set_line(instruction.positions)
        e.handler = _handler_ref(instruction.handler, labels)
        e.raw(instruction, None if instruction.target is None else labels[instruction.target])
    code = e.assemble(
        name=original.co_name,
        qualname=original.co_qualname,
        filename=original.co_filename,
        firstlineno=original.co_firstlineno,
        argnames=parameters,
        freevars=freevars,
        flags=original.co_flags & ~_VARIADIC,
        stacksize=original.co_stacksize + 2,
        prologue_positions=start.positions,
    )
    shift = prologue_length((), freevars) + length
    origins[:0] = [-1] * shift
    note_origin(code, ResumeInfo(
        weakref.ref(original), index, stack, carried, uncertain, kept_cells, tuple(parameters), tuple(origins)))
    return code


def _used_variables(closed: tuple[str, ...], body: Sequence[Instruction], needed: set[str]) -> tuple[str, ...]:
    used = needed | {i.argval for i in body if i.roles & roles.ANY_VARIABLE}
    return tuple(name for name in closed if name in used)


def _targets(body: Sequence[Instruction], index: int) -> set[int]:
    targets = {index}
    for instruction in body:
        if instruction.target is not None:
            targets.add(instruction.target)
        if instruction.handler is not None:
            targets.add(instruction.handler.target)
    return targets


def _handler_ref(handler: Handler | None, labels: dict[int, Label]) -> HandlerRef | None:
    return None if handler is None else HandlerRef(labels[handler.target], handler.depth, handler.lasti)


def _emit_prologue(e: Emitter, stack: Stack, carried: Sequence[str], uncertain: frozenset[str], lasti: int) -> None:
    """Unbinds locals without a value, then rebuilds the stack. Leaves no internal parameter visible to ``locals()``."""
    for name in carried:
        if name in uncertain:
            e.unbind_if(name, UNBOUND)
    for slot, kind in enumerate(stack):
        if kind is NULL:
            e.push_null()
        elif kind is LASTI:
            # RERAISE sets the frame's last instruction from it. No one reads that any more, but it must be in the code.
            e.load_const(lasti)
        elif kind is SAVED:
            e.unbind_if(_stack_name(slot), UNBOUND)
            e.take_fast(_stack_name(slot))
        else:
            e.load_fast(_stack_name(slot))
            e.delete_fast(_stack_name(slot))
            if kind is PREV_EXC:
                e.push_exc_info()
                e.pop()
