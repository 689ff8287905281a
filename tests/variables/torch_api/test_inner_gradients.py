"""``torch.autograd.grad`` inside of compiled functions: forces, differential equations, penalties, inner loops."""
from __future__ import annotations

import math
import os
import textwrap

import new_process
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite import config, log

BACKENDS = ["eager", "aot_eager", "inductor_lite"]


def net(*sizes, act=nn.Tanh):
    torch.manual_seed(0)
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def observed(make, backend, calls=3, shapes=((4, 3),), fullgraph=True, **options):
    """What eager and the compiled function give, gradients included, compared; (graphs, breaks, recompiles) by call."""
    found = []
    for compiled in (False, True):
        function, model = make()
        run = dynamo_lite.compile(function, backend=backend, fullgraph=fullgraph, **options) if compiled else function
        results, counted = [], []
        for call in range(calls):
            torch.manual_seed(call)
            x = torch.randn(*shapes[call % len(shapes)], requires_grad=True)
            before = log.counters()
            got = run(x)
            after = log.counters()
            counted.append(tuple(after.get(k, 0) - before.get(k, 0) for k in ("graphs", "graph_breaks", "recompiles")))
            got = got if isinstance(got, tuple) else (got,)
            flags = [(t.requires_grad, t.is_leaf, t.stride()) for t in got]
            total = sum(t.square().sum() for t in got if t.requires_grad)
            error = None
            if isinstance(total, torch.Tensor):
                try:
                    total.backward()
                except RuntimeError as e:
                    error = str(e)
            results.append((got, flags, error, x.grad, [None if p.grad is None else p.grad.clone()
                                                        for p in model.parameters()], torch.rand(1)))
        found.append(results)
    for want, got in zip(*found, strict=True):
        assert got[1:3] == want[1:3]
        torch.testing.assert_close([got[0], got[3], got[5]], [want[0], want[3], want[5]], rtol=1e-4, atol=1e-5)
        for a, b in zip(got[4], want[4], strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    return counted


def forces(create_graph):
    model = net(3, 8, 8, 1)

    def function(x):
        energy = model(x).sum(-1)
        grad, = torch.autograd.grad(energy.sum(), x, create_graph=create_graph)
        return energy, -grad

    return function, model


def forces_alone():
    model = net(3, 8, 1)

    def function(x):
        return -torch.autograd.grad(model(x).sum(), [x])[0]

    return function, model


def differential_equation():
    model = net(3, 8, 8, 1)

    def function(x):
        u = model(x)
        first = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        second = [torch.autograd.grad(first[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(3)]
        residual = sum(second) - torch.sin(x).sum(-1)
        inside, edge = residual.square().mean(), (u[:1] - 1).square().mean()
        return inside + edge, inside, edge

    return function, model


def penalty():
    model = net(3, 8, 1, act=nn.LeakyReLU)

    def function(x):
        noise = torch.randn_like(x)
        y = x.detach() * 0.5 + noise * 0.5
        y.requires_grad_()
        grad, = torch.autograd.grad(F.dropout(model(y), 0.3).sum(), y, create_graph=True)
        return (grad.norm(dim=1) - 1).square().mean() + model(x).mean()

    return function, model


def inner_loop():
    model = net(3, 8, 3)

    def function(x):
        parameters = dict(model.named_parameters())
        for _ in range(2):
            loss = torch.func.functional_call(model, parameters, (x,)).square().mean()
            grads = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
            parameters = {k: v - 0.1 * g for (k, v), g in zip(parameters.items(), grads)}
        return torch.func.functional_call(model, parameters, (x,)).square().mean()

    return function, model


def langevin():
    model = net(3, 8, 1)

    def function(x):
        for _ in range(3):
            x = x.detach().requires_grad_()
            grad, = torch.autograd.grad(model(x).sum(), x)
            x = x - 0.1 * grad + 0.01 * torch.randn_like(x)
        return x.detach()

    return function, model


def of_an_intermediate():
    model = net(3, 8, 1)

    def function(x):
        hidden = model[0](x)
        grad, = torch.autograd.grad(model[1:](hidden).sum(), hidden, create_graph=True)
        return (grad * x.sum()).tanh()

    return function, model


def unused():
    model = net(3, 8, 1)

    def function(x):
        y = model(x * 2).sum()
        some = torch.autograd.grad(y, [x, model[0].bias, model[2].bias], retain_graph=True, materialize_grads=True)
        other = x.detach().clone().requires_grad_()
        none = torch.autograd.grad(y, [other, x], allow_unused=True)
        assert none[0] is None
        return some[0] + some[1].sum(), some[2] * 2, none[1]

    return function, model


def given_gradients():
    model = net(3, 8, 3)

    def function(x):
        y, z = model(x), x.exp()
        a, = torch.autograd.grad([y, z], x, [x.detach(), None if x.dim() == 0 else z.detach()], create_graph=True)
        return a.square().sum(-1)

    return function, model


def leaves_made_inside():
    model = net(3, 8, 1).requires_grad_(False)

    def function(x):
        y = x.detach().clone().requires_grad_()
        energy = model(y).sum(-1)
        grad, = torch.autograd.grad(energy.sum(), y, retain_graph=True)
        return energy, grad

    return function, model


PROGRAMS = {
    "forces": lambda: forces(True), "forces at inference": lambda: forces(False), "forces alone": forces_alone,
    "a differential equation": differential_equation, "a penalty": penalty, "an inner loop": inner_loop,
    "Langevin dynamics": langevin, "of an intermediate": of_an_intermediate, "unused inputs": unused,
    "given gradients": given_gradients, "leaves made inside": leaves_made_inside,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, backend):
    assert observed(PROGRAMS[name], backend) == [(1, 0, 0), (0, 0, 0), (0, 0, 0)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["forces", "forces at inference", "a differential equation", "Langevin dynamics"])
def test_changing_sizes(name, backend):
    shapes = [(4, 3), (6, 3), (9, 3), (5, 3)]
    assert observed(PROGRAMS[name], backend, 4, shapes) == [(1, 0, 0), (1, 0, 1), (0, 0, 0), (0, 0, 0)]


def compare(function, cases, backend="inductor_lite"):
    """Calls with inputs made by each case, in eager and compiled; what they give or raise."""
    compiled = dynamo_lite.compile(function, backend=backend)
    for make in cases:
        found = []
        for run in (function, compiled):
            torch.manual_seed(0)
            args, seen = make()
            try:
                found.append([*run(*args), *seen()])
            except RuntimeError as error:
                found.append([str(error)])
        for want, got in zip(*found, strict=True):
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got, want)
            else:
                assert got == want


def gradient_of_a_product(x, w):
    return torch.autograd.grad((x * w).sin().sum(), x, allow_unused=True)


def leaf_and_other():
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    return (x, w), lambda: [x.grad, w.grad]


def other_computed_of_it():
    x = torch.randn(3, requires_grad=True)
    return (x, x.exp()), lambda: [x.grad]


def both_the_same():
    x = torch.randn(3, requires_grad=True)
    return (x, x), lambda: [x.grad]


def a_view_of_it():
    x = torch.randn(3, requires_grad=True)
    return (x, x[:]), lambda: [x.grad]


def with_a_history():
    x = torch.randn(3, requires_grad=True)
    return (x * 2, torch.randn(3, requires_grad=True)), lambda: [x.grad]


def with_a_hook():
    x = torch.randn(3, requires_grad=True)
    seen = []
    x.register_hook(lambda g: (seen.append(g.sum().item()), g * 2)[1])
    return (x, torch.randn(3, requires_grad=True)), lambda: [str(seen)]


def with_its_gradient_retained():
    x = torch.randn(3, requires_grad=True) * 2
    x.retain_grad()
    return (x, torch.randn(3)), lambda: [x.grad]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", [leaf_and_other, with_a_history, other_computed_of_it])
def test_histories_and_hooks_of_inputs(first, backend):
    """What was compiled for leaves without hooks serves no others."""
    others = [leaf_and_other, other_computed_of_it, both_the_same, a_view_of_it, with_a_history, with_a_hook,
              with_its_gradient_retained, leaf_and_other]
    compare(gradient_of_a_product, [first, *others], backend)


def error_of(run, *args):
    with pytest.raises(RuntimeError) as raised:
        run(*args)
    return str(raised.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_are_those_of_eager(backend):
    def unused(x, y):
        return torch.autograd.grad((x * 2).sum(), y)

    def twice(x, y):
        z = (x * x * y).sum()
        return torch.autograd.grad(z, x)[0] + torch.autograd.grad(z, y)[0]

    def without_history(x, y):
        with torch.no_grad():
            z = (x * y).sum()
        return torch.autograd.grad(z, x)

    for function in (unused, twice, without_history):
        args = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        assert error_of(dynamo_lite.compile(function, backend=backend), *args) == error_of(function, *args)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_result_that_is_used_on(backend):
    """The gradient of an intermediate that the program sees, asked for outside."""
    model = net(3, 8, 8, 1)

    def function(x):
        hidden = model[:2](x)
        out = model[2:](hidden).sum()
        grad, = torch.autograd.grad(out, x, create_graph=True)
        return hidden, grad

    found = []
    for run in (function, dynamo_lite.compile(function, backend=backend)):
        x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
        hidden, grad = run(x)
        found.append([hidden, grad, *torch.autograd.grad(grad.square().sum(), [hidden, x])])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_grad_mode_around(backend):
    model = net(3, 8, 1)

    def function(x):
        with torch.enable_grad():
            y = x.detach().clone().requires_grad_()
            energy = model(y).sum(-1)
            grad, = torch.autograd.grad(energy.sum(), y)
        return energy.detach(), -grad, model(x)

    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for mode in (torch.no_grad, torch.enable_grad):
        x = torch.randn(4, 3)
        with mode():
            want, got = function(x), compiled(x)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert [t.requires_grad for t in got] == [t.requires_grad for t in want]


@pytest.mark.parametrize("backend", BACKENDS)
def test_third_derivatives_outside(backend):
    function, _ = forces(True)
    found = []
    for run in (function, dynamo_lite.compile(function, backend=backend)):
        for turn in range(2):
            x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
            energy, force = run(x)
            second, = torch.autograd.grad(force.square().sum() + energy.sum(), x, create_graph=True)
            third, = torch.autograd.grad(second.square().sum(), x)
        found.append([second, third])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def same_loss(function, compiled, values, tolerance):
    """Whether both give the same number, and the same gradient of their argument."""
    found = []
    for run in (function, compiled):
        x = values.clone().requires_grad_()
        loss = run(x)
        loss.backward()
        found.append([loss.detach(), x.grad])
    torch.testing.assert_close(found[1], found[0], rtol=tolerance, atol=tolerance)


SCALE = 2.0


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * SCALE


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("custom", [Scaled, Plain])
def test_custom_functions_and_checkpoints(backend, custom, monkeypatch):
    model = net(3, 8, 1)

    def function(x):
        y = checkpoint(model, custom.apply(x), use_reentrant=False)
        grad, = torch.autograd.grad(y.sum(), x, create_graph=True)
        return grad.square().sum()

    compiled = dynamo_lite.compile(function, backend=backend)
    for scale in (2.0, 3.0, 4.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        same_loss(function, compiled, torch.linspace(-1, 1, 6).view(2, 3), 1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_under_autocast(backend):
    model = net(16, 32, 32, 1)

    def function(x):
        with torch.autocast("cpu", torch.bfloat16):
            energy = model(x).sum()
            grad, = torch.autograd.grad(energy, x, create_graph=True)
            return grad.square().sum() + energy

    compiled = dynamo_lite.compile(function, backend=backend)
    same_loss(function, compiled, torch.linspace(-1, 1, 128).view(8, 16), 3e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_layouts_of_gradients(backend):
    """Gradients that are views, of one another, of incoming ones, or lie in memory as eager's."""
    def function(x, w, given):
        y = (x + w).sum()
        a, b = torch.autograd.grad(y, [x, w], retain_graph=True)
        c, = torch.autograd.grad(x.t().reshape(-1).view(3, 4), x, given)
        d, = torch.autograd.grad(x.t() @ w, x, torch.ones(3, 3))
        e, = torch.autograd.grad(x, x, given.t())
        return a, b, c, d, e

    args = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True), torch.randn(3, 4)
    want, got = function(*args), dynamo_lite.compile(function, backend=backend)(*args)
    torch.testing.assert_close(got, want)
    assert [t.stride() for t in got] == [t.stride() for t in want]


def test_a_number_out_of_a_tensor():
    """A graph that is cut at a number stays whole where a gradient's history would be cut."""
    def function(x):
        y = (x * x).sum()
        z = y * y.item()
        return torch.autograd.grad(z, x)[0] * 2

    compiled = dynamo_lite.compile(function, fullgraph=True)
    for _ in range(2):
        x = torch.randn(3, requires_grad=True)
        torch.testing.assert_close(compiled(x), function(x))


def test_kept_graphs(tmp_path):
    """A process that finds the graphs compiled gives the same, eager's error included."""
    program = textwrap.dedent("""
        import torch, dynamo_lite
        def function(x, w):
            y = (x * w).sin().sum(-1)
            return y, torch.autograd.grad(y.sum(), x)[0]
        compiled = dynamo_lite.compile(function)
        x, w = torch.ones(2, 3, requires_grad=True), torch.ones(3, requires_grad=True)
        y, g = compiled(x, w)
        try:
            y.sum().backward()
            print("no error")
        except RuntimeError as error:
            print(str(error)[:25], y.requires_grad, g.requires_grad, w.grad, round(g.sum().item(), 4))
        print(dynamo_lite.log.counters().get("graph_cache_hits", 0))
    """)
    env = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(tmp_path), "DYNAMO_LITE_CACHE_GRAPHS": "1"}
    for hits in range(2):
        done = new_process.run(program, env=env)
        said = f"Trying to backward throug True False None {round(6 * math.cos(1), 4)}\n{hits}"
        assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_compute_all(name):
    """No graph of these runs in eager, nor do gradients of gradients."""
    with config.patch(raise_internal_errors=True):
        observed(PROGRAMS[name], "inductor_lite")
    assert log.counters()["kernels"] > 0 and not [name for name in log.counters() if "fallback" in name]


def of_iterables():
    model = net(3, 8, 1)

    def function(x):
        parameters = dict(model.named_parameters())
        loss = model(x).square().mean()
        first = torch.autograd.grad(loss, parameters.values(), create_graph=True)
        second = torch.autograd.grad((g.sum() for g in first), model.parameters(), allow_unused=True, create_graph=True)
        return loss, *first[:2], *second[:2]

    return function, model


def leaves_by_attribute():
    model = net(3, 8, 1)

    def function(x):
        y = x.detach()
        y.requires_grad = True
        grad, = torch.autograd.grad(model(y).sum(), y, create_graph=True)
        return grad.square().sum() + model(x).sum()

    return function, model


def nothing_used():
    model = net(3, 8, 1)

    def function(x):
        other = x.detach().requires_grad_()
        energy = model(x).sum()
        grads = torch.autograd.grad(energy, [other], allow_unused=True)
        assert grads == (None,)
        torch.autograd.grad(energy, x, retain_graph=True)
        return energy * 2, grads[0] is None and x.exp()

    return function, model


def freed_for_nothing():
    model = net(3, 8, 1)

    def function(x):
        energy = model(x).sum()
        torch.autograd.grad(energy, x)
        return energy, x.exp()

    return function, model


def recurrent():
    torch.manual_seed(0)
    model = nn.LSTM(3, 4)

    def function(x):
        out = model(x)[0].sum()
        return out.detach(), torch.autograd.grad(out, x)[0]

    return function, model


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "make", [of_iterables, leaves_by_attribute, nothing_used, freed_for_nothing, recurrent])
def test_one_graph_of_unusual_calls(make, backend):
    assert observed(make, backend, shapes=((4, 3),)) == [(1, 0, 0), (0, 0, 0), (0, 0, 0)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_that_the_function_catches(backend):
    def function(x, y):
        found = []
        with torch.no_grad():
            constant = x * 2
        z = (x * x).sum()
        for end, start in ((z, y), (constant, x), (x * x, x), (z, x), (z, x)):
            try:
                found.append(torch.autograd.grad(end, start)[0])
            except RuntimeError as error:
                found.append(str(error))
        return found

    args = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    want, got = function(*args), dynamo_lite.compile(function, backend=backend, fullgraph=True)(*args)
    assert [type(v) for v in got] == [str, str, str, torch.Tensor, str]
    assert [v for v in got if isinstance(v, str)] == [v for v in want if isinstance(v, str)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives_of_what_the_inner_gradient_alone_depends_on(backend):
    """The outer gradient does not reach x, which still has to be a leaf when the graph runs again."""
    def function(x, y, w):
        grad, = torch.autograd.grad((x * y).sin().sum(), x, retain_graph=True)
        unused, = torch.autograd.grad((x * w).sin().sum(), x)
        return grad * w, w.exp()

    found = []
    for run in (function, dynamo_lite.compile(function, backend=backend)):
        for turn in range(3):
            x, y, w = (torch.linspace(-1, k, 4).requires_grad_() for k in (1, 2, 3))
            a, b = run(x, y, w)
            first, = torch.autograd.grad((a.square() + b.square()).sum(), w, create_graph=True)
            found.append([first, *torch.autograd.grad(first.sin().sum(), [w, x], allow_unused=True)])
    torch.testing.assert_close(found[3:], found[:3])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("spoil", ["free", "write"])
def test_histories_of_leaves_made_inside(spoil, backend):
    """What is of no use is an error of a backward pass to all leaves alone, where no input is behind it."""
    model = net(3, 8, 1)

    def function(x):
        leaf = x.detach().clone().requires_grad_()
        made = leaf.exp()
        energy = (made * made).sum() + (x * 2).sum()
        if spoil == "free":
            torch.autograd.grad(made.sum(), leaf)
        else:
            made.add_(1)
        return energy, model(x)

    found = []
    for run in (function, dynamo_lite.compile(function, backend=backend)):
        x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
        energy, out = run(x)
        grads = torch.autograd.grad(energy, [x, model[0].weight], retain_graph=True, allow_unused=True)
        assert grads[1] is None
        found.append([energy, out, grads[0], *torch.autograd.grad(out.sum(), x), error_of(run(x)[0].backward)])
    assert found[1].pop() == found[0].pop()
    torch.testing.assert_close(found[1], found[0])
