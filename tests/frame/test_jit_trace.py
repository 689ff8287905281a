"""``torch.jit.trace`` around compiled functions and modules: they run in plain Python, so that it sees what they do."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import dynamo_lite

BACKENDS = ["eager", "inductor_lite"]


def doubled(x):
    return x.sin() + 1


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("make", [
    lambda compiled: compiled(doubled), lambda compiled: compiled(nn.Sequential(nn.Linear(3, 3), nn.ReLU())),
    lambda compiled: Outer(compiled(nn.Linear(3, 3)))])
def test_traces(make, warm, backend):
    model = make(lambda f: dynamo_lite.compile(f, backend=backend))
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    if warm:
        model(x)
    traced = torch.jit.trace(model, (x,))
    torch.testing.assert_close(traced(y), model(y))
    assert "prim::Constant[value=<Tensor>]" not in str(traced.graph)
