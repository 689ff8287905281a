"""Graphs that are cut: what lies inside of an inference mode, and sizes that are needed behind a cut."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor.compile import inductor_lite
from dynamo_lite.backends.inductor.scalar_split import compile_scalar_split


@pytest.fixture(autouse=True)
def fresh():
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with config.patch(raise_internal_errors=True):
        yield
    dynamo_lite.reset()


def check(fn, *calls, graphs=1, dynamic=None):
    """Values, dtypes, strides, kinds of tensors, what inputs are afterwards; each call in kernels."""
    compiled = dynamo_lite.compile(fn, fullgraph=True, dynamic=dynamic)
    for args in calls:
        mine, theirs = ([a.clone() for a in args] for _ in range(2))
        torch.manual_seed(0)
        got = compiled(*mine)
        torch.manual_seed(0)
        want = fn(*theirs)
        assert not torch.is_inference_mode_enabled()
        for a, b in zip((*got, *mine), (*want, *theirs)):
            torch.testing.assert_close(a, b)
            assert (a.is_inference(), a.requires_grad, a.stride()) == (b.is_inference(), b.requires_grad, b.stride())
    counted = dynamo_lite.metrics()
    assert counted["graphs"] == graphs and not counted["fallbacks"] and counted["kernels"], counted


def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 4)


@pytest.mark.parametrize("dynamic, graphs", [(False, 2), (True, 1)])
def test_a_function_of_inference_alone(dynamic, graphs):
    layer = linear()

    @torch.inference_mode()
    def generate(x):
        kept = torch.zeros(3, *x.shape)
        for i in range(3):
            x = torch.softmax(layer(x) + kept.sum(0), -1)
            kept[i] = x
        return x, kept

    check(generate, (torch.randn(3, 4),), (torch.randn(3, 4),), (torch.randn(5, 4),), graphs=graphs, dynamic=dynamic)


def test_a_part_under_inference_mode():
    layer = linear()

    def f(x):
        before = x * 2
        with torch.inference_mode():
            inside = layer(before).relu()
            with torch.inference_mode(False):
                ordinary = torch.ones(3) * 2
            more = inside + 1
        return before, inside, ordinary, more, layer(x).sin()

    check(f, (torch.randn(2, 4),), (torch.randn(2, 4),))
    compiled = dynamo_lite.compile(f)
    layer.zero_grad()
    compiled(torch.ones(2, 4))[-1].sum().backward()
    got = layer.weight.grad.clone()
    layer.zero_grad()
    f(torch.ones(2, 4))[-1].sum().backward()
    torch.testing.assert_close(got, layer.weight.grad)


def test_views_and_writes_under_inference_mode():
    def f(x, y):
        with torch.inference_mode():
            y.add_(1)
            transposed = x.t()
            made = y * 2 + torch.rand_like(y)
        return transposed, made, x + y

    check(f, (torch.randn(3, 3), torch.randn(3)), (torch.randn(3, 3), torch.randn(3)))


def test_an_exception_under_inference_mode():
    def f(x):
        with torch.inference_mode():
            return torch.linalg.cholesky(x) * 2

    compiled = dynamo_lite.compile(f)
    torch.testing.assert_close(compiled(torch.eye(3)), f(torch.eye(3)))
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(-torch.eye(3))
    assert not torch.is_inference_mode_enabled()
    torch.testing.assert_close(compiled(torch.eye(3)), f(torch.eye(3)))


def test_sizes_behind_a_number():
    def f(x):
        rows = x.shape[0] * 2
        y = x.sin()
        columns = y.shape[1] + 1
        number = y.sum().item()
        return y * number, torch.full((rows, columns), 2.0) + number

    with config.patch(capture_scalar_outputs=True):
        check(f, (torch.randn(3, 4),), (torch.randn(5, 4),), (torch.randn(5, 6),), dynamic=True)


def gradients_off_for_a_part(x, n):
    y = (x[:n] * n).softmax(-1)
    with torch.no_grad():
        z = y.sum() + n
        with torch.enable_grad():
            v = (x * n).sin()
    return y @ y.t(), z, v, (y * x[:n]).sum()


def gradients_by_a_number_that_comes_out(x, n):
    k = x.sum().item()
    with torch.no_grad():
        m = x.mean() * k
    return x * m + k, m, x * n


def both_modes(x, n):
    with torch.no_grad():
        a = x * n
        with torch.inference_mode():
            b = a + n
        c = a * n
    return a, b, c, x * c


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("fn", [gradients_off_for_a_part, gradients_by_a_number_that_comes_out, both_modes])
def test_gradients_are_turned_off_in_a_graph_that_is_cut(fn, grad):
    compiled = dynamo_lite.compile(fn)
    for n in (3, 4, 5, 2):
        x = torch.randn(5, 7, requires_grad=grad)
        y = x.detach().clone().requires_grad_(grad)
        want, got = fn(x, n), compiled(y, n)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b)
            kinds = [(t.requires_grad, t.grad_fn is None, t.is_inference(), t.stride()) for t in (a, b)]
            assert kinds[0] == kinds[1]
        assert torch.is_grad_enabled()
        if grad:
            for results in (want, got):
                sum(t.sum() for t in results if t.requires_grad).backward()
            torch.testing.assert_close(y.grad, x.grad)
    counted = dynamo_lite.metrics()
    assert not counted["fallbacks"] and counted["kernels"], counted


def dropout_and_a_number(x, n):
    y = F.dropout(x[:n].sin() * n, 0.3)
    return F.dropout(y * 2, 0.5).sum(-1) + torch.rand_like(x[:n]).sum(-1)


def noise_and_a_number(x, n):
    k = x[:n].sum().tanh() * n
    return (x + torch.randn_like(x) * k).cos() * n + torch.bernoulli(x.detach().sigmoid())


def written_and_a_number(x, n):
    y = x[:n] * torch.linspace(1, 2, n)[:, None]  # which cuts the graph
    y.add_(x.sum() * n)
    y[0].mul_(3)
    return y.sin()


@pytest.mark.parametrize("fn", [dropout_and_a_number, noise_and_a_number, written_and_a_number])
def test_random_numbers_in_a_training_graph_that_is_cut(fn):
    """They are no changes of tensors, which run in eager where gradients are wanted."""
    compiled = dynamo_lite.compile(fn)
    for n in (3, 4, 5, 2):
        x = torch.randn(6, 5, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        results = []
        for call, given in ((fn, x), (compiled, y)):
            torch.manual_seed(n)
            out = call(given, n)
            results.append((out, torch.rand(2)))
            out.sum().backward()
        for a, b in zip(*results):
            torch.testing.assert_close(b, a)
        torch.testing.assert_close(y.grad, x.grad, rtol=1e-4, atol=1e-4)
    counted = dynamo_lite.metrics()
    in_place = any("in place under autograd" in reason for reason in counted["fallbacks"])
    assert in_place == (fn is written_and_a_number) and counted["kernels"], counted


def test_inputs_are_not_copied_where_they_are_written_last():
    """A graph that may raise has its inputs copied, unless whatever may raise comes before its writes."""
    asked = []

    def backend(gm, inputs):
        asked.append(compile_scalar_split(gm, lambda gm, inputs: inductor_lite(gm, inputs)).raises_before_writes)
        return gm

    @torch.no_grad()
    def last(x, y, n):
        x.add_(y, alpha=1 / n)

    @torch.no_grad()
    def between(x, y, n):
        x.add_(y, alpha=n)
        return y * x.sum().item()

    for fn, want in ((last, True), (between, False)):
        dynamo_lite.reset()
        with config.patch(capture_scalar_outputs=True):
            compiled = dynamo_lite.compile(fn, backend=backend)
            for n in (2.5, 3.5):
                compiled(torch.ones(3), torch.ones(3), n)
        assert asked.pop() is want


def written_at_a_place(x, i, row):
    x[:, i] = row
    x[i, ..., 1] += 2
    x[i, i + 1] = 5
    return x * 2


def step_with_a_cache(cache, i, row):
    cache[:, i] = row
    seen = torch.arange(cache.shape[1]) <= i  # the same number in arithmetic, which made every use of it a plain call
    return cache.sum(0).masked_fill(~seen, -1.0).softmax(-1), cache[:, :i + 1].sum(-1) * i


def sizes_beside_other_calls(x, i, row):
    return torch.ones(i, i).tril() + torch.linspace(0, 1, i), torch.full((i,), 3) + i, x.roll(i, 0), x.topk(i)[1]


@pytest.mark.parametrize("fn, plain", [
    (written_at_a_place, set()), (step_with_a_cache, set()), (sizes_beside_other_calls, {"linspace.default"})])
def test_numbers_that_are_places_and_sizes(fn, plain):
    """One graph for all places, in kernels; what can't take a symbol is one call in plain torch, and no others are."""
    compiled = dynamo_lite.compile(fn)
    for i in (2, 3, 4, 5, 6):
        x, row = torch.randn(8, 8), torch.randn(8)
        y = x.clone()
        torch.testing.assert_close(compiled(y, i, row), fn(x, i, row))
        assert torch.equal(x, y)
    counted = dynamo_lite.metrics()
    in_python = {name for name in counted["library_calls"] if not name.startswith("aten.")}
    assert counted["graphs"] == 2 and not counted["fallbacks"] and in_python == plain, counted


def test_a_place_that_is_none():
    def fn(x, i):
        x[:, i] = 1
        return x + 1

    compiled = dynamo_lite.compile(fn)
    for i in (2, 3, -1, -2, 4):
        torch.testing.assert_close(compiled(torch.zeros(3, 8), i), fn(torch.zeros(3, 8), i))
    for call in (fn, compiled):
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            call(torch.zeros(3, 8), 9)
