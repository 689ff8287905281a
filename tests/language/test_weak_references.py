"""Weak references, and what else feels an end, to what only a variable holds that nothing reads any more: across breaks
the variable holds it as long as in eager."""
from __future__ import annotations

import array
import collections
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


class Sized:
    def __len__(self):
        return 3


def own_object(x):
    held = Sized()
    print(end="")
    seen = weakref.proxy(held)  # breaks, and so does what follows
    return x + 1, len(seen)


def in_c(x):
    held = array.array("i", [1, 2])
    seen = weakref.proxy(held)
    before = len(seen)
    held = None
    try:
        return x + 1, before, len(seen)
    except ReferenceError:
        return x + 1, before, "gone"


def with_a_callback(x):
    log = []
    held = array.array("i", [1, 2])
    seen = weakref.ref(held, lambda _: log.append("end"))
    log.append("start")
    y = x + 1
    held = None
    log.append("after")
    return y, seen(), log


def tensor(x):
    held = x + 1
    seen = weakref.ref(held)
    print(end="")
    return x + 2, seen() is None


def module(x):
    held = torch.nn.Linear(2, 2)
    seen = weakref.proxy(held)
    print(end="")
    return x + 1, seen.in_features


def function(x):
    def held():
        return 3

    seen = weakref.ref(held)
    print(end="")
    return x + 1, seen() is None


def containers(x):
    first, second, third = {1, 2}, collections.deque([1]), collections.OrderedDict(a=1)
    seen = [weakref.ref(first), weakref.ref(second), weakref.ref(third)]
    print(end="")
    return x + 1, [r() for r in seen]


def mapping(x):
    held = x + 1
    seen = weakref.WeakValueDictionary(a=held)
    y = x * 3
    return y, len(seen), list(seen)


def cache(x):
    kept = weakref.WeakValueDictionary()

    def get(make):
        found = kept.get("key")
        if found is None:
            found = kept["key"] = make()
        return found

    first = get(lambda: x * 2)
    y = x * 3
    print(end="")
    second = get(lambda: x * 100)
    return y, second.tolist()


def comprehension(x):
    held = [x + 1, x + 2]
    seen = [weakref.ref(t) for t in held]
    print(end="")
    return x + 1, [r() is None for r in seen]


def _pointed_at(values):
    return [weakref.ref(v) for v in values]


def called(x):
    held = [x + 1, torch.nn.Linear(2, 2)]

    def make():
        return _pointed_at(held)

    seen = make()
    print(end="")
    return x + 1, [r() is None for r in seen]


def buffer(x):
    held = bytearray(b"abc")
    view = memoryview(held)
    try:
        held.pop()
    except BufferError:
        return x + 1, "held"
    return x + 1, held


PROGRAMS = [own_object, in_c, with_a_callback, tensor, module, function, containers, mapping, cache, comprehension,
            called, buffer]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(program):
    want = program(torch.ones(2))
    compiled = dynamo_lite.compile(program, backend="eager")
    for _ in range(2):
        got = compiled(torch.ones(2))
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


def test_a_method_in_c_does_not_keep_its_object():
    """A guard on its identity did, and held for no other."""
    def program(x, method):
        return x + 1, method()

    dynamo_lite.reset()
    log.reset_counters()
    compiled = dynamo_lite.compile(program, backend="eager")
    for number in range(3):
        held = array.array("i", [number])
        seen = weakref.ref(held)
        assert compiled(torch.ones(2), held.tolist)[1] == [number]
        held = None
        assert seen() is None
    assert not log.counters().get("recompiles", 0)
