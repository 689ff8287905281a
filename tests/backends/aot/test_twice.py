"""Gradients of gradients of compiled functions: penalties, forces, derivatives in the loss, of any order."""
import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import config


def _net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 5), nn.SiLU(), nn.Linear(5, 1))


def _both(use, make=_net):
    """What `use` gives for a model in eager and compiled."""
    results = []
    for compiled in (False, True):
        model = make()
        call = dynamo_lite.compile(model) if compiled else model
        results.append([*use(call), *(p.grad for p in model.parameters())])
    for want, got in zip(*results):
        assert (want is None) == (got is None)
        if want is not None:
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_gradient_penalty():
    def use(critic):
        torch.manual_seed(1)
        x = torch.randn(4, 3, requires_grad=True)
        grad, = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        loss = critic(x).mean() + (grad.norm(dim=1) - 1).pow(2).mean()
        loss.backward()
        return loss, x.grad

    _both(use)


def test_forces_in_the_loss():
    def use(energy):
        torch.manual_seed(1)
        found = []
        for _ in range(3):
            positions = torch.randn(4, 3, requires_grad=True)
            e = energy(positions * 1.5).sum()
            forces, = torch.autograd.grad(-e, positions, create_graph=True)
            (forces.square().mean() + e.square()).backward()
            found += [forces, positions.grad]
        return found

    _both(use)


def test_derivatives_of_the_third_order():
    def use(u):
        x = torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()
        d1, = torch.autograd.grad(u(x).sum(), x, create_graph=True)
        d2, = torch.autograd.grad(d1.sum(), x, create_graph=True)
        d3, = torch.autograd.grad(d2[:, 0].sum(), x, create_graph=True)
        (d3.square().mean() + d2.mean() + d1.mean()).backward()
        return d1, d2, d3, x.grad

    _both(use)


def test_inside_of_the_compiled_function():
    results = []
    for compiled in (False, True):
        u = _net()

        def residual(x):
            y = u(x)
            slope, = torch.autograd.grad(y.sum(), x, create_graph=True)
            return (slope.sum(1) - y.squeeze(1)).square().mean()

        call = dynamo_lite.compile(residual) if compiled else residual
        found = []
        for attempt in range(3):
            x = torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()
            with config.patch(error_on_recompile=attempt > 1):
                loss = call(x)
            loss.backward()
            found += [loss, x.grad]
        results.append([*found, *(p.grad for p in u.parameters())])
    for want, got in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_inputs_that_are_computed_of_each_other():
    def f(x, y, unused):
        return x * y + y.sin(), (x * 3).detach(), x.exp()

    results = []
    for call in (f, dynamo_lite.compile(f)):
        x = torch.linspace(1, 2, 4).requires_grad_()
        a, _, c = call(x, x.sin(), x * 2)
        g, = torch.autograd.grad(a.sum() + (c * 2).sum(), x, create_graph=True)
        h, = torch.autograd.grad(g.square().sum(), x)
        results.append((g, h))
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("autocast", [False, True])
def test_the_state_of_the_call_is_that_of_the_second_run(autocast):
    def f(x, w):
        y = x @ w
        with torch.no_grad():
            scale = y.abs().max()
        return (y / scale).float().pow(3).sum()

    results = []
    for call in (f, dynamo_lite.compile(f)):
        torch.manual_seed(0)
        x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = call(x, w)
        g, = torch.autograd.grad(y, x, create_graph=True)
        g.square().sum().backward()
        results.append((g, x.grad, w.grad))
    tolerance = {"rtol": 0.05, "atol": 0.05} if autocast else {}
    for want, got in zip(*results):
        torch.testing.assert_close(got, want, **tolerance)


def test_a_function_with_gradients_of_its_own():
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad):
            x, = ctx.saved_tensors
            return grad * x * x

    def f(x):
        return Clip.apply(x * 2).sum()

    results = []
    for call in (f, dynamo_lite.compile(f)):
        x = torch.linspace(-2, 2, 5).requires_grad_()
        g, = torch.autograd.grad(call(x), x, create_graph=True)
        g.sum().backward()
        results.append((g, x.grad))
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("gradients", [1, 2])
def test_random_numbers_are_those_of_the_call(gradients):
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1), nn.Sigmoid())

    def use(critic):
        torch.manual_seed(1)
        x = torch.randn(4, 3, requires_grad=True)
        y = critic(x) + torch.rand(1)
        between = torch.rand(3)
        for _ in range(gradients):
            grad, = torch.autograd.grad(y.sum(), x, create_graph=True)
            y = y + grad.pow(2).sum()
        y.sum().backward()
        return y, grad, x.grad, between, torch.rand(3)

    _both(use, make)


