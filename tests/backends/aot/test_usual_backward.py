"""The short way through a backward pass does what the long way does, or is not taken."""
import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.aot import usual_backward
from dynamo_lite.runtime.tensor_layouts import check_like


def two(x, y):
    return (x * y).sin(), (x + y).exp() * 2


@pytest.fixture
def ways(monkeypatch):
    """A list that gets, for each backward pass, whether it went the short way."""
    seen = []
    run = usual_backward.UsualBackward.run

    def noted(self, ctx, grads):
        made = run(self, ctx, grads)
        seen.append(made is not None)
        return made

    monkeypatch.setattr(usual_backward.UsualBackward, "run", noted)
    return seen


def inputs():
    torch.manual_seed(0)
    return torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)


def gradients(fn, seeds, **options):
    x, y = inputs()
    results = [(r, s) for r, s in zip(fn(x, y), seeds) if s is not None]
    return torch.autograd.grad([r for r, _ in results], (x, y), [s for _, s in results], **options)


SEEDS = {
    "transposed": lambda: (torch.randn(4, 3).t(), torch.randn(3, 4)),
    "expanded": lambda: (torch.randn(()).expand(3, 4), torch.randn(3, 4)),
    "negative": lambda: (torch._neg_view(torch.randn(3, 4)), torch.randn(3, 4)),
    "zeros": lambda: (torch._efficientzerotensor(3, 4), torch.randn(3, 4)),
    "first": lambda: (torch.randn(3, 4), None),
    "second": lambda: (None, torch.randn(3, 4)),
    "parameter": lambda: (torch.nn.Parameter(torch.randn(3, 4)), torch.randn(3, 4)),
}


@pytest.mark.parametrize("kind", SEEDS)
def test_other_gradients_go_the_long_way(kind, ways):
    compiled = dynamo_lite.compile(two)
    usual = torch.randn(3, 4), torch.randn(3, 4)
    for seeds, short in ((usual, False), (usual, True), (SEEDS[kind](), False), (usual, True)):
        ways.clear()
        for a, b in zip(gradients(two, seeds), gradients(compiled, seeds)):
            torch.testing.assert_close(b, a)
        assert ways == [short]


def test_gradients_of_gradients_and_batches_go_the_long_way(ways):
    compiled = dynamo_lite.compile(two)
    usual = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(2):
        gradients(compiled, usual)
    ways.clear()
    for a, b in zip(gradients(two, usual, create_graph=True), gradients(compiled, usual, create_graph=True)):
        torch.testing.assert_close(b, a)
        assert b.requires_grad
    batch = torch.randn(5, 3, 4), torch.randn(5, 3, 4)
    for a, b in zip(gradients(two, batch, is_grads_batched=True), gradients(compiled, batch, is_grads_batched=True)):
        torch.testing.assert_close(b, a)
    assert not any(ways)


def test_errors_are_those_of_the_long_way(ways):
    compiled = dynamo_lite.compile(lambda x, y: (x * y).sin() * y)
    w = torch.randn(3, 4)
    for _ in range(3):
        x, y = inputs()
        out = compiled(x, y)
        out.backward(w, retain_graph=True)
        out.backward(w)
        with pytest.raises(RuntimeError, match="second time") as raised:
            out.backward(w)
        assert raised.value.__context__ is None
        out = compiled(x, y)
        with torch.no_grad():
            y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as raised:
            out.backward(w)
        assert raised.value.__context__ is None
    assert ways[-4:] == [True, True, False, False]


def test_hooks_run_and_saved_tensors_are_packed(ways):
    compiled, seen = dynamo_lite.compile(lambda x, y: (x * y).sin() * y), []
    w = torch.randn(3, 4)
    for _ in range(3):
        x, y = inputs()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: seen.append("un") or t):
            out = compiled(x, y)
        out.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        x.register_hook(lambda g: seen.append("x"))
        del seen[:]
        out.backward(w)
        want = inputs()
        ((want[0] * want[1]).sin() * want[1]).backward(w * 2)
        torch.testing.assert_close(x.grad, want[0].grad)
        torch.testing.assert_close(y.grad, want[1].grad)
        assert "un" in seen and seen[-1] == "x"
    assert ways == [False, True, True]


def test_autocast_around_the_backward_pass_goes_the_long_way(ways):
    compiled = dynamo_lite.compile(lambda x, y: (x * y).sin() @ y.t())
    w = torch.randn(3, 3)
    for _ in range(2):
        compiled(*inputs()).backward(w)
    with torch.autocast("cpu", torch.bfloat16):
        x, y = inputs()
        with torch.autocast("cpu", enabled=False):
            out = compiled(x, y)
        out.backward(w)
    want = inputs()
    ((want[0] * want[1]).sin() @ want[1].t()).backward(w)
    torch.testing.assert_close(x.grad, want[0].grad)
    assert ways == [False, True, False]


def test_results_that_have_no_gradient():
    compiled = dynamo_lite.compile(lambda x, y: ((x * y).sin(), (x > y).float() * 2, x.argmax()))
    for _ in range(3):
        x, y = inputs()
        out, mask, _ = compiled(x, y)
        assert not mask.requires_grad
        out.sum().backward()
        want = inputs()
        (want[0] * want[1]).sin().sum().backward()
        torch.testing.assert_close(x.grad, want[0].grad)


def test_what_is_no_plain_tensor_does_not_pass():
    like = torch.randn(3, 4)
    check = check_like([like, None])
    assert check is not None

    def passes(*values):
        return check(values, None, {}, {})[0]

    assert passes(like, None) and not passes(like, like) and not passes(None, None)
    for other in (like.double(), like.t(), like[:2], like.to_sparse(), torch._neg_view(like),
                  torch._efficientzerotensor(3, 4), torch.nn.Parameter(like)):
        assert not passes(other, None)
    assert check_like([like.to_sparse()]) is None and check_like([torch._efficientzerotensor(3, 4)]) is None
    seen = []
    torch.vmap(lambda v: seen.append(passes(v, None)) or v)(torch.randn(2, 3, 4))
    torch.func.grad(lambda v: seen.append(passes(v, None)) or v.sum())(like)
    assert seen == [False, False]
