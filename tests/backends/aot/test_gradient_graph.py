"""Gradients of gradients that are asked for again and again: compiled from the second time on, and eager's."""
from __future__ import annotations

import itertools

import pytest
import thorough
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite.backends.inductor import training

TURNS = 4


@pytest.fixture
def compiled(monkeypatch):
    """Of which graphs gradients were compiled: the places of the inputs whose gradients they are."""
    seen = []
    graph = training.gradient_graph

    def gradient_graph(gm, examples, differentiate, grads, wanted):
        seen.append(wanted)
        return graph(gm, examples, differentiate, grads, wanted)

    monkeypatch.setattr(training, "gradient_graph", gradient_graph)
    return seen


def same(run, f):
    """The same results from a function and its compiled form, turn by turn."""
    g = dynamo_lite.compile(f)
    for turn in range(TURNS):
        torch.manual_seed(turn)
        want = run(f)
        torch.manual_seed(turn)
        torch.testing.assert_close(run(g), want, rtol=1e-4, atol=1e-4)


def second(f, *leaves):
    """Gradients, and gradients of their squares."""
    own = [x.detach().requires_grad_() for x in leaves]
    results = f(*own)
    out = sum(r.exp().sum() for r in (results if isinstance(results, tuple) else (results,)))
    grads = torch.autograd.grad(out, own, create_graph=True, allow_unused=True)
    found = torch.autograd.grad(sum(g.square().sum() for g in grads if g is not None), own, allow_unused=True)
    return [g for g in (*grads, *found) if g is not None]


def test_a_differential_equation_of_third_order(compiled):
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def run(u):
        x = torch.rand(20, 2, requires_grad=True)
        value = u(x)
        g, = torch.autograd.grad(value.sum(), x, create_graph=True)
        h, = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)
        third, = torch.autograd.grad(h[:, 0].sum(), x, create_graph=True)
        net.zero_grad()
        (g[:, 1] + value[:, 0] * g[:, 0] - h[:, 0] + 0.1 * third[:, 0]).square().mean().backward()
        return [p.grad.clone() for p in net.parameters()]

    same(run, net)
    assert compiled and all(wanted[0] == 0 for wanted in compiled)
    assert compiled[0] == (0,)  # the network's own gradient is asked for of its input alone
    g = dynamo_lite.compile(net)
    counts = []
    for _ in range(3 * TURNS):
        run(g)
        counts.append(len(compiled))
    assert counts[-TURNS:] == [counts[-1]] * TURNS  # each order once, turns after the one below it


def test_a_gradient_penalty(compiled):
    critic = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LeakyReLU(), nn.Flatten(), nn.Linear(64, 1))

    def run(c):
        x = torch.randn(3, 1, 6, 6, requires_grad=True)
        g, = torch.autograd.grad(c(x).sum(), x, create_graph=True)
        critic.zero_grad()
        (((g.flatten(1).norm(dim=1) - 1) ** 2).mean() + c(x.detach()).mean()).backward()
        return [p.grad.clone() for p in critic.parameters()]

    same(run, critic)
    assert compiled == [(0,)]


def stops(x, y):
    with torch.no_grad():
        scale = x.sin()
    return torch.tanh(x * y).detach() * x * scale + torch.tanh(y) * scale


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]  # not the derivative


FUNCTIONS = {
    "gradients stop": stops,
    "two results": lambda x, y: (torch.tanh(x * y), x.t() @ y),
    "transposed": lambda x, y: torch.tanh(x @ y.t()).t(),
    "user's function": lambda x, y: Twice.apply(torch.tanh(x)) * y,
    "dropout": lambda x, y: F.dropout(torch.tanh(x) * y, 0.5),
    "random slopes": lambda x, y: F.rrelu(x * y, 0.1, 0.3, True),
    "views": lambda x, y: torch.where(x > 0, x.exp(), y).chunk(2, -1),
    "layer norm": lambda x, y: F.layer_norm(x * y, (4,)).sigmoid(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_gradients_there_are(name):
    same(lambda g: second(g, torch.randn(3, 4), torch.randn(3, 4)), FUNCTIONS[name])


def test_batched_gradients(compiled):
    """vmap's gradients have no memory that kernels could read, and no layout of their own."""
    def run(g):
        x = torch.randn(3, 4, requires_grad=True)
        batch = torch.eye(12).view(12, 4, 3).transpose(1, 2)
        made, = torch.autograd.grad(g(x), x, batch, is_grads_batched=True, create_graph=True)
        return [made.detach(), torch.autograd.grad(made.square().sum(), x)[0]]

    same(run, lambda x: torch.tanh(x * 2))
    assert not compiled


def test_gradients_that_are_zero():
    """Autograd makes one of them without data where tensors have none."""
    same(lambda g: second(g, torch.randn(()), torch.randn(())), lambda x, y: F.l1_loss(x, y) + (x * y).sin())
    same(lambda g: second(g, torch.randn(()), torch.randn(())), F.l1_loss)


def test_what_is_asked_for_once_is_not_compiled(compiled):
    f = dynamo_lite.compile(lambda x: torch.tanh(x * 2))
    second(f, torch.randn(3))
    assert not compiled
    second(f, torch.randn(3))
    second(f, torch.randn(3))
    assert compiled == [(0,)]


def test_which_gradients_come_in_and_require_gradients(compiled):
    f = lambda x, y: (torch.tanh(x * y), x.sin() * y)
    x0, y0 = torch.randn(3, 4), torch.randn(3, 4)

    def run(g):
        x, y = x0.clone().requires_grad_(), y0.clone().requires_grad_()
        a, b = g(x, y)
        only, = torch.autograd.grad(b.sum(), y, create_graph=True, retain_graph=True)
        both = torch.autograd.grad([a.square().sum(), b.exp().sum()], [x, y], create_graph=True)
        return [only, *both, *torch.autograd.grad(sum(t.square().sum() for t in (only, *both)), [x, y])]

    same(run, f)
    assert {(1,), (0, 1)} <= set(compiled)


OPERATORS = [op for op in op_db if op.supports_gradgrad and torch.float64 in op.dtypes and op.variant_test_name == ""
             and not op.name.startswith(("sparse", "jiterator")) and not op.skip_cow_input_backward]


@pytest.mark.parametrize("part", range(4))
def test_operators_of_op_db(part):
    for op in thorough.share(OPERATORS[part::4], part, 32):
        for sample in itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), 1):
            leaves = [x for x in pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
                      if isinstance(x, torch.Tensor) and x.requires_grad]

            def f(op=op, sample=sample):
                return op.op(sample.input, *sample.args, **sample.kwargs)

            g = dynamo_lite.compile(f)
            wanted = _second(f, leaves)
            for _ in range(3 if wanted else 0):
                torch.testing.assert_close(_second(g, leaves), wanted, rtol=1e-6, atol=1e-6, equal_nan=True,
                                           msg=lambda m: f"{op.name}: {m}")


def _second(f, leaves):
    torch.manual_seed(0)
    try:
        results = [r for r in pytree.tree_leaves(f()) if isinstance(r, torch.Tensor) and r.requires_grad]
        grads = torch.autograd.grad([r.abs().square().sum() for r in results], leaves, create_graph=True,
                                    allow_unused=True)
        further = [g for g in grads if g is not None and g.requires_grad]
        found = torch.autograd.grad([g.abs().square().sum() for g in further], leaves, allow_unused=True)
    except (RuntimeError, NotImplementedError):
        return []
    return [g.detach() for g in (*grads, *found) if g is not None]
