"""Decoding, against ``dis``."""

from __future__ import annotations

import dis
import gc
import opcode
import os
import sys
import types
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest

from dynamo_lite.bytecode import instructions as module
from dynamo_lite.bytecode.instructions import decode

STDLIB = os.path.dirname(os.__file__)
FILES = [
    f"{STDLIB}/{name}.py" for name in ("argparse", "contextlib", "dataclasses", "typing", "asyncio/tasks", "shutil")
]


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def codes_of(path: str) -> list[CodeType]:
    with open(path, encoding="utf8") as file:
        return list(codes(compile(file.read(), path, "exec")))


def as_shown(instruction: dis.Instruction, code: CodeType) -> list[tuple[str, Any]]:
    """What an instruction of ``dis`` is to be decoded as: names and arguments, None for those of jumps."""
    name, value = instruction.opname, instruction.argval
    closed = code.co_cellvars + code.co_freevars
    if instruction.arg is None:
        return [(name, None)]
    if name == "RETURN_CONST":
        return [("LOAD_CONST", value), ("RETURN_VALUE", None)]
    name = name.replace("_BORROW", "")
    if name in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"):
        names = zip(name.replace("_FAST_", "_FAST ").split(), value)
        return [("LOAD_CLOSURE" if n == "LOAD_FAST" and v in closed else n, v) for n, v in names]
    if name == "LOAD_ATTR" and "NULL" in instruction.argrepr:
        return [("LOAD_METHOD", value)]
    if name == "LOAD_FAST_CHECK":
        return [("LOAD_FAST", value)]
    if name == "LOAD_FAST" and value in closed:
        return [("LOAD_CLOSURE", value)]
    if name == "LOAD_SMALL_INT":
        return [("LOAD_CONST", instruction.arg)]
    if name == "LOAD_COMMON_CONSTANT":
        return [("LOAD_CONST", opcode._common_constants[instruction.arg])]
    if name == "BINARY_OP":
        return [("BINARY_SUBSCR" if instruction.argrepr == "[]" else name, instruction.argrepr)]
    if name == "KW_NAMES":
        return [(name, code.co_consts[instruction.arg])]
    if name in ("MAKE_FUNCTION", "FORMAT_VALUE", "CONVERT_VALUE", "LOAD_SPECIAL"):
        return [(name, instruction.arg)]
    if name == "COMPARE_OP" and instruction.argrepr.startswith("bool("):
        return [(name, value.removeprefix("bool(").removesuffix(")")), ("TO_BOOL", None)]
    return [(name, None if instruction.opcode in JUMPS else value)]


JUMPS = {*dis.hasjrel, *dis.hasjabs, *getattr(dis, "hasjump", ())}


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_the_same_instructions_as_dis(path: str) -> None:
    for code in codes_of(path):
        expected = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
        decoded = decode(code)
        got = iter(decoded.instructions)
        for theirs in expected:
            for name, argval in as_shown(theirs, code):
                ours = next(got)
                assert (ours.opname, ours.offset, ours.positions) == (name, theirs.offset, theirs.positions)
                if theirs.opcode in JUMPS:
                    assert ours.target == ours.argval == decoded.index_at[theirs.argval]
                else:
                    assert ours.argval == argval and ours.target is None
                assert ours.push_null == (name == "LOAD_GLOBAL" and "NULL" in theirs.argrepr)
        assert next(got, None) is None


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_the_same_handlers_as_dis(path: str) -> None:
    for code in codes_of(path):
        entries = dis._parse_exception_table(code)
        decoded = decode(code)
        for instruction in decoded.instructions:
            found = [e for e in entries if e.start <= instruction.offset < e.end]
            if not found:
                assert instruction.handler is None
            else:
                (entry,) = found
                assert instruction.handler == (decoded.index_at[entry.target], entry.depth, entry.lasti)


def test_specialized_code_decodes_as_it_was_compiled() -> None:
    def f(x):
        total = 0
        for i in range(x):
            total += i * 2
        return total

    before = [repr(i) for i in module._decode(f.__code__).instructions]
    for _ in range(100):
        f(10)
    adaptive = [i.opname for i in dis.get_instructions(f, adaptive=True)]
    assert any(name not in dis.opmap for name in adaptive), "the interpreter was to specialize this"
    assert [repr(i) for i in module._decode(f.__code__).instructions] == before


def test_decoded_once_and_not_kept_alive() -> None:
    code = compile("def f(): return 1", "<test>", "exec").co_consts[0]
    assert decode(code) is decode(code)
    size = len(module._cache)
    del code
    gc.collect()
    assert len(module._cache) == size - 1


def test_equal_code_objects_are_kept_apart() -> None:
    first, second = (compile("x = 1", "<test>", "exec") for _ in range(2))
    assert first == second and decode(first) is not decode(second)


def test_the_setup_of_a_frame_comes_before_first_index() -> None:
    def outer(a):
        def inner():
            return a

        return inner

    code = outer.__code__
    assert [i.opname for i in decode(code).instructions[: decode(code).first_index]] == ["MAKE_CELL", "RESUME"]
    inner = next(c for c in code.co_consts if isinstance(c, CodeType))
    assert [i.opname for i in decode(inner).instructions[: decode(inner).first_index]] == ["COPY_FREE_VARS", "RESUME"]


def test_a_comprehension_that_keeps_its_variable_in_the_slot_of_a_cell() -> None:
    def f(x):
        y = [(x,) for x in range(3)]
        return (lambda: x), y

    def named(name: str) -> list[str]:
        return [i.opname for i in decode(f.__code__).instructions if i.argval == name]

    inlined = ["LOAD_FAST_AND_CLEAR", "STORE_FAST", "LOAD_FAST", "STORE_FAST", "STORE_FAST"]
    assert named("x") == ["MAKE_CELL", "LOAD_CLOSURE"]
    assert named("x'") == ([] if sys.version_info < (3, 12) else inlined)
    assert decode(f.__code__).locals == (("y",) if sys.version_info < (3, 12) else ("y", "x'"))


def test_a_comprehension_inside_one_of_the_same_variable_and_of_one_that_makes_a_cell() -> None:
    def f():
        x = 5
        g = lambda: x
        return [[x for x in range(x)] for x in (1, 2)], [[x + h() for h in [lambda: x]] for x in (3,)], g

    cells = [i.opname for i in decode(f.__code__).instructions if i.argval == "x" and "CELL" in i.opname]
    assert cells == (["MAKE_CELL"] if sys.version_info < (3, 12) else ["MAKE_CELL", "MAKE_CELL"])
    own = () if sys.version_info < (3, 12) else ("x'",)
    assert decode(f.__code__).locals[-len(own):] == own if own else decode(f.__code__).locals == ("g",)


def test_a_comprehension_with_the_name_of_a_free_variable() -> None:
    x = 5

    def f():
        return [x for x in range(3)], x

    decoded = decode(f.__code__)
    assert decoded.localsplus == (("x'", "x") if sys.version_info >= (3, 12) else ("x",))
    assert [i.opname for i in decoded.instructions if i.argval == "x"] == ["LOAD_DEREF"]
