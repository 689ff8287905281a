"""Programs of the zoo with native breaks: what every Python has to pass, with torch or without."""

from __future__ import annotations

from types import CodeType
from typing import Any

import thorough
from native_breaks import Captures, break_points, outcome, run_broken
from zoo import CASES

from dynamo_lite.bytecode.analysis import analyse
from dynamo_lite.bytecode.instructions import decode
from dynamo_lite.continuation.origins import is_resume_code

FUNCTIONS = {fn.__qualname__: [args for f, args in CASES if f is fn] for fn, _ in CASES}
BY_NAME = {fn.__qualname__: fn for fn, _ in CASES}
# As the compiler uses them, and the most literal: all locals carried, a resume function for every way out.
OPTIONS: list[dict[str, Any]] = [{}, {"keep_dead": True, "inline_tail": False}]


def some(points: list[int]) -> list[int]:
    """All of them; of a very long function about twenty."""
    return points if len(points) < 400 else points[:: len(points) // 20]


def check_a_break_at_each_instruction(name: str) -> None:
    """With either of the options, by turns from instruction to instruction and from arguments to arguments."""
    fn = BY_NAME[name]
    captures = [Captures(**options) for options in OPTIONS]
    for row, args in enumerate(FUNCTIONS[name]):
        expected = outcome(fn, args)
        for turn, index in enumerate(some(break_points(fn.__code__))):
            for capture in thorough.share(captures, row + turn):
                code = capture.at(fn.__code__, index)
                got = outcome(lambda *a: run_broken(fn, code, a)[0], args)
                assert got == expected, decode(fn.__code__).instructions[index]


def check_one_instruction_at_a_time(name: str, options: dict[str, Any]) -> None:
    """Every frame runs one instruction and breaks: each resume function is made from the one before."""
    fn = BY_NAME[name]
    captures = Captures(**options)

    def again(code: CodeType) -> CodeType:
        info = is_resume_code(code)
        assert info is not None
        if not analyse(info.original).can_leave(info.index):
            return code
        return captures.at(code, info.origins.index(info.index))

    for args in FUNCTIONS[name]:
        expected = outcome(fn, args)
        code = captures.at(fn.__code__, break_points(fn.__code__)[0])
        assert outcome(lambda *a: run_broken(fn, code, a, again)[0], args) == expected
