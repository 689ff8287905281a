"""Methods under functools.lru_cache that make tensors, not cached yet when they are traced."""
import functools

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import log


class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("inverse", 1 / 10000 ** (torch.arange(0, width, 2) / width))

    @functools.lru_cache(maxsize=8)
    def table(self, length, dtype):
        angles = torch.outer(torch.arange(length).float(), self.inverse)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, x):
        cos, sin = self.table(x.shape[-2], dtype=x.dtype)
        return x * cos + x * sin


class Lists(nn.Module):
    @functools.lru_cache
    def parts(self, n):
        return [torch.ones(n) * i for i in range(3)]

    def forward(self, x):
        parts = self.parts(4)
        parts.append(x * 2)
        return sum(parts)


class WithHistory(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    @functools.lru_cache
    def doubled(self):
        return self.weight * 2

    def forward(self, x):
        return x * self.doubled()


class ReadsAttribute(nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor

    @functools.lru_cache
    def full(self, n):
        return torch.full((n,), self.factor)

    def forward(self, x):
        return x * self.full(4)


class Changes(ReadsAttribute):
    def forward(self, x):
        self.factor = self.factor + 1
        return x * self.full(4)


class Writes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(4))

    @functools.lru_cache
    def times(self, n):
        return self.seen * n

    def forward(self, x):
        self.seen.add_(1)
        return x * self.times(4)


class Draws(nn.Module):
    @functools.lru_cache
    def noise(self, n):
        return torch.rand(n)

    def forward(self, x):
        return torch.rand(4) + x * self.noise(4)


class WithoutGradients(WithHistory):
    def forward(self, x):
        with torch.no_grad():
            factor = self.doubled()
        return x * factor


class OnDevice(nn.Module):
    @functools.lru_cache
    def ones(self):
        return torch.ones(4)

    def forward(self, x):
        with torch.device("meta"):
            made = self.ones()
        return x * made.dim() * (2 if made.is_meta else 1)


def run(make, compiled, calls=3):
    torch.manual_seed(0)
    model = make()
    called = dynamo_lite.compile(model, backend="eager") if compiled else model
    before = log.counters().copy()
    found = [called(torch.ones(2, 4) * i) for i in range(calls)]
    after = log.counters()
    return found, [after.get(name, 0) - before.get(name, 0) for name in ("graphs", "graph_breaks", "recompiles")]


@pytest.mark.parametrize("make", [functools.partial(Rotary, 8), Lists, WithHistory, ReadsAttribute])
def test_one_graph(make):
    want, _ = run(make, compiled=False)
    got, counted = run(make, compiled=True)
    assert all(torch.equal(a, b) and a.requires_grad == b.requires_grad for a, b in zip(want, got, strict=True))
    # The length of a list that the function itself changes is guarded.
    assert counted[1] == 0 and (counted == [1, 0, 0] or make is Lists)


@pytest.mark.parametrize("make", [Changes, Writes, Draws, WithoutGradients, OnDevice])
def test_breaks_where_the_trace_has_changed_what_it_may_read(make):
    want, _ = run(make, compiled=False)
    got, counted = run(make, compiled=True)
    assert all(torch.equal(a, b) and a.requires_grad == b.requires_grad for a, b in zip(want, got, strict=True))
    assert counted[1] > 0


def test_several_objects_share_a_graph():
    models = [ReadsAttribute(float(i)) for i in range(5)]
    compiled = dynamo_lite.compile(lambda model, x: model(x), backend="eager", fullgraph=True)
    before = log.counters().get("graphs", 0)
    for model in models * 2:
        assert torch.equal(compiled(model, torch.ones(4)), torch.full((4,), model.factor))
    assert log.counters()["graphs"] - before <= 2


def test_the_cached_tensor_is_the_program_s():
    model = ReadsAttribute()
    compiled = dynamo_lite.compile(model, backend="eager", fullgraph=True)
    compiled(torch.ones(4))
    kept = model.full(4)
    assert torch.equal(compiled(torch.ones(4)), kept)
    kept.add_(1)
    assert torch.equal(compiled(torch.ones(4)), kept)
    ReadsAttribute.full.cache_clear()
    model.factor = 7.0
    assert torch.equal(compiled(torch.ones(4)), torch.full((4,), 7.0))
