"""Flow analysis of a code object: what is reachable, stack contents, live locals, bound locals.

Each answer is given per instruction index and describes the state *before* that instruction. It is computed for the
whole code object on first demand and cached. Invariant: exceptions are control-flow edges like any other, so a local
that only a handler reads is live in the whole range that the handler covers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from dynamo_lite.bytecode.code_map import CodeMap
from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.instructions import Instruction, decode, loop_landing
from dynamo_lite.bytecode.roles import (
    DELETES_LOCAL,
    LOOP_HEAD,
    NEVER_RAISES,
    NO_FALL_THROUGH,
    PREFIX,
    READS_LOCAL,
    TOUCHES_CELL,
    WRITES_LOCAL,
)
from dynamo_lite.bytecode.stack import FIXED, SAVED, Stack, after, at_handler

# Code that uses one of these names may inspect its own frame, so every local counts as live. The names of the first set
# count only as globals (a module may have an attribute ``eval``), those of the second set however they are accessed.
GLOBAL_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})
FRAME_READERS = frozenset({"_getframe", "currentframe"})
# Builtins that return the dict of the locals, or run code with it.
LOCALS_READERS = frozenset({"locals", "vars", "eval", "exec"})


# The argument of CALL_INTRINSIC_1 with which a generator checks an exception that leaves it.
STOPITERATION_ERROR = 3


class Analysis:
    """Flow analysis of one code object; the methods document the individual results."""

    def __init__(self, code: CodeType) -> None:
        decoded = decode(code)
        self.instructions = decoded.instructions
        self.names = decoded.localsplus
        self.locals = decoded.locals
        self.sees_frame = not FRAME_READERS.isdisjoint(code.co_names) or (
            not GLOBAL_FRAME_READERS.isdisjoint(code.co_names)
            and any(i.opname == "LOAD_GLOBAL" and i.argval in GLOBAL_FRAME_READERS for i in self.instructions)
        )
        self._bit = {name: 1 << i for i, name in enumerate(self.names)}
        self._everything = (1 << len(self.names)) - 1
        self._closed = self._mask((*code.co_cellvars, *code.co_freevars))
        self._hides_cells = not {*code.co_varnames}.issuperset(decoded.locals)
        flags = code.co_flags
        self._arguments = code.co_argcount + code.co_kwonlyargcount + bool(flags & 4) + bool(flags & 8)
        # super() without arguments reads the first argument, even if its name was rebound or deleted
        self._implicit = self._bit[self.names[0]] if "__class__" in code.co_freevars and self._arguments else 0
        self._saves = any(i.opname == "LOAD_FAST_AND_CLEAR" for i in self.instructions)
        self._passed_over = {
            passed.index
            for i in self.instructions
            if i.roles & LOOP_HEAD
            for passed in loop_landing(self.instructions, i)
        }
        self._unbreakable: frozenset[int] | None = None
        self._live: list[int] | None = None
        self._stacks: list[Stack | None] | None = None
        self._bound: tuple[list[int], list[int]] | None = None

    def _mask(self, names: tuple[str, ...]) -> int:
        mask = 0
        for name in names:
            mask |= self._bit[name]
        return mask

    def _unmask(self, mask: int) -> frozenset[str]:
        return frozenset(name for name, bit in self._bit.items() if mask & bit)

    # Stack and reachability: forward, each instruction once

    @property
    def stacks(self) -> list[Stack | None]:
        """Per instruction, the kinds of the stack slots before it, bottom first; None if it is unreachable."""
        if self._stacks is None:
            self._stacks = self._find_stacks()
        return self._stacks

    def _find_stacks(self) -> list[Stack | None]:
        instructions = self.instructions
        stacks: list[Stack | None] = [None] * len(instructions)
        pending: list[tuple[int, Stack]] = [(0, ())]
        # A covered range may begin with PUSH_EXC_INFO, where the handler's depth does not match the stack: edges of
        # instructions that never raise are followed last.
        unlikely: list[tuple[int, Stack]] = []
        while pending or unlikely:
            index, stack = pending.pop() if pending else unlikely.pop()
            while index < len(instructions) and stacks[index] is None:
                stacks[index] = stack
                instruction = instructions[index]
                if instruction.handler is not None:
                    target = instruction.handler.target
                    if stacks[target] is None:
                        edges = unlikely if instruction.roles & NEVER_RAISES else pending
                        edges.append((target, at_handler(instruction.handler, stack)))
                if instruction.target is not None and stacks[instruction.target] is None:
                    pending.append((instruction.target, after(instruction, stack, jumps=True)))
                if instruction.roles & NO_FALL_THROUGH:
                    break
                stack = after(instruction, stack)
                index += 1
        return stacks

    def reachable_from(self, start: int) -> list[bool]:
        """Per instruction, whether it may run after the one at `start`, which itself counts as reached."""
        instructions = self.instructions
        seen = [False] * len(instructions)
        pending = [start]
        while pending:
            index = pending.pop()
            while index < len(instructions) and not seen[index]:
                seen[index] = True
                instruction = instructions[index]
                if instruction.handler is not None:
                    pending.append(instruction.handler.target)
                if instruction.target is not None:
                    pending.append(instruction.target)
                if instruction.roles & NO_FALL_THROUGH:
                    break
                index += 1
        return seen

    # Liveness: backward to a fixed point

    def live(self, index: int) -> frozenset[str]:
        """Names of locals, cells and free variables that may still be read at or after an instruction.

        A cell stays live as long as anything still reads or writes it. All names are live in code that may inspect
        its own frame (``locals()``, ``eval``); the first argument is live in code that may call ``super()``.
        """
        if self.sees_frame:
            return frozenset(self.names)
        if self._live is None:
            self._live = self._find_live()
        return self._unmask(self._live[index] | self._implicit)

    def _uses(self, instruction: Instruction) -> int:
        if instruction.roles & (READS_LOCAL | DELETES_LOCAL | TOUCHES_CELL):
            return self._bit[instruction.argval]
        return self._closed if instruction.opname == "COPY_FREE_VARS" else 0

    def _find_live(self) -> list[int]:
        instructions = self.instructions
        uses = [self._uses(instruction) for instruction in instructions]
        keeps = [~self._bit[i.argval] if i.roles & WRITES_LOCAL else self._everything for i in instructions]
        live = [0] * (len(instructions) + 1)
        changed = True
        while changed:
            changed = False
            for index in range(len(instructions) - 1, -1, -1):
                instruction = instructions[index]
                out = live[instruction.target] if instruction.target is not None else 0
                if not instruction.roles & NO_FALL_THROUGH:
                    out |= live[index + 1]
                found = uses[index] | (out & keeps[index])
                if instruction.handler is not None:
                    found |= live[instruction.handler.target]
                if found != live[index]:
                    live[index] = found
                    changed = True
        return live

    # Which locals have a value: forward to a fixed point

    def bound(self, index: int) -> tuple[frozenset[str], frozenset[str]]:
        """Locals bound on every path to an instruction, and those bound on some path; cells are not counted."""
        if self._bound is None:
            self._bound = self._find_bound()
        surely, perhaps = self._bound
        return self._unmask(surely[index]), self._unmask(perhaps[index])

    def _find_bound(self) -> tuple[list[int], list[int]]:
        instructions = self.instructions
        surely = [self._everything] * (len(instructions) + 1)
        perhaps = [0] * (len(instructions) + 1)
        arguments = (1 << self._arguments) - 1
        surely[0] = perhaps[0] = arguments
        pending = [0]
        visited = [False] * (len(instructions) + 1)
        while pending:
            index = pending.pop()
            if index >= len(instructions):
                continue
            visited[index] = True
            instruction = instructions[index]
            sure, may = surely[index], perhaps[index]
            if instruction.roles & WRITES_LOCAL:
                bit = self._bit[instruction.argval]
                sure, may = sure & ~bit if self._stores_saved(instruction) else sure | bit, may | bit
            elif instruction.roles & DELETES_LOCAL:
                sure, may = sure & ~self._bit[instruction.argval], may & ~self._bit[instruction.argval]
            edges = []
            if not instruction.roles & NO_FALL_THROUGH:
                edges.append((index + 1, sure, may))
            if instruction.target is not None:
                edges.append((instruction.target, sure, may))
            if instruction.handler is not None:
                edges.append((instruction.handler.target, sure & surely[index], may | perhaps[index]))
            for target, sure, may in edges:
                sure, may = surely[target] & sure, perhaps[target] | may
                if not visited[target] or sure != surely[target] or may != perhaps[target]:
                    surely[target], perhaps[target] = sure, may
                    pending.append(target)
        return surely, perhaps

    def can_leave(self, index: int) -> bool:
        """Whether code can be left before an instruction and entered again at each of its successors; an instruction
        that runs as a unit with the following ones (PREFIX) counts with them."""
        places = [index]
        while self.instructions[index].roles & PREFIX:
            index += 1
        instruction = self.instructions[index]
        if not instruction.roles & NO_FALL_THROUGH:
            places.append(index + 1)
        if instruction.target is not None:
            passed_over = loop_landing(self.instructions, instruction) if instruction.roles & LOOP_HEAD else ()
            places.append(instruction.target + len(passed_over))
        if instruction.handler is not None:
            places.append(instruction.handler.target)
        return all(map(self._can_enter, places))

    @property
    def unbreakable(self) -> frozenset[int]:
        """The instructions before which code can't be left; those where execution never stops are left out."""
        if self._unbreakable is None:
            indices = range(len(self.instructions)) if self._saves or facts.ITERATOR_SLOTS > 1 else ()
            reached = (i for i in indices if i not in self._passed_over and self.stacks[i] is not None)
            self._unbreakable = frozenset(i for i in reached if not self.can_leave(i))
        return self._unbreakable

    def _can_enter(self, index: int) -> bool:
        """Whether the stack and the locals before an instruction can be restored there.

        Impossible for the instructions that a finished loop skips, where execution never stops; in an inlined
        comprehension of code that may inspect its locals, if a variable of a comprehension has the name of a cell; and
        where a generator of Python 3.15 delegates to another one.
        """
        stack = self.stacks[index]
        if index in self._passed_over or (stack is not None and FIXED in stack):
            return False
        if not self._saves:
            return True
        if self.instructions[index].opname == "MAKE_CELL" and stack:  # the slot is empty: no cell to pass on
            return False
        return stack is None or SAVED not in stack or not (self.sees_frame and self._hides_cells)

    def _stores_saved(self, instruction: Instruction) -> bool:
        """Whether an instruction restores the saved content of a local's slot, which may be empty."""
        if not self._saves:
            return False
        stack = self.stacks[instruction.index]
        return stack is not None and stack[-1] is SAVED


