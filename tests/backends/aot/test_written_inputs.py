"""Inputs that a graph writes to under autograd: they carry the gradient afterwards, as in eager."""
from __future__ import annotations

import re

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

BACKENDS = ("eager", "inductor_lite")


def setitem(s, v):
    s[1] = v
    return s


def setitem_twice(s, v):
    s[0] = v
    y = (s * 3).sum()
    s[1] = v * y
    return s * 2


def copy(s, v):
    s.copy_(v)


def add(s, v):
    s.add_(v)
    return s.sum()


def operator(s, v):
    s *= v
    s += 1
    return s


def index_put(s, v):
    s.index_put_((torch.tensor([1, 0, 1]),), torch.stack([v, v * 2, v.exp()]), accumulate=True)


def masked_fill(s, v):
    s.add_(v)
    s.masked_fill_(s > 0, 0.5)


def masked_fill_by_tensor(s, v):
    s.masked_fill_(torch.tensor([[True, False, True]]), v.sum())


def through_a_view(s, v):
    row = s[0]
    row.copy_(v)
    s.view(-1)[4:].mul_(v.sum())
    return row.sum()


def view_taken_before(s, v):
    row = s[0]
    s[0].add_(v)
    return row, s[1]


def view_of_an_input(s, v):
    s.t()[:, 1].copy_(v)
    return s.t()


def out_of_order(s, v):
    before = s * 2
    s.copy_(v)
    return before, s + before


def read_and_written(s, v):
    y = (s * 2 + v).sum()
    s.add_(y)
    return y


def no_grad_write_too(s, v):
    s[0] = v
    with torch.no_grad():
        s[1] = v.exp()


def only_without_grad(s, v):
    with torch.no_grad():
        s[1] = v
    return s * v


def two(s, v):
    w = v * 2
    s[0] = w
    v.mul_(s.sum())
    return w


def foreach(s, v):
    torch._foreach_add_([s, v], [v * 2, s[0] - 1])


def exponential(s, v):
    s.zero_()
    s[:, 0] += v.sum()
    s.clamp_(min=0.1).sqrt_()


def where_method(s, v):
    s[s > 0.5] = v.sum()


def fill(s, v):
    s.fill_(v.sum())


def scatter(s, v):
    s.scatter_add_(1, torch.tensor([[0, 0, 2], [1, 2, 2]]), torch.stack([v, v.sin()]))
    s.index_add_(0, torch.tensor([1]), v[None])


def lerp(s, v):
    s.lerp_(v.expand_as(s), 0.3)


def diagonal(s, v):
    s.diagonal().copy_(v[:2])
    return s.sum(0)


def unbound(s, v):
    a, b = s.unbind()
    return a + v, b


WRITES = [setitem, setitem_twice, copy, add, operator, index_put, masked_fill, masked_fill_by_tensor, through_a_view,
          view_taken_before, view_of_an_input, out_of_order, read_and_written, no_grad_write_too, only_without_grad,
          two, foreach, exponential, where_method, fill, scatter, lerp, diagonal, unbound]


def outcome(f, make_inputs, again: bool = False):
    torch.manual_seed(3)
    leaves, inputs = make_inputs()
    try:
        results = f(*inputs)
    except RuntimeError as e:
        return [re.sub(r"Output 0 of \w+", "Output", str(e).partition(".")[0])]
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    # What nothing hangs on is written by kernels, which count as one write each.
    found: list = [t._version for t in inputs if any(leaf.requires_grad for leaf in leaves)]
    total = torch.zeros(())
    for t in (*results, *inputs, *leaves):
        found += [t.detach().clone(), t.requires_grad, t.is_leaf, t.stride()]
        if t.requires_grad and not t.is_leaf:
            total = total + (t * torch.arange(1.0, 1 + t.numel()).view(t.shape)).sum()
    if total.requires_grad:
        total.backward()
    return found + [leaf.grad for leaf in leaves]


