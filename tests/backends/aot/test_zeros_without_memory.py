"""Zeros without memory (``ZeroTensor``), which autograd's formulas return for some gradients."""
import pytest
import torch

import dynamo_lite


def test_incoming_gradient():
    """The gradient of ``sgn``, outside of the compiled function, has no memory."""
    x = torch.randn(5, 7, requires_grad=True)
    compiled = dynamo_lite.compile(lambda x: x.t() * 2)
    (grad,) = torch.autograd.grad(compiled(x).sgn().sum(), x)
    assert torch.equal(grad, torch.zeros(5, 7))


@pytest.mark.parametrize("function", [lambda x: (x * 2).sgn() * 3, lambda x: x.sgn() * x, lambda x: x.sgn()])
def test_gradients_inside(function):
    x = torch.randn(5, 7, requires_grad=True)
    (want,) = torch.autograd.grad(function(x).sum(), x)
    (grad,) = torch.autograd.grad(dynamo_lite.compile(function)(x).sum(), x)
    torch.testing.assert_close(grad, want)
    grad.add_(1)  # it has memory of its own


def test_inputs():
    """A graph for tensors with memory is not run with one that has none."""
    compiled = dynamo_lite.compile(lambda x: x * 2 + 1)
    zeros = torch._efficientzerotensor((5, 7))
    for x in (zeros, torch.ones(5, 7), zeros, torch.ones(5, 7)):
        assert torch.equal(compiled(x), x * 2 + 1)


def test_made_by_the_function():
    x = torch.randn(5, 7)
    assert torch.equal(dynamo_lite.compile(lambda x: torch._efficientzerotensor((5, 7)) + x)(x), x)