_cache: CodeMap[Analysis] = CodeMap()


def analyse(code: CodeType) -> Analysis:
    """The analysis of a code object, made once and cached."""
    analysis = _cache.get(code)
    if analysis is None:
        analysis = Analysis(code)
        _cache.set(code, analysis)
    return analysis


def passes_through(
    instructions: Sequence[Instruction],
    at: Instruction,
    exception: type[BaseException],
    lookup: Callable[[str], Any],
) -> bool:
    """Whether an exception raised at an instruction leaves the code without any handler doing more than testing it.

    Args:
        lookup: the value of a global name, or None.
    """
    tested: Any = None
    while at.handler is not None:
        index = at.handler.target
        while (at := instructions[index]).opname != "RERAISE":
            if at.opname == "LOAD_GLOBAL":
                tested = lookup(at.argval)
            elif at.opname.endswith("IF_FALSE"):
                if not isinstance(tested, type) or issubclass(exception, tested) or at.target is None:
                    return False
                index = at.target
                continue
            elif at.opname == "CLEANUP_THROW" and exception is not StopIteration:
                break  # CLEANUP_THROW raises it again
            elif at.opname == "CALL_INTRINSIC_1" and at.arg == STOPITERATION_ERROR and exception is not StopIteration:
                pass  # only checks it
            elif at.opname not in ("PUSH_EXC_INFO", "CHECK_EXC_MATCH", "COPY", "POP_EXCEPT", "NOT_TAKEN"):
                return False
            index += 1
    return True


