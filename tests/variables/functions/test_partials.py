"""``functools.partial``: whether a partial of a partial keeps it depends on whether that one has a dict."""
from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import dynamo_lite


def _scaled(x: torch.Tensor, *, a: int = 1, b: int = 2) -> torch.Tensor:
    return x + a * b


def test_tracing_makes_no_dict_of_a_partial() -> None:
    """A dict that compiling had made would be seen: plain Python's partials of this one would nest."""
    inner = functools.partial(_scaled, a=3)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if hasattr(inner, "note"):
            return x, None
        return inner(x), functools.partial(inner, b=4)

    compiled = dynamo_lite.compile(f, backend="eager")
    x = torch.ones(3)
    for _ in range(2):
        result, made = compiled(x)
        assert torch.equal(result, f(x)[0]) and made.func is _scaled and made.keywords == {"a": 3, "b": 4}
    assert functools.partial(inner, b=1).func is _scaled
    inner.note = 1  # type: ignore[attr-defined]
    assert compiled(x)[1] is None
    assert dynamo_lite.metrics()["recompiles"] == 1


@pytest.mark.parametrize("empty", [True, False], ids=["an empty dict", "an attribute"])
def test_a_partial_with_a_dict_is_kept(empty: bool) -> None:
    def f(x: torch.Tensor, p: Any) -> Any:
        return functools.partial(p, b=4), p(x)

    compiled = dynamo_lite.compile(f, backend="eager")
    plain, kept = functools.partial(_scaled, a=3), functools.partial(_scaled, a=3)
    vars(kept).update({} if empty else {"note": 1})
    x = torch.ones(3)
    for p in (plain, kept, plain, functools.partial(_scaled, a=3)):
        assert compiled(x, p)[0].func is f(x, p)[0].func is (p if p is kept else _scaled)
    assert dynamo_lite.metrics()["recompiles"] == 1


def test_partials_made_in_the_trace_nest_as_in_python() -> None:
    def f(x: torch.Tensor, p: Any) -> Any:
        p.z = 1
        first = functools.partial(p, b=2)
        first.y = 3  # type: ignore[attr-defined]
        return first, functools.partial(first, a=1), first(x)

    compiled = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        p = functools.partial(_scaled, a=3)
        first, second, result = compiled(torch.ones(3), p)
        assert first.func is p and second.func is first and first.y == 3 and p.z == 1
        assert torch.equal(result, torch.ones(3) + 6)
    assert dynamo_lite.metrics()["graphs"] == 1
