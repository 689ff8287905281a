"""Compiled functions that call themselves by the name of what `compile` has made, and wrappers met in two places."""
from __future__ import annotations

import sys
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite import log

PROGRAMS = '''
import torch

@compiled
def itself(x, n):
    return x if n == 0 else itself(x * 2, n - 1)

@compiled
def even(x, n):
    return x if n == 0 else odd(x + 1, n - 1)

@compiled
def odd(x, n):
    return x * 10 if n == 0 else even(x * 3, n - 1)

class Methods:
    @compiled
    def by_instance(self, x, n):
        return x if n == 0 else self.by_instance(x * 2, n - 1)

    @compiled
    def by_class(self, x, n):
        return x if n == 0 else Methods.by_class(self, x * 2, n - 1)

    @staticmethod
    @compiled
    def static(x, n):
        return x if n == 0 else Methods.static(x * 2, n - 1)

by_instance, by_class, static = Methods().by_instance, Methods().by_class, Methods.static
nameless = compiled(lambda x, n: x if n == 0 else nameless(x * 2, n - 1))

def elements(x, n):
    yield x
    if n:
        yield summed(x, n - 1)
        yield from elements(x * 2, n - 1)

@compiled
def summed(x, n):
    return sum(elements(x, n))

@compiled
def listed(x, n):
    return torch.stack([x] + [y for y in (listed(x * 2, n - 1) if n else [])])

def closure(x, n):
    @compiled
    def inner(x, n):
        return x if n == 0 else inner(x * 2, n - 1)
    return inner(x, n)

@compiled
def in_two_places(x, n):
    here = in_two_places
    return x if n == 0 else here(x * 2, n - 1) + in_two_places(x, n - 1)

alias = itself

@compiled
def by_two_names(x, n):
    return itself(x, n) + alias(x, n)

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.held = []

    def forward(self, x, n):
        return x if n == 0 else self.held[0](x * 2, n - 1) + self.held[-1](x, n - 1)

def module(x, n):
    made = Module()
    made.held += [compiled(made)] * 2
    return made.held[0](x, n)
'''
NAMES = ["itself", "even", "odd", "by_instance", "by_class", "static", "nameless", "summed", "listed", "closure",
         "in_two_places", "by_two_names", "module"]


@pytest.fixture(params=["exec", "named", "module"])
def namespace(request, monkeypatch):
    dynamo_lite.reset()
    if request.param == "module":
        made = types.ModuleType("recursive_functions")
        monkeypatch.setitem(sys.modules, made.__name__, made)
        yield made.__dict__
    else:
        yield {} if request.param == "exec" else {"__name__": "of_no_module"}
    dynamo_lite.reset()


@pytest.mark.parametrize("name", NAMES)
def test_recursion_through_the_compiled_function_is_one_graph(namespace, name):
    plain = {"compiled": lambda f: f}
    exec(PROGRAMS, plain)
    namespace["compiled"] = lambda f: dynamo_lite.compile(f, backend="eager", fullgraph=True)
    exec(PROGRAMS, namespace)
    for n in (3, 2, 0, 3):
        x = torch.rand(3)
        assert torch.equal(namespace[name](x, n), plain[name](x, n))
    # Each n is a program of its own; what a call makes anew is compiled anew.
    counters = log.counters()
    assert "internal_errors" not in counters and counters["graphs"] <= 4, counters


def test_another_function_in_one_of_two_places_is_noticed():
    twice, thrice = (dynamo_lite.compile(lambda x, n=n: x * n, backend="eager") for n in (2, 3))
    held = {"a": twice, "b": twice}

    @dynamo_lite.compile(backend="eager")
    def both(x):
        return held["a"](x) + held["b"](x)

    x = torch.ones(3)
    for a, b, wanted in ((twice, twice, 4), (twice, thrice, 5), (thrice, thrice, 6), (thrice, twice, 5)):
        held.update(a=a, b=b)
        assert both(x).tolist() == [wanted] * 3
