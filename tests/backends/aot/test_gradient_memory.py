"""Which memory gradients get: leaves never share elements of one, as clipping or an optimizer writes to each."""
import itertools
import logging

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

BACKENDS = ("aot_eager", "inductor_lite")
X, W = torch.randn(4, 6), torch.randn(6, 6)
SHARED = {
    "a bias of two": lambda a, b, c: F.linear(X, W, a + b.view(6)) + c.sum(),
    "a bias of three": lambda a, b, c: F.linear(X, W, a + b.view(6) + c),
    "a view and what it is added to": lambda a, b, c: (a.view(2, 3) + b).tanh() * c.view(2, 3),
    "incoming": lambda a, b, c: a.view(2, 3) + b + c.view(2, 3),
    "turned": lambda a, b, c: (a.view(2, 3) + b.t().reshape(3, 2).t()).tanh() + c.view(2, 3),
    "a part": lambda a, b, c: (torch.cat([a, c]).tanh() + torch.cat([b.view(6), a])),
    "objects": lambda a, b, c: (a + b.view(6) + c).tanh(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", SHARED)
def test_no_elements_are_shared(kind, dynamic, backend):
    leaves = [torch.randn(6, requires_grad=True), torch.randn(2, 3, requires_grad=True),
              torch.randn(6, requires_grad=True)]
    compiled = dynamo_lite.compile(SHARED[kind], backend=backend, dynamic=dynamic)
    results = []
    for call in (SHARED[kind], compiled):
        for leaf in leaves:
            leaf.grad = None
        made = call(*leaves)
        (made * torch.linspace(-1, 1, made.numel()).view_as(made)).sum().backward()
        results.append([leaf.grad.clone() for leaf in leaves])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b, a)
    spans = [(g.data_ptr(), g.data_ptr() + 4 * (1 + sum((n - 1) * s for n, s in zip(g.shape, g.stride()))))
             for g in (leaf.grad for leaf in leaves)]
    assert all(a[1] <= b[0] or b[1] <= a[0] for a, b in itertools.combinations(spans, 2))


@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping(backend):
    torch.manual_seed(0)
    leaves = [torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True)]

    def clipped(call):
        for leaf in leaves:
            leaf.grad = None
        call(*leaves).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(leaves, 0.5)
        return [leaf.grad.clone() for leaf in leaves]

    def function(a, b):
        return F.linear(X, W, a + b)

    for a, b in zip(clipped(function), clipped(dynamo_lite.compile(function, backend=backend)), strict=True):
        torch.testing.assert_close(b, a)


def test_results_of_one_library_call_are_not_copied(caplog):
    """Each of a call's several results has memory of its own, in the graph as outside of it."""
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))

    def function(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v)

    caplog.set_level(logging.INFO, "dynamo_lite.aot_graphs")
    compiled = dynamo_lite.compile(function)
    grads = torch.autograd.grad(compiled(q, k, v).sum(), (q, k, v))
    for a, b in zip(torch.autograd.grad(function(q, k, v).sum(), (q, k, v)), grads, strict=True):
        torch.testing.assert_close(b, a)
    assert "attention_for_cpu_backward" in caplog.text and "clone" not in caplog.text


def test_a_result_is_saved_rather_than_what_it_is_computed_from():
    """The library's result is not kept beside its ``relu``, as it is not in eager."""
    def f(x, w):
        return torch.nn.functional.conv_transpose2d(x, w, stride=2).relu()

    x, w = torch.randn(2, 3, 5, 5, requires_grad=True), torch.randn(3, 4, 4, 4, requires_grad=True)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = dynamo_lite.compile(f)(x, w)
    assert {t.data_ptr() for t in packed} == {x.data_ptr(), w.data_ptr(), y.data_ptr()}
    want = torch.autograd.grad(f(x, w).sum(), (x, w))
    for a, b in zip(torch.autograd.grad(y.sum(), (x, w)), want):
        torch.testing.assert_close(a, b)
