"""Branches on a tensor of which one side only raises: one graph, and eager's exception where it is raised.

PYTEST_DONT_REWRITE: an assertion of a program is to stay a branch that raises.
"""
from __future__ import annotations

import pytest
import torch
import torch.distributions as D

import dynamo_lite


def checked(x):
    y = x * 2
    if not (y > 0).all():
        raise ValueError(f"bad {tuple(x.shape)}")
    return y + 1


def asserted(x):
    assert x.sum() > 0, "negative"
    return x * 3


def caught(x):
    try:
        if (x < 0).any():
            raise KeyError("k")
        r = x + 1
    except KeyError:
        r = x - 1
    return r * 2


def written(x):
    x.add_(1)
    if not (x > 0).all():
        raise ValueError("bad")
    return x * 2


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        assert (x > 0).all()
        return x * self.calls


def outcome(function, x):
    x = x.clone()
    try:
        return "result", function(x).tolist(), x.tolist()
    except (ValueError, AssertionError, KeyError) as error:
        return type(error), str(error), x.tolist()


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("function", [checked, asserted, caught, written])
def test_functions(function, backend):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for x in (torch.ones(3), torch.full((3,), -3.0), torch.full((3,), 2.0)):
        assert outcome(compiled, x) == outcome(function, x)


def test_effects_happen_once():
    module, twin = Counting(), Counting()
    compiled = dynamo_lite.compile(module, backend="eager")
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        assert outcome(compiled, x) == outcome(twin, x)
        assert module.calls == twin.calls


def test_both_sides_go_on():
    def function(x):
        if x.sum() > 0:
            x = x + 1
        return x * 2

    with pytest.raises(dynamo_lite.exc.Unsupported, match="data-dependent"):
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(torch.ones(2))


DISTRIBUTIONS = {
    "normal": lambda x: (D.Normal(x, x.abs() + 1).log_prob(x), D.Normal(x, x.abs() + 1).rsample()),
    "samples": lambda x: (D.Bernoulli(probs=torch.sigmoid(x)).sample(), D.Categorical(logits=x).sample(),
                          D.Uniform(0.0, 2.0).sample((2,)), D.Exponential(torch.ones(2)).rsample()),
    "categorical": lambda x: (D.Categorical(logits=x).entropy(), D.Categorical(logits=x).probs,
                              D.Categorical(logits=x).log_prob(torch.tensor([0, 2]))),
    "divergence": lambda x: D.kl_divergence(D.Normal(x, 1.0), D.Normal(0.0, 2.0)),
    "others": lambda x: (D.Beta(x.abs() + 1, x.abs() + 2).log_prob(torch.full((2, 3), 0.3)),
                         D.Gamma(x.abs() + 1, 1.0).log_prob(torch.ones(2, 3)), D.Laplace(x, 1.0).rsample(),
                         D.Independent(D.Normal(x, 1.0), 1).log_prob(x)),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name, backend):
    assert D.Distribution._validate_args in (True, False)
    function = DISTRIBUTIONS[name]
    compiled = dynamo_lite.compile(lambda x: function(x), backend=backend, fullgraph=True)
    results = []
    for f in (function, compiled, compiled):
        torch.manual_seed(0)
        results.append((f(torch.randn(2, 3)), torch.rand(1)))
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(results[2], results[0])


def test_invalid_arguments():
    def function(x):
        return D.Normal(0.0, x, validate_args=True).log_prob(x)

    compiled = dynamo_lite.compile(function, backend="eager")
    compiled(torch.ones(2))
    for f in (function, compiled):
        with pytest.raises(ValueError, match="GreaterThan"):
            f(-torch.ones(2))
