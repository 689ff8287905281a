"""Compiled functions as values in a trace: called, they are what they were made from; otherwise they are themselves."""
import functools

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


def plus_one(x):
    return x + 1


FIRST = dynamo_lite.compile(plus_one, backend="eager")
SECOND = dynamo_lite.compile(plus_one, backend="eager")


def compared(x, a, b):
    return x + (1 if a is b else 2), a == b, a != b, len({a, b}), a in [b], {a: 1}.get(b), id(a) == id(b)


def test_identity_is_the_objects_own():
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(compared, backend="eager", fullgraph=True)
    x = torch.ones(2)
    pairs = [(FIRST, SECOND), (FIRST, FIRST), (SECOND, FIRST), (FIRST, plus_one), (plus_one, FIRST), (SECOND, SECOND)]
    for _ in range(2):
        for a, b in pairs:
            want, got = compared(x, a, b), compiled(x, a, b)
            assert torch.equal(want[0], got[0]) and want[1:] == got[1:]
    assert log.counters()["graphs"] == len(pairs)


def kept(x, a, store):
    store.append(a)
    return a, [a], a(x), a.__name__, callable(a), type(a), isinstance(a, type(kept)), a.__wrapped__, a.fn


def test_what_leaves_the_trace_is_the_object():
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(kept, backend="eager", fullgraph=True)
    for a in (FIRST, SECOND):  # guarded by what it is made from, not by identity
        store, plain = [], []
        got, want = compiled(torch.ones(2), a, store), kept(torch.ones(2), a, plain)
        assert got[0] is a and got[1][0] is a and store[0] is a
        assert torch.equal(got[2], want[2]) and got[3:] == want[3:]
    assert "recompiles" not in log.counters() and "graph_breaks" not in log.counters()


def uses(x, a):
    return functools.partial(a)(x), list(map(a, [x])), torch.func.vmap(a)(x), max([1, 2], key=lambda n: a(n))


def test_it_is_called_as_its_function():
    dynamo_lite.reset()
    got = dynamo_lite.compile(uses, backend="eager", fullgraph=True)(torch.ones(2), FIRST)
    torch.testing.assert_close(got, uses(torch.ones(2), FIRST))


class Doubles:
    @dynamo_lite.compile(backend="eager")
    def double(self, x):
        return x * 2

    def both(self, x):
        return self.double(x), self.double == self.double, self.double is self.double, Doubles.double is Doubles.double


def test_a_compiled_method():
    dynamo_lite.reset()
    got = dynamo_lite.compile(Doubles.both, backend="eager", fullgraph=True)(Doubles(), torch.ones(2))
    want = Doubles().both(torch.ones(2))
    assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


def test_attributes_set_on_it_are_its_own():
    def sets(x, a):
        a.mark = 3
        return x + a.mark

    dynamo_lite.reset()
    first = dynamo_lite.compile(plus_one, backend="eager")
    assert torch.equal(dynamo_lite.compile(sets, backend="eager")(torch.ones(2), first), torch.full((2,), 4.0))
    assert vars(first)["mark"] == 3 and not hasattr(plus_one, "mark")


@pytest.mark.parametrize("make", [lambda: functools.partial(plus_one), lambda: torch.nn.Linear(2, 2).forward])
def test_of_other_callables(make):
    dynamo_lite.reset()
    inner = make()
    a = dynamo_lite.compile(inner, backend="eager")
    got = dynamo_lite.compile(lambda x: a(x) + 1, backend="eager", fullgraph=True)(torch.ones(1, 2))
    torch.testing.assert_close(got, inner(torch.ones(1, 2)) + 1)
