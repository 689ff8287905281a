"""Views that leave their tensor: other elements of the memory that it lies in are seen and written."""
import logging

import pytest
import torch

import dynamo_lite


def _in_front(x):
    return x.as_strided((2, 2), (3, 1), 1).add_(10)


def _read(x):
    return x.as_strided((8,), (1,), x.storage_offset()) + 0


def _after_a_write(x):
    x.add_(1)
    return x.as_strided((8,), (1,), x.storage_offset()) * 2


def _written(x):
    x.add_(1)
    x.as_strided((8,), (1,), x.storage_offset()).mul_(2)
    return x + 1


@pytest.mark.parametrize("f", [_in_front, _read, _after_a_write, _written])
@pytest.mark.parametrize("part", [slice(4, 8), slice(0, 8, 2), slice(3, None, 3), slice(None)])
def test_elements_outside(f, part, caplog):
    one, two = torch.arange(20.0), torch.arange(20.0)
    want = f(one[part])
    with caplog.at_level(logging.WARNING):
        got = dynamo_lite.compile(f)(two[part])
    assert torch.equal(got, want) and torch.equal(two, one) and got.stride() == want.stride()
    assert not any("fault" in record.getMessage() for record in caplog.records)
