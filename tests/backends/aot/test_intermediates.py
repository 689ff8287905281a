"""Intermediates that leave a graph and are used on in it: each is a node of autograd's, with its gradient and hooks."""
from __future__ import annotations

import itertools
import types

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

BACKENDS = ("eager", "inductor_lite")
torch.manual_seed(0)
LIN, HEAD = nn.Linear(4, 4), nn.Linear(4, 4)
NORM = nn.BatchNorm1d(4)
RNN = nn.LSTM(4, 4, 2)
KEPT = types.SimpleNamespace(hidden=None, table={}, log=[])


def returned(x):
    h = torch.tanh(LIN(x))
    return h, h.square().sum()


def loss_and_logits(x):
    logits = HEAD(torch.relu(LIN(x)))
    return F.cross_entropy(logits, torch.tensor([1, 0, 3])), logits


def hidden_states(x):
    states = [x]
    for layer in (LIN, HEAD, LIN):
        states.append(torch.relu(layer(states[-1])) + states[-1])
    return tuple(states), states[-1].mean()


def twice(x):
    h = LIN(x).exp()
    return h, h, (h * 2).sum(), h


def a_view_and_its_base(x):
    h = LIN(x)
    v = h[0]
    return h, v, v.sum() * h.sum()


def view_alone(x):
    h = LIN(x)
    v = h.t()
    return v, (v * 3).sum(), h.sum()


def chunks(x):
    a, b = LIN(x).chunk(2, -1)
    return a, b, (a * b).sum(), torch.sigmoid(a)


def detached(x):
    h = LIN(x)
    return h.detach(), h, h.detach() * h


def only_without_gradients(x):
    h = LIN(x)
    return h, h.argmax(-1), (h > 0).sum(), h.detach().exp()


def an_input(x):
    return x, (x * 2).sum(), x.view(-1)


def attribute(x):
    KEPT.hidden = LIN(x)
    return KEPT.hidden.relu().sum()


def containers(x):
    KEPT.table["h"] = LIN(x)
    KEPT.log.append(HEAD(KEPT.table["h"]))
    return KEPT.log[-1].sin()


def closure(x):
    h = LIN(x)
    y = h.sum()
    return y, (lambda: h)


def break_behind(x):
    h = LIN(x).tanh()
    y = h.sum()
    dynamo_lite.graph_break()
    return y * 2 + h.mean(), h


def written_then_used(x):
    h = LIN(x)
    s = h.sum()
    h = h.mul_(2)
    return h, s, h.cos().sum()


def used_between_writes(x):
    h = x * 2
    y = h + 1
    h.add_(1)
    z = h * 3
    h.add_(x)
    return h, y, z, h.exp()


def inplace_activation(x):
    h = F.relu(LIN(x), inplace=True)
    return h, HEAD(h).sum()


def written_through_a_view(x):
    h = LIN(x)
    y = h * 1
    h[0] = x[1]
    return h, y, h.exp()


def written_without_grad(x):
    h = x * 2
    y = h + 3
    with torch.no_grad():
        h.clamp_(-1, 1)
    return h, y


def no_grad_part(x):
    with torch.no_grad():
        scale = LIN(x).abs().mean()
    h = LIN(x) * scale
    with torch.no_grad():
        best = h.amax()
    return h, best, (h * best).sum()


def dropout(x):
    h = LIN(x)
    return h, F.dropout(h, 0.5).sum(), F.dropout(h.exp(), 0.3)


def norm(x):
    h = NORM(LIN(x))
    return h, NORM(h).square().sum()


def lstm(x):
    out, (h, c) = RNN(x[None])
    return out, h, (out.sum(0) @ h[0].t()).sum() + c.mean()


def recurrent(x):
    h, outs = x, []
    for _ in range(4):
        h = torch.tanh(LIN(h) + x)
        outs.append(h)
    return outs, torch.stack(outs).square().mean()


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = HEAD(torch.relu(LIN(x)))
        loss = F.cross_entropy(logits, torch.tensor([1, 0, 3]))
    return loss * 2, logits


