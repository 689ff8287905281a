"""Convolutions and pools of images whose sizes change: kernels of one graph, shared out for the sizes of each call."""
from __future__ import annotations

import os
import textwrap

import new_process
import pytest
import thorough
import torch
import torch.nn as nn

import dynamo_lite
from dynamo_lite import config, log
from dynamo_lite.backends.inductor import late_decisions

SIZES = [(2, 20, 24), (3, 33, 17), (2, 7, 40), (5, 12, 9), (2, 64, 70), (4, 10, 11)]

FORMS = {
    "3 x 3": lambda: nn.Conv2d(8, 16, 3, padding=1),
    "3 x 3, filtered": lambda: nn.Conv2d(64, 64, 3, padding=1),
    "3 x 3, without padding": lambda: nn.Conv2d(8, 16, 3),
    "stride 2": lambda: nn.Conv2d(8, 32, 3, stride=2, padding=1),
    "7 x 7": lambda: nn.Conv2d(8, 12, 7, stride=2, padding=3),
    "1 x 1": lambda: nn.Conv2d(8, 16, 1),
    "1 x 1, stride 2": lambda: nn.Conv2d(8, 16, 1, stride=2),
    "dilated": lambda: nn.Conv2d(8, 16, 3, padding=2, dilation=2),
    "groups": lambda: nn.Conv2d(8, 16, 3, padding=1, groups=2),
    "patches": lambda: nn.Conv2d(8, 16, 2, stride=2),
    "oblong": lambda: nn.Conv2d(8, 16, (1, 5), padding=(0, 2), bias=False),
    "depthwise": lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8),
    "depthwise, 5 x 5": lambda: nn.Conv2d(8, 16, 5, stride=2, padding=2, groups=8),
}


def images(channels, sizes=SIZES):
    torch.manual_seed(0)
    return [torch.randn(n, channels, h, w) for n, h, w in sizes]


def library_calls():
    return {name: n for name, n in log.counters().items() if name.startswith("library_call")}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    """Eager's values; the very bits of a graph of fixed sizes, as what is decided is the same."""
    torch.manual_seed(0)
    layer = FORMS[name]()
    model = nn.Sequential(layer, nn.SiLU())
    compiled = dynamo_lite.compile(model, dynamic=True)
    fixed = thorough.share(SIZES, list(FORMS).index(name), 3)
    with torch.no_grad():
        for size, x in zip(SIZES, images(layer.in_channels)):
            want, got = model(x), compiled(x)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            assert got.stride() == want.stride()
            if size in fixed:
                torch.testing.assert_close(got, dynamo_lite.compile(model, dynamic=False)(x), rtol=0, atol=0)
    # One graph with symbols, and those of fixed sizes.
    assert log.counters()["graphs"] == 1 + len(fixed) and not library_calls()


def test_lines():
    """A convolution of one dimension."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 8, 5, stride=2))
    compiled = dynamo_lite.compile(model, dynamic=True)
    with torch.no_grad():
        for n, m in ((2, 50), (3, 33), (4, 70), (2, 21)):
            x = torch.randn(n, 8, m)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert log.counters()["graphs"] == 1 and not library_calls()


@pytest.mark.parametrize("pool", [
    nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.MaxPool2d(5, 1, 2),
    nn.MaxPool2d((2, 3), (1, 2), (1, 0)), nn.MaxPool2d(3, 1, 1, dilation=2)], ids=str)
def test_pools(pool):
    compiled = dynamo_lite.compile(pool, dynamic=True)
    for x in images(3):
        x[0, 0, 2, 3] = torch.nan
        torch.testing.assert_close(compiled(x), pool(x), rtol=0, atol=0, equal_nan=True)
    assert log.counters()["graphs"] == 1 and not library_calls()


class Block(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.a, self.b = nn.Conv2d(n, m, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(m)
        self.c, self.d = nn.Conv2d(m, m, 3, padding=1, bias=False), nn.BatchNorm2d(m)
        self.e = nn.Conv2d(n, m, 1, stride=2)

    def forward(self, x):
        return torch.relu(self.d(self.c(torch.relu(self.b(self.a(x))))) + self.e(x))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(8, 16),
        Block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5))


def test_a_network_of_small_and_large_images():
    """The second size makes a graph for all of them, down to those of which one pixel is left."""
    model = network().eval()
    compiled = dynamo_lite.compile(model)
    with torch.no_grad():
        for x in images(3, [(2, 64, 64), (2, 96, 80), (3, 40, 50), (2, 200, 130), (7, 34, 70)]):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        # Sizes, then the number of images; for so few lines a linear layer is the library's.
        assert log.counters()["graphs"] == 3 and not {name for name in library_calls() if "linear" not in name}
        for x in images(3, [(2, 17, 18), (2, 9, 8), (2, 5, 33), (2, 2, 2), (2, 1, 7)]):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_gradients():
    model = network()
    compiled = dynamo_lite.compile(model, dynamic=True)
    for x in images(3, [(4, 64, 60), (5, 50, 80), (4, 33, 47)]):
        x.requires_grad_()
        found = []
        for run in (model, compiled):
            model.zero_grad()
            x.grad = None
            run(x).square().sum().backward()
            found.append([x.grad, *(p.grad for p in model.parameters())])
        for want, got in zip(*found):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * want.abs().max().item())
    assert log.counters()["graphs"] == 1


def test_decisions_are_those_of_the_compile():
    """A setting that changes later changes nothing about kernels that are there."""
    layer = FORMS["3 x 3, filtered"]()
    compiled = dynamo_lite.compile(layer, dynamic=True)
    first, second = images(64, SIZES[:2])
    with torch.no_grad():
        compiled(first)
        want = compiled(second)
        late_decisions.forget()
        with config.patch(winograd=False):
            # Filtered or not, as before: plain sums have other bits than filtered ones.
            torch.testing.assert_close(compiled(second), want, rtol=0, atol=0)
        torch.testing.assert_close(want, layer(second), rtol=1e-4, atol=1e-5)
    assert log.counters()["graphs"] == 1


def test_kept_graphs(tmp_path):
    program = textwrap.dedent("""
        import torch, dynamo_lite
        from dynamo_lite import log
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
        compiled = dynamo_lite.compile(model, dynamic=True)
        with torch.no_grad():
            for size in ((2, 8, 20, 24), (3, 8, 33, 17)):
                x = torch.randn(size)
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        counters = log.counters()
        print(counters["graphs"], counters.get("graph_cache_hits", 0))
    """)
    env = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(tmp_path), "DYNAMO_LITE_CACHE_GRAPHS": "1"}
    for hits in (0, 1):
        done = new_process.run(program, env=env)
        assert (done.returncode, done.stdout.strip()) == (0, f"1 {hits}"), done.stderr
