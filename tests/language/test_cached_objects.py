"""Functions under ``functools.lru_cache`` that keep objects for objects of the program: asked again at each call."""
import functools
import gc
import weakref

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import exc, log


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 2, 3)
        self.rest = nn.Sequential(nn.Conv1d(2, 2, 3), nn.ReLU(), nn.Conv1d(2, 1, 2))
        self.calls = 0

    @functools.lru_cache
    def convolutions(self, module, *, kind=nn.Conv1d):
        return tuple(child for child in module.modules() if isinstance(child, kind))

    def forward(self, x):
        self.calls = self.calls + 1
        length = x.shape[-1]
        for layer in (*self.convolutions(self), *self.convolutions(self.rest, kind=nn.Conv1d)):
            length = length - layer.kernel_size[0] + 1
        assert self.convolutions(self) is self.convolutions(self)
        return self.rest(self.first(x)) * length


def compiled(fn, **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend="eager", **options)


def graphs():
    return log.counters().get("graphs", 0)


def test_one_graph():
    net = Net()
    fn = compiled(net, fullgraph=True)
    for _ in range(3):
        x = torch.randn(1, 1, 12)
        torch.testing.assert_close(fn(x), net(x))
    assert graphs() <= 2 and net.calls == 6  # the number of calls changes


def test_each_object_has_a_result_of_its_own():
    one, two = Net(), Net()
    two.rest = nn.Sequential(nn.Conv1d(2, 1, 2))
    fn = compiled(lambda net, x: net(x))
    for net in (one, two, one, two):
        x = torch.randn(1, 1, 12)
        torch.testing.assert_close(fn(net, x), net(x))


def test_what_the_cache_keeps_is_eagers_though_it_is_old():
    net = Net()
    fn = compiled(net)
    x = torch.randn(1, 1, 12)
    torch.testing.assert_close(fn(x), net(x))
    net.rest = nn.Sequential(nn.Conv1d(2, 1, 4))
    torch.testing.assert_close(fn(x), net(x))  # still counts the three that there were
    Net.convolutions.cache_clear()
    torch.testing.assert_close(fn(x), net(x))
    net.rest = nn.Sequential(nn.Conv1d(2, 1, 4), nn.Conv1d(1, 1, 2))
    compiled_now = compiled(net)
    torch.testing.assert_close(compiled_now(x), net(x))


def test_the_cache_alone_keeps_objects():
    net = Net()
    fn, x = compiled(lambda net, x: net(x)), torch.randn(1, 1, 12)
    fn(net, x)
    end = weakref.ref(net)
    Net.convolutions.cache_clear()
    del net
    gc.collect()
    assert end() is None
    other = Net()
    torch.testing.assert_close(fn(other, x), other(x))


class Equal:
    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return isinstance(other, Equal)

    def __hash__(self):
        return 1


@functools.lru_cache
def pair(value):
    return (value, value.k)


@functools.lru_cache
def noted(value):
    value.seen = True
    return (value,)


@functools.lru_cache
def made(value):
    return [value.k]


class Plain:
    k = 2


def test_what_is_found_by_another_equality_or_changes_something_breaks():
    for function, value in ((pair, Equal(3)), (noted, Plain()), (made, Plain())):
        f = lambda x, value: x * len(function(value))
        with pytest.raises(exc.Unsupported):
            compiled(f, fullgraph=True)(torch.ones(2), value)
        fn = compiled(f)
        for given in (value, type(value)(4) if isinstance(value, Equal) else Plain()):
            assert torch.equal(fn(torch.ones(2), given), f(torch.ones(2), given))
    fn = compiled(lambda x, value: x * pair(value)[1], fullgraph=True)
    assert torch.equal(fn(torch.ones(2), Plain()), torch.ones(2) * 2)
