"""Graphs that are entered, or left, with another grad mode than the one in which what they return was computed."""
import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import config, log


def _views(x):
    with torch.no_grad():
        dynamo_lite.graph_break()
        z = x + 1
        v = x[0]
    y = x * 2
    return y, y[0], x[1], v, z, x.view(-1), z * 3, y.t()


def _a_break_in_the_middle(x):
    with torch.no_grad():
        y = x * 2
        dynamo_lite.graph_break()
        z = y + 1
    return x * z


def _two_modes(x):
    with torch.no_grad():
        dynamo_lite.graph_break()
        with torch.enable_grad():
            y = x.sin()
            q = y.view(-1)[:3]
        z = y * 3
    with torch.no_grad():
        dynamo_lite.graph_break()
    return y, z, q, y[0]


def _a_number(x):
    with torch.no_grad():
        dynamo_lite.graph_break()
        n = (x * 2).sum().item()
    return x * n


def _loop(x):
    total = 0
    for _ in range(3):
        with torch.no_grad():
            mean = x.sin().mean().item()
        total = total + (x.cos() - mean).pow(2)
    return total


def _run(function):
    x = torch.arange(12.0).reshape(4, 3).requires_grad_()
    results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    sum(r.sum() for r in results if r.requires_grad).backward()
    return [*results, x.grad]


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("program", [_views, _a_break_in_the_middle, _two_modes, _a_number, _loop])
def test_a_graph_that_is_entered_without_grad_mode(program, numbers):
    with config.patch(capture_scalar_outputs=numbers):
        compiled = dynamo_lite.compile(program)
        for _ in range(2):
            for got, want in zip(_run(compiled), _run(program), strict=True):
                assert torch.allclose(got, want) and got.requires_grad == want.requires_grad
                assert got.stride() == want.stride()
    # The turns of the loop share what goes on behind the break: one entry for the next turn, one for the end.
    assert log.counters().get("recompiles", 0) == (program is _loop and not numbers)
    # A leaf's view that is made without it is a new leaf.
    assert bool(dynamo_lite.metrics()["fallbacks"]) == (program is _views)


def test_a_function_that_switches_grad_mode_on():
    def function(x):
        with torch.enable_grad():
            y = x.sin()
            q = y.view(-1)[:3]
        return y, y * 3, q, y[0]

    compiled = dynamo_lite.compile(function, fullgraph=True)
    for _ in range(2):
        for got, want in zip(_run(torch.no_grad()(compiled)), _run(torch.no_grad()(function)), strict=True):
            assert torch.allclose(got, want) and got.requires_grad == want.requires_grad


def test_parameters_written_before_they_are_used():
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)

        def step(x):
            with torch.no_grad():
                nn.init.normal_(model.weight, std=0.02)
                dynamo_lite.graph_break()
                model.weight.mul_(0.5)
            return model(x).square().sum()

        run = dynamo_lite.compile(step) if compiled else step
        for _ in range(2):
            run(torch.ones(2, 3)).backward()
        results.append([*model.parameters(), *(p.grad for p in model.parameters())])
    assert all(map(torch.allclose, *results))
