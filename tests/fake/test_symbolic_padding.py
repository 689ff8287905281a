"""Images that are padded to a multiple of a window's size and cut into windows: one graph for all sizes."""
from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)


def windows(x, p):
    b, c, h, w = x.shape
    return x.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5)


def by_negative_remainder(x, p=4):
    h, w = x.shape[2:]
    return windows(F.pad(x, (0, -w % p, 0, -h % p)), p) * 2


def by_remainder_of_difference(x, p=4):
    h, w = x.shape[2:]
    return windows(F.pad(x, (0, (p - w % p) % p, 0, (p - h % p) % p)), p) * 2


def by_rounding_up(x, p=4):
    h, w = x.shape[2:]
    return windows(F.pad(x, (0, -(-w // p) * p - w, 0, (h + p - 1) // p * p - h)), p) * 2


def patches(x, p=4):
    made = by_negative_remainder(x, p)
    return made.reshape(x.shape[0], -1, x.shape[1] * p * p)


def rolled_windows(x, p=4):
    b, c, h, w = x.shape
    x = F.pad(x, (0, (p - w % p) % p, 0, (p - h % p) % p))
    rows, columns = x.shape[2:]
    x = windows(torch.roll(x, (-2, -2), (2, 3)), p).reshape(-1, c, p * p)
    x = (x @ x.transpose(1, 2)).softmax(-1) @ x
    x = x.view(b, rows // p, columns // p, c, p, p).permute(0, 3, 1, 4, 2, 5).reshape(b, c, rows, columns)
    return torch.roll(x, (2, 2), (2, 3))[:, :, :h, :w].contiguous()


FUNCTIONS = [by_negative_remainder, by_remainder_of_difference, by_rounding_up, patches, rolled_windows]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("grad", [False, True])
def test_one_graph_for_all_sizes(function, backend, grad):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True, dynamic=True)
    draw = random.Random(1)
    for _ in range(10):
        x = torch.randn(2, 3, *(draw.choice([5, 6, 7, 9, 10, 13, 17, 22, 31]) for _ in range(2)), requires_grad=grad)
        got, want = compiled(x), function(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        if grad:
            weights = torch.randn_like(want)
            (gradient,), (expected,) = (torch.autograd.grad((y * weights).sum(), x) for y in (got, want))
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] <= 2 and metrics.get("recompiles", 0) <= 1
