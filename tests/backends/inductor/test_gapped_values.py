"""Values that eager lays out with gaps, as it writes to a part of a tensor, and library calls that read them: here they
are dense in memory, and the library is told so."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite


def columns(x):
    y = x.clone()[:, :4]
    y[:, 0] = -5.0
    return y


def rows(x):
    y = x.clone()
    y[::2][1] = 5
    return y[::2]


def computed(x):
    y = (x * 2)[:, :4]
    y[0] = y[1] * 2
    return y


READERS = {
    "sort": lambda y: y.sort(-1).values,
    "argsort": lambda y: y.argsort(-1),
    "topk": lambda y: y.topk(2).values,
    "median": lambda y: y.median(-1).values,
    "kthvalue": lambda y: y.kthvalue(2).values,
    "matmul": lambda y: y @ y.t(),
    "linear": lambda y: F.linear(y, torch.ones(3, y.shape[1])),
    "rfft": lambda y: torch.fft.rfft(y),
    "svdvals": torch.linalg.svdvals,
    "pinv": torch.linalg.pinv,
    "cdist": lambda y: torch.cdist(y, y),
    "histc": torch.histc,
    "searchsorted": lambda y: torch.searchsorted(torch.arange(4.0), y),
    "quantile": lambda y: y.quantile(0.5, dim=-1),
    "embedding_bag": lambda y: F.embedding_bag(torch.tensor([[0, 1]]), y),
    "polar": torch.polar,
    "renorm": lambda y: y.renorm(2, 0, 1.0),
    "itself": lambda y: y,
}


@pytest.mark.parametrize("part", [columns, rows, computed])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.filterwarnings("ignore:torch.searchsorted")
def test_what_a_library_call_reads(reader, part):
    read = READERS[reader]

    def function(x):
        y = part(x)
        return read(y, y) if reader == "polar" else read(y)

    x = torch.randn(6, 8)
    # torch 2.11's quantile asks for elements.
    want, got = function(x), dynamo_lite.compile(function, fullgraph=reader != "quantile")(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reader", ["sort", "topk", "matmul", "median", "cdist", "rfft", "svdvals"])
def test_gradients(reader):
    read = READERS[reader]
    x = torch.randn(6, 8, requires_grad=True)
    want = torch.autograd.grad(read(computed(x)).abs().sum(), x)
    made = dynamo_lite.compile(lambda x: read(computed(x)).abs(), fullgraph=True)(x)
    torch.testing.assert_close(torch.autograd.grad(made.sum(), x), want, rtol=1e-3, atol=1e-4)
