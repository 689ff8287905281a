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
