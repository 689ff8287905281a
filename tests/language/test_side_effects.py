"""Side effects: globals, aliasing, items, deletion.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import pytest
import torch
from language_support import Programs

import dynamo_lite

program = Programs()


class Base:
    def __init__(self, k=1):
        self.k = k


STATE = {"n": 0, "items": []}
counter = 0


@program
def global_writes(x):
    global counter
    counter = 1
    counter += 1
    STATE["n"] = counter
    return x * counter, STATE["n"]


@program
def global_delete(x):
    global temporary
    temporary = 3
    y = x * temporary
    del temporary
    return y, "temporary" in globals() if False else 1


@program
def aliases(x):
    a = [1]
    b = {"a": a}
    c = (a, b)
    c[0].append(2)
    b["a"] = b["a"] + [3]
    return x + 1, a, b, c[1] is b, c[0] is a


@program
def self_reference(x):
    a = [x + 1]
    a.append(a)
    return a[0], a[1] is a, len(a[1][1])


@program
def swaps(x):
    a, b = [1], [2]
    a, b = b, a
    a[0], b[0] = b[0], a[0]
    i, lst = 0, [0, 0]
    i, lst[i] = 1, 5
    return x + 1, a, b, lst


@program
def augmented(x):
    d = {"k": [1]}
    d["k"] += [2]
    d["k"][0] -= 5
    n = 3
    n **= 2
    n //= 2
    s = "a"
    s += "b"
    t = (1,)
    t += (2,)
    x += 1
    return x, d, n, s, t


@program
def delete_forms(x):
    a, d, o = [1, 2, 3], {"a": 1, "b": 2}, Base()
    del a[0], d["a"], o.k
    v = 1
    del v
    try:
        return x, v  # noqa: F821
    except UnboundLocalError:
        return x + 1, a, d, hasattr(o, "k")


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)


def _pops_the_last(x, d):
    d["c"] = d.pop("c")
    return x + 1


def _pops_the_first(x, d):
    d["a"] = d.pop("a")
    return x + 1


def _clears_and_fills(x, d):
    before = dict(d)
    d.clear()
    d.update(before)
    return x + 1


def _stores_and_deletes(x, d):
    d["b"] = 5
    d["z"] = 1
    del d["z"]
    return x + 1


def _takes_an_item(x, d):
    key, value = d.popitem()
    d[key] = value
    d["n"] = 4
    return x + 1


@pytest.mark.parametrize("change", [_pops_the_last, _pops_the_first, _clears_and_fills, _stores_and_deletes,
                                    _takes_an_item], ids=lambda change: change.__name__)
def test_an_iterator_outside_notices_what_was_deleted_and_stored_again(change):
    said = []
    for function in (change, dynamo_lite.compile(change, backend="eager")):
        d = dict(a=1, b=2, c=3)
        iterator = iter(d)
        next(iterator)
        function(torch.ones(2), d)
        try:
            said.append((list(iterator), list(d.items())))
        except RuntimeError as error:
            said.append((str(error), list(d.items())))
    assert said[0] == said[1]


def test_a_loop_that_breaks_notices_that_its_dict_has_changed():
    def f(x):
        d = {0: 0}
        try:
            for key in d:
                dynamo_lite.graph_break()
                del d[key]
                d[key] = 0
        except RuntimeError as error:
            return x + 1, str(error)
        return x + 2, None

    x = torch.ones(2)
    got, want = dynamo_lite.compile(f, backend="eager")(x), f(x)
    assert got[1] == want[1] and torch.equal(got[0], want[0])
