"""Graphs with symbolic sizes that are kept: found for other sizes, and taken only where what they rely on holds."""
import dataclasses

import pytest
import torch
import torch.nn as nn

import dynamo_lite
from dynamo_lite import config, log
from dynamo_lite.backends.inductor import graph_cache


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path):
    with config.patch(cache_graphs=True, cache_dir=str(tmp_path)):
        yield


def compiled_anew(fn):
    dynamo_lite.reset()
    log.reset_counters()
    return dynamo_lite.compile(fn, dynamic=True)


def counts():
    counters = log.counters()
    return counters["graphs"], counters.get("graph_cache_hits", 0)


def joined(x):
    return torch.cat([x.relu(), x[:, 1:]], 1).softmax(-1) * x.shape[1], x.view(x.shape[0], -1, 4).sum(1)


def test_a_graph_is_found_for_other_sizes():
    for sizes, hits in ((((3, 8), (5, 12)), 0), (((7, 16), (5, 12), (6, 20)), 1)):
        compiled = compiled_anew(joined)
        for size in sizes:
            x = torch.randn(size)
            for got, want in zip(compiled(x), joined(x), strict=True):
                torch.testing.assert_close(got, want)
        assert counts() == (1, hits)
    # What the recorder has decided is guarded, where the graph was found too: no multiple of 4 is for this graph.
    with pytest.raises(RuntimeError):
        compiled(torch.randn(3, 7))


def test_a_graph_is_taken_only_where_its_decisions_hold():
    def fn(x):
        return x + torch.arange(x.shape[0], dtype=torch.bfloat16)

    def run(compiled, n):
        x = torch.randn(n).bfloat16()
        assert torch.equal(compiled(x), fn(x))

    compiled = compiled_anew(fn)
    run(compiled, 20)  # a loop, of numbers that are exact
    run(compiled, 300)  # the library's
    assert counts()[0] == 2
    compiled = compiled_anew(fn)
    run(compiled, 301)
    assert counts() == (1, 1)
    compiled = compiled_anew(fn)
    for n in (30, 302, 31):
        run(compiled, n)
    assert counts() == (2, 2)


def test_training_steps_are_found():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    for rows, hits in (((4, 7), 0), ((9, 3), 1)):
        compiled = compiled_anew(model)
        for n in rows:
            x = torch.randn(n, 8)
            want = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
            got = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
            torch.testing.assert_close(got, want)
        assert counts() == (1, hits)


def test_decisions_that_can_not_be_read(monkeypatch, caplog):
    x = torch.randn(3, 8)
    compiled_anew(joined)(x)
    read = graph_cache._read
    broken = ((("==", (0, ((1, (("no atom", 1, 2),)),))), ""),)
    monkeypatch.setattr(graph_cache, "_read", lambda *args: dataclasses.replace(read(*args), decisions=broken))
    torch.testing.assert_close(compiled_anew(joined)(x), joined(x))
    assert counts()[1] == 0 and "can't be read" in caplog.text


def test_other_limits_are_another_graph():
    def fn(x):
        return x.sum(0) * 2

    for most in (50, 60):
        compiled = compiled_anew(fn)
        x = torch.randn(5, 8)
        dynamo_lite.mark_dynamic(x, 0, max=most)
        torch.testing.assert_close(compiled(x), fn(x))
        assert counts() == (1, 0)
