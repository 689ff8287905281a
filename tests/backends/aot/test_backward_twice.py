"""Backward passes that run more than once, or get nothing: errors and gradients as in eager."""
from __future__ import annotations

import types

import pytest
import torch
import torch.nn as nn

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

BACKENDS = ("eager", "inductor_lite")


def twice_with_nothing_saved(wrap):
    w = torch.randn(4, requires_grad=True)
    z = wrap(lambda x: x + w)(torch.ones(4))
    z.backward(torch.ones(4))
    z.backward(torch.ones(4))
    return [w.grad]


def twice_with_something_saved(wrap):
    w = torch.randn(4, requires_grad=True)
    z = wrap(lambda x: (x * w).exp())(torch.ones(4))
    z.backward(torch.ones(4))
    z.backward(torch.ones(4))
    return [w.grad]


def retained(wrap):
    w = torch.randn(4, requires_grad=True)
    z = wrap(lambda x: (x * w).exp().sum())(torch.ones(4))
    z.backward(retain_graph=True)
    z.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        z.backward()
    return [w.grad]


def losses_that_share(wrap):
    lin = nn.Linear(4, 4)

    def losses(x):
        h = lin(x).tanh()
        return h.mean(), h.exp().mean()

    first, second = wrap(losses)(torch.randn(3, 4))
    first.backward()
    second.backward()
    return [lin.weight.grad]


def state_that_is_detached_when_it_is_read(wrap):
    cell, box = nn.Linear(4, 4), types.SimpleNamespace(h=torch.zeros(3, 4))

    def step(x):
        h = torch.tanh(cell(x) + box.h.detach())
        out = (h * (box.h > 0)).sum()
        box.h = h
        return out

    f = wrap(step)
    for _ in range(4):
        f(torch.randn(3, 4)).backward()
    return [cell.weight.grad]


def spiking_neuron(wrap, breaks=False):
    cell, box = nn.Linear(4, 4), types.SimpleNamespace(mem=torch.zeros(3, 4))

    def step(x):
        reset = (box.mem > 0.2).float()
        if breaks:
            dynamo_lite.graph_break()
        box.mem = (cell(x) - reset).exp()
        return box.mem.square().sum()

    f = wrap(step)
    for _ in range(4):
        f(torch.randn(3, 4)).backward()
    return [cell.weight.grad]


def spiking_neuron_with_a_break(wrap):
    return spiking_neuron(wrap, True)


def recurrence(wrap, retain_graph=True):
    cell, h = nn.GRUCell(4, 4), torch.zeros(3, 4)
    f = wrap(lambda x, h: cell(x, h))
    for _ in range(3):
        h = f(torch.randn(3, 4), h)
        h.sum().backward(retain_graph=retain_graph)
    return [cell.weight_hh.grad]


def recurrence_without_retaining(wrap):
    return recurrence(wrap, False)


def truncated_recurrence(wrap):
    cell, h = nn.GRUCell(4, 4), torch.zeros(3, 4)
    f = wrap(lambda x, h: (cell(x, h), h.mean()))
    for _ in range(3):
        h, _ = f(torch.randn(3, 4), h.detach())
        h.sum().backward()
    return [cell.weight_hh.grad]


def edge_that_eager_has_not(wrap):
    w, q = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    before = w * w
    before.sum().backward()
    wrap(lambda p, q: (p > 0) * q)(before, q).sum().backward()
    return [q.grad]


def hook_on_what_gets_no_gradient(wrap):
    w, q = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    before, seen = w * w, []
    before.register_hook(lambda g: seen.append(g))
    wrap(lambda p, q: (p.detach() + 1) * q)(before, q).sum().backward()
    return [q.grad, *seen]


PROGRAMS = [
    twice_with_nothing_saved, twice_with_something_saved, retained, losses_that_share,
    state_that_is_detached_when_it_is_read, spiking_neuron, spiking_neuron_with_a_break, recurrence,
    recurrence_without_retaining, truncated_recurrence, edge_that_eager_has_not, hook_on_what_gets_no_gradient]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(program, backend):
    def run(wrap):
        torch.manual_seed(0)
        try:
            return program(wrap)
        except RuntimeError as e:
            return str(e)

    want, got = run(lambda f: f), run(dynamo_lite.compile(backend=backend))
    if isinstance(want, str):
        assert got == want
    else:
        torch.testing.assert_close(got, want)
