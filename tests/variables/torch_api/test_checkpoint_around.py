"""Checkpoints around compiled functions, and their backward passes inside: torch ends the second run by
an exception as soon as all is there that it needs."""
from __future__ import annotations

import functools

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import dynamo_lite
from dynamo_lite import log

BACKENDS = ("eager", "inductor_lite")
again = functools.partial(checkpoint, use_reentrant=False)


def net(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(1)
    head = nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout)
    return nn.Sequential(*head, nn.Linear(8, 4), nn.Sigmoid(), nn.Linear(4, 4))


def outcome(make, run, dropout: float = 0.0):
    """Gradients, result and the next random number of three steps."""
    model = net(dropout)
    step = make(model)
    torch.manual_seed(5)
    found = []
    for _ in range(3):
        x = torch.randn(3, 4, requires_grad=True)
        result = run(step, model, x)
        found += [result.detach(), x.grad, torch.rand(1)]
    return found + [p.grad for p in model.parameters()]


def check(make, run=lambda step, model, x: _backward(step(x)), dropout: float = 0.0) -> None:
    want = outcome(lambda model: make(model, lambda f: f), run, dropout)
    for backend in BACKENDS:
        dynamo_lite.reset()
        failed = log.counters().get("graphs_that_raised", 0)
        got = outcome(lambda model: make(model, dynamo_lite.compile(backend=backend)), run, dropout)
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(a, b)
        assert log.counters().get("graphs_that_raised", 0) == failed


def _backward(result: torch.Tensor) -> torch.Tensor:
    result.sum().backward()
    return result


@pytest.mark.parametrize("dropout, preserve", [(0.0, True), (0.0, False), (0.4, True)])
def test_around_a_compiled_module(dropout, preserve):
    def make(model, compiled):
        c = compiled(model)
        return lambda x: again(c, x, preserve_rng_state=preserve)

    check(make, dropout=dropout)


@pytest.mark.parametrize("early_stop", [True, False])
def test_with_and_without_early_stop(early_stop):
    def make(model, compiled):
        c = compiled(model)

        def step(x):
            with set_checkpoint_early_stop(early_stop):
                return again(c, x)
        return step

    check(make)


@pytest.mark.parametrize("early_stop", [None, True, False])
def test_backward_inside_the_compiled_function(early_stop):
    options = {} if early_stop is None else {"early_stop": early_stop}

    def make(model, compiled):
        @compiled
        def step(x):
            loss = again(model, x, **options).square().sum()
            loss.backward()
            return loss
        return step

    check(make, lambda step, model, x: step(x), dropout=0.3)


def test_nested_around_and_inside():
    def make(model, compiled):
        head, tail = compiled(model[:3]), model[3:]

        @compiled
        def whole(x):
            return again(tail, torch.relu(again(head, x))) * 2
        return lambda x: again(lambda y: again(whole, y.sin()) + 1, x)

    check(make)


def test_nested_inside_with_backward():
    def make(model, compiled):
        @compiled
        def step(x):
            def inner(y):
                return again(model[3:], y)
            loss = again(lambda y: inner(model[:3](y)), x).sum()
            loss.backward()
            return loss
        return step

    check(make, lambda step, model, x: step(x))


def test_a_function_with_a_break():
    def make(model, compiled):
        @compiled
        def forward(x):
            y = torch.tanh(model[0](x))
            dynamo_lite.graph_break()
            return model[3](y).exp()
        return lambda x: again(forward, x)

    check(make)


def test_grad_modes_and_autocast_are_left_when_the_second_run_ends():
    def make(model, compiled):
        @compiled
        def forward(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                with torch.no_grad():
                    scale = x.abs().mean()
                with torch.enable_grad():
                    y = torch.tanh(model[0](x)) * scale
            return model[3](y.float()).exp() + 1

        def step(x):
            result = again(forward, x)
            return result

        return step

    def run(step, model, x):
        result = _backward(step(x))
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        torch.autocast_increment_nesting()
        assert torch.autocast_decrement_nesting() == 0
        return result

    want = outcome(lambda model: make(model, lambda f: f), run)
    for backend in BACKENDS:
        dynamo_lite.reset()
        got = outcome(lambda model: make(model, dynamo_lite.compile(backend=backend)), run)
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def test_selective_contexts():
    def policy(ctx, op, *args, **kwargs):
        kept = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def around(model, compiled):
        c = compiled(model)
        return lambda x: again(c, x, context_fn=contexts)

    def inside(model, compiled):
        return compiled(lambda x: again(model, x, context_fn=contexts).exp())

    def inside_with_backward(model, compiled):
        @compiled
        def step(x):
            loss = again(model, x, context_fn=contexts).exp().sum()
            loss.backward()
            return loss
        return step

    check(around)
    check(inside)
    check(inside_with_backward, lambda step, model, x: step(x))


def test_reentrant():
    def around(model, compiled):
        c = compiled(model)
        return lambda x: checkpoint(c, x, use_reentrant=True)

    def inside_with_backward(model, compiled):
        @compiled
        def step(x):
            loss = checkpoint(model, x, use_reentrant=True).exp().sum()
            loss.backward()
            return loss
        return step

    check(around, dropout=0.3)
    check(inside_with_backward, lambda step, model, x: step(x), dropout=0.3)


def test_sequential():
    def make(model, compiled):
        c = compiled(lambda x: checkpoint_sequential(model, 2, x, use_reentrant=False))
        return c

    check(make)


def test_statistics_are_updated_as_often_as_in_eager():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, x):
            return self.norm(torch.tanh(self.lin(x))).exp()

    def run(compiled):
        torch.manual_seed(0)
        model = Normed()
        c = compiled(model)
        for _ in range(3):
            again(c, torch.randn(5, 4)).sum().backward()
        return [*model.state_dict().values(), *[p.grad for p in model.parameters()]]

    want = run(lambda m: m)
    for backend in BACKENDS:
        dynamo_lite.reset()
        for a, b in zip(want, run(dynamo_lite.compile(backend=backend)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)  # a batch norm of five rows; twice counted is 0.1


def test_a_second_backward_and_retained_graphs():
    def make(model, compiled):
        c = compiled(model)
        return lambda x: again(c, x)

    def run(step, model, x):
        result = step(x)
        loss = F.mse_loss(result, torch.zeros_like(result))
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        return loss

    check(make, run)
