"""Functions that ask for sizes as numbers where C++ decomposes them, and take symbols where Python does."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)


def doubled(x):
    return F.interpolate(x, scale_factor=2) + 1


def smooth(x):
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)


def to_one_size(x):
    return F.interpolate(x, size=(8, 6), mode="bilinear")


def to_size(x):
    return F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] + 1))


def as_large_as_another(x):
    small = F.avg_pool2d(x, 2)
    return x + F.interpolate(small, size=x.shape[2:], mode="bilinear", align_corners=False)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("function", [doubled, smooth, to_one_size, to_size, as_large_as_another])
@pytest.mark.parametrize("grad", [False, True])
def test_one_graph_for_all_sizes(function, backend, grad):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for n in (5, 7, 4, 12):
        x = torch.rand(2, 3, n, n + 2, requires_grad=grad)
        got, want = compiled(x), function(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        if not grad:
            continue
        weights = torch.rand_like(want)
        (gradient,), (expected,) = (torch.autograd.grad((y * weights).sum(), x) for y in (got, want))
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)
    assert dynamo_lite.metrics()["recompiles"] == 1


def test_a_decomposition_that_fails_is_left_alone():
    """That of torch 2.13 divides a float by a symbol."""
    def f(x):
        return F.interpolate(x, scale_factor=1.5, mode="nearest-exact") + F.interpolate(x, scale_factor=1.5)

    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for n in (5, 7, 4, 12):
        x = torch.rand(2, 3, n, n + 2)
        torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("options", [
    {"scale_factor": 2}, {"size": 4}, {"scale_factor": 2, "mode": "nearest-exact"},
    {"scale_factor": 2, "mode": "linear"}, {"scale_factor": 0.5, "mode": "area"},
], ids=str)
def test_no_elements_are_refused_as_in_eager(options, backend, capfd):
    """Decompositions in Python leave out these checks."""
    def f(x):
        return F.interpolate(x, **options)

    def outcome(call, x):
        try:
            return call(x).shape
        except RuntimeError as error:
            return str(error)

    compiled = dynamo_lite.compile(f, backend=backend, dynamic=True)
    for size in ((2, 3, 8), (1, 0, 6), (0, 2, 6), (1, 2, 0), (3, 2, 10)):
        assert outcome(compiled, torch.ones(size)) == outcome(f, torch.ones(size)), size
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("options", [{}, {"mode": "bilinear"}, {"mode": "bicubic"}], ids=str)
def test_results_without_elements_are_refused_as_in_eager(options, dynamic, backend):
    def f(x):
        return F.interpolate(x, scale_factor=0.5, **options)

    def outcome(call, x):
        try:
            return call(x).shape
        except RuntimeError as error:
            return str(error)

    compiled = dynamo_lite.compile(f, backend=backend, dynamic=dynamic)
    for size in ((8, 6), (5, 1), (5, 7), (1, 6), (9, 1), (6, 6), (1, 1)):
        x = torch.ones(1, 1, *size)
        assert outcome(compiled, x) == outcome(f, x), size


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_graph_for_spectra_of_any_length(backend):
    def f(x):
        return torch.stft(x, 16, return_complex=True).abs()

    compiled = dynamo_lite.compile(f, backend=backend, fullgraph=True)
    for n in (40, 55, 61, 90):
        x = torch.rand(n)
        torch.testing.assert_close(compiled(x), f(x))
    assert dynamo_lite.metrics()["recompiles"] == 1
