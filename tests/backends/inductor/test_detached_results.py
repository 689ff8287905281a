"""Results that are views of an input that requires grad, though they do not."""
import torch

import dynamo_lite


def test_detached_views():
    x = torch.ones(4, 3, requires_grad=True)

    def function(x):
        y = x.detach()
        return y, y[1:], y.t(), y.view(torch.int32)

    for got, want in zip(dynamo_lite.compile(function, fullgraph=True)(x), function(x), strict=True):
        assert not got.requires_grad
        assert got.data_ptr() == want.data_ptr() and got.stride() == want.stride() and got.shape == want.shape
