"""What a program asks of functions and classes: type hints, signatures, subclasses, names."""
from __future__ import annotations

import functools
import gc
import inspect
import typing

import pytest
import torch

import dynamo_lite
from dynamo_lite import exc, log


class Backend:
    name = "none"

    def scaled(self, x):
        return x


class Doubling(Backend):
    name = "double"

    def scaled(self, x):
        return x * 2


class Deep(Doubling):
    name = "deep"


def subclasses_of(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from subclasses_of(sub)


def noted(a: int, b: torch.Tensor, *, c: typing.Optional[str] = None) -> float:
    return 1.0


@functools.wraps(noted)
def wrapping(*args, **kwargs):
    return noted(*args, **kwargs)


class Fields:
    first: int
    second: typing.List[float]


def compiled(fn, **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend="eager", fullgraph=True, **options)


def graphs():
    return log.counters().get("graphs", 0)


def test_subclasses_at_any_depth():
    def f(x):
        names = [sub.name for sub in subclasses_of(Backend)]
        for sub in type.__subclasses__(Backend):
            x = sub().scaled(x)
        return x, names

    fn = compiled(f)
    for _ in range(2):
        got, names = fn(torch.ones(2))
        want, wanted = f(torch.ones(2))
        assert torch.equal(got, want) and names == wanted
    assert graphs() == 1


def test_a_new_subclass_and_one_that_has_ended():
    class Base:
        pass

    f = lambda x: x + len(Base.__subclasses__())
    fn = compiled(f)
    assert torch.equal(fn(torch.zeros(1)), torch.zeros(1))
    class First(Base):
        pass
    class Second(Base):
        pass
    assert torch.equal(fn(torch.zeros(1)), torch.zeros(1) + 2)
    assert torch.equal(fn(torch.zeros(1)), torch.zeros(1) + 2) and graphs() == 2
    del First
    gc.collect()
    assert torch.equal(fn(torch.zeros(1)), torch.zeros(1) + 1)  # guards have not kept it
    assert Base.__subclasses__() == [Second]


def test_subclasses_that_the_program_makes_break():
    def f(x):
        class Local(Backend):
            pass
        return x * len(Backend.__subclasses__()), Local.name

    with pytest.raises(exc.Unsupported, match="__subclasses__"):
        compiled(f)(torch.ones(2))


def test_type_hints_are_evaluated():
    def f(x):
        hints = typing.get_type_hints(noted)
        of_class = typing.get_type_hints(Fields)
        same = typing.get_type_hints(wrapping) == hints
        return x * len(hints), hints["b"] is torch.Tensor, hints["return"], of_class["first"], list(of_class), same

    fn = compiled(f)
    for _ in range(2):
        got, want = fn(torch.ones(2)), f(torch.ones(2))
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    assert graphs() == 1


def test_hints_that_change():
    def own(a: int):
        return a

    f = lambda x: x * len(typing.get_type_hints(own))
    fn = compiled(f)
    assert torch.equal(fn(torch.ones(2)), torch.ones(2))
    own.__annotations__["b"] = "float"
    assert torch.equal(fn(torch.ones(2)), torch.ones(2) * 2)
    own.__annotations__["b"] = float
    assert torch.equal(fn(torch.ones(2)), torch.ones(2) * 2) and graphs() == 2


def test_annotations_as_they_are_written():
    def f(x):
        notes = noted.__annotations__
        parameters = inspect.signature(noted).parameters
        return x, notes["a"], sorted(notes), [p.annotation for p in parameters.values()], parameters["c"].default

    fn = compiled(f)
    for _ in range(2):
        assert fn(torch.ones(2))[1:] == f(torch.ones(2))[1:]


def test_arguments_by_annotation():
    """As dependency injection does it."""
    def call(function, **given):
        wanted = {name: given[name] for name, note in typing.get_type_hints(function).items() if name in given}
        return function(**wanted)

    def step(x: torch.Tensor, scale: float = 2.0):
        return x * scale

    fn = compiled(lambda x: call(step, x=x, scale=3.0, unused=1))
    assert torch.equal(fn(torch.ones(2)), torch.ones(2) * 3)


class Kinds:
    SUM = "sum"
    MEAN = "mean"

    @classmethod
    def all(cls):
        return sorted(getattr(cls, name) for name in dir(cls) if name.isupper())


def test_names_of_a_class():
    fn = compiled(lambda x: x + (1 if "mean" in Kinds.all() else 0) + (1 if "max" in Kinds.all() else 0))
    assert torch.equal(fn(torch.zeros(1)), torch.ones(1))
    Kinds.MAX = "max"
    try:
        assert torch.equal(fn(torch.zeros(1)), torch.ones(1) * 2)
    finally:
        del Kinds.MAX
    assert torch.equal(fn(torch.zeros(1)), torch.ones(1))


class OfRank(type):
    def __instancecheck__(cls, obj):
        return obj.dim() == cls.rank


class Matrix(metaclass=OfRank):
    rank = 2


def test_a_metaclass_decides_about_tensors():
    fn = compiled(lambda x: (x + 1, isinstance(x, Matrix), isinstance(x[0], Matrix), isinstance(x[0], (Matrix, int))))
    assert fn(torch.ones(2, 2))[1:] == (True, False, False)
    assert compiled(lambda x: (x + 1, isinstance(x, (int, torch.Tensor)), isinstance(x, torch.FloatTensor)))(
        torch.ones(2))[1:] == (True, True)
