"""What we need of the `bytecode` package, above all where it has to be worked round (see ``bytecode.library``)."""

from __future__ import annotations

import array
import dis
import os
import random
import traceback
from types import CodeType, FunctionType
from typing import Any

import pytest
from code_objects import functions_of, reassembled

from dynamo_lite.bytecode import library
from dynamo_lite.bytecode.emit import Emitter
from dynamo_lite.bytecode.instructions import decode


def finish(e: Emitter, argnames: tuple[str, ...] = (), firstlineno: int = 1) -> CodeType:
    return e.assemble(name="made", filename="<made>", firstlineno=firstlineno, argnames=argnames)


def run(code: CodeType, *args: Any) -> Any:
    return FunctionType(code, {"__builtins__": __builtins__})(*args)


def body(code: CodeType) -> list[Any]:
    decoded = decode(code)
    return list(decoded.instructions[decoded.first_index :])


def random_positions(rng: random.Random, line: int) -> tuple[int | None, int | None, int | None, int | None]:
    column = rng.choice([0, 7, 71, 72, 79, 80, 127, 128, 200, 255, 256, 1000])
    choices: list[tuple[int | None, int | None, int | None, int | None]] = [
        (line, line, column, column + rng.choice([0, 15, 16, 200])),
        (line, line + rng.choice([1, 100]), column, rng.choice([0, 200])),
        (line, line, None, None),
        (None, None, None, None),
    ]
    return rng.choice(choices)


def test_python_reads_the_positions_that_are_written() -> None:
    rng = random.Random(0)
    line = 100
    expected = []
    e = Emitter()
    for _ in range(800):
        line = max(1, line + rng.choice([-5, 0, 0, 0, 1, 2, 3, 300]))
        positions = random_positions(rng, line)
        e.set_line(positions)
        for _ in range(rng.choice([1, 1, 1, 2, 7, 8, 9, 40])):
            if rng.random() < 0.5:
                e.load_const(None)
                e.pop()
                expected += [positions] * 2
            else:
                e.load_const(1)
                e.load_const(2)
                e.binary("+")
                e.pop()
                expected += [positions] * 4
    e.load_const(None)
    e.ret()
    code = finish(e, firstlineno=100)
    assert [tuple(i.positions) for i in body(code)[:-2]] == expected
    # Another reader, which goes from entry to entry: tracebacks and tracers ask it.
    by_unit = [found[0] for found in code.co_positions()]
    for start, end, found in code.co_lines():
        assert by_unit[start // 2 : end // 2] == [found] * ((end - start) // 2)


@pytest.mark.parametrize("name", ["argparse", "contextlib", "tarfile"])
def test_what_is_written_by_runs_is_what_the_package_writes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = list(functions_of(f"{os.path.dirname(os.__file__)}/{name}.py"))
    ours = [reassembled(code) for code in codes]
    monkeypatch.delattr(library._Concrete, "_assemble_code")
    for code, made in zip(codes, ours, strict=True):
        wanted = reassembled(code)
        assert (made.co_code, made.co_exceptiontable) == (wanted.co_code, wanted.co_exceptiontable)
        assert list(made.co_positions()) == list(wanted.co_positions())


def test_the_line_of_an_error_behind_columns_that_need_two_bytes() -> None:
    e = Emitter()
    for line in (2, 3):
        e.set_line((line, line, 130, 140))
        e.load_const(None)
        e.pop()
    e.set_line((9, 9, 4, 9))
    e.load_const(1)
    e.load_const(0)
    e.binary("/")
    e.ret()
    with pytest.raises(ZeroDivisionError) as caught:
        run(finish(e))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 9


@pytest.mark.parametrize("positions", [(5, 3, 1, 2), (5, 5, 9, 2), (5, 6, -1, -1), (5, 5, 2, None), (-4, 1, 1, 1)])
def test_positions_that_make_no_sense_are_written_as_lines(positions: Any) -> None:
    e = Emitter()
    e.set_line(positions)
    e.load_const(1)
    e.ret()
    code = finish(e)
    assert run(code) == 1
    assert body(code)[0].positions[0] == (5 if positions[0] == 5 else None)


def test_constants_are_told_apart_by_identity() -> None:
    buffer = array.array("b", b"abc")
    text = "".join(["not ", "interned"])
    code = finish(returns_one())
    values = [[], [], {}, {}, b"abc", buffer, (1, 2), tuple([1, 2]), text, str(text.encode(), "ascii"), code, 1, True]
    values += [1.0, 0.0, -0.0]
    e = Emitter()
    for value in values + values:
        e.load_const(value)
    e.build_list(2 * len(values))
    e.ret()
    made = finish(e)
    assert all(got is value for got, value in zip(run(made), values + values, strict=True))
    assert len(made.co_consts) == len(values)


def returns_one() -> Emitter:
    e = Emitter()
    e.load_const(1)
    e.ret()
    return e


@pytest.mark.parametrize("padding", [0, 300, 70000])
def test_a_handler_whose_range_begins_at_a_prefixed_instruction(padding: int) -> None:
    e = Emitter()
    handler = e.label()
    for i in range(padding):
        e.load_const(i + 1000)
        e.pop()
    with e.covered(handler, 0):
        e.load_const(object())
        e.load_const(0)
        e.binary("/")
    e.ret()
    e.place(handler)
    e.ret()
    made = finish(e)
    assert isinstance(run(made), TypeError)
    covered = [i for i in body(made) if i.handler is not None]
    assert [i.opname for i in covered] == ["LOAD_CONST", "LOAD_CONST", "BINARY_OP"]
    assert {i.handler.target for i in covered} == {covered[-1].index + 2}


def test_exception_tables_say_what_was_asked_for() -> None:
    rng = random.Random(0)
    e = Emitter()
    labels = [e.label() for _ in range(5)]
    expected = []
    for _ in range(200):
        label, depth, lasti = rng.choice(labels), rng.choice([0, 1, 31, 32, 40, 5000]), rng.random() < 0.5
        for _ in range(rng.choice([1, 2, 30])):
            with e.covered(label, depth, lasti):
                e.load_const(rng.randrange(500))
                e.pop()
            expected += [(label, depth, lasti)] * 2
        if rng.random() < 0.3:
            e.load_const(None)
            e.pop()
            expected += [None] * 2
    e.load_const(None)
    e.ret()
    for label in labels:
        e.place(label)
        e.ret()
    code = e.assemble(name="made", filename="<made>", firstlineno=1, stacksize=10)
    instructions = body(code)
    first = decode(code).first_index
    for instruction, wanted in zip(instructions, expected):
        if wanted is None:
            assert instruction.handler is None
        else:
            label, depth, lasti = wanted
            assert label.position is not None
            assert instruction.handler == (label.position + first, depth, lasti)
    index_at = decode(code).index_at
    for entry in dis._parse_exception_table(code):
        for instruction in instructions:
            if entry.start <= instruction.offset < entry.end:
                assert instruction.handler == (index_at[entry.target], entry.depth, entry.lasti)