def same(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b


def plain(s_grad, v_grad):
    """`s` and `v`, no leaves where they require grad."""
    def make():
        s, v = torch.rand(2, 3, requires_grad=s_grad), torch.randn(3, requires_grad=v_grad)
        return (s, v), (s * 1 if s_grad else s, v * 1 if v_grad else v)
    return make


@pytest.mark.parametrize("s_grad, v_grad", [(False, True), (True, True), (True, False), (False, False)])
@pytest.mark.parametrize("f", WRITES, ids=lambda f: f.__name__)
def test_writes(f, s_grad, v_grad):
    make = plain(s_grad, v_grad)
    want = outcome(f, make)
    for backend in BACKENDS:
        compiled = dynamo_lite.compile(f, backend=backend)
        for _ in range(2):
            same(outcome(compiled, make), want)


@pytest.mark.parametrize("f", WRITES, ids=lambda f: f.__name__)
def test_writes_to_leaves(f):
    """Eager refuses what requires grad and is a leaf; also where the same code has run on other tensors before."""
    def leaves():
        s, v = torch.rand(2, 3, requires_grad=True), torch.randn(3, requires_grad=True)
        return (s, v), (s, v)

    want = outcome(f, leaves)
    for backend in BACKENDS:
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(f, backend=backend)
        same(outcome(compiled, leaves), want)
        same(outcome(compiled, plain(True, True)), outcome(f, plain(True, True)))
        same(outcome(compiled, leaves), want)


def of_a_base(s_grad):
    """`s` is a view of another tensor, which gets its gradient too."""
    def make():
        base, v = torch.rand(4, 3, requires_grad=s_grad), torch.randn(3, requires_grad=True)
        whole = base * 1 if s_grad else base
        return (base, v), (whole[1:3], v, whole)
    return make


def view_of_a_leaf():
    s, v = torch.rand(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    return (s, v), (s[1:3], v)


def one_of_several_views():
    s, v = torch.rand(2, 2, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    return (s, v), ((s * 1).unbind()[0], v * 1)


def view_without_grad():
    s, v = torch.rand(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    whole = s * 1
    with torch.no_grad():
        part = whole[1:3]
    return (s, v), (part, v * 1)


@pytest.mark.parametrize("make", [of_a_base(True), of_a_base(False), view_of_a_leaf, one_of_several_views,
                                  view_without_grad])
@pytest.mark.parametrize("f", [setitem, add, through_a_view, view_taken_before, no_grad_write_too, operator])
def test_views_of_what_the_graph_does_not_see(f, make):
    def program(s, v, whole=None):
        return f(s, v)

    want = outcome(program, make)
    for backend in BACKENDS:
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(program, backend=backend)
        for _ in range(2):
            same(outcome(compiled, make), want)


def aliases():
    base, v = torch.rand(3, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    whole = base * 1
    return (base, v), (whole, whole[1], v * 1)


def test_inputs_that_are_aliases_of_each_other():
    def write_part(whole, part, v):
        part.mul_(v)
        return whole.sum(0)

    def write_whole(whole, part, v):
        whole[1] = v
        return part * 2

    def write_both(whole, part, v):
        whole.mul_(2)
        part.add_(v)
        return whole + part

    for f in (write_part, write_whole, write_both):
        want = outcome(f, aliases)
        for backend in BACKENDS:
            compiled = dynamo_lite.compile(f, backend=backend)
            same(outcome(compiled, aliases), want)


class Memory(nn.Module):
    """Buffers written with differentiable values."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.register_buffer("state", torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        self.state.copy_(torch.tanh(self.lin(x).sum(0) + self.state))
        self.count += 1
        return self.norm(x * self.state)


def test_buffers_written_with_differentiable_values():
    def run(compiled):
        torch.manual_seed(0)
        memory = Memory()
        f = compiled(memory)
        found = []
        for _ in range(3):
            x = torch.randn(4, 3)
            loss = F.mse_loss(f(x), torch.ones(4, 3))
            assert memory.state.requires_grad
            loss.backward()
            found += [loss.detach(), memory.lin.weight.grad.clone(), memory.count.clone(),
                      memory.norm.running_var.clone()]
            memory.state.detach_()
        return found

    want = run(lambda m: m)
    for backend in BACKENDS:
        dynamo_lite.reset()
        same(run(dynamo_lite.compile(backend=backend)), want)


def test_what_is_saved_of_an_input_is_its_content_at_entry():
    """A product saves its operand; eager reports the write in the backward pass."""
    def f(s, v):
        y = (s * v).sum()
        s.add_(v)
        return y

    for backend in BACKENDS:
        w = torch.randn(3, requires_grad=True)
        y = dynamo_lite.compile(f, backend=backend)(torch.rand(2, 3) * w, w * 1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


def test_an_ode_solver():
    """States are put into a table, row by row."""
    def solve(x, w, n: int = 5):
        table = torch.zeros(n, *x.shape)
        return step_all(table, x, w, n)

    def step_all(table, x, w, n):
        table[0] = x
        for i in range(1, n):
            x = x + 0.1 * torch.tanh(x @ w)
            table[i] = x
        return table

    x, w = torch.randn(2, 3), torch.randn(3, 3, requires_grad=True)
    want = torch.autograd.grad(solve(x, w).square().sum(), w)[0]
    for backend in BACKENDS:
        compiled = dynamo_lite.compile(step_all, backend=backend)
        table = compiled(torch.zeros(5, 2, 3), x, w, 5)
        torch.testing.assert_close(torch.autograd.grad(table.square().sum(), w)[0], want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_through_data_are_no_new_version(backend):
    """Weights are clipped between a forward pass and its backward pass."""
    def clamp(model, d):
        for p in model.parameters():
            p.data.clamp_(-0.1, 0.1)
        d.detach().add_(1)

    def run(clamp):
        torch.manual_seed(0)
        model, d = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), torch.zeros(2)
        x = torch.randn(3, 4, requires_grad=True)
        y = model(x).sum()
        clamp(model, d)
        y.backward()
        return x.grad, [p._version for p in model.parameters()], d, d._version

    want, got = run(clamp), run(dynamo_lite.compile(clamp, backend=backend, fullgraph=True))
    torch.testing.assert_close(got, want)


WRITES = {
    "one": lambda x: x.add_(1),
    "two": lambda x: (x.mul_(2), x.add_(1)),
    "parts and the whole": lambda x: (x.mul_(2), x.view(-1).add_(1), x[0].zero_()),
    "in a loop": lambda x: [x.mul_(1.1) for _ in range(5)],
    "diagonal": lambda x: x.fill_diagonal_(3.0),
    "dropout": lambda x: F.dropout(x, 0.5, True, True),
    "foreach": lambda x: torch._foreach_add_([x], 1.0),
    "foreach of products": lambda x: torch._foreach_addcmul_([x], [x * 2], [x * 3]),
    "item": lambda x: x.__setitem__((slice(None), 0), 2.0),
    "out": lambda x: torch.sin(x * 1, out=x),
    "detached": lambda x: x.detach().add_(1),
    "by data": lambda x: x.data.add_(1),
    "by data and itself": lambda x: (x.data.add_(1), x.add_(2)),
    "by a view of data": lambda x: x.data.t()[0].add_(1),
    "statistics": lambda x: F.batch_norm(torch.arange(20.0).view(5, 4), x[0], x[1], training=True),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("grad", [None, False, True])
@pytest.mark.parametrize("write", WRITES)
def test_versions_are_those_of_the_programs_writes(write, grad, backend):
    """Autograd refuses a backward pass by them. With `grad` the input has a history, and is written with grad mode on
    or off."""
    def function(x):
        WRITES[write](x)
        return x * 2

    def run(function):
        x = torch.rand(4, 4)
        x = x if grad is None else x.requires_grad_() * 1
        with torch.set_grad_enabled(grad is not False):
            function(x)
        return x._version

    try:
        want = run(function)
    except RuntimeError:
        pytest.skip("eager refuses it under autograd")
    assert run(dynamo_lite.compile(function, backend=backend)) == want


@pytest.mark.parametrize("layout", [lambda w: w.expand(4, 3), lambda w: w.repeat(5).as_strided((4, 3), (2, 1))])
def test_gradients_of_views_of_inputs_that_overlap(layout):
    def function(x):
        return x[1:], x * 2

    grads = []
    for run in (function, dynamo_lite.compile(function, fullgraph=True)):
        x = layout(torch.arange(3.0)).detach().requires_grad_()
        first, second = run(x)
        (first * torch.arange(9.0).view(3, 3)).sum().backward(retain_graph=True)
        (second * torch.arange(12.0).view(4, 3)).sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize("function", [
    lambda x: x.norm(0), lambda x: torch.linalg.vector_norm(x, 0), lambda x: x.dist(torch.ones(3), 0)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_results_whose_formula_gives_no_gradient_require_one(function, backend):
    x = torch.ones(3, requires_grad=True)
    made = dynamo_lite.compile(function, backend=backend, fullgraph=True)(x)
    assert made.requires_grad
    made.backward()
    assert x.grad is None


def test_written_inputs_are_compiled():
    for f in (setitem_twice, add, two, index_put, through_a_view, foreach):
        dynamo_lite.reset()
        dynamo_lite.compile(f)(*plain(False, True)()[1])
        found = dynamo_lite.metrics()
        assert found["kernels"] > 0 and not found["fallbacks"], f
