"""Products, convolutions and pooling whose sizes are symbols: one build for all sizes, without the library, equal to
eager."""
import random

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import log

W, B, DEEP = torch.randn(96, 320), torch.randn(320), torch.randn(40, 1100)


def products(x, y):
    return F.gelu(F.linear(x, W.t(), B)), torch.addmm(B, x[0], W).tanh(), x @ W * 2, torch.bmm(x, y) + 1, y.mT @ x.mT


def attention(x, y):
    q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in (x, x * 2, x + 1))
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    scores = (q @ k.mT / 5).masked_fill(~mask, float("-inf")).softmax(-1)
    return (scores @ v).transpose(1, 2).reshape(x.shape) + x, x @ x.mT


def deep(x, y):
    """Pieces of the right operand, and of the left one."""
    long = x.reshape(x.shape[0], -1)
    return F.linear(y.expand(-1, -1, 1100), DEEP), long @ long.t(), x.mT @ x, torch.mm(x[0], x[0, 0].expand(50, 96).t())


def sizes():
    draw = random.Random(3)
    return [(draw.randint(2, 5), draw.choice([2, 3, 7, 17, 66, 130, 700])) for _ in range(6)] + [(2, 640)]


@pytest.mark.parametrize("fn", [products, attention, deep])
def test_products_are_built_once(fn):
    torch.manual_seed(0)
    compiled = dynamo_lite.compile(fn, dynamic=True)
    for n, length in sizes():
        x, y = torch.randn(n, length, 96), torch.randn(n, 96, 5 + 3 * n)
        if fn is deep:
            y = torch.randn(n, length, 1)
        for got, want in zip(compiled(x, y), fn(x, y), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=2e-4)
            assert got.stride() == want.stride()
    counters = log.counters()
    assert counters["graphs"] == 1
    assert not [name for name in counters if name.startswith(("library_call", "fallback"))], counters


def test_a_factor_that_is_the_same_all_along():
    """Its strides are zero, which once stood for a convolution's image."""
    def fn(x, y):
        one = torch.mm(x, y[:1].expand(40, 50))
        return torch.mm(x, y.expand(40, 50)) + 1, one, torch.mm(x[:1].expand(20, 40), x.t())

    for dynamic in (False, True):
        compiled = dynamo_lite.compile(fn, dynamic=dynamic)
        x, y = torch.randn(20, 40), torch.randn(50)
        torch.testing.assert_close(compiled(x, y), fn(x, y))


def test_no_lines_and_no_columns():
    def fn(x, w):
        return F.linear(x[:, 3:], w).relu(), torch.mm(w, x[:, 3:].reshape(-1, 16).t()) * 2

    compiled = dynamo_lite.compile(fn, dynamic=True)
    w = torch.randn(24, 16)
    for length in (5, 3, 40):
        x = torch.randn(4, length, 16)
        torch.testing.assert_close(compiled(x, w), fn(x, w))


NETWORKS = {
    "strided": (3, nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))),
    "plain": (16, nn.Sequential(nn.Conv2d(16, 40, 1), nn.SiLU(), nn.Conv2d(40, 8, 3, padding=1), nn.AvgPool2d(2))),
    "depthwise": (16, nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Hardswish(), nn.GroupNorm(4, 16))),
    "groups": (16, nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(16, 32, 3, groups=2), nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 24, 1),
        nn.Flatten(), nn.Linear(24, 10))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_convolutions_of_any_batch_are_built_once(name):
    channels, model = NETWORKS[name]
    torch.manual_seed(0)
    compiled = dynamo_lite.compile(model.eval())
    with torch.no_grad():
        for at, n in enumerate((4, 7, 2, 33, 16, 15)):
            x = torch.randn(n, channels, 22, 18)
            if not at:
                dynamo_lite.mark_dynamic(x, 0)
            got, want = compiled(x), model(x)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
            assert got.stride() == want.stride()
    counters = log.counters()
    assert counters["graphs"] == 1
    assert not [key for key in counters if key.startswith(("library_call", "fallback"))], counters


def test_a_training_step_of_any_batch():
    """Batch norm, pooling with places, the negative log likelihood and their gradients."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 10))

    def loss(model, x, y):
        return F.cross_entropy(model(x), y)

    compiled = dynamo_lite.compile(loss, dynamic=True)
    for n in (6, 3, 17, 32):
        x, y = torch.randn(n, 3, 10, 10), torch.randint(0, 10, (n,))
        want = torch.autograd.grad(loss(model, x, y), list(model.parameters()))
        got = torch.autograd.grad(compiled(model, x, y), list(model.parameters()))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert log.counters()["graphs"] == 1
