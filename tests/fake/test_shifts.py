"""``<<`` and ``>>`` of bools and of several types of integers: what eager gives or raises, in one graph."""
from __future__ import annotations

import operator

import pytest
import torch

import dynamo_lite

VALUES = {
    "bools": torch.tensor([True, False, True]), "longs": torch.tensor([3, 4, 5]), "floats": torch.ones(3),
    "bytes": torch.tensor([3, 4, 5], dtype=torch.uint8), "number": 2, "bool": True,
}
PAIRS = [(a, b) for a in VALUES for b in VALUES if any(isinstance(VALUES[name], torch.Tensor) for name in (a, b))]


def result(function, *names):
    values = [v.clone() if isinstance(v, torch.Tensor) else v for v in map(VALUES.__getitem__, names)]
    try:
        made = function(*values)
    except Exception as error:
        return type(error), str(error)
    return made.dtype, made.tolist(), [v.tolist() for v in values if isinstance(v, torch.Tensor)]


@pytest.mark.parametrize("name", ["lshift", "rshift", "ilshift"])
def test_as_eager(name):
    def program(a, b):
        return getattr(operator, name)(a, b)

    for pair in PAIRS:
        want = result(program, *pair)
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(program, backend="eager", fullgraph=not isinstance(want[0], type))
        assert result(compiled, *pair) == want, pair


@pytest.mark.parametrize("pair", [("bools", "longs"), ("longs", "bools"), ("bools", "number")])
def test_kernels(pair):
    def program(a, b):
        return a << b, a >> b

    def both(*values):
        return torch.stack(program(*values))

    dynamo_lite.reset()
    assert result(dynamo_lite.compile(both, fullgraph=True), *pair) == result(both, *pair)
