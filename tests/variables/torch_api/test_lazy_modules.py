"""The first call of lazy modules: eager's parameters and results, and one graph from the second call on."""
import collections

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import log


def linear():
    return nn.Sequential(*[layer for _ in range(3) for layer in (nn.LazyLinear(4), nn.ReLU())]), (2, 3)


def norms():
    return nn.Sequential(nn.LazyBatchNorm1d(), nn.Tanh(), nn.LazyBatchNorm1d()), (4, 3)


def convolutions():
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.Dropout(), nn.Flatten(), nn.LazyLinear(2)), (2, 3, 9, 9)


def behind_random_numbers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = nn.LazyLinear(3), 0

        def forward(self, x):
            self.calls += 1
            y = nn.functional.dropout(x * self.calls) + torch.rand(3)
            return self.inner(y) + torch.rand(3)

    return Model(), (2, 3)


def run(make, wrap, calls=4):
    torch.manual_seed(0)
    dynamo_lite.reset()
    model, shape = make()
    called, found, counted = wrap(model), [], []
    for step in range(calls):
        before = collections.Counter(log.counters())
        torch.manual_seed(step)
        x = torch.randn(shape)
        result = called(x)
        result.sum().backward()
        found += [result, torch.rand(1)]
        after = collections.Counter(log.counters())
        counted.append(tuple(after[k] - before[k] for k in ("graphs", "graph_breaks", "recompiles")))
    found += [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    return [t.detach().clone() for t in found], counted, [type(m).__qualname__ for m in model.modules()]


@pytest.mark.parametrize("make", [linear, norms, convolutions, behind_random_numbers])
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_first_calls(make, backend):
    want, _, classes = run(make, lambda model: model)
    got, counted, found = run(make, lambda model: dynamo_lite.compile(model, backend=backend, fullgraph=True))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert found == classes
    assert counted[0] == (0, 0, 0) and counted[1][1:] == (0, 1)
    if make is not behind_random_numbers:  # its number of calls changes
        assert counted == [(0, 0, 0), (1, 0, 1), (0, 0, 0), (0, 0, 0)]


def test_a_loop_goes_on_compiled():
    """The function with the loop runs in plain Python; what it calls is captured from the second turn on."""
    dynamo_lite.reset()
    model, x = nn.Sequential(nn.LazyLinear(4), nn.ReLU()), torch.randn(2, 3)

    def steps(n):
        total = 0
        for _ in range(n):
            total = total + model(x).sum()
        return total

    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(steps, backend="eager")
    first = compiled(5)
    assert dynamo_lite.metrics()["graphs"] == 1
    torch.testing.assert_close(compiled(5), first)
    torch.testing.assert_close(compiled(5), steps(5))


def test_modules_of_one_kind_one_after_another():
    """A module that is lazy in a later call runs in plain Python then."""
    dynamo_lite.reset()
    models = [nn.LazyLinear(2), nn.LazyLinear(2)]
    compiled = dynamo_lite.compile(lambda model, x: model(x) * 2, backend="eager")
    for x in (torch.randn(2, 3), torch.randn(2, 3)):
        for model in models:
            for _ in range(2):
                assert torch.equal(compiled(model, x), model(x) * 2)
    assert all(type(model) is nn.Linear for model in models)


def test_a_module_that_is_made_in_each_call():
    def program(x):
        torch.manual_seed(0)
        return nn.LazyLinear(2)(x) + 1

    compiled = dynamo_lite.compile(program, backend="eager")
    for _ in range(3):
        x = torch.randn(2, 3)
        assert torch.equal(compiled(x), program(x))
