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
    "gcd": lambda x, n: x.new_zeros(math.gcd(n, 840)),
    "lcm": lambda x, n: x.new_zeros(math.lcm(n, 4) + math.isqrt(n)),
    "pairs": lambda x, n: x.new_zeros(math.comb(n, 2)),
    "power of 2": lambda x, n: x * 2 ** n + (1 << n) + 3 ** (n // 2) + (-2) ** n,
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


def test_powers_that_leave_64_bits_are_pythons() -> None:
    def f(x: torch.Tensor, n: int) -> object:
        try:
            return x + 1, 2 ** n, 3 << n, (-2) ** n, 1 << (n // 2)
        except ValueError as error:
            return x + 2, str(error)

    compiled = dynamo_lite.compile(f, backend="eager")
    for n in (3, 7, 20, 30, 61, 62, 63, 64, 100, 5, -1, 0, 1, 2000, 31):
        got, want = compiled(torch.ones(1), n), f(torch.ones(1), n)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:], n  # type: ignore[index]


def test_functions_of_ints_raise_and_grow_as_pythons() -> None:
    def f(x: torch.Tensor, n: int) -> object:
        try:
            return x + 1, math.isqrt(n), math.gcd(n, 6), math.lcm(n, n + 1), math.comb(n, 2)
        except ValueError as error:
            return x + 2, str(error)

    compiled = dynamo_lite.compile(f, backend="eager")
    for n in (3, 7, 20, -4, 0, 2 ** 40, 2 ** 62, 2 ** 80, 9):
        got, want = compiled(torch.ones(1), n), f(torch.ones(1), n)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:], n  # type: ignore[index]
