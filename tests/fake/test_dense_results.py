"""Transforms of Fourier and columns of images: one graph for all sizes, with eager's strides in each."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)


def signals(n):
    return torch.randn(3, n, 2 * n + 1)


def images(n):
    return torch.randn(2, 3, 2 * n + 1, 2 * n + 3)


fft = torch.fft
FUNCTIONS = {
    "rfft of rows": (lambda x: fft.rfft(x, dim=0), signals),
    "rfft of columns": (lambda x: fft.rfft(x), signals),
    "rfft of a turned tensor": (lambda x: fft.rfft(x.transpose(0, 2), dim=1), signals),
    "there and back": (lambda x: fft.irfft(fft.rfft(x, norm="ortho"), n=x.shape[-1], norm="ortho"), signals),
    "fft": (lambda x: fft.fft(x, dim=1), signals),
    "fft2": (lambda x: fft.fft2(x).abs(), signals),
    "rfft2 and back": (lambda x: fft.irfft2(fft.rfft2(x), s=x.shape[-2:]), signals),
    "some dimensions": (lambda x: fft.ifftn(fft.fftn(x, dim=(0, 2)), dim=(2, 0)).real, signals),
    "hfft": (lambda x: fft.hfft(x), signals),
    "fft of one row": (lambda x: fft.fft(x[:1], dim=-1), signals),
    "pinv": (lambda x: torch.linalg.pinv(x.double()), signals),
    "affine_grid": (lambda x: x.square().mean() * F.affine_grid(torch.ones(2, 2, 3), (2, 1, *x.shape[-2:])), images),
    "solve_triangular": (lambda x: torch.linalg.solve_triangular(torch.eye(3), x[:, 0], upper=True), signals),
    "unfold": (lambda x: F.unfold(x, 3), images),
    "unfold of one image": (lambda x: F.unfold(x[0], (3, 2), padding=1, stride=2, dilation=(1, 2)), images),
    "fold": (lambda x: F.fold(F.unfold(x, 3, stride=2), (x.shape[2], x.shape[3]), 3, stride=2), images),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_for_all_sizes(name, grad, backend):
    function, make = FUNCTIONS[name]
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for n in (5, 7, 4, 12):
        x = make(n).requires_grad_(grad)
        got, want = compiled(x), function(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        if grad:
            weights = torch.rand_like(want.real)
            (gradient,), (expected,) = (torch.autograd.grad((y.real * weights).sum(), x) for y in (got, want))
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)
    assert dynamo_lite.metrics()["recompiles"] == 1


@pytest.mark.parametrize("function, sizes", [
    (lambda x: F.unfold(x, 5), (7, 6, 3)),
    (lambda x: F.fold(x[0].flatten(1), (4, 5), 2), (4, 5, 6)),
])
def test_sizes_that_eager_refuses(function, sizes):
    compiled = dynamo_lite.compile(function, backend="eager", dynamic=True)
    for n in sizes:
        x = torch.randn(1, 4, n, 3 if n == 4 else n)
        outcomes = []
        for f in (function, compiled):
            try:
                outcomes.append(f(x).shape)
            except RuntimeError as error:
                outcomes.append(str(error).splitlines()[0])
        assert outcomes[0] == outcomes[1]
