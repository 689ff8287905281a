"""The leaky ReLU with a random slope: outside of training it draws nothing, and is a kernel."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bounds", [(), (0.1, 0.3)])
def test_outside_of_training(dtype, bounds):
    def function(x):
        return F.rrelu(x * 2, *bounds) * 3

    compiled = dynamo_lite.compile(function, fullgraph=True)
    x = torch.randn(7, 33, dtype=dtype)
    x[0, 0] = -0.0
    state = torch.get_rng_state()
    assert torch.equal(compiled(x), function(x)) and torch.equal(state, torch.get_rng_state())
    a, b = (x.clone().requires_grad_() for _ in range(2))
    compiled(a).sum().backward()
    function(b).sum().backward()
    assert torch.equal(a.grad, b.grad)


def test_in_training():
    def function(x):
        return F.rrelu(x, 0.1, 0.3, training=True) * 2

    x = torch.randn(5, 40)
    torch.manual_seed(1)
    want = function(x)
    torch.manual_seed(1)
    assert torch.equal(dynamo_lite.compile(function)(x), want)
