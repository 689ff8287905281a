"""Several losses of one graph, each gone back from by itself: what eager allows is allowed, what it refuses refused."""
from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

torch.manual_seed(0)
W, V, U = (torch.randn(4, 4) for _ in range(3))


def two_heads(x: Any, w: Any, v: Any, u: Any) -> Any:
    return (x @ w).tanh().sum(), (x @ v).sin().square().sum()


def shared_trunk(x: Any, w: Any, v: Any, u: Any) -> Any:
    h = (x @ w).tanh()
    return (h @ v).sum(), (h @ u).sum()


def linear_trunk(x: Any, w: Any, v: Any, u: Any) -> Any:
    """The node that both run through saves nothing."""
    h = x + w + 1
    return (h * v).sum(), h.sin().sum()


def three(x: Any, w: Any, v: Any, u: Any) -> Any:
    h = (x * w).exp()
    return h.sum(), (h * h).mean(), F.softmax(x @ v, -1)[0].sum(), (x * u).cos().sum()


def gan(x: Any, w: Any, v: Any, u: Any) -> Any:
    fake = (x @ w).tanh()
    return F.softplus(-(fake @ v)).mean(), F.softplus(fake.detach() @ v).mean() + F.softplus(-(x @ v)).mean()


def unused(x: Any, w: Any, v: Any, u: Any) -> Any:
    return (x @ w).exp().sum(), (v * v).sum(), u.sin()


PROGRAMS = [two_heads, shared_trunk, linear_trunk, three, gan, unused]


def steps(fn: Any, order: tuple[int, ...], retain: bool, write: bool) -> list[Any]:
    leaves = [t.clone().requires_grad_() for t in (torch.ones(4, 4) / 3, W, V, U)]
    results = fn(*leaves)
    seen: list[Any] = []
    for at in order:
        if at >= len(results):
            continue
        try:
            results[at].sum().backward(retain_graph=retain)
        except RuntimeError as error:
            # Where both hold, eager says what the node says that it reaches first.
            assert "second time" in str(error) or "inplace" in str(error)
            seen.append("raised")
        else:
            seen += [None if t.grad is None else t.grad.clone() for t in leaves]
        if write:
            with torch.no_grad():
                leaves[2].mul_(2)
    return seen


@pytest.mark.parametrize("retain, write", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_one_after_the_other(fn: Any, retain: bool, write: bool) -> None:
    compiled = dynamo_lite.compile(fn, fullgraph=True)
    for order in (*itertools.permutations(range(3), 2), (0, 1, 2), (2, 1, 0), (3, 0, 1), (0, 0), (1, 0, 1)):
        want, got = steps(fn, order, retain, write), steps(compiled, order, retain, write)
        assert len(want) == len(got), order
        for a, b in zip(want, got):
            assert type(a) is type(b), (order, want, got)
            assert torch.allclose(a, b, atol=1e-5) if isinstance(a, torch.Tensor) else a == b, order


def test_what_only_the_first_loss_needs_is_freed_with_it() -> None:
    import gc
    import weakref

    held = []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    x, w = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    compiled = dynamo_lite.compile(lambda a, w: ((a * w).sum(), w.exp().sum()))
    a = Watch.apply(x)
    held.append(weakref.ref(a))
    first, second = compiled(a, w)
    del a
    first.backward()
    gc.collect()
    assert held[0]() is None
    second.backward()
    assert torch.allclose(w.grad, 1 + torch.ones(4, 4).exp())


def apart(x: Any, w: Any, v: Any, s: Any) -> Any:
    return (x @ w).square().sum(), ((x @ w) * s).sum(), (v * v).sum()


def behind_a_trunk(x: Any, w: Any, v: Any, s: Any) -> Any:
    h = (x @ w).tanh()
    return h.square().sum(), (h * s).sum(), (h.detach() * v * s).sum()


def a_result_is_saved(x: Any, w: Any, v: Any, s: Any) -> Any:
    return (x @ w).square().sum(), (s * w).sum(), v.exp()


WRITTEN_BETWEEN = [apart, behind_a_trunk, a_result_is_saved]


@pytest.mark.parametrize("written", ["s", "result", "v"])
@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("fn", WRITTEN_BETWEEN)
def test_a_write_to_what_only_another_loss_needs(fn: Any, retain: bool, written: str) -> None:
    def run(fn: Any, order: tuple[int, ...]) -> list[Any]:
        x, w, v = (t.clone().requires_grad_() for t in (torch.ones(4, 4) / 3, W, V))
        s = U.clone()
        results = fn(x, w, v, s)
        with torch.no_grad():
            {"s": s, "result": results[2], "v": v}[written].add_(1)
        seen: list[Any] = []
        for at in order:
            try:
                results[at].sum().backward(retain_graph=retain)
            except RuntimeError as error:
                # Where both hold, eager says what the node says that it reaches first.
                assert "inplace" in str(error) or "second time" in str(error) and not retain
                seen.append("raised")
            else:
                seen += [None if t.grad is None else t.grad.clone() for t in (x, w, v)]
        return seen

    compiled = dynamo_lite.compile(fn, fullgraph=True)
    for order in (*itertools.permutations(range(3), 2), (0, 0), (0, 1, 2), (2, 1, 0)):
        want, got = run(fn, order), run(compiled, order)
        assert len(want) == len(got), order
        for a, b in zip(want, got):
            assert type(a) is type(b), (order, want, got)
            assert torch.allclose(a, b, atol=1e-5) if isinstance(a, torch.Tensor) else a == b, (order, want, got)


def test_an_error_of_a_hook_that_unpacks() -> None:
    def refuse(packed: Any) -> Any:
        raise RuntimeError("refused")

    for fn in (a_result_is_saved, dynamo_lite.compile(a_result_is_saved)):
        x, w, v = (t.clone().requires_grad_() for t in (torch.ones(4, 4) / 3, W, V))
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (t,), refuse):
            results = fn(x, w, v, U)
        with pytest.raises(RuntimeError, match="refused"):
            results[2].sum().backward()


def test_a_differentiable_gradient_behind_a_backward_pass():
    """What the first pass has freed the second, which is to be differentiated, does without, as in eager."""
    found = []
    for run in (two_heads, dynamo_lite.compile(two_heads)):
        x = W.clone().requires_grad_()
        first, second = run(x, W, V, U)
        a, = torch.autograd.grad(first, x)
        b, = torch.autograd.grad(second, x, create_graph=True)
        found.append((a, b.detach()))
        assert b.requires_grad
    torch.testing.assert_close(found[1], found[0])
