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
