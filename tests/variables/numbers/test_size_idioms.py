"""What programs commonly ask of a size without needing its value: one graph for all sizes."""
from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo_lite

IDIOMS: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "is not None": lambda x, n: x + 1 if n is not None else x,
    "None is": lambda x, n: x if None is n else x + 1,
    "== None": lambda x, n: x if n == None else x + 1,  # noqa: E711
    "== text": lambda x, n: x if n == "same" else x + 1,
    "in texts": lambda x, n: x if n in (None, "same", "valid") else x + 1,
    "is True": lambda x, n: x if n is True or n is False else x + 1,
    "!= dtype": lambda x, n: x + 1 if n != torch.float32 else x,
    "isinstance": lambda x, n: x + 1 if isinstance(n, int) and not isinstance(n, (str, list, torch.Tensor)) else x,
    "a Number": lambda x, n: x + 1 if isinstance(n, numbers.Number) else x,
    "type": lambda x, n: x + 1 if type(n) is int else x,
    "hasattr": lambda x, n: x if hasattr(n, "shape") else x + 1,
    "getattr": lambda x, n: x.new_zeros(getattr(n, "size", n)),
    "callable": lambda x, n: x if callable(n) else x + 1,
    "real": lambda x, n: x * n.real + n.imag,
    "bit_length": lambda x, n: x * n.bit_length(),
    "__index__": lambda x, n: x.new_zeros(n.__index__()),
    "or": lambda x, n: x.reshape(n or 1, -1),
    "prod": lambda x, n: x.reshape(math.prod(x.shape)),
    "reduce": lambda x, n: x.reshape(functools.reduce(operator.mul, x.shape)),
    "numel": lambda x, n: x.reshape(x.shape.numel()),
    "sum": lambda x, n: x + sum(x.shape),
    "max": lambda x, n: x + max(x.shape),
    "slice": lambda x, n: x.new_zeros(x.shape[:1] + (3,) + x.shape[1:]),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_one_graph_for_all_sizes(name: str) -> None:
    idiom = IDIOMS[name]

    def f(x: torch.Tensor) -> torch.Tensor:
        return idiom(x, x.shape[0])

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (6, 5, 9, 16, 7):
        x = torch.randn(n, 4)
        result, expected = compiled(x), f(x)
        assert torch.equal(result, expected) and result.stride() == expected.stride()
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 1 and "recompiles" not in metrics and "graph_breaks" not in metrics


def test_an_attribute_that_ints_lack_raises_as_in_python() -> None:
    def f(x: torch.Tensor) -> str:
        try:
            return x.shape[0].dim  # type: ignore[attr-defined]
        except AttributeError as error:
            return str(error)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    assert {compiled(torch.ones(n)) for n in (3, 4)} == {"'int' object has no attribute 'dim'"}
    with pytest.raises(TypeError, match="'<' not supported between instances of 'int' and 'NoneType'"):
        dynamo_lite.compile(lambda x: x.shape[0] < None, backend="eager", dynamic=True)(torch.ones(3))
