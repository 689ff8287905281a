"""Liveness, bound locals, reachability, and the kinds of what lies on the stack."""

from __future__ import annotations

import os
import sys
from types import CodeType
from typing import Any

import pytest
from code_objects import check_stacks, functions_of

from dynamo_lite.bytecode.analysis import analyse
from dynamo_lite.bytecode.instructions import Instruction, decode
from dynamo_lite.bytecode.stack import NULL, VALUE

CALLABLE = (NULL, VALUE) if sys.version_info < (3, 13) else (VALUE, NULL)
ITERATOR = (VALUE,) if sys.version_info < (3, 15) else (VALUE, NULL)
STDLIB = os.path.dirname(os.__file__)


def find(code: CodeType, opname: str, argval: Any = None, nth: int = 0) -> Instruction:
    found = [i for i in decode(code).instructions if i.opname == opname and argval in (None, i.argval)]
    return found[nth]


def test_liveness_in_straight_lines_and_loops() -> None:
    def f(a, b, n):
        c = a + b
        while n:
            n -= 1
            c += a
        return c

    code = f.__code__
    assert analyse(code).live(1) == {"a", "b", "n"}
    assert analyse(code).live(find(code, "STORE_FAST", "c").index) == {"a", "n"}
    assert analyse(code).live(find(code, "STORE_FAST", "n").index) == {"a", "c"}
    assert analyse(code).live(find(code, "RETURN_VALUE").index) == set()


def test_what_a_handler_reads_is_live_in_what_it_covers() -> None:
    def f(x, y):
        try:
            z = x()
            x = y = None
            z()
        except ValueError:
            return y

    code = f.__code__
    assert analyse(code).live(find(code, "LOAD_FAST", "x").index) == {"x", "y"}
    # y is overwritten before anything reads it, unless what stands before that raises
    assert analyse(code).live(find(code, "STORE_FAST", "z").index) == {"y"}
    assert analyse(code).live(find(code, "LOAD_FAST", "z").index) == {"y", "z"}


def test_cells_stay_live_as_long_as_anything_touches_them() -> None:
    def f(a):
        def g():
            return a, b

        b = 1
        return g

    code = f.__code__
    assert analyse(code).live(find(code, "STORE_DEREF", "b").index) == {"b", "g"}
    assert analyse(code).live(find(code, "LOAD_CLOSURE", "a").index) == {"a", "b"}


def test_frame_readers_and_super_keep_what_they_need() -> None:
    def reads(a, b):
        return locals()

    assert analyse(reads.__code__).live(find(reads.__code__, "RETURN_VALUE").index) == {"a", "b"}

    def has_methods_of_such_names(a, b):
        a.eval()
        return a.locals

    assert analyse(has_methods_of_such_names.__code__).live(3) == {"a"}

    class C:
        def f(self, x):
            print(x)
            return super().f()

    code = C.f.__code__
    assert "self" in analyse(code).live(find(code, "LOAD_GLOBAL", "print").index)


def test_bound_locals() -> None:
    def f(c):
        if c:
            x = 1
        y = x
        del x
        for i in y:
            z = i
        return z

    code = f.__code__
    assert analyse(code).bound(find(code, "LOAD_FAST", "x").index) == ({"c"}, {"c", "x"})
    assert analyse(code).bound(find(code, "GET_ITER").index) == ({"c", "y"}, {"c", "y"})
    assert analyse(code).bound(find(code, "RETURN_VALUE").index) == ({"c", "y"}, {"c", "y", "i", "z"})


def test_unreachable_code() -> None:
    def f():
        while True:
            print(1)
        return 2

    code = f.__code__
    assert analyse(code).stacks[find(code, "CALL").index] is not None
    assert all(analyse(code).stacks[i.index] is not None or i.argval in (None, 2) for i in decode(code).instructions)


def test_stack_in_the_middle_of_expressions() -> None:
    def f(x):
        for i in x:
            print(i, [i, x.m(i)])

    code = f.__code__
    assert analyse(code).stacks[find(code, "BUILD_LIST").index] == (*ITERATOR, *CALLABLE, VALUE, VALUE, VALUE)
    assert len(analyse(code).stacks[find(code, "JUMP_BACKWARD").index]) == len(ITERATOR)


@pytest.mark.parametrize("name", ["contextlib", "dataclasses", "shutil", "tarfile", "subprocess", "runpy", "tempfile"])
def test_kinds_agree_on_all_paths(name: str) -> None:
    for code in functions_of(f"{STDLIB}/{name}.py"):
        check_stacks(code)
