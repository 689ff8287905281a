"""Methods taken from a class and called with an object whose class has its own: ``dict.copy(a_defaultdict)``."""
from __future__ import annotations

import collections

import pytest
import torch

import dynamo_lite

Pair = collections.namedtuple("Pair", "a b")


def counter():
    return collections.Counter("aab")


def by_default():
    return collections.defaultdict(int, a=1)


def ordered():
    return collections.OrderedDict(a=1)


def changed(made, method, *args):
    method(made, *args)
    return made


@pytest.mark.parametrize("asked", [
    lambda: dict.__or__(by_default(), {"b": 1}), lambda: dict.__ror__(by_default(), {"b": 1}),
    lambda: dict.copy(by_default()), lambda: dict.__repr__(by_default()), lambda: dict.__getitem__(by_default(), "z"),
    lambda: dict.__or__(counter(), {"b": 1}), lambda: dict.copy(counter()), lambda: counter() | {"b": 5},
    lambda: dict.__eq__(counter(), {"a": 2, "b": 1, "c": 0}), lambda: counter() == {"a": 2, "b": 1, "c": 0},
    lambda: changed(counter(), dict.update, {"a": 10}), lambda: changed(ordered(), dict.update, {"b": 2}),
    lambda: dict.copy(ordered()), lambda: dict.__or__(ordered(), {"b": 2}),
    lambda: tuple.__repr__(Pair(1, 2)), lambda: tuple.__add__(Pair(1, 2), (3,)), lambda: object.__eq__([1], [1]),
    lambda: object.__repr__([])[:5], lambda: int.__repr__(True), lambda: int.__add__(True, 1),
    lambda: tuple.__repr__(torch.ones(2, 3).shape), lambda: list.__len__([1, 2]),
])
def test_as_eager(asked):
    def program(x):
        made = asked()
        return x + 1, type(made), made

    want = program(torch.ones(2))
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(program, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == want[1:]
