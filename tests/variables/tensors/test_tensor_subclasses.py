"""Tensor subclasses break the graph, with eager's results and without a compile for each call; methods of tensors as
values."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import config, log

CALLED = []


class Logs(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLED.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Plain(torch.Tensor):
    pass


class Doubles:
    """No tensor, but torch's functions ask it."""

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*[a.tensor if isinstance(a, Doubles) else a for a in args], **(kwargs or {})) * 2


def arithmetic(x):
    y = x * 2
    return y.sin() + torch.ones(3), (1 - y).sum(), y[0], y.shape, type(y).__name__


def part_of_it(x, plain):
    z = plain.relu() + 1
    return torch.cat([x, x]) * 2, z.cos(), isinstance(x, Logs)


def made_inside(plain):
    y = (plain * 2).as_subclass(Logs)
    return (y + 1).sin(), isinstance(y, Logs), type(y + 1).__name__, y.as_subclass(torch.Tensor) + plain


def like_a_tensor(plain):
    return torch.add(Doubles(plain), 1), plain * 2


def same(a, b):
    return all(
        type(x) is type(y) and (torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y)
        for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("cls", [Logs, Plain])
@pytest.mark.parametrize("function", [arithmetic, part_of_it, made_inside, like_a_tensor])
def test_subclasses(function, cls):
    compiled = dynamo_lite.compile(function, backend="eager")
    for attempt in range(4):
        plain = torch.randn(3)
        args = {arithmetic: (plain.as_subclass(cls),), part_of_it: (plain.as_subclass(cls), plain)}.get(
            function, (plain,))
        CALLED.clear()
        want = function(*args)
        called = list(CALLED)
        CALLED.clear()
        before = log.counters()
        with config.patch(error_on_recompile=attempt > 1):
            got = compiled(*args)
        assert CALLED == called
        assert same(got, want)
    assert log.counters() == before


def test_methods_of_tensors_as_values():
    def function(x, method, other):
        return method() + x, other(x, alpha=2), method.__name__

    compiled = dynamo_lite.compile(function, backend="eager", fullgraph=True)
    for attempt in range(3):
        x, y = torch.randn(3), torch.randn(3)
        with config.patch(error_on_recompile=attempt > 0):
            assert same(compiled(x, y.sin, y.add), function(x, y.sin, y.add))
    assert same(compiled(x, y.cos, x.add), function(x, y.cos, x.add))
    assert same(compiled(x, y.to(torch.float64).cos, x.sub), function(x, y.to(torch.float64).cos, x.sub))
