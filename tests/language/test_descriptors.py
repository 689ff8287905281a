"""Descriptors of Python's making: which of the three methods a class defines decides what an access does, also when
that changes between two calls. Values, exceptions and the lines of their tracebacks are plain Python's."""
from __future__ import annotations

import itertools
import traceback

import pytest
import torch

import dynamo_lite

METHODS = {
    "__get__": lambda self, obj, cls: self.v,
    "__set__": lambda self, obj, value: setattr(self, "v", value),
    "__delete__": lambda self, obj: setattr(self, "v", -1),
}
SETS = [chosen for n in range(4) for chosen in itertools.combinations(METHODS, n)]


class Overridden(property):
    """A property only by name."""

    v = 1

    def __get__(self, obj, cls=None):
        return 5

    def __set__(self, obj, value):
        vars(obj)["other"] = value

    def __delete__(self, obj):
        vars(obj)["other"] = -1


class Untouched(property):
    pass


def make(chosen, kind=object):
    desc = type("Desc", (), {"v": 1, **{name: METHODS[name] for name in chosen}})
    owner = type("Has", (), {"d": desc()})
    return desc, owner, owner()


def read(has, x):
    def inner(x):
        return x + has.d

    return inner(x)


def write(has, x):
    def inner(x):
        has.d = 3
        return x + has.d

    return inner(x)


def write_by_name(has, x):
    def inner(x):
        return setattr(has, "d", 4) or x

    y = x + 1
    return inner(y)


def delete(has, x):
    def inner(x):
        del has.d
        return x

    return inner(x * 2)


def handled(has, x):
    try:
        has.d = 3
    except AttributeError as error:
        return x, error.args, error.name
    return x


def seen(call, has, x):
    try:
        result = call(has, x + 0)
    except (AttributeError, TypeError) as error:
        lines = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
        result = type(error), error.args, lines[1:]
    found = [result, vars(has), vars(type(has).__dict__["d"])]
    return [v.tolist() if isinstance(v, torch.Tensor) else v for v in torch.utils._pytree.tree_leaves(found)]


PROGRAMS = [read, write, write_by_name, delete, handled]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("chosen", SETS, ids=lambda c: "".join(c) or "none")
def test_as_defined(program, chosen):
    compiled = dynamo_lite.compile(program, backend="eager")
    mine, theirs = make(chosen)[2], make(chosen)[2]
    vars(mine)["e"] = vars(theirs)["e"] = 1
    for _ in range(2):
        assert seen(compiled, mine, torch.ones(2)) == seen(program, theirs, torch.ones(2))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("chosen", SETS, ids=lambda c: "".join(c) or "none")
def test_as_defined_later(program, chosen):
    """Each method is taken away or added, or is None, after the first call; in the object's dict there is a value."""
    for name in METHODS:
        compiled = dynamo_lite.compile(program, backend="eager")
        mine, theirs = make(chosen), make(chosen)
        for change in (None, "toggle", "none", "own"):
            for desc, _, has in (mine, theirs):
                if change == "toggle" and name in chosen:
                    delattr(desc, name)
                elif change == "toggle":
                    setattr(desc, name, METHODS[name])
                elif change == "none":
                    setattr(desc, name, None)
                elif change == "own":
                    vars(has)["d"] = 8
            got, want = seen(compiled, mine[2], torch.ones(2)), seen(program, theirs[2], torch.ones(2))
            assert got == want, (name, change)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("cls", [property, Overridden, Untouched])
def test_properties_and_their_subclasses(program, cls):
    def has():
        d = cls(lambda self: self.e, lambda self, value: setattr(self, "e", value))
        made = type("Has", (), {"d": d})()
        made.e = 2
        return made

    compiled = dynamo_lite.compile(program, backend="eager")
    mine, theirs = has(), has()
    for _ in range(2):
        got, want = (seen_of_object(call, o) for call, o in ((compiled, mine), (program, theirs)))
        assert got == want


def seen_of_object(call, has):
    try:
        result = call(has, torch.ones(2)).tolist()
    except AttributeError as error:
        result = str(error), [f.lineno for f in traceback.extract_tb(error.__traceback__)[1:]]
    except Exception as error:
        result = str(error)
    return result, vars(has)


def test_a_method_of_the_descriptor_itself_is_not_asked():
    def program(has, x):
        has.d = 3
        return x + has.d

    desc, _, has = make(("__get__", "__set__"))
    vars(type(has).__dict__["d"])["__set__"] = lambda obj, value: None
    vars(type(has).__dict__["d"])["__get__"] = lambda obj, cls: 100
    result = dynamo_lite.compile(program, backend="eager", fullgraph=True)(has, torch.ones(2))
    assert result.tolist() == [4, 4]
