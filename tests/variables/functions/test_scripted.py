"""Functions under ``torch.jit.script`` are evaluated like the Python functions that they were made of."""
from __future__ import annotations

from typing import Optional

import pytest
import torch

import dynamo_lite


@torch.jit.script
def _gated(x: torch.Tensor, bias: Optional[torch.Tensor] = None, scale: float = 0.5, times: int = 1) -> torch.Tensor:
    if bias is not None:
        x = x + bias
    for _ in range(times):
        x = torch.sigmoid(x) * scale
    return x


@torch.jit.script
def _asks(x: torch.Tensor) -> torch.Tensor:
    if torch.jit.is_scripting():
        return x + 1
    return x - 1


@torch.jit.script
def _refuses(x: torch.Tensor) -> torch.Tensor:
    if x.dim() != 2:
        raise ValueError("two dimensions")
    return x + 1


@torch.jit.script
def _calls(x: torch.Tensor) -> torch.Tensor:
    return _gated(x, x, 2.0) + 1


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_a_scripted_function_is_part_of_the_graph(backend: str) -> None:
    def f(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return _gated(x * 2, bias, times=2) + _gated(x, scale=0.25) + _calls(x)

    x, bias = torch.randn(3, 4, requires_grad=True), torch.randn(4)
    expected, result = f(x, bias), dynamo_lite.compile(f, backend=backend)(x, bias)
    assert torch.allclose(result, expected)
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (expected, result)]
    assert torch.allclose(*grads)
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 1 and "graph_breaks" not in metrics


_CONVERTS = (lambda x: _gated(x, None, 1), 2)  # one of them is its frame's


@pytest.mark.parametrize("function, breaks", [(_asks, 1), (_refuses, 1), _CONVERTS], ids=["asks", "raises", "converts"])
def test_what_torchscript_does_otherwise_is_its_own(function: object, breaks: int) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return function(x * 2) * 3  # type: ignore[operator]

    x = torch.randn(3, 4)
    assert torch.equal(dynamo_lite.compile(f, backend="eager")(x), f(x))
    assert dynamo_lite.metrics()["graph_breaks"] == breaks


def test_an_exception_is_torchscripts() -> None:
    with pytest.raises(torch.jit.Error, match="two dimensions"):
        dynamo_lite.compile(lambda x: _refuses(x * 2), backend="eager")(torch.ones(3))
