"""Breaks at every instruction of every program of the zoo, natively: nothing that a caller can see may change."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from types import CodeType, FunctionType
from typing import Any

import pytest
import thorough

sys.path.insert(0, os.path.dirname(__file__))

from native_breaks import Captures, break_points, capture_at, outcome, run_broken, with_code
from zoo_breaks import (
    BY_NAME,
    FUNCTIONS,
    OPTIONS,
    check_a_break_at_each_instruction,
    check_one_instruction_at_a_time,
    some,
)

from dynamo_lite._eval_frame import (
    RUN_ORIGINAL,
    SKIP,
    CompiledFunction,
    Continuation,
    Decision,
    FrameHook,
    GuardedCode,
    reset_code,
)
from dynamo_lite._guards import GuardProgram
from dynamo_lite.bytecode.analysis import analyse
from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.instructions import decode
from dynamo_lite.bytecode.stack import LASTI, NULL, PREV_EXC, SAVED, VALUE
from dynamo_lite.continuation.origins import is_resume_code, origin, resume_label
from dynamo_lite.continuation.places import break_site

every_function = pytest.mark.parametrize("name", FUNCTIONS)


def test_the_zoo_is_large_and_varied() -> None:
    assert len(FUNCTIONS) >= 60
    opnames = {i.opname for fn in BY_NAME.values() for i in decode(fn.__code__).instructions}
    assert len(opnames) > 80


@every_function
def test_a_break_at_each_instruction(name: str) -> None:
    check_a_break_at_each_instruction(name)


@every_function
def test_a_break_whenever_an_instruction_is_reached(name: str) -> None:
    """As compiled code does it: what goes on breaks at the same place again, in loops many times."""
    fn = BY_NAME[name]
    captures = Captures()
    for args in FUNCTIONS[name]:
        expected = outcome(fn, args)
        for index in thorough.share(some(break_points(fn.__code__)), 0, 6):

            def again(code: CodeType) -> CodeType:
                return captures.where_it_stands_for(code, index)

            code = captures.at(fn.__code__, index)
            got = outcome(lambda *a: run_broken(fn, code, a, again)[0], args)
            assert got == expected, decode(fn.__code__).instructions[index]


@pytest.mark.parametrize("name, options", [
    pytest.param(name, OPTIONS[which], id=f"{name}-{('lean', 'literal')[which]}")
    for turn, name in enumerate(FUNCTIONS) if name != "wide" for which in thorough.share((0, 1), turn)])
def test_one_instruction_at_a_time(name: str, options: dict[str, Any]) -> None:
    check_one_instruction_at_a_time(name, options)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if "except" in n or "raise" in n or "try" in n or "with" in n])
def test_inside_a_handler_of_the_caller(name: str) -> None:
    """The exception that the caller is handling stays current before, in and after the function."""
    fn = BY_NAME[name]
    captures = Captures()
    for args in FUNCTIONS[name]:
        try:
            raise LookupError("of the caller")
        except LookupError as handled:
            expected = outcome(fn, args)
            for index in break_points(fn.__code__):
                code = captures.at(fn.__code__, index)
                got = outcome(lambda *a: run_broken(fn, code, a)[0], args)
                assert got == expected, decode(fn.__code__).instructions[index]
                assert sys.exception() is handled


class Interrupter:
    """A hook under which one function breaks whenever it reaches an instruction."""

    def __init__(self, code: CodeType, index: int, captures: Captures | None = None) -> None:
        self.code, self.index = code, index
        self.captures = captures or Captures(guarded=True)
        self.frames = 0
        self.hook = FrameHook(self.compile_frame)

    def compile_frame(self, code: CodeType, *frame: Any) -> GuardedCode | Decision:
        info = is_resume_code(code)
        if (code if info is None else info.original) is not self.code:
            return SKIP
        self.frames += 1
        made = self.captures.where_it_stands_for(code, self.index)
        return RUN_ORIGINAL if made is code else GuardedCode(GuardProgram([], 0, 0), made, True)


@every_function
def test_under_the_hook(name: str) -> None:
    """Guarded code, entries, closures and the running of continuations as the extension does them."""
    fn = BY_NAME[name]
    for args in FUNCTIONS[name]:
        expected = outcome(fn, args)
        for index in thorough.share(some(break_points(fn.__code__)), 1, 6):
            compiled = CompiledFunction(fn, Interrupter(fn.__code__, index).hook)
            got = outcome(compiled, args)
            reset_code(fn.__code__)
            assert got == expected, decode(fn.__code__).instructions[index]


def test_a_long_loop_of_breaks_keeps_the_stack_flat_and_compiles_two_frames() -> None:
    interrupter = Interrupter(counting_loop.__code__, index_of(counting_loop.__code__, "BINARY_OP"))
    try:
        assert CompiledFunction(counting_loop, interrupter.hook)(100_000) == sum(range(100_000))
        assert interrupter.frames == 2
    finally:
        reset_code(counting_loop.__code__)


def counting_loop(n: int) -> int:
    total = 0
    for i in range(n):
        total += abs(i)
    return total


def index_of(code: CodeType, opname: str, argval: Any = None) -> int:
    """Where a break at the first such instruction falls."""
    for i in decode(code).instructions:
        if i.opname == opname and argval in (None, i.argval):
            return break_site(code, i.index).start
    raise AssertionError(opname)


def test_a_loop_comes_back_to_the_same_resume_code() -> None:
    seen: list[CodeType] = []
    code = counting_loop.__code__
    index = index_of(code, "BINARY_OP")

    def again(resumed: CodeType) -> CodeType:
        seen.append(resumed)
        here = next(i for i in break_points(resumed) if origin(resumed, i)[1] == index)
        return capture_at(resumed, here)

    result, breaks = run_broken(counting_loop, capture_at(code, index), (500,), again)
    assert (result, breaks) == (sum(range(500)), 500)
    assert len({id(c) for c in seen}) == 1


def test_resume_code_looks_like_the_users_function() -> None:
    code = counting_loop.__code__
    index = index_of(code, "BINARY_OP")
    (target,) = resume_codes(code, index)
    info = is_resume_code(target)
    assert info is not None and info.original is code and info.index == index + 1
    assert (target.co_name, target.co_qualname) == (code.co_name, code.co_qualname)
    assert (target.co_filename, target.co_firstlineno) == (code.co_filename, code.co_firstlineno)
    assert "__resume_at" in resume_label(target) and "counting_loop" in resume_label(target)
    assert resume_label(code) == "counting_loop"
    assert is_resume_code(code) is None
    lines = {i.lineno for i in decode(target).instructions}
    assert lines <= {i.lineno for i in decode(code).instructions}
    # total is about to be stored, so only the iterator, which has two slots from 3.15 on, and the sum come along
    assert info.stack in ((VALUE, VALUE), (VALUE, NULL, VALUE)) and info.carried == ()


def resume_codes(code: CodeType, index: int, **options: Any) -> list[CodeType]:
    captured = capture_at(code, index, **options)
    return [c for c in captured.co_consts if isinstance(c, CodeType) and is_resume_code(c)]


def test_a_break_before_the_end_needs_no_resume_function() -> None:
    def f(x):
        print(x)

    assert resume_codes(f.__code__, index_of(f.__code__, "CALL")) == []
    assert len(resume_codes(f.__code__, index_of(f.__code__, "CALL"), inline_tail=False)) == 1


def test_resume_code_dies_with_what_refers_to_it() -> None:
    code = counting_loop.__code__
    captured = capture_at(code, index_of(code, "GET_ITER"))
    ref = weakref.ref(next(c for c in captured.co_consts if isinstance(c, CodeType)))
    del captured
    gc.collect()
    assert ref() is None


def test_closures_share_their_cells_across_a_break() -> None:
    def f():
        n = 0

        def bump():
            nonlocal n
            n += 1
            return n

        made.append(bump)
        bump()
        return n, bump

    made: list[FunctionType] = []
    for index in break_points(f.__code__):
        made.clear()
        (n, bump), _ = run_broken(f, capture_at(f.__code__, index), ())
        assert n == 1
        assert all(b is bump or b() for b in made)
        assert bump() == 2 and bump.__closure__[0].cell_contents == 2


def test_a_local_not_carried_is_unbound() -> None:
    def f(x):
        y = x
        print(y)
        del y
        return y  # noqa: F821

    code = f.__code__
    for index in break_points(code):
        with pytest.raises(UnboundLocalError, match="'y'"):
            run_broken(f, capture_at(code, index), (1,))


def test_the_guarded_code_returns_a_continuation_with_the_stack_last() -> None:
    def f(a, b):
        c = a + b
        return [a, abs(c)][1]

    code = f.__code__
    result = with_code(f, capture_at(code, index_of(code, "CALL")))(1, 2)
    assert type(result) is Continuation
    assert result.args == (1, 3)  # what lies on the stack: a, then abs(c); no local is live
    assert result.fn(*result.args) == 3
    result = with_code(f, capture_at(code, index_of(code, "STORE_FAST", "c")))(1, 2)
    assert result.fn.__code__.co_varnames[: len(result.args)] == ("a", "c")
    assert result.args == (1, 3)


def test_kinds_of_what_lies_on_the_stack() -> None:
    def f(x):
        try:
            x()
        except ValueError:
            with x:
                x(1)

    code = f.__code__
    instructions = decode(code).instructions
    match = next(i.index for i in instructions if i.opname == "CHECK_EXC_MATCH")
    assert analyse(code).stacks[match] == (PREV_EXC, VALUE, VALUE)
    start = next(i.index for i in instructions if i.opname == "WITH_EXCEPT_START")
    # From 3.14 on a second slot has the object whose method leaves the context, or NULL.
    leave = (VALUE,) if "LOAD_SPECIAL" not in {i.opname for i in instructions} else (VALUE, SAVED)
    assert analyse(code).stacks[start] == (PREV_EXC, *leave, LASTI, PREV_EXC, VALUE)
    call = index_of(code, "CALL")
    assert analyse(code).stacks[call] == ((NULL, VALUE) if facts.NULL_FIRST else (VALUE, NULL))
    assert analyse(code).bound(call) == (frozenset("x"), frozenset("x"))


def test_needed_locals_are_judged_by_the_users_code() -> None:
    def f(a, b):
        c = a
        print(c)
        return locals()

    code = f.__code__
    (resumed,) = resume_codes(code, index_of(code, "LOAD_GLOBAL", "locals"))
    call = next(i.index for i in decode(resumed).instructions if i.opname == "CALL")
    assert break_site(resumed, call).needed == {"a", "b", "c"}

    def g(a, b):
        c = a
        return c(b)

    code = g.__code__
    assert break_site(code, 1).needed == {"a", "b"}
    assert break_site(code, index_of(code, "CALL")).needed == set()


def test_tracing_shows_the_users_lines() -> None:
    """A debugger or coverage tool sees the same lines of the same function."""
    fn = BY_NAME["for_with_try"]
    code = fn.__code__

    def lines(call: Any) -> set[tuple[str, int]]:
        seen: set[tuple[str, int]] = set()

        def trace(frame: Any, event: str, arg: Any) -> Any:
            if frame.f_code.co_filename == code.co_filename and event == "line":
                seen.add((frame.f_code.co_qualname, frame.f_lineno))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            call(4)
        finally:
            sys.settrace(before)
        return seen

    expected = lines(fn)
    for index in break_points(code):
        captured = capture_at(code, index)
        assert lines(lambda n: run_broken(fn, captured, (n,))) == expected
