"""Batch norm of 16-bit floats is rounded once, as in eager."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_batch_norm_with_known_statistics(dtype):
    torch.manual_seed(0)
    x, mean, var = torch.randn(3, 7, 9, 11).to(dtype), torch.randn(7).to(dtype), (torch.rand(7) + 0.1).to(dtype)
    weight, bias = torch.randn(7).to(dtype), torch.randn(7).to(dtype)
    with torch.no_grad():
        want = F.batch_norm(x, mean, var, weight, bias)
        compiled = dynamo_lite.compile(lambda x: F.batch_norm(x, mean, var, weight, bias) + 0)
        assert torch.equal(compiled(x), want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("shape", [(3, 17, 9, 7), (2, 5), (2, 3, 130)])
def test_batch_norm_in_inference_is_a_kernel(dtype, mixed, shape):
    """With parameters of either kind: one product and one sum in 32 bits, rounded once."""
    torch.manual_seed(0)
    kind = torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d
    norm = kind(shape[1]).eval()
    with torch.no_grad():
        for tensor in (norm.running_mean, norm.weight, norm.bias):
            tensor.normal_()
        norm.running_var.uniform_(0.1, 3)
    norm = norm if mixed else norm.to(dtype)
    x = torch.randn(shape).to(dtype)
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        got, want = dynamo_lite.compile(lambda x: norm(x).relu())(x), norm(x).relu()
    assert got.dtype == want.dtype and got.stride() == want.stride()
    torch.testing.assert_close(got, want)
    assert (got != want).float().mean() < 0.01
    assert not dynamo_lite.metrics()["library_calls"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mixed", [False, True])
def test_gradients_of_batch_norm_in_inference(dtype, mixed):
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(8).eval()
    norm = norm if mixed else norm.to(dtype)
    x, grad = torch.randn(2, 8, 5, 5).to(dtype), torch.randn(2, 8, 5, 5).to(dtype)
    dynamo_lite.reset()
    results = []
    for fn in (norm, dynamo_lite.compile(norm)):
        leaf = x.clone().requires_grad_()
        fn(leaf).backward(grad)
        results.append((leaf.grad, norm.weight.grad.clone(), norm.bias.grad.clone()))
        norm.zero_grad()
    for want, got in zip(*results):
        assert torch.equal(want, got) and want.dtype == got.dtype
