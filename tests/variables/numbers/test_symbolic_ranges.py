"""Ranges of sizes and bounds of slices: one graph for all sizes where no number of them is needed, Python's values."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo_lite

ONE_GRAPH: dict[str, Callable[[Any], Any]] = {
    "length": lambda n: (len(range(n)), len(range(1, n)), len(range(n, 0, -1)), len(range(n, -7, -4))),
    "length by steps": lambda n: (len(range(0, n, 3)), len(range(-n, n, 2)), len(range(200, n)), len(range(n, n))),
    "bounds": lambda n: (range(n).stop, range(2, n).start, range(n, 0, -2).step, type(range(n)) is range),
    "members": lambda n: (0 in range(n), -2 in range(n), 4 in range(1, n, 3), n in range(1000), n in range(n)),
    "truth": lambda n: (bool(range(n)), not range(n, n), bool(range(n, 500))),
    "numbers": lambda n: (range(n)[-1], range(n)[0], range(2, n)[0], range(n, 0, -1)[-2]),
    "parts": lambda n: (range(n)[1:], range(n)[::-1], range(0, n, 2)[:2], range(n)[-2:], range(n)[n // 2:]),
    "the range": lambda n: [range(n), range(n, 0, -2), range(2, n)],
    "indices": lambda n: (slice(1, -1).indices(n), slice(None, None, -1).indices(n), slice(-3, None).indices(n)),
    "indices by steps": lambda n: (slice(n, 0, -2).indices(n), slice(3).indices(n), slice(n + 3, -99, -1).indices(n)),
}
RIGHT: dict[str, Callable[[Any], Any]] = {
    "by residue": lambda n: n in range(0, 1000, 3),
    "other kinds": lambda n: ("a" in range(n), 3.0 in range(n), True in range(n), 2.5 in range(n)),
    "compared": lambda n: (range(6) == range(n), range(n) == range(n), hash(range(n)) == hash(range(6))),
    "loops": lambda n: ([i for i in range(n)], list(range(n)), sum(range(n)), list(reversed(range(n)))),
    "methods": lambda n: (range(n).index(2), range(n).count(1), range(0, 5, n)),
    "between": lambda n: (5 in range(n), 8 in range(n), len(range(8, n)), slice(7, None).indices(n)),
}


def _graphs(idiom: Callable[[Any], Any], sizes: tuple[int, ...]) -> int:
    def f(x: torch.Tensor) -> Any:
        return x * 2, idiom(x.shape[0])

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in sizes:
        x = torch.randn(n, 4)
        (first, got), (_, want) = compiled(x), f(x)
        assert torch.equal(first, x * 2) and got == want and repr(got) == repr(want)
    return dynamo_lite.metrics()["graphs"]


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph_for_all_sizes(name: str) -> None:
    assert _graphs(ONE_GRAPH[name], (9, 6, 16, 12, 7)) == 1
    assert "graph_breaks" not in dynamo_lite.metrics()
    dynamo_lite.reset()
    _graphs(ONE_GRAPH[name], (9, 6, 16, 5, 12, 7))


@pytest.mark.parametrize("name", [*RIGHT, *ONE_GRAPH])
def test_values_at_borders(name: str) -> None:
    idiom = {**RIGHT, **ONE_GRAPH}[name]
    _graphs(idiom, (9, 3, 8, 6, 7, 4, 10, 5))


@pytest.mark.parametrize("idiom", [
    lambda n: [i for i in range(0, n, 4)], lambda n: list(reversed(range(0, n, 4))), lambda n: tuple(range(1, n, 4)),
])
def test_loops_are_one_graph_for_each_number_of_turns(idiom: Callable[[Any], Any]) -> None:
    assert _graphs(idiom, (6, 7, 8, 11, 10, 12, 6)) == 2
    dynamo_lite.reset()
    _graphs(idiom, (6, 4, 5, 13, 9, 1, 2))


@pytest.mark.parametrize("idiom", [
    lambda n: range(3)[n - 10], lambda n: range(n)[n], lambda n: range(n)[-n - 1], lambda n: range(n)["a"],
    lambda n: slice(1, n, 0).indices(5), lambda n: slice(1, 2).indices(-n), lambda n: slice("a").indices(n),
    lambda n: range(0, n, 0), lambda n: range(n, 1.5), lambda n: range(n).foo, lambda n: slice(1).indices(),
])
def test_errors_are_pythons(idiom: Callable[[Any], Any]) -> None:
    def f(x: torch.Tensor) -> Any:
        try:
            return x * 2, idiom(x.shape[0])
        except (IndexError, TypeError, ValueError, AttributeError) as error:
            return x * 3, type(error), str(error)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (6, 5, 11, 10):
        x = torch.randn(n, 4)
        got, want = compiled(x), f(x)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


def test_ranges_of_large_numbers() -> None:
    def f(x: torch.Tensor, n: int) -> Any:
        try:
            return x + 1, len(range(-n, n)), n in range(2 ** 80), (2 ** 70) in range(n)
        except OverflowError as error:
            return x + 2, str(error)

    compiled = dynamo_lite.compile(f, backend="eager")
    for n in (3, 7, 2 ** 61, 2 ** 62 - 1, 2 ** 62, 2 ** 63 - 1, 2 ** 70, 9):
        got, want = compiled(torch.ones(1), n), f(torch.ones(1), n)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:], n
