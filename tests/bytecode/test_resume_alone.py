"""Resume functions where there is no torch: breaks at every instruction of the zoo's programs."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from types import CodeType
from typing import Any

import pytest

if importlib.util.find_spec("torch") is not None:
    pytest.skip("tests/continuation/test_resume.py has more", allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from native_breaks import break_points, capture_at, outcome, run_broken
from zoo import CASES

from dynamo_lite.bytecode.analysis import analyse
from dynamo_lite.bytecode.instructions import decode
from dynamo_lite.continuation import resume

FUNCTIONS = {fn.__qualname__: [args for f, args in CASES if f is fn] for fn, _ in CASES}
BY_NAME = {fn.__qualname__: fn for fn, _ in CASES}
OPTIONS: list[dict[str, Any]] = [{}, {"keep_dead": True, "inline_tail": False}]


def points(code: CodeType) -> list[int]:
    """Of a very long function about twenty."""
    found = break_points(code)
    return found if len(found) < 400 else found[:: len(found) // 20]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_break_at_each_instruction(name: str) -> None:
    fn = BY_NAME[name]
    for args in FUNCTIONS[name]:
        expected = outcome(fn, args)
        for index in points(fn.__code__):
            for options in OPTIONS:
                code = capture_at(fn.__code__, index, **options)
                got = outcome(lambda *a: run_broken(fn, code, a)[0], args)
                assert got == expected, decode(fn.__code__).instructions[index]


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "wide"])
@pytest.mark.parametrize("options", OPTIONS, ids=["lean", "literal"])
def test_one_instruction_at_a_time(name: str, options: dict[str, Any]) -> None:
    fn = BY_NAME[name]

    def again(code: CodeType) -> CodeType:
        info = resume.is_resume_code(code)
        assert info is not None
        if not analyse(info.original).can_leave(info.index):
            return code
        return capture_at(code, info.origins.index(info.index), **options)

    for args in FUNCTIONS[name]:
        expected = outcome(fn, args)
        code = capture_at(fn.__code__, break_points(fn.__code__)[0], **options)
        assert outcome(lambda *a: run_broken(fn, code, a, again)[0], args) == expected
