"""Breaks without the symbolic evaluator: code rewritten to break at an instruction, and a driver that goes on.

``capture_at`` gives the original code with one instruction replaced by what ``resume.emit_break`` makes of it; the
locals and the stack are there natively. ``run_broken`` calls a function so rewritten and runs its continuations, each
of which may be made to break again. ``outcome`` records everything that a caller can see of a call.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import re
import sys
import traceback
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from dynamo_lite._eval_frame import Continuation
from dynamo_lite.bytecode.analysis import analyse
from dynamo_lite.bytecode.assembler import HandlerRef, Label
from dynamo_lite.bytecode.emit import Emitter
from dynamo_lite.bytecode.instructions import decode
from dynamo_lite.continuation.origins import is_resume_code, origin
from dynamo_lite.continuation.places import break_site, starts_unit
from dynamo_lite.continuation.resume import emit_break, emit_instructions


def break_points(code: CodeType) -> list[int]:
    """Every instruction boundary at which a break may fall."""
    decoded = decode(code)
    stacks = analyse(code).stacks
    info = is_resume_code(code)
    first = decoded.first_index if info is None else info.origins.count(-1)
    user_code = code if info is None else info.original
    return [
        i
        for i in range(first, len(decoded))
        if stacks[i] is not None
        and starts_unit(decoded.instructions, i)
        and analyse(user_code).can_leave(i if info is None else info.origins[i])
    ]


def capture_at(code: CodeType, index: int, *, guarded: bool = False, **options: Any) -> CodeType:
    """`code` with a break at instruction `index`; `options` are those of ``emit_break``.

    `guarded`: with the parameters of guarded code, as the hook calls it.
    """
    decoded = decode(code)
    stacks = analyse(code).stacks
    e = Emitter()
    labels = {i.index: e.label() for i in decoded.instructions}

    def ref(handler: Any) -> HandlerRef | None:
        return None if handler is None else HandlerRef(labels[handler.target], handler.depth, handler.lasti)

    if guarded:
        e.unbind_fast("___graph_inputs")
    closed = {*code.co_cellvars, *code.co_freevars}
    for instruction in decoded.instructions[decoded.first_index :]:
        i = instruction.index
        if stacks[i] is None:
            continue
        e.place(labels[i])
        if i == index:
            e.handler = None
            surely, perhaps = analyse(code).bound(i)
            stack = analyse(code).stacks[i]
            assert stack is not None
            emit_break(
                e,
                break_site(code, i),
                stack=stack,
                bound=perhaps - closed,
                uncertain=perhaps - surely - closed,
                continuation=Continuation,
                **options,
            )
        e.set_line(instruction.positions)
        e.handler = ref(instruction.handler)
        if i == index and e.handler is not None:
            e.begin_range()
        target: Label | None = None if instruction.target is None else labels[instruction.target]
        emit_instructions(e, [instruction], target) if i != index else None
    arguments = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    parameters = code.co_varnames[:arguments]
    made = e.assemble(
        name=code.co_name,
        qualname=code.co_qualname,
        filename=code.co_filename,
        firstlineno=code.co_firstlineno,
        argnames=(*parameters, "___graph_inputs") if guarded else parameters,
        freevars=code.co_freevars,
        cellvars=code.co_cellvars,
        flags=code.co_flags & ~0xC,
    )
    if guarded:
        return made
    return made.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_flags=code.co_flags,
    )


class Captures:
    """Codes with a break that have been made: what several arguments of a function go through is made once.

    It holds them, and with each the code that it was made of, whose resume functions are then those of the one before.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self._made: dict[tuple[int, int], tuple[CodeType, CodeType]] = {}
        self._points: dict[int, tuple[CodeType, dict[int, int]]] = {}

    def at(self, code: CodeType, index: int) -> CodeType:
        """``capture_at``."""
        key = id(code), index
        if key not in self._made:
            self._made[key] = code, capture_at(code, index, **self.options)
        return self._made[key][1]

    def where_it_stands_for(self, code: CodeType, index: int) -> CodeType:
        """`code` with a break at what stands for instruction `index` of the user's code; itself, if nothing does."""
        if id(code) not in self._points:
            places: dict[int, int] = {}
            for i in break_points(code):
                places.setdefault(origin(code, i)[1], i)
            self._points[id(code)] = code, places
        place = self._points[id(code)][1].get(index)
        return code if place is None else self.at(code, place)


def with_code(fn: FunctionType, code: CodeType) -> FunctionType:
    made = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__kwdefaults__ = fn.__kwdefaults__
    made.__qualname__ = fn.__qualname__
    return made


Again = Callable[[CodeType], CodeType]


def run_broken(fn: FunctionType, code: CodeType, args: tuple[Any, ...], again: Again | None = None) -> tuple[Any, int]:
    """The result of `fn` run with `code`, and the number of breaks; `again` rewrites each resume function."""
    handled = sys.exception()
    result = with_code(fn, code)(*args)
    breaks = 0
    while type(result) is Continuation:
        breaks += 1
        assert sys.exception() is handled, "the exception state leaks out of the guarded code"
        go_on, args = result.fn, result.args
        if again is not None:
            go_on = with_code(go_on, again(go_on.__code__))
        del result
        result = go_on(*args)
    return result, breaks


def _trace(e: BaseException) -> list[tuple[str, int | None]]:
    frames = traceback.extract_tb(e.__traceback__)
    while frames and f"{os.sep}zoo{os.sep}" not in frames[0].filename:  # the drivers above
        del frames[0]
    return [(f.name, f.lineno) for f in frames]


def _describe(e: BaseException | None, seen: int = 0) -> Any:
    if e is None or seen > 6:
        return None
    inner = [_describe(x, seen + 1) for x in e.exceptions] if isinstance(e, BaseExceptionGroup) else None
    return (
        type(e).__name__,
        str(e),
        _trace(e),
        _describe(e.__cause__, seen + 1),
        _describe(e.__context__, seen + 1),
        e.__suppress_context__,
        inner,
    )


_ADDRESS = re.compile(r"0x[0-9a-f]+")


def outcome(call: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, ...]:
    """Result or exception (with lines and chain), what was printed, and the arguments afterwards."""
    args = copy.deepcopy(args)
    printed = io.StringIO()
    result, error = None, None
    handled = sys.exception()
    with contextlib.redirect_stdout(printed):
        try:
            result = call(*args)
        except BaseException as e:
            error = _describe(e)
    assert sys.exception() is handled
    return tuple(_ADDRESS.sub("0x", repr(x)) for x in (result, error, printed.getvalue(), args))
