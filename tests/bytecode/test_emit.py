"""The Emitter and the assembler below it: code that runs, and code objects put together again as they were."""

from __future__ import annotations

import dis
import os
import traceback
from types import FunctionType
from typing import Any

import pytest
from code_objects import functions_of, reassembled

from dynamo_lite.bytecode.assembler import AssemblyError, Label, prologue_length
from dynamo_lite.bytecode.emit import Emitter
from dynamo_lite.bytecode.instructions import decode

STDLIB = os.path.dirname(os.__file__)


def finish(e: Emitter, argnames: tuple[str, ...] = (), **more: Any) -> FunctionType:
    closure = tuple(more.pop("closure", ()))
    code = e.assemble(name="made", filename="<made>", firstlineno=1, argnames=argnames, **more)
    return FunctionType(code, {"__builtins__": __builtins__}, "made", None, closure or None)


@pytest.mark.parametrize("name", ["argparse", "contextlib", "dataclasses", "typing", "shutil", "inspect", "tarfile"])
def test_functions_put_together_again_are_the_same(name: str) -> None:
    for code in functions_of(f"{STDLIB}/{name}.py"):
        made = reassembled(code)
        before, after = decode(code), decode(made)
        shift = after.first_index - before.first_index
        assert shift >= 0
        pairs = zip(before.instructions[before.first_index :], after.instructions[after.first_index :], strict=True)
        for old, new in pairs:
            assert (old.opname, old.positions, old.push_null) == (new.opname, new.positions, new.push_null)
            if old.target is not None:
                assert new.target == old.target + shift
            else:
                assert old.argval == new.argval
            assert (old.handler is None) == (new.handler is None)
            if old.handler is not None and new.handler is not None:
                assert new.handler == (old.handler.target + shift, old.handler.depth, old.handler.lasti)
        assert made.co_stacksize <= code.co_stacksize + 1
        if shift == 0 and len(made.co_code) == len(code.co_code):
            assert made.co_exceptiontable == code.co_exceptiontable


