"""State that a call leaves larger than it found it: sizes that grow are symbols from the first compile on."""
from __future__ import annotations

import pytest
import torch

import dynamo_lite
from dynamo_lite import config, log


@pytest.fixture(autouse=True)
def _alone():
    dynamo_lite.reset()
    with config.patch(cache_sizes=False):
        yield
    dynamo_lite.reset()


class Cache:
    def __init__(self, start=None):
        self.rows = start
        self.seen = 0


def compare(f, start, calls, graphs, backend="eager"):
    """Calls a function, plain and compiled, on caches that grow; the results, and the caches, are the same."""
    compiled = dynamo_lite.compile(f, backend=backend)
    plain, ours = Cache(start.clone()), Cache(start.clone())
    for args in calls:
        expected, found = f(plain, *args), compiled(ours, *args)
        for a, b in ((expected, found), (plain.rows, ours.rows)):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride() and a._is_view() == b._is_view()
        assert plain.seen == ours.seen
    assert log.counters()["graphs"] == graphs, log.counters()


def append(cache, x):
    cache.rows = torch.cat([cache.rows, x], dim=-2)
    return torch.softmax(x @ cache.rows.transpose(-1, -2), -1) @ cache.rows


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("first", [1, 2, 5])
def test_a_cache_that_grows_is_one_graph(first, backend):
    calls = [(torch.randn(2, 3, 1, 8),) for _ in range(6)]
    compare(append, torch.randn(2, 3, first, 8), calls, 1, backend)


def test_one_row_after_many_is_the_same_graph():
    compiled = dynamo_lite.compile(append, backend="eager")
    for rows in (4, 1, 7):
        start, x = torch.randn(2, 3, rows, 8), torch.randn(2, 3, 1, 8)
        assert torch.equal(compiled(Cache(start), x), append(Cache(start), x))
    assert log.counters()["graphs"] == 1


def test_what_is_another_program_for_one_row_is_another_graph():
    def f(cache, x):
        y = cache.rows + 1 if cache.rows.shape[0] == 1 else cache.rows - 1
        cache.rows = torch.cat([cache.rows, x])
        return y.sum()

    compare(f, torch.randn(1, 4), [(torch.randn(1, 4),) for _ in range(5)], 2)


def test_one_row_that_broadcasts():
    def f(cache, x):
        y = cache.rows + torch.arange(3.0)[:, None]
        cache.rows = torch.cat([cache.rows, x])
        return y

    compare(f, torch.randn(1, 4), [(torch.randn(2, 4),)], 1)
    compiled = dynamo_lite.compile(f, backend="eager")
    cache = Cache(torch.randn(1, 4))
    compiled(cache, torch.randn(1, 4))
    with pytest.raises(RuntimeError):
        compiled(cache, torch.randn(1, 4))


@pytest.mark.parametrize("view", [
    lambda t: t.transpose(0, 1).contiguous(), lambda t: t.transpose(0, 1).reshape(-1), lambda t: t.t().clone(),
    lambda t: t.transpose(0, 1).flatten(), lambda t: t.expand(2, *t.shape).reshape(-1, t.shape[1]),
    lambda t: t.squeeze(), lambda t: t[:1] * t, lambda t: t.t() + 1, lambda t: torch.empty_like(t.t()).fill_(0),
    lambda t: t.unfold(0, 1, 1), lambda t: t.as_strided((2, 2), (1, 1)), lambda t: t.T.sum(0), lambda t: t[None].mT * 2,
])
def test_layouts_of_one_row_and_of_more(view):
    def f(cache, x):
        y = view(cache.rows)
        cache.rows = torch.cat([cache.rows, x])
        return y

    compiled = dynamo_lite.compile(f, backend="eager")
    plain, ours = Cache(torch.randn(1, 4)), Cache()
    ours.rows = plain.rows.clone()
    for _ in range(4):
        x = torch.randn(1, 4)
        rows = plain.rows, ours.rows
        results = f(plain, x), compiled(ours, x)
        assert torch.equal(*results) and results[0].stride() == results[1].stride()
        plain_shares, ours_shares = (
            a.untyped_storage()._cdata == b.untyped_storage()._cdata for a, b in zip(rows, results))
        assert plain_shares == ours_shares
    assert log.counters()["graphs"] <= 4


def test_a_count_of_what_it_is_given():
    def f(cache, tokens):
        cache.seen += tokens.shape[1]
        cache.rows = torch.nn.functional.one_hot(tokens, 8).float()[:, -1]
        return cache.rows * 2

    compiled = dynamo_lite.compile(f, backend="eager")
    for n in (3, 5, 9, 4):
        tokens = torch.randint(8, (1, n))
        plain, ours = Cache(), Cache()
        assert torch.equal(f(plain, tokens), compiled(ours, tokens)) and plain.seen == ours.seen == n
    assert log.counters()["graphs"] == 1


def test_sizes_stay_numbers_where_that_was_asked_for():
    compiled = dynamo_lite.compile(append, backend="eager", dynamic=False)
    cache = Cache(torch.randn(1, 1, 2, 8))
    for _ in range(3):
        compiled(cache, torch.randn(1, 1, 1, 8))
    assert log.counters()["graphs"] == 3
