"""Reads of annotations: what they run, they run where the program reads them.

From Python 3.14 on they are computed by a function ``__annotate__`` at the first read; a class or function that has
such a function by an assignment is looked at alike in earlier versions.
"""
import inspect
import sys
import types
import typing

import pytest
import torch

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.variables import annotations


def counted(f, *args):
    dynamo_lite.reset()
    before = log.counters().get("graph_breaks", 0)
    result = dynamo_lite.compile(f, backend="eager")(*args)
    return result, log.counters().get("graph_breaks", 0) - before


class Told:
    a: int
    b: "str" = "b"


class Below(Told):
    pass


def told(a: int, b: "str" = "b") -> None:
    pass


@pytest.mark.parametrize("read", [
    lambda x: (x + 1, Told.__annotations__), lambda x: (x + 1, Below.__annotations__),
    lambda x: (x + 1, told.__annotations__), lambda x: (x + 1, str(inspect.signature(told))),
    lambda x: (x + 1, typing.get_type_hints(Told)), lambda x: (x + 1, hasattr(told, "__annotations__"))])
def test_computed_ones_are_read_while_tracing(read):
    want = read(torch.ones(1))  # computes them
    assert counted(read, torch.ones(1)) == (want, 0)


MODULE = """
import torch
def read(x):
    said.append(x.shape)
    return x + 1, owner.__annotations__
def asked(x):
    return x + 1, getattr(owner, "__annotations__", 7)
"""


def lazy_class():
    cls = type("Lazy", (), {})
    cls.__annotate_func__ = lambda format: {"a": int}
    return cls


def lazy_function():
    def lazy(a):
        pass

    lazy.__annotate__ = lambda format: {"a": int}
    return lazy


@pytest.mark.parametrize("make", [lazy_class, lazy_function])
def test_those_that_are_not_computed_are_read_by_the_program(make):
    space = {"said": [], "owner": make()}
    exec(MODULE, space)
    for name in ("read", "asked"):
        result, breaks = counted(space[name], torch.ones(1))
        assert result[1] == space["owner"].__annotations__ and breaks == 1
        space["owner"] = make()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="computes annotations when they are defined")
def test_what_annotations_run_comes_in_the_programs_order():
    space = {"said": []}
    exec("def note():\n    said.append('computed')\n    return int\n"
         "def owner(a: note()): pass\n" + MODULE, space)
    assert counted(space["read"], torch.ones(1))[1] == 1
    assert space["said"] == [(1,), "computed"]
    assert counted(space["read"], torch.ones(1))[1] == 0
    assert space["said"] == [(1,), "computed", (1,)]


@pytest.mark.parametrize("text", ["", "x: int = 1"])
def test_annotations_of_modules(text):
    """They are made when they are first read, and stand in the module's dict then."""
    def module():
        made = types.ModuleType("made")
        exec(text, made.__dict__)
        return made

    for f in (lambda m, x: (x + 1, hasattr(m, "__annotations__")), lambda m, x: (x + 1, m.__annotations__),
              lambda m, x: (x + 1, getattr(m, "__annotations__", 7))):
        made = module()
        want = f(module(), torch.ones(1))
        assert counted(f, made, torch.ones(1))[0] == want
        assert counted(f, made, torch.ones(1)) == (want, 0)


def test_which_are_computed():
    def known(a):
        pass

    def unknown(a, *, b={}):
        """A docstring."""

    known.__annotate__ = unknown.__annotate__ = lambda format: {}
    known.__annotations__ = {"a": int}
    unknown.kept = {}
    annotations.require_computed(known, "")
    with pytest.raises(dynamo_lite.exc.Unsupported, match="__annotate__"):
        annotations.require_computed(unknown, "")
