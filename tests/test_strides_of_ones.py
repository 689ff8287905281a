"""Strides of results with dimensions of one element, and of none, as eager's: operands broadcast and transposed."""
import random

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


MIXED = {
    "ge": torch.ge, "add": torch.add, "div": torch.div, "where": lambda a, b: torch.where(a > 0, a, b),
    "atan2": torch.atan2, "logical_and": torch.logical_and, "addcmul": lambda a, b: torch.addcmul(a, b, b),
    "sin": lambda a, b: a.sin(), "clamp": lambda a, b: a.clamp(0.5), "to": lambda a, b: a.to(torch.float64),
}
DTYPES = (torch.float32, torch.int16, torch.uint8, torch.float16)


def laid_out(rng, shape, dtype):
    """Of ones: in order, in the reverse one, with gaps inside, outside, or in the reverse order, or expanded."""
    turn = tuple(range(len(shape)))[::-1]
    whole = torch.empty(shape, device="meta")
    strides = rng.choice([
        whole, torch.empty(shape[::-1], device="meta").permute(turn),
        torch.empty(*shape[:-1], 2 * shape[-1], device="meta")[..., ::2],
        torch.empty(2 * shape[0], *shape[1:], device="meta")[::2],
        torch.empty(*shape[::-1], 2, device="meta")[..., 0].permute(turn),
        torch.empty([1] * len(shape), device="meta").expand(shape)]).stride()
    return torch.ones(1250, dtype=dtype).as_strided(shape, strides)


def test_operands_of_several_dtypes():
    """Eager copies what it converts, and a copy of what has gaps has none."""
    rng, compared = random.Random(0), 0
    for _ in range(100):
        rank = rng.choice([1, 2, 2, 3, 3, 4])
        shape = [rng.choice([1, 1, 2, 3, 3, 5]) for _ in range(rank)]
        a, b = (laid_out(rng, [1 if rng.random() < 0.25 else n for n in shape], rng.choice(DTYPES)) for _ in "ab")
        for name, operation in MIXED.items():
            try:
                want = operation(a, b)
            except RuntimeError:
                continue  # not for these dtypes
            mode = TraceFakeMode()
            with mode:
                got = operation(mode.from_tensor(a), mode.from_tensor(b))
            assert got.stride() == want.stride(), (name, a.dtype, a.shape, a.stride(), b.dtype, b.shape, b.stride())
            compared += 1
    assert compared > 700
