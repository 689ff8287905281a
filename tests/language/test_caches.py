"""Functions under functools.lru_cache: what the cache keeps is one object, which programs change and compare."""
from __future__ import annotations

import functools

import pytest
import torch

import dynamo_lite
from dynamo_lite import config


def run_both(program, calls=3, breaks=False):
    """The results of `calls` calls, compiled and in eager, each beginning with empty caches."""
    results = []
    for function in (program, dynamo_lite.compile(program, backend="eager", fullgraph=not breaks)):
        for cached in CACHED:
            cached.cache_clear()
        made.clear()
        results.append([function(torch.ones(2)) for _ in range(calls)])
    return results


made: list[str] = []


@functools.lru_cache(maxsize=None)
def box(n):
    return []


@functools.cache
def table(n, *, dtype=torch.float32):
    return torch.zeros(n, dtype=dtype)


@functools.lru_cache
def number(n):
    return n * 2 + 1


@functools.lru_cache
def counted(t):
    made.append("counted")
    return 3


@functools.lru_cache
def of_tensor(t):
    return [t + 1]


@functools.lru_cache
def of_length(name, flag=False):
    return {"name": name, "flag": flag}


CACHED = (box, table, number, counted, of_tensor, of_length)


def test_a_list_that_is_kept_grows_over_calls():
    def program(x):
        box(1).append(2.0)
        return x * len(box(1)), box(1) is box(1), box(1) is box(2)

    want, got = run_both(program)
    assert [(y.tolist(), *rest) for y, *rest in got] == [(y.tolist(), *rest) for y, *rest in want]
    assert box(1) == [2.0] * 3


def test_a_tensor_that_is_kept_is_changed_in_place():
    def program(x):
        t = table(2, dtype=torch.float64)
        t.add_(1)
        return x * t, t is table(2, dtype=torch.float64)

    want, got = run_both(program)
    assert [(y.tolist(), same) for y, same in got] == [(y.tolist(), same) for y, same in want]


def test_numbers_and_dicts_in_one_graph_without_recompiles():
    def program(x):
        return x * number(x.shape[0]) + len(of_length("a", flag=True)["name"])

    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 6.0))
        config.error_on_recompile = True
    config.error_on_recompile = False


@pytest.mark.parametrize("function", [counted, of_tensor])
def test_arguments_that_are_not_known_are_asked_by_python(function):
    def program(x, key):
        y = x + 1
        kept = function(key)
        return y, kept

    key = torch.zeros(2)
    compiled = dynamo_lite.compile(program, backend="eager")
    function.cache_clear()
    made.clear()
    first, second = compiled(torch.ones(2), key)[1], compiled(torch.ones(2), key)[1]
    assert first is second or first == second == 3
    assert made == (["counted"] if function is counted else [])


def test_a_cleared_cache_is_noticed():
    def program(x):
        return x * len(box(5))

    compiled = dynamo_lite.compile(program, backend="eager")
    box.cache_clear()
    assert compiled(torch.ones(1)).item() == 0
    box(5).extend([1, 2])
    assert compiled(torch.ones(1)).item() == 2
    box.cache_clear()
    assert compiled(torch.ones(1)).item() == 0
