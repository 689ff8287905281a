"""Code objects under test: the functions of a file, code put together again, stacks that agree. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from dynamo_lite.bytecode.analysis import analyse
from dynamo_lite.bytecode.assembler import HandlerRef, Label
from dynamo_lite.bytecode.emit import Emitter
from dynamo_lite.bytecode.instructions import decode
from dynamo_lite.bytecode.roles import NEVER_RAISES, NO_FALL_THROUGH
from dynamo_lite.bytecode.stack import PREV_EXC, after, at_handler


def functions_of(path: str) -> list[CodeType]:
    """The functions of a file, those inside of others too."""
    with open(path, encoding="utf8") as file:
        pending = [compile(file.read(), path, "exec")]
    found = []
    while pending:
        code = pending.pop()
        pending.extend(c for c in code.co_consts if isinstance(c, CodeType))
        if code.co_flags & 1 and not code.co_flags & 0x2A0:  # no classes, modules, generators, coroutines
            found.append(code)
    return found


def reassembled(code: CodeType, constant: Callable[[CodeType], Any] = lambda value: value) -> CodeType:
    """The same code by way of the Emitter; `constant` maps the code objects among its constants."""
    decoded, e = decode(code), Emitter()
    labels = [Label() for _ in decoded.instructions]
    for i in decoded.instructions[decoded.first_index :]:
        e.place(labels[i.index])
        e.set_line(i.positions)
        e.handler = None if i.handler is None else HandlerRef(labels[i.handler.target], *i.handler[1:])
        if isinstance(i.argval, CodeType):
            e.load_const(constant(i.argval))
        else:
            e.raw(i, None if i.target is None else labels[i.target])
    arguments = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    made = e.assemble(
        name=code.co_name,
        qualname=code.co_qualname,
        filename=code.co_filename,
        firstlineno=code.co_firstlineno,
        argnames=code.co_varnames[:arguments],
        freevars=code.co_freevars,
        cellvars=code.co_cellvars,
        flags=code.co_flags & ~0xC,
    )
    return made.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_flags=made.co_flags | code.co_flags & 0xC,
    )


def check_stacks(code: CodeType) -> None:
    """What lies on the stack is a property of the place: all ways there say the same."""
    stacks = analyse(code).stacks
    for i, stack in zip(decode(code).instructions, stacks):
        if stack is None:
            continue
        assert len(stack) <= code.co_stacksize + 1  # an opcode that returns a constant is shown as two
        if not i.roles & NO_FALL_THROUGH:
            assert stacks[i.index + 1] == after(i, stack)
        if i.target is not None:
            assert stacks[i.target] == after(i, stack, jumps=True)
        if i.handler is not None and not i.roles & NEVER_RAISES:
            assert stacks[i.handler.target] == at_handler(i.handler, stack)
            assert stack.count(PREV_EXC) == stack[: i.handler.depth].count(PREV_EXC)
        if i.opname == "POP_EXCEPT":
            assert stack[-1] is PREV_EXC
