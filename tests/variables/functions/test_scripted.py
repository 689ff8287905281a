"""Functions under ``torch.jit.script`` are evaluated like the Python functions that they were made of."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

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


def _shift(x: torch.Tensor, by: float = 1) -> torch.Tensor:
    return x + by


@torch.jit.script
def _calls_with_default(x: torch.Tensor) -> torch.Tensor:
    return _shift(x.long())


@torch.jit.script
def _with_pair(x: torch.Tensor, pair: Tuple[float, float] = (1, 2)) -> torch.Tensor:
    return x.long() * pair[1]


@pytest.mark.parametrize("function", [_asks, _refuses, _calls_with_default, _with_pair])
def test_what_torchscript_does_otherwise_is_its_own(function: object) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return function(x * 2) * 3  # type: ignore[operator]

    x = torch.randn(3, 4)
    expected, result = f(x), dynamo_lite.compile(f, backend="eager")(x)
    assert torch.equal(result, expected) and result.dtype == expected.dtype
    assert dynamo_lite.metrics()["graph_breaks"] == 1


def test_an_exception_is_torchscripts() -> None:
    with pytest.raises(torch.jit.Error, match="two dimensions"):
        dynamo_lite.compile(lambda x: _refuses(x * 2), backend="eager")(torch.ones(3))


def sqrt(x: torch.Tensor, by: float = 1) -> torch.Tensor:
    raise ValueError(x)


@torch.jit.script
def _rooted(x: torch.Tensor) -> torch.Tensor:
    return x.sqrt() + x


@torch.jit.script
def _scaled(x: torch.Tensor, by: float = 1, times: int = 1) -> torch.Tensor:
    return x * by * times


@torch.jit.script
def _pairs(pair: Tuple[torch.Tensor, float], made: List[torch.Tensor]) -> Tuple[torch.Tensor, List[torch.Tensor]]:
    made.append(pair[0])
    return pair[0] * pair[1], made


@torch.jit.script
def _shaped(x: torch.Tensor, shape: List[int], by: Optional[List[float]] = None) -> torch.Tensor:
    shape.append(2)
    return x.reshape(shape) * (2.5 if by is None else by[0])


@torch.jit.script
def _itself(pair: Tuple[torch.Tensor, torch.Tensor]) -> Tuple[torch.Tensor, torch.Tensor]:
    return pair


_OUTSIDE = [torch.ones(1)]
_CONVERTED = {
    "default": lambda x: _scaled(x), "int": lambda x: _scaled(x, 2), "bools": lambda x: _scaled(x, times=True, by=True),
    "list_for_tuple": lambda x: _pairs([x, 2], [x]), "tuple_for_list": lambda x: _pairs((x, 2.0), (x, x)),
    "outside": lambda x: _pairs((x, 2.0), _OUTSIDE), "ints": lambda x: _shaped(x, [2], [1, True]),
    "int_tuple": lambda x: _shaped(x, (2,)), "size": lambda x: _shaped(x, [x.shape[0] // 2], by=None),
    "method_named_like_a_function": lambda x: _rooted(x), "same": lambda x: (x + 1, _itself((x, x))),
}


def _plain(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.tolist(), result.dtype
    return type(result)(map(_plain, result)) if isinstance(result, (list, tuple)) else result


@pytest.mark.parametrize("name", _CONVERTED)
def test_arguments_are_converted_as_torchscript_does(name: str) -> None:
    f, x = _CONVERTED[name], torch.arange(4)
    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        assert _plain(compiled(x)) == _plain(f(x))
    assert len(_OUTSIDE) == 1
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 1 and metrics.get("recompiles", 0) == 0


def test_a_tuple_that_returns_is_another() -> None:
    pair = (torch.ones(1), torch.ones(2))

    def f() -> bool:
        return _itself(pair) is pair

    assert dynamo_lite.compile(f, backend="eager", fullgraph=True)() is f()


@pytest.mark.parametrize("f", [
    lambda x: _pairs(x), lambda x: _scaled(x, 1.0, 1.5), lambda x: _scaled(x, 1.0, 2, 3),
    lambda x: _scaled(x, 1.0, by=2), lambda x: _scaled(x, 1.0, other=2), lambda x: _scaled(x, 1.0, 2**70),
    lambda x: _pairs((x, 1.0, 2), [x]), lambda x: _shaped(x, [2.0]),
])
def test_what_torchscript_refuses(f: Any) -> None:
    x = torch.arange(4)
    with pytest.raises(RuntimeError) as want:
        f(x)
    with pytest.raises(RuntimeError) as got:
        dynamo_lite.compile(f, backend="eager")(x)
    assert str(got.value) == str(want.value)


def _positive(x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 0:
        raise ValueError("empty")
    return x.abs()


@torch.jit.script
def _in_a_comprehension(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [_positive(x) for x in xs]


def test_what_a_comprehension_calls_is_looked_at_too():
    def fn(x):
        try:
            return _in_a_comprehension([x, x + 1])[1]
        except Exception as error:
            return type(error).__name__

    compiled = dynamo_lite.compile(fn)
    for x in (torch.ones(3), torch.ones(0)):
        got, want = compiled(x), fn(x)
        assert got == want if isinstance(want, str) else torch.equal(got, want)


@torch.jit.script
def _of_dict(values: Dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for name, value in values.items():
        x = x + value * len(name)
    return x * values["a"]


@torch.jit.script
def _changes_dict(values: Dict[str, torch.Tensor], x: torch.Tensor) -> Dict[str, torch.Tensor]:
    values["new"] = x + 1
    return values


@torch.jit.script
def _keys_and_changes(values: Dict[str, int], x: torch.Tensor) -> torch.Tensor:
    keys = values.keys()
    values["c"] = 1
    return x * len(keys)


@torch.jit.script
def _keys(values: Dict[str, int], x: torch.Tensor) -> List[str]:
    return values.keys()


@torch.jit.script
def _at(values: List[int], x: torch.Tensor) -> torch.Tensor:
    return x * values[3]


def test_dicts() -> None:
    def f(x: torch.Tensor) -> Any:
        given = {"a": x, "bc": x + 1}
        made = _changes_dict(given, x)
        return _of_dict(given, x), made["new"], sorted(made), sorted(given)

    x = torch.randn(3)
    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    dynamo_lite.reset_metrics()
    for _ in range(2):
        result, expected = compiled(x), f(x)
        assert all(torch.equal(a, b) for a, b in zip(result[:2], expected[:2])) and result[2:] == expected[2:]
    assert dynamo_lite.metrics()["graphs"] == 1


@pytest.mark.parametrize("name", ["keys_and_changes", "keys", "missing", "index", "key_type"])
def test_dicts_that_torchscript_sees_otherwise_break(name: str) -> None:
    def missing(x: torch.Tensor) -> Any:
        try:
            return _of_dict({"b": x}, x)
        except KeyError:
            return x - 1
        except RuntimeError:
            return x + 1

    def index(x: torch.Tensor) -> Any:
        try:
            return _at([1], x)
        except IndexError:
            return x - 1
        except RuntimeError:
            return x + 1

    functions = {
        "keys_and_changes": lambda x: _keys_and_changes({"a": 1}, x), "keys": lambda x: (_keys({"a": 1}, x), x + 1),
        "missing": missing, "index": index, "key_type": lambda x: _of_dict({"a": x, "b": x.t()}, x),
    }
    f, x = functions[name], torch.ones(3)
    try:
        expected = f(x)
    except IndexError:
        with pytest.raises(IndexError):
            dynamo_lite.compile(f, backend="eager")(x)
        return
    result = dynamo_lite.compile(f, backend="eager")(x)
    assert torch.utils._pytree.tree_all(
        lambda pair: torch.equal(*pair) if isinstance(pair[0], torch.Tensor) else pair[0] == pair[1],
        [*zip(torch.utils._pytree.tree_leaves(result), torch.utils._pytree.tree_leaves(expected))],
        is_leaf=lambda leaf: isinstance(leaf, tuple))
