"""torch's log of exceptions in metadata rules: nothing of a trace's, all of others'."""
import logging

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import dynamo_lite


def test_a_trace_is_not_logged(caplog):
    def fn(x):
        return F.interpolate(x, scale_factor=2, mode="bilinear").sum()

    with caplog.at_level(logging.ERROR, "torch._subclasses.fake_tensor"):
        for size in ((1, 2, 5, 6), (1, 2, 7, 9)):
            x = torch.randn(size, requires_grad=True)
            dynamo_lite.compile(fn, dynamic=True)(x).backward()
            assert x.grad.shape == x.shape
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            dynamo_lite.compile(torch.matmul)(torch.ones(2, 3), torch.ones(4, 5))
    assert not caplog.records


def test_other_modes_are(caplog):
    dynamo_lite.compile(lambda x: x + 1)(torch.ones(3))
    with FakeTensorMode(), pytest.raises(RuntimeError), caplog.at_level(logging.ERROR, "torch._subclasses.fake_tensor"):
        torch.ones(2, 3) @ torch.ones(4, 5)
    assert len(caplog.records) == 1
