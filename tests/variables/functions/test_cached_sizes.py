"""Functions under a cache, called with sizes that are symbols: one graph, and what the cache holds is what counts."""
from __future__ import annotations

import functools
from typing import Any

import torch

import dynamo_lite


class _Recipe:
    """As einops has them: compared by identity."""

    def __init__(self, groups: list[list[int]]) -> None:
        self.groups = groups


def _shapes(recipe: _Recipe, shape: tuple[int, ...]) -> tuple[list[int], dict[int, int], int, None]:
    merged = []
    for group in recipe.groups:
        size = 1
        for axis in group:
            size *= shape[axis]
        merged.append(size)
    return merged, {0: shape[0] // 2}, len(merged), None


def _compiled(f: Any) -> Any:
    return dynamo_lite.compile(f, backend="eager", dynamic=True)


def test_shapes_in_the_key_are_one_graph() -> None:
    cached = functools.lru_cache(64)(_shapes)
    merge, keep = _Recipe([[0, 1], [2]]), _Recipe([[0], [1, 2]])

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, added, count, nothing = cached(merge, x.shape)
        second = cached(keep, x.shape)[0]
        assert nothing is None
        return x.reshape(first) * count, x.reshape(second).expand(added[0], *second)

    compiled = _compiled(f)
    for sizes in ((4, 3, 5), (6, 3, 7), (8, 9, 5), (10, 11, 12), (4, 3, 5)):
        x = torch.randn(sizes)
        for result, expected in zip(compiled(x), f(x), strict=True):
            assert torch.equal(result, expected) and result.stride() == expected.stride()
    assert dynamo_lite.metrics()["graphs"] == 1


def test_what_the_cache_gives_is_its_own_object() -> None:
    cached = functools.cache(lambda n, m: [n + 1, [n * m], {"b": (m, n)}])

    def f(x: torch.Tensor) -> Any:
        first, second = cached(x.shape[0], x.shape[1]), cached(x.shape[0], x.shape[1])
        first[1].append(1)
        return x.new_zeros(first[0] + first[1][0] + first[2]["b"][0]), first, first is second, len(second[1])

    compiled = _compiled(f)
    seen: dict[tuple[int, int], int] = {}
    for sizes in ((2, 3), (3, 4), (4, 5), (4, 4), (3, 4), (5, 6), (4, 5)):
        result, kept, same, length = compiled(torch.ones(sizes))
        n, m = sizes
        seen[sizes] = seen.get(sizes, 0) + 1
        assert result.shape == (n + 1 + n * m + m,) and same
        assert kept is cached(n, m) and length == len(kept[1]) == 1 + seen[sizes]


_ADDED = 1


def test_what_a_cache_has_kept_since_before_a_change_counts() -> None:
    @functools.cache
    def cached(n: int) -> list[int]:
        return [n + _ADDED]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(cached(x.shape[0])[0])

    compiled = _compiled(f)
    global _ADDED
    try:
        for n in (2, 3, 5):
            assert compiled(torch.ones(n)).shape == (n + 1,)
        cached(9)
        _ADDED = 5
        for n, size in ((2, 3), (6, 11), (9, 10), (11, 16), (7, 12), (7, 12)):
            assert compiled(torch.ones(n)).shape == (size,), n
        cached(13)[0] = 100
        assert compiled(torch.ones(13)).shape == (100,)
    finally:
        _ADDED = 1


def test_two_keys_that_are_equal_in_one_call_alone() -> None:
    """The cache gives one list for both sizes in the first call, and two in the next."""
    cached = functools.cache(lambda n: [n])

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        first, second = cached(x.shape[0]), cached(y.shape[0])
        return x.new_zeros(first[0]), y.new_zeros(second[0] * 2), first is second

    compiled = _compiled(f)
    for n, m in ((3, 3), (3, 4), (5, 5), (6, 7), (4, 3)):
        x, y, same = compiled(torch.ones(n), torch.ones(m))
        assert (x.shape, y.shape, same) == ((n,), (2 * m,), n == m)


def test_a_function_that_makes_tensors_is_asked_for_each_size() -> None:
    cached = functools.cache(lambda n: torch.arange(n))

    def f(x: torch.Tensor) -> torch.Tensor:
        return cached(x.shape[0]) + x

    compiled = _compiled(f)
    for n in (3, 4, 3):
        x = torch.ones(n)
        assert torch.equal(compiled(x), f(x))
    assert dynamo_lite.metrics()["graphs"] == 2


@functools.lru_cache
def plan(sizes: tuple[int, ...], last: int) -> tuple[list[int], list[int], int]:
    return [sizes[0], sizes[1]], [0, 2, 1, 3], last


def test_numbers_of_a_kept_result_that_equal_a_changed_size_by_chance_stay_numbers() -> None:
    """The batch changes from 2 to 3, which are also the dimensions of a kept permutation: were these symbols, the
    graph with its write in place would not be compiled."""
    def rearranged(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        kept, order, last = plan(x.shape, 2)
        y = (x * w).unflatten(2, (2, -1)).permute(order)
        y += w[0, 0, 0]
        fixed = plan((5, 5), 3)
        return y.transpose(fixed[1][1], fixed[2]).reshape(*kept, -1)[:, :last]

    w = torch.randn(1, 5, 8, requires_grad=True)
    compiled = dynamo_lite.compile(rearranged)
    for n in (2, 3, 4):
        x = torch.randn(n, 5, 8)
        found, expected = compiled(x, w), rearranged(x, w)
        assert torch.equal(found, expected) and found.stride() == expected.stride()
        grads = [torch.autograd.grad(y.sum(), w)[0] for y in (found, expected)]
        torch.testing.assert_close(*grads)
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 2 and not metrics["fallbacks"]
