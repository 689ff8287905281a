"""Training graphs whose forward pass is library calls alone: autograd records torch's operators itself."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import config

ALONE = {
    "sort": (lambda x: x.sort(-1)[0], "SortBackward0"),
    "transforms": (lambda x: torch.fft.irfft(torch.fft.rfft(x)), "FftC2RBackward0"),
    "symbols": (lambda x: torch.topk(x, 2)[0], "TopkBackward0"),
}


@pytest.mark.parametrize("kind", ALONE)
def test_history_is_that_of_torch(kind):
    """Also in a process that finds the graph in the cache, as the second compilation does."""
    function, name = ALONE[kind]
    with config.patch(raise_internal_errors=True):
        for _ in range(2):
            compiled = dynamo_lite.compile(function, dynamic=kind == "symbols", fullgraph=True)
            for rows in (3, 4):
                x = torch.randn(rows, 6, requires_grad=True)
                y = compiled(x)
                assert y.grad_fn.name() == name and torch.equal(y, function(x))
                w = torch.randn_like(y)
                assert torch.equal(*(torch.autograd.grad(call(x), x, w)[0] for call in (function, compiled)))
            dynamo_lite.reset()


def test_kernels_have_a_history_of_ours():
    x = torch.randn(3, 6, requires_grad=True)
    assert dynamo_lite.compile(lambda x: (x * 2).sort(-1)[0].exp())(x).grad_fn.name() == "CompiledBackward"
