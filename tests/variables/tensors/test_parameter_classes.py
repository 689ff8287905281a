"""Subclasses of nn.Parameter: those that only add to it are parameters; the others break the graph."""
import copy

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import config


class Tagged(nn.Parameter):
    kind = "tagged"

    @property
    def area(self):
        return self.shape[0] * self.shape[1]

    def halved(self):
        return self / 2

    @staticmethod
    def twice(x):
        return x * 2


class Loaded(Tagged):
    def __new__(cls, data, loader=None):
        made = super().__new__(cls, data)
        made.loader = loader
        return made

    def halved(self):
        return super().halved() + 1


class Overrides(nn.Parameter):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Multiplies(nn.Parameter):
    def __mul__(self, other):
        return torch.Tensor.__mul__(self, other) + 1


def program(model, x):
    w = model.weight
    y = model(x) + w.halved().sum() * w.area + w.twice(x) @ w
    facts = (isinstance(w, nn.Parameter), isinstance(w, Tagged), isinstance(w, Loaded), type(w).__name__, w.kind,
             hasattr(w, "nothing"), type(w * 2) is torch.Tensor, type(w.data).__name__, getattr(w, "loader", None))
    return y, facts


def outcome(call, model):
    x = torch.arange(12.0).reshape(4, 3)
    model.zero_grad()
    y, facts = call(model, x)
    y.sum().backward()
    return [y, *(p.grad.clone() for p in model.parameters())], facts


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_classes_that_add_to_parameters(backend):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    compiled = dynamo_lite.compile(program, backend=backend, fullgraph=True)
    for parameter in (Tagged(torch.randn(3, 3)), Loaded(torch.randn(3, 3), "text")):
        model.weight = parameter
        want = outcome(program, model)
        for attempt in range(2):
            with config.patch(error_on_recompile=attempt == 1):
                got = outcome(compiled, model)
            assert got[1] == want[1] and all(map(torch.allclose, got[0], want[0]))


def test_another_class_is_noticed():
    def function(w):
        return w * 2, isinstance(w, Tagged), type(w).__name__

    compiled = dynamo_lite.compile(function, backend="eager", fullgraph=True)
    for cls in (nn.Parameter, Tagged, Loaded, nn.Parameter):
        assert compiled(cls(torch.ones(2)))[1:] == function(cls(torch.ones(2)))[1:]


def test_what_the_class_adds_is_guarded():
    compiled = dynamo_lite.compile(lambda w: w.halved() * len(w.kind), backend="eager", fullgraph=True)
    w = Tagged(torch.ones(2, 2))
    assert compiled(w).sum() == 12
    kind, halved = Tagged.kind, Tagged.halved
    try:
        Tagged.kind = "a"
        assert compiled(w).sum() == 2
        Tagged.halved = lambda self: self * 3
        assert compiled(w).sum() == 12
        Tagged.mul = lambda self, other: self
    finally:
        Tagged.kind, Tagged.halved = kind, halved
        del Tagged.mul


@pytest.mark.parametrize("cls", [Overrides, Multiplies])
def test_classes_that_override(cls):
    model = nn.Linear(3, 3)
    model.weight = cls(torch.ones(3, 3))

    def function(x):
        return model(x) + (model.weight * 2).sum()

    x, found = torch.randn(4, 3), []
    for called in (function, dynamo_lite.compile(function, backend="eager", fullgraph=True)):
        y = called(x)
        y.sum().backward()
        found.append((y, type(y), model.weight.grad))
        model.weight.grad = None
    assert found[0][1] is found[1][1]
    torch.testing.assert_close(found[0][::2], found[1][::2])


def test_a_copy_of_a_parameter_is_a_parameter():
    frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def function(x):
        other = copy.deepcopy(frozen)
        return x * other, isinstance(other, nn.Parameter), type(other).__name__

    got = dynamo_lite.compile(function, backend="eager")(torch.ones(3))
    assert got[1:] == (True, "Parameter")
