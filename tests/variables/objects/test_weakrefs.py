"""Weak references to what a trace has made."""
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


class Holder:
    def __init__(self, value=None):
        self.value = value


def let_go_object(x):
    r = weakref.ref(Holder(x))
    return x + 1, r() is None


def overwritten(x):
    h = Holder(x)
    r = weakref.ref(h)
    before = r() is h
    h = None
    return x + 1, before, r() is None


def in_a_call(x):
    def make():
        h = Holder(x)
        return weakref.ref(h), [weakref.ref(h)]

    r, others = make()
    return x + 1, r() is None, others[0]() is None


def held(x):
    h, kept = Holder(x * 2), []
    r = weakref.ref(h)
    kept.append(h)
    del h
    return r().value + 1, r() is kept[0]


@pytest.mark.parametrize("fn, graphs", [
    (let_go_object, 2), (overwritten, 2), (in_a_call, 2), (held, 1)])
def test_what_was_let_go_of_is_gone(fn, graphs):
    x = torch.ones(2)
    want, got = fn(x), dynamo_lite.compile(fn, backend="eager")(x)
    assert torch.equal(want[0], got[0]) and want[1:] == got[1:]
    assert log.counters()["graphs"] <= graphs


def read_after_a_break(x):
    y = x + 1
    r = weakref.ref(y)
    dynamo_lite.graph_break()
    z = y * 2
    y = None
    return z, r() is None


def in_a_tuple_after_a_break(x):
    y = x + 1
    r = weakref.ref(y)
    dynamo_lite.graph_break()
    kept = y * 2, y
    y = None
    before = r() is None
    z, kept = kept[0], None
    return z, before, r() is None


def a_module_after_a_break(x):
    net = torch.nn.Linear(2, 2)
    r, w = weakref.ref(net), weakref.ref(net.weight)
    dynamo_lite.graph_break()
    before, y = w() is None, net(x).shape
    net = None
    return x + 1, before, y, r() is None, w() is None


@pytest.mark.parametrize("fn", [read_after_a_break, in_a_tuple_after_a_break, a_module_after_a_break])
def test_what_a_resume_function_was_given_and_let_go_of_is_gone(fn):
    x = torch.ones(2)
    want, compiled = fn(x), dynamo_lite.compile(fn, backend="eager")
    for _ in range(2):
        got = compiled(x)
        assert torch.equal(want[0], got[0]) and want[1:] == got[1:]


def test_an_argument_that_was_let_go_of():
    def fn(x, r):
        x = None
        return r() is None

    def call(f):
        x = torch.ones(2)
        return f(x, weakref.ref(x))

    assert call(fn) == call(dynamo_lite.compile(fn, backend="eager")) is False
    held = lambda x, r: (r() is x, r() + 1)
    assert call(dynamo_lite.compile(held, backend="eager", fullgraph=True))[0]
