"""Gradients of gradients through compiled functions: eager's own, where the compiled pass has none."""
from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite


def maml(wrap, norm=False, whole=False, temporary=False):
    model = nn.Sequential(nn.Linear(4, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.Tanh(), nn.Linear(8, 4))
    names = [name for name, _ in model.named_parameters()]

    def loss(params, x, y):
        return F.mse_loss(torch.func.functional_call(model, dict(zip(names, params)), (x,)), y)

    f = loss if whole else wrap(loss)

    def adapt(x, y):
        fast = list(model.parameters())
        for _ in range(3):
            grads = torch.autograd.grad(f(fast, x * 1 if temporary else x, y), fast, create_graph=True)
            fast = [p - 0.1 * g for p, g in zip(fast, grads)]
        return f(fast, x + 1, y)

    step = wrap(adapt) if whole else adapt
    found = []
    for _ in range(2):
        value = step(torch.randn(5, 4), torch.randn(5, 4))
        value.backward()
        found += [value.detach(), *[p.grad.clone() for p in model.parameters()], *[b.clone() for b in model.buffers()]]
    return found


def penalty(wrap):
    critic = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(), nn.Flatten(), nn.Linear(64, 1))
    x = torch.randn(3, 1, 6, 6, requires_grad=True)
    g, = torch.autograd.grad(wrap(critic)(x).sum(), x, create_graph=True)
    ((g.flatten(1).norm(dim=1) - 1) ** 2).mean().backward()
    return [*[p.grad for p in critic.parameters()], *critic.buffers()]


def twice(f, make_inputs, reduce=torch.sum):
    def run(wrap):
        leaves, inputs = make_inputs()
        results = wrap(f)(*inputs)
        out = sum(reduce(r.exp()) for r in (results if isinstance(results, tuple) else (results,)))
        grads = torch.autograd.grad(out, leaves, create_graph=True)
        sum(g.square().sum() for g in grads).backward()
        return [*grads, *[leaf.grad for leaf in leaves]]
    return run


LIN = nn.Linear(4, 8)


def one():
    x = torch.randn(3, 4, requires_grad=True)
    return [x], [x]


def temporary():
    x = torch.randn(3, 4, requires_grad=True)
    return [x], [x * 2]


def state_and_value():
    s, v = torch.randn(2, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    return [s, v], [s * 2, v]


def put(s, v):
    s[1] = v.sin()
    return s.square()


def put_alone(s, v):
    s[1] = v.sin()
    s[0].mul_(v)


def written(run):
    """Of a function that gives nothing back: what it has written."""
    def f(s, v):
        run(s, v)
        return s
    return f


def table(s, v):
    for i in range(2):
        v = v + 0.1 * torch.tanh(v * 3)
        s[i] = v
    return s


PROGRAMS = {
    "maml": maml,
    "maml with statistics": lambda wrap: maml(wrap, norm=True),
    "maml compiled as a whole": lambda wrap: maml(wrap, whole=True),
    "maml as a whole with statistics": lambda wrap: maml(wrap, norm=True, whole=True),
    "maml of an input that is gone": lambda wrap: maml(wrap, temporary=True),
    "gradient penalty": penalty,
    "an input that is gone": twice(lambda t: torch.tanh(t + 1), temporary),
    "a dropped input and dropout": twice(lambda t: F.dropout(torch.tanh(LIN(t)), 0.5), temporary),
    "views alone": twice(lambda t: torch.tanh(LIN(t)).chunk(2, -1), one),
    "a transposed result": twice(lambda t: torch.tanh(LIN(t)).t(), one),
    "a written input": twice(put, state_and_value),
    "a written input that is the result": twice(table, state_and_value),
    "an input that is written and nothing else": twice(written(put_alone), state_and_value),
    "an intermediate": twice(lambda t: (lambda h: (h, h ** 3))(torch.tanh(LIN(t))), one),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    def run(wrap):
        torch.manual_seed(0)
        LIN.zero_grad()
        return PROGRAMS[name](wrap)

    want, got = run(lambda f: f), run(dynamo_lite.compile)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_the_gradient_of_an_intermediate_is_differentiable():
    def f(x):
        h = torch.tanh(LIN(x))
        return h, (h ** 3).sum()

    found = []
    for run in (f, dynamo_lite.compile(f)):
        x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
        h, out = run(x)
        g, = torch.autograd.grad(out, h, create_graph=True)
        found.append(torch.autograd.grad(g.sum(), x)[0])
    torch.testing.assert_close(found[1], found[0])
