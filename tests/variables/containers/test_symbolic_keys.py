"""Dicts and sets that are asked for sizes and counters: a graph for each answer, not for each number."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo_lite

TABLE = {5: 2.0, 6: 3.0, "else": 4.0, None: 1.0}

QUESTIONS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "in a set": lambda x, n: x + 1 if n in {5, 6} else x - 1,
    "not in a set": lambda x, n: x + 1 if n not in {"a", 5, 6.0, 7.5, None} else x - 1,
    "in a dict": lambda x, n: x + 1 if n in TABLE else x - 1,
    "get": lambda x, n: x * TABLE.get(n, 0.5),
    "get a size": lambda x, n: x * {True: 2.0, 6.0: 3.0}.get(n - 5, 0.5),
    "in keys": lambda x, n: x + 1 if n + 1 in TABLE.keys() else x - 1,
    "get a sum": lambda x, n: x * {5: 2.0}.get(n + n, 7.0),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_graph_for_all_numbers_that_are_no_keys(name):
    question = QUESTIONS[name]

    def f(x: torch.Tensor) -> Any:
        return question(x, x.shape[0])

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (9, 17, 8, 33, 12):
        x = torch.randn(n, 4)
        assert torch.equal(compiled(x), f(x))
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 1 and "recompiles" not in metrics and "graph_breaks" not in metrics
    for n in (5, 6, 5, 6, 11, 4, 3):
        x = torch.randn(n, 4)
        assert torch.equal(compiled(x), f(x))
    assert dynamo_lite.metrics()["graphs"] <= 4


def test_milestones_of_a_counter():
    milestones = {30, 60}

    def step(x: torch.Tensor, epoch: int) -> torch.Tensor:
        return x * 0.1 if epoch in milestones else x + epoch

    compiled = dynamo_lite.compile(step, backend="eager")
    for epoch in range(1, 70):
        x = torch.randn(3)
        assert torch.equal(compiled(x, epoch), step(x, epoch))
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] <= 4 and metrics["recompiles"] <= 3  # the first epoch, all others, two milestones


def test_keys_that_change_are_guarded():
    def f(x: torch.Tensor, table: dict[Any, float]) -> torch.Tensor:
        return x * table.get(x.shape[0], 0.5)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    table: dict[Any, float] = {5: 2.0}
    for n in (9, 10):
        assert torch.equal(compiled(torch.ones(n, 2), table), torch.full((n, 2), 0.5))
    table[9] = 4.0
    for n in (9, 10, 5):
        x = torch.ones(n, 2)
        assert torch.equal(compiled(x, table), f(x, table))
    del table[5]
    for n in (9, 10, 5):
        x = torch.ones(n, 2)
        assert torch.equal(compiled(x, table), f(x, table))


class Odd:
    """Equal to the number 9."""

    def __hash__(self) -> int:
        return hash(9)

    def __eq__(self, other: object) -> bool:
        return other == 9


def test_keys_of_a_users_class_are_asked():
    table = {Odd(): 3.0}

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * table.get(x.shape[0], 0.5)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (8, 9, 10, 9):
        x = torch.ones(n, 2)
        assert torch.equal(compiled(x), f(x))


def test_a_key_that_is_missing_raises_with_its_number():
    def f(x: torch.Tensor) -> Any:
        try:
            return x * TABLE[x.shape[0]]
        except KeyError as error:
            return str(error)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (9, 5, 10):
        x = torch.ones(n, 2)
        assert str(compiled(x)) == str(f(x))


def test_what_is_stored_under_a_size_is_found():
    def f(x: torch.Tensor) -> Any:
        table: dict[Any, torch.Tensor] = {3: x}
        n = x.shape[0]
        if n not in table:
            table[n] = x + 1
        return table[n] * 2, n in table, list(table)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (9, 3, 10, 9):
        x = torch.ones(n, 2)
        (a, *rest), (b, *wanted) = compiled(x), f(x)
        assert torch.equal(a, b) and rest == wanted
