"""Random masks: torch's numbers, torch's state afterwards."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends.inductor import random as fast

CPU = torch.device("cpu")


@pytest.mark.parametrize("count", [0, 1, 3, 311, 312, 313, 1000, 20_001])
@pytest.mark.parametrize("p", [0.0, 0.1, 1 / 3, 0.9, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_numbers_and_state(count, p, dtype):
    for drawn_before in (0, 5):
        torch.manual_seed(count)
        torch.rand(drawn_before)
        want, then = torch.empty(count, dtype=dtype).bernoulli_(p), torch.rand(3)
        torch.manual_seed(count)
        torch.rand(drawn_before)
        assert torch.equal(fast.bernoulli((count,), (1,), dtype, CPU, p), want)
        assert torch.equal(torch.rand(3), then)


def test_other_layouts_and_dtypes_are_torchs():
    for size, stride, dtype in (((3, 4), (1, 3), torch.float32), ((7,), (1,), torch.float64), ((5,), (2,), torch.bool)):
        torch.manual_seed(1)
        want = torch.empty_strided(size, stride, dtype=dtype).bernoulli_(0.4)
        torch.manual_seed(1)
        got = fast.bernoulli(size, stride, dtype, CPU, 0.4)
        assert torch.equal(got, want) and got.stride() == stride
    with pytest.raises(RuntimeError):
        fast.bernoulli((3,), (1,), torch.float32, CPU, 1.5)


def test_a_torch_that_draws_otherwise_draws_itself(monkeypatch):
    monkeypatch.setattr(fast, "draws_like_torch", lambda: False)
    torch.manual_seed(1)
    want = torch.empty(9).bernoulli_(0.4)
    torch.manual_seed(1)
    assert torch.equal(fast.bernoulli((9,), (1,), torch.float32, CPU, 0.4), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("training", [True, False])
def test_dropout_draws_eagers_numbers(dtype, training):
    def f(x):
        return F.dropout(x, 0.3, training) + F.dropout(x * 2, 0.5, training), torch.rand(3)

    x = torch.randn(6, 50, dtype=dtype)
    results = []
    for fn in (f, dynamo_lite.compile(f)):
        ours = x.clone().requires_grad_()
        torch.manual_seed(4)
        y, r = fn(ours)
        y.sum().backward()
        results.append((y, r, ours.grad, torch.rand(2)))
    for a, b in zip(*results):
        torch.testing.assert_close(b, a)


def test_masks_are_saved_as_booleans():
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        x = torch.randn(64, 64, requires_grad=True)
        dynamo_lite.compile(lambda x: F.dropout(x, 0.2))(x)
    assert [t.dtype for t in saved] == [torch.bool]