def locals_reads(code: CodeType) -> int:
    """How often code may get the dict of its locals; 0 in Python versions that make a new dict each time.

    Each place counts once, a place in a loop twice. Calls with an object (``vars(x)``), or with the dicts in which to
    run code, use another dict and don't count.
    """
    if not facts.LOCALS_ARE_ONE_DICT:
        return 0
    analysis = Analysis(code)
    found = 0
    for index, i in enumerate(analysis.instructions):
        if i.opname == "LOAD_GLOBAL" and i.argval in LOCALS_READERS:
            given = _arguments_given(analysis, index)
            if given is None or given == (i.argval in ("eval", "exec")):
                jumps = (jump.target for jump in analysis.instructions[index:] if jump.target is not None)
                found += 1 + any(target <= index for target in jumps)
    return found


def _arguments_given(analysis: Analysis, index: int) -> int | None:
    """Number of arguments passed to the callable that an instruction loads; None if unknown or if it is not called."""
    stacks, callable_at = analysis.stacks, analysis.stacks[index]
    for later in range(index, len(stacks) - 1):
        stack = stacks[later + 1]
        if callable_at is None or stack is None:
            return None
        if len(stack) == len(callable_at) + 1:
            called = analysis.instructions[later]
            return called.arg if called.opname == "CALL" else None
    return None
