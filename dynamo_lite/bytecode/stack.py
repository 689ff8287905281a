"""The kind of each slot of the operand stack, tracked through every instruction.

Most slots hold values. The others can't be loaded, stored or copied like values, so code that
saves a stack and rebuilds it elsewhere must know them:

* NULL, below or above a callable;
* PREV_EXC, the exception state to go back to, pushed by PUSH_EXC_INFO and taken by POP_EXCEPT;
* LASTI, the number that a handler pushes for RERAISE;
* SAVED, what a local held while an inlined comprehension uses its slot: a value, or NULL if the local had none; from
  3.14 on, too, what a special method is to be called with;
* FIXED, the second half of an iterator that a generator delegates to, from 3.15 on, perhaps a bare number: nothing can
  hold it but the stack. In a loop it is NULL: a GET_ITER behind which code is left is written so that it is no number.

Invariant: the number of PREV_EXC slots is the number of ``except`` (or ``finally``, ``with``) handlers whose exception
is the current one at that place, the innermost on top. The cleanup ``COPY 3; POP_EXCEPT; RERAISE`` keeps a spent copy
below; that copy is a plain VALUE from the COPY on.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from enum import IntEnum

from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.instructions import Handler, Instruction


class StackKind(IntEnum):
    """Kind of a stack slot: a value, the NULL of a call, the exception that was being handled before, the offset at
    which an exception was raised, the saved content of a local, maybe empty, or a slot that can't be moved."""

    VALUE = 0
    NULL = 1
    PREV_EXC = 2
    LASTI = 3
    SAVED = 4
    FIXED = 5


VALUE, NULL, PREV_EXC, LASTI, SAVED, FIXED = StackKind

Stack = tuple[StackKind, ...]
_CALLABLE = (NULL, VALUE) if facts.NULL_FIRST else (VALUE, NULL)


def _swapped(instruction: Instruction, stack: Stack) -> Stack:
    changed, depth = list(stack), int(instruction.arg or 0)
    changed[-1], changed[-depth] = changed[-depth], changed[-1]
    return tuple(changed)


def _copied(instruction: Instruction, stack: Stack) -> Stack:
    depth = int(instruction.arg or 0)
    kind = stack[-depth]
    if kind is PREV_EXC:
        changed = list(stack)
        changed[-depth] = VALUE
        stack = tuple(changed)
    return (*stack, kind)


# Instructions that push anything other than values, or change slots below the top.
_EFFECTS: dict[str, Callable[[Instruction, Stack], Stack]] = {
    "SWAP": _swapped,
    "COPY": _copied,
    "PUSH_NULL": lambda i, stack: (*stack, NULL),
    "LOAD_GLOBAL": lambda i, stack: stack + _CALLABLE if i.push_null else (*stack, VALUE),
    "LOAD_METHOD": lambda i, stack: stack[:-1] + _CALLABLE,
    "PUSH_EXC_INFO": lambda i, stack: (*stack[:-1], PREV_EXC, VALUE),
    "LOAD_FAST_AND_CLEAR": lambda i, stack: (*stack, SAVED),
    "LOAD_SPECIAL": lambda i, stack: (*stack[:-1], VALUE, SAVED),  # a function and its object, or a bound method, NULL
    "LOAD_SUPER_ATTR": lambda i, stack: stack[:-3] + (_CALLABLE if int(i.arg or 0) & 1 else (VALUE,)),
}


def after(instruction: Instruction, stack: Stack, *, jumps: bool = False) -> Stack:
    """The stack after `instruction`, on its jump if `jumps`.

    LOAD_METHOD and its like are taken to push NULL and a bound method, one of the two things that they may do.
    """
    opname, arg = instruction.opname, instruction.arg
    if opname in _EFFECTS:
        return _EFFECTS[opname](instruction, stack)
    size = len(stack) + dis.stack_effect(instruction.opcode, arg, jump=jumps)
    if opname == "GET_ITER" and size > len(stack):
        return (*stack, NULL if arg == 0 else FIXED)
    if opname in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):  # the result may land in the slot of the NULL
        return (*stack[: size - 1], VALUE)
    if size <= len(stack):
        return stack[:size]
    return stack + (VALUE,) * (size - len(stack))


def at_handler(handler: Handler, stack: Stack) -> Stack:
    """The stack on entry to `handler` when an instruction that found `stack` raises."""
    kept = stack[: handler.depth]
    return (*kept, LASTI, VALUE) if handler.lasti else (*kept, VALUE)
