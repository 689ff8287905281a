"""Generic functions whose cache is empty: one graph from the first call on, and registrations are felt."""
from __future__ import annotations

import abc
import collections.abc
import functools

import pytest
import torch

import dynamo_lite
from dynamo_lite import log

X = torch.randn(3, 4)


def generic():
    @functools.singledispatch
    def shape_of(value):
        return -1

    @shape_of.register
    def _(value: torch.Tensor):
        return value.shape[0]

    @shape_of.register
    def _(value: int):
        return value + 3

    return shape_of


def check(f, *args, graphs=1, breaks=0):
    fn = dynamo_lite.compile(f, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(fn(*args), f(*args))
    counters = log.counters()
    assert (counters["graphs"], counters.get("graph_breaks", 0)) == (graphs, breaks)
    return fn


@pytest.fixture(autouse=True)
def fresh():
    dynamo_lite.reset()
    log.reset()


def test_the_first_call_is_one_graph():
    shape_of = generic()

    def f(x):
        return x * shape_of(x) + shape_of(4) + shape_of("a") + shape_of.dispatch(bool)(True)

    check(f, X)


def test_methods():
    class Counter:
        factor = 2

        @functools.singledispatchmethod
        def count(self, value):
            return 1

        @count.register
        def _(self, value: torch.Tensor):
            return value * self.factor

        @count.register
        def _(self, value: int):
            return value + 3

    counter = Counter()
    check(lambda x: counter.count(x) + counter.count(2), X)


def test_what_is_registered_later_is_used():
    shape_of = generic()

    def f(x):
        return x * shape_of(2.5)

    fn = check(f, X)
    shape_of.register(float, lambda value: 7)
    torch.testing.assert_close(fn(X), X * 7)
    shape_of.register(float, lambda value: 8)
    torch.testing.assert_close(fn(X), X * 8)


def test_registered_in_the_function():
    def f(x):
        shape_of = generic()
        shape_of.register(float, lambda value: 7)
        return x * shape_of(2.5)

    fn = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(fn(X), X * 7)


def test_registered_between_two_uses():
    def f(x):
        shape_of = generics.pop()
        before = shape_of(2.5)
        shape_of.register(float, lambda value: 7)
        return x * shape_of(2.5) + before

    generics = [generic(), generic()]
    fn = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(fn(X), X * 7 - 1)


def test_abstract_classes():
    shape_of = generic()
    shape_of.register(collections.abc.Mapping, lambda value: len(value) * 10)

    class Own:
        pass

    def f(x):
        return x * shape_of({1: 2}) + shape_of(Own())

    fn = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(fn(X), f(X))
    collections.abc.Mapping.register(Own)
    Own.__len__ = lambda self: 5
    torch.testing.assert_close(fn(X), X * 10 + 50)


def test_an_ambiguous_class_raises_as_in_eager():
    class Both:
        pass

    class First(abc.ABC):
        pass

    class Second(abc.ABC):
        pass

    First.register(Both)
    Second.register(Both)

    @functools.singledispatch
    def name(value):
        return 0

    name.register(First, lambda value: 1)
    name.register(Second, lambda value: 2)
    value = Both()
    fn = dynamo_lite.compile(lambda x: x * name(value), backend="eager")
    with pytest.raises(RuntimeError, match="Ambiguous dispatch"):
        name(value)
    with pytest.raises(RuntimeError, match="Ambiguous dispatch"):
        fn(X)
