"""Read-only views of mappings from outside, such as the parameters of a signature."""
import collections
import inspect
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


def compiled(fn):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend="eager", fullgraph=True)


def same(got, want):
    assert got[1:] == want[1:]
    torch.testing.assert_close(got[0], want[0])


def test_a_proxy_and_the_dict_behind_it():
    behind = {"a": 1.0, "b": [2.0]}
    proxy = types.MappingProxyType(behind)

    def f(x):
        return [x * v if isinstance(v, float) else x + v[0] for v in proxy.values()], "a" in proxy, list(proxy)

    fn, x = compiled(f), torch.ones(2)
    for change in (lambda: None, lambda: behind["b"].append(3), lambda: behind["b"].__setitem__(0, 5.0),
                   lambda: behind.update(c=4.0), lambda: behind.pop("a"), lambda: behind.update(a=7.0)):
        change()
        same(fn(x), f(x))


def call(x, scale=2.0, *rest, flag=False, **more):
    return x * scale


SIGNATURE = inspect.signature(call)


def test_the_parameters_of_a_signature():
    def f(x):
        bound = SIGNATURE.bind(x, 3.0, flag=True)
        bound.apply_defaults()
        return x * bound.arguments["scale"], list(bound.arguments), "more" in SIGNATURE.parameters

    fn, x = compiled(f), torch.ones(2)
    same(fn(x), f(x))
    assert log.counters()["graphs"] == 1


ORDERED = types.MappingProxyType(collections.OrderedDict(a=1))
CHAINED = types.MappingProxyType(collections.ChainMap({"x": 1}, {"y": 2}))


class OwnItems(dict):
    def __getitem__(self, key):
        return "own"


class OwnMissing(dict):
    def __missing__(self, key):
        return "missing"


@pytest.mark.parametrize("asked", [
    lambda p: p.copy(), lambda p: p | {"z": 3}, lambda p: {"z": 3} | p, lambda p: repr(p), lambda p: str(p),
    lambda p: p["a"], lambda p: p.get("q", 5), lambda p: list(p.items()), lambda p: p | p, lambda p: list(reversed(p)),
])
@pytest.mark.parametrize("made", [
    lambda: ORDERED, lambda: CHAINED, lambda: types.MappingProxyType(collections.OrderedDict(a=1)),
    lambda: types.MappingProxyType(OwnItems(a=1)), lambda: types.MappingProxyType(OwnMissing(b=1)),
    lambda: types.MappingProxyType({"a": 1}), lambda: types.MappingProxyType(collections.defaultdict(int)),
])
def test_what_is_made_of_a_view_is_of_the_mappings_class(made, asked):
    def f(x):
        y = x + 1
        try:
            result = asked(made())
        except (KeyError, TypeError) as error:
            result = type(error).__name__, str(error)
        return y, type(result), result

    dynamo_lite.reset()
    fn, x = dynamo_lite.compile(f, backend="eager"), torch.ones(2)
    for _ in range(2):
        same(fn(x), f(x))


def test_a_view_is_no_namespace_of_a_class():
    def f(x):
        try:
            return x + 1, type("Made", (), types.MappingProxyType({}))
        except TypeError as error:
            return x + 2, str(error)

    dynamo_lite.reset()
    same(dynamo_lite.compile(f, backend="eager")(torch.ones(2)), f(torch.ones(2)))