def autocast_break_within(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = LIN(x)
        with torch.no_grad():
            m = h.max()
        with torch.autocast("cpu", enabled=False):
            y = HEAD(h.float())
        z = LIN(y)
    return h, y, z, (z * m).sum()


def several_results(x):
    values, indices = LIN(x).sort(-1)
    a, b = torch.split(values, 2, -1)
    return values, indices, a.sum(), b


def written_input(x):
    x[0] = x[1] * 2
    return (x * 3).sum(), x[0]


def written_input_twice(x):
    x.mul_(2)
    y = x * 3
    x.add_(y.detach())
    return y, x.sum()


def intermediate_then_written_input(x):
    h = LIN(x)
    x.copy_(h)
    return h, h.exp().sum(), x.sum() * 2


def alias_of_another(x):
    h = LIN(x)
    return h.view(-1), h, h.view(2, 6).sum(1)


def complex_numbers(x):
    z = torch.fft.fft(LIN(x))
    return z, z.abs().sum(), z.real


def item_between(x):
    h = LIN(x)
    n = int((h.detach().abs() < 100).sum())
    return h, (h * n).sum()


PROGRAMS = [
    returned, loss_and_logits, hidden_states, twice, a_view_and_its_base, view_alone, chunks, detached,
    only_without_gradients, an_input, attribute, containers, closure, break_behind, written_then_used,
    used_between_writes, inplace_activation, written_through_a_view, written_without_grad, no_grad_part, dropout, norm,
    lstm, recurrent, autocast, autocast_break_within, several_results, written_input, written_input_twice,
    intermediate_then_written_input, alias_of_another, complex_numbers, item_between]


def visible(f):
    """What the program sees after a call."""
    torch.manual_seed(7)
    KEPT.__dict__.update(hidden=None, table={}, log=[])
    x = torch.randn(3, 4, requires_grad=True)
    argument = x * 1
    found: list = []
    todo = [f(argument)]
    todo += [argument, KEPT.hidden, *KEPT.table.values(), *KEPT.log]
    while todo:
        value = todo.pop(0)
        if isinstance(value, (tuple, list)):
            todo[:0] = value
        elif callable(value) and not isinstance(value, torch.Tensor):
            todo.insert(0, value())
        elif isinstance(value, torch.Tensor):
            found.append(value)
    return x, found


def head(tensor):
    weights = torch.arange(1.0, 1 + tensor.numel()).view(tensor.shape).to(tensor.dtype)
    return (tensor * weights).sum().real


def gradients_between(f):
    """Of every visible tensor with respect to every other."""
    x, seen = visible(f)
    found = [(t.detach().clone(), t.requires_grad) for t in seen]
    for out, source in itertools.product(seen, [x, *seen]):
        if out.requires_grad and source.requires_grad:
            found += torch.autograd.grad(head(out), source, retain_graph=True, allow_unused=True)
        else:
            found.append(None)
    return found


def with_hooks(f):
    """A gradient that a hook has changed on its way, and what is retained of it."""
    found = []
    count = len(visible(f)[1])
    for place in range(count):
        x, seen = visible(f)
        if not seen[place].requires_grad:
            continue
        seen[place].register_hook(lambda g: g * 3)
        for t in seen:
            if t.requires_grad and not t.is_leaf:
                t.retain_grad()
        for p in (*LIN.parameters(), *HEAD.parameters(), *NORM.parameters(), *RNN.parameters()):
            p.grad = None
        sum(head(t) for t in seen if t.requires_grad).backward()
        found += [x.grad, *[t.grad if t.requires_grad else None for t in seen]]
        found += [None if p.grad is None else p.grad.clone() for p in (*LIN.parameters(), *RNN.parameters())]
    return found


def outcome(run, f):
    try:
        NORM.reset_running_stats()
        return run(f)
    except RuntimeError as e:
        return [str(e).partition(":")[0]]


def same(got, want, **tolerance):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        if isinstance(b, tuple):
            assert a[1] == b[1]
            a, b = a[0], b[0]
        assert type(a) is type(b)
        if isinstance(b, torch.Tensor):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b, **tolerance)
        else:
            assert a == b


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("run", [gradients_between, with_hooks], ids=lambda f: f.__name__)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(f, run):
    want = outcome(run, f)
    rough = dict(rtol=5e-2, atol=5e-2) if "autocast" in f.__name__ else dict(rtol=1e-4, atol=1e-4)
    for backend in BACKENDS:
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(f, backend=backend)
        for _ in range(2):
            same(outcome(run, compiled), want, **rough)
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert f is lstm or not dynamo_lite.metrics()["fallbacks"]  # the library's own operation, in grad mode alone


def test_sizes_that_are_used_behind_a_cut():
    def f(x):
        y = LIN(x)
        a = y * 2
        return a, a.sum(0) / (y.size(0) * 2), torch.zeros(y.shape[0] + 1)

    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(f, fullgraph=True, dynamic=True)
    for n in (3, 4, 5):
        x = torch.randn(n, 4)
        for got, want in zip(compiled(x), f(x)):
            torch.testing.assert_close(got, want)
            assert got.requires_grad is want.requires_grad
    counted = dynamo_lite.metrics()
    assert counted["graphs"] == 1 and not counted["fallbacks"], counted


def test_sizes_that_do_not_follow_from_what_a_segment_reads():
    """The frames of a signal tell how long it is but roughly: the parts behind the cut are given its length."""
    def f(x):
        y = x[:, ::5] * 2
        z = y * 3
        return y, z.abs() + z.shape[1], z.sum(1)

    def frames(x):
        y = torch.stft(x, 16, 5, 13, torch.hann_window(13), return_complex=True)
        return y, y.abs() ** 2

    for function in (f, frames):
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(function, dynamic=True)
        for n in (30, 33, 41, 47):
            x = torch.randn(3, n)
            results = []
            for call in (function, compiled):
                at = x.clone().requires_grad_()
                out = call(at)
                torch.autograd.backward(out, [torch.ones_like(v) for v in out])
                results.append([*out, at.grad])
            same(results[1], results[0], rtol=1e-4, atol=1e-4)
        assert not dynamo_lite.metrics()["fallbacks"] and dynamo_lite.metrics()["graphs"] == 1
