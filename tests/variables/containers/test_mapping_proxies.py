"""Read-only views of mappings from outside, such as the parameters of a signature."""
import inspect
import types

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
