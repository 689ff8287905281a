"""Strides of results with dimensions of one element, and of none, as eager's: operands broadcast and transposed."""
import pytest
import torch

from dynamo_lite.fake.mode import TraceFakeMode

OPERATIONS = {
    "where": lambda y, t: torch.where(y > 0, y, t), "of t": lambda y, t: torch.where(t > 0, y, t),
    "add": torch.add, "addcmul": lambda y, t: torch.addcmul(y, t, t), "clamp": lambda y, t: torch.clamp(y, t, t),
    "lerp": lambda y, t: torch.lerp(y, t, t), "maximum": torch.maximum, "cat": lambda y, t: torch.cat([y, t], 0),
    "masked_fill": lambda y, t: y.masked_fill(t > 0, 0.0), "tril": lambda y, t: y.tril(), "exp": lambda y, t: y.exp(),
}
SHAPES = [(), (1,), (3,), (1, 3), (3, 1), (3, 3), (0, 3), (2, 1), (1, 1, 1), (2, 3, 1), (1, 2, 1), (70, 1, 300)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_strides(name):
    operation = OPERATIONS[name]
    for first in ((1, 3), (3, 1), (1, 1), (0, 3), (2, 1, 3), (1, 2, 1), (300, 1, 70)):
        y = torch.randn(first).transpose(0, -1)
        for shape in SHAPES:
            for t in (torch.randn(shape), torch.randn(shape[::-1]).permute(tuple(range(len(shape)))[::-1])):
                try:
                    want = operation(y, t)
                except RuntimeError:
                    continue
                mode = TraceFakeMode()
                with mode:
                    got = operation(mode.from_tensor(y), mode.from_tensor(t))
                assert got.stride() == want.stride(), (y.shape, y.stride(), t.shape, t.stride())