def test_gradients_of_a_batch():
    def f(x, w):
        return (x @ w).sin() * 2

    compiled = dynamo_lite.compile(f)
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, 3)
    for further in (False, True):
        want, got = (torch.autograd.grad(call(x, w), x, torch.eye(3), is_grads_batched=True, create_graph=further)[0]
                     for call in (f, compiled))
        torch.testing.assert_close(got, want)
        assert got.requires_grad == further
    for vectorize in (False, True):
        rows = torch.autograd.functional.jacobian(lambda v: compiled(v, w), x.detach(), vectorize=vectorize)
        torch.testing.assert_close(rows, want.detach())


RUN_AGAIN = {
    "written": lambda x, b: (b.add_(1), x ** 3)[1],
    "written and read": lambda x, b: (b.add_(1), x ** 3 * b)[1],
    "a view alone": lambda x, b: (x ** 3)[0],
    "two views": lambda x, b: torch.cat([v * 2 for v in (x ** 3).chunk(2)]),
}


@pytest.mark.parametrize("name", RUN_AGAIN)
def test_graphs_that_write_or_return_views_are_run_again(name):
    found = []
    for run in (RUN_AGAIN[name], dynamo_lite.compile(RUN_AGAIN[name])):
        x, b = torch.arange(3.0).requires_grad_(), torch.zeros(3)
        g, = torch.autograd.grad(run(x, b).sum(), x, create_graph=True)
        g.sum().backward()
        found.append((g.tolist(), x.grad.tolist(), b.tolist()))
    assert found[0] == found[1]


def test_an_input_that_was_written_since():
    """Where eager does not need it, gradients of the second order are refused, if they might be others."""
    x, bias = torch.randn(3, requires_grad=True), torch.randn(3)
    y = dynamo_lite.compile(lambda x, bias: (x * 2 + bias).exp().sum())(x, bias)
    want = 2 * (x.detach() * 2 + bias).exp()
    bias.mul_(2)
    g, = torch.autograd.grad(y, x, create_graph=True)
    torch.testing.assert_close(g.detach(), want)
    with pytest.raises(RuntimeError, match="create_graph"):
        g.sum().backward()


def test_an_input_that_was_written_and_matters_to_no_gradient():
    x, bias = torch.randn(3, requires_grad=True), torch.randn(3)
    y = dynamo_lite.compile(lambda x, bias: (x + bias).sum() + (x ** 2).sum())(x, bias)
    bias.mul_(2)
    g, = torch.autograd.grad(y, x, create_graph=True)
    torch.testing.assert_close(g.detach(), 1 + 2 * x.detach())
    g.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_nothing_is_kept_alive_for_it():
    import weakref

    x, other = torch.randn(3, requires_grad=True), torch.randn(3)
    y = dynamo_lite.compile(lambda x, other: (x + other).sum())(x, other)
    gone = weakref.ref(other)
    del other
    assert gone() is None
    g, = torch.autograd.grad(y, x, create_graph=True)
    assert torch.equal(g, torch.ones(3))


@pytest.mark.parametrize("function", [
    lambda t, w: t.sum() * 2, lambda t, w: t.mean() + w.prod(), lambda t, w: (t.view(-1)[:3] * w).sum(),
    lambda t, w: (t.t() + w[0] * t.t()).sum(),
])
def test_an_input_that_no_gradient_needs_may_be_gone(function):
    """The sum of a loss's parts, which are nobody's by then."""
    results = []
    for run in (function, dynamo_lite.compile(function)):
        x = torch.arange(6.0).reshape(2, 3).add(1).requires_grad_()
        w = torch.tensor([2.0, 3.0, 4.0], requires_grad=True)
        g, h = torch.autograd.grad(run(x**3, w), (x, w), create_graph=True, allow_unused=True)
        (g.square().sum() + (0 if h is None else h.sum() * 2)).backward()
        results.append((g.tolist(), x.grad.tolist(), None if w.grad is None else w.grad.tolist()))
    assert results[0] == results[1]
