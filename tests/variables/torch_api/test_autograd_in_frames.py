"""What a frame asks autograd, and tells it: leaves, gradients of gradients, states of modules, whole steps."""
import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import config, log


def check(make, backend, calls=3):
    """Compares with eager what a function gives and the gradients of its argument and state; counts of each call."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        function, state = make()
        run = dynamo_lite.compile(function, backend=backend) if compiled else function
        results, counted = [], []
        for _ in range(calls):
            before = log.counters()
            x = torch.randn(4, 3, requires_grad=True)
            got = run(x)
            got = got if isinstance(got, tuple) else (got,)
            total = sum(t.sum() for t in got if isinstance(t, torch.Tensor) and t.requires_grad)
            if isinstance(total, torch.Tensor):
                total.backward()
            results += [*got, x.grad, torch.rand(1), *(t.detach().clone() for t in state())]
            after = log.counters()
            counted.append(tuple(after.get(k, 0) - before.get(k, 0) for k in ("graphs", "graph_breaks", "recompiles")))
        found.append(results)
    for want, got in zip(*found, strict=True):
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            assert got.requires_grad == want.requires_grad
        else:
            assert got == want
    return counted


def leaves():
    def function(x):
        y = x * 2
        with torch.no_grad():
            z, v = x * 3, x[0]
        made = x.detach().clone().requires_grad_()
        leaf = [t.is_leaf for t in (x, y, z, y.detach(), v, made)]
        without = [t.grad_fn is None for t in (x, z, y.detach(), made)]
        return y, str(leaf), str(without), z.retains_grad

    return function, list


def loaded_state():
    model, other = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def function(x):
        model.load_state_dict(other.state_dict())
        return model(x)

    return function, lambda: [*model.parameters(), *model.buffers()]


def parameter_put_into_a_module():
    model, weight = nn.Linear(3, 3), nn.Parameter(torch.ones(3, 3))

    def function(x):
        model.weight = weight
        return model(x)

    return function, model.parameters


def moving_average():
    model, average = nn.Linear(3, 3), nn.Linear(3, 3)

    def function(x):
        with torch.no_grad():
            for p, q in zip(model.parameters(), average.parameters()):
                q.mul_(0.9).add_(p, alpha=0.1)
        return average(x) + model(x)

    return function, lambda: [*model.parameters(), *average.parameters()]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("make", [leaves, loaded_state, parameter_put_into_a_module, moving_average])
def test_in_one_graph(make, backend):
    assert check(make, backend) == [(1, 0, 0), (0, 0, 0), (0, 0, 0)]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_a_whole_step(backend):
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def function(x):
            optimizer.zero_grad()
            loss = model(x.detach()).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return function, model.parameters

    # Forward and step are a graph each; both again when there are gradients and momenta to begin with.
    assert check(make, backend) == [(2, 1, 0), (2, 1, 2), (0, 0, 0)]


def test_inference_tensors_are_inputs_of_a_graph_with_gradients():
    with torch.inference_mode():
        mask = torch.ones(3)
    x = torch.randn(3, requires_grad=True)
    with config.patch(raise_internal_errors=True):
        y = dynamo_lite.compile(lambda x, mask: (x.sin() + mask).sum())(x, mask)
    grad, = torch.autograd.grad(y, x, create_graph=True)
    torch.testing.assert_close(grad.detach(), x.detach().cos())
    with pytest.raises(RuntimeError, match="create_graph"):
        grad.sum().backward()