def test_calls() -> None:
    def target(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    e = Emitter()
    e.load_function(target)
    e.load_fast("a")
    e.load_const(2)
    e.load_const("three")
    e.call(2, ("k",))
    e.load_function(target)
    e.load_fast("a")
    e.build_tuple(1)
    e.load_const("x")
    e.load_fast("a")
    e.build_map(1)
    e.call_ex(True)
    e.build_tuple(2)
    e.ret()
    assert finish(e, ("a",))(1) == (((1, 2), {"k": "three"}), ((1,), {"x": 1}))


def test_equal_constants_stay_distinct() -> None:
    values = [1, True, 1.0, 0.0, -0.0, (1,), (True,), (1.0,), object(), []]
    e = Emitter()
    for value in values:
        e.load_const(value)
    e.build_list(len(values))
    e.ret()
    assert all(got is value for got, value in zip(finish(e)(), values, strict=True))


def test_names_attributes_and_items() -> None:
    class Thing:
        pass

    thing = Thing()
    e = Emitter()
    e.load_const(5)
    e.load_fast("t")
    e.store_attr("a")
    e.load_const(6)
    e.load_fast("d")
    e.load_const("k")
    e.store_subscr()
    e.load_fast("t")
    e.load_attr("a")
    e.load_fast("d")
    e.load_const("k")
    e.subscr()
    e.binary("+")
    e.store_global("made_global")
    e.load_fast("t")
    e.delete_attr("a")
    e.load_global("made_global")
    e.ret()
    function, d = finish(e, ("t", "d")), {}
    assert function(thing, d) == 11 and d == {"k": 6} and not vars(thing) and function.__globals__["made_global"] == 11


def test_unpack_swap_copy() -> None:
    e = Emitter()
    e.load_fast("s")
    e.unpack(3)
    e.store_fast("a")
    e.swap(2)
    e.copy(2)
    e.load_fast("a")
    e.dup()
    e.build_list(5)
    e.ret()
    assert finish(e, ("s",))([1, 2, 3]) == [2, 3, 2, 1, 1]


def test_jumps_both_ways_and_compare() -> None:
    e = Emitter()
    top, end = e.label(), e.label()
    e.load_const(0)
    e.store_fast("total")
    e.place(top)
    e.load_fast("n")
    e.load_const(0)
    e.compare(">")
    e.jump_if_false(end)
    e.load_fast("total")
    e.load_fast("n")
    e.binary("+=")
    e.store_fast("total")
    e.load_fast("n")
    e.load_const(1)
    e.binary("-")
    e.store_fast("n")
    e.jump(top)
    e.place(end)
    e.load_fast("total")
    e.ret()
    assert finish(e, ("n",))(10) == 55


def test_jumps_that_need_prefixes() -> None:
    e = Emitter()
    top, end = e.label(), e.label()
    e.place(top)
    e.load_fast("n")
    e.jump_if_false(end)
    e.load_const(None)
    e.store_fast("n")
    for i in range(40000):
        e.load_const(i)
        e.store_fast("last")
    e.jump(top)
    e.place(end)
    e.load_fast("last")
    e.ret()
    assert finish(e, ("n",))(1) == 39999


def test_more_than_255_locals_and_cells() -> None:
    names = [f"v{i}" for i in range(300)]
    e = Emitter()
    for i, name in enumerate(names):
        e.load_const(i)
        e.store_fast(name)
    e.load_deref("arg")
    e.load_deref("free")
    e.load_fast("v299")
    e.build_tuple(3)
    e.ret()
    cell = (lambda x: lambda: x)("free").__closure__[0]
    made = finish(e, ("arg",), cellvars=("arg",), freevars=("free",), closure=(cell,))
    assert made("arg") == ("arg", "free", 299)


def test_closures_are_passed_on() -> None:
    e = Emitter()
    e.load_deref("n")
    e.ret()
    inner = e.assemble(name="inner", filename="<made>", firstlineno=1, freevars=("n",))
    e = Emitter()
    e.load_closure("n")
    e.build_tuple(1)
    e.load_const(inner)
    e.make_function(closure=True)
    e.load_const(7)
    e.store_deref("n")
    e.ret()
    function = finish(e, ("n",), cellvars=("n",))(3)
    assert function() == 7 and function.__globals__["__builtins__"] is __builtins__


def test_a_handler_and_the_lines_of_a_traceback() -> None:
    e = Emitter()
    handler = e.label()
    e.load_const("kept")
    e.set_line(41)
    with e.covered(handler, 1):
        e.load_const(1)
        e.load_fast("x")
        e.binary("/")
        e.ret()
    e.place(handler)
    e.build_tuple(2)
    e.ret()
    function = finish(e, ("x",))
    assert function(2) == 0.5
    kept, error = function(0)
    assert kept == "kept" and isinstance(error, ZeroDivisionError)
    assert traceback.extract_tb(error.__traceback__)[-1].lineno == 41


def test_positions_carry_columns() -> None:
    e = Emitter()
    e.set_line(dis.Positions(3, 4, 5, 6))
    e.load_const(1)
    e.set_line(None)
    e.ret()
    code = finish(e).__code__
    assert [tuple(i.positions) for i in decode(code).instructions[1:]] == [(3, 4, 5, 6), (None,) * 4]


def test_the_prologue_is_as_long_as_announced() -> None:
    e = Emitter()
    e.load_deref("c")
    e.ret()
    code = e.assemble(name="f", filename="<made>", firstlineno=1, argnames=("c",), cellvars=("c", "d"), freevars=("e",))
    assert decode(code).first_index == prologue_length(("c", "d"), ("e",)) == 4


@pytest.mark.parametrize(
    "mistake",
    [
        lambda e: e.load_deref("no_cell"),
        lambda e: e.load_fast("cell"),
        lambda e: e.jump(Label()),
        lambda e: e.pop(),
    ],
)
def test_mistakes_are_named(mistake: Any) -> None:
    e = Emitter()
    mistake(e)
    e.load_const(None)
    e.ret()
    with pytest.raises(AssemblyError):
        finish(e, (), cellvars=("cell",))
