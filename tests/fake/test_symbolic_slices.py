"""Slices of sizes that are symbols: eager's views on either side of each border, and no graph more than sides."""
from __future__ import annotations

import pytest
import torch

import dynamo_lite
from dynamo_lite import config, log

ENDS = (None, 0, 3, 5, 9, -3, -5, -9)


def layout(x):
    return x.tolist(), x.shape, x.stride(), x.storage_offset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("step", [1, 2])
def test_slices_are_eagers_at_every_border(step, backend):
    def f(x):
        return [x[start:end:step] for start in ENDS for end in ENDS] + [x.t()[:, -4:] + 1]

    with config.patch(recompile_limit=40):
        compiled = dynamo_lite.compile(f, backend=backend, dynamic=True)
        for n in (7, 2, 3, 4, 5, 6, 8, 9, 10, 11, 20):
            x = torch.arange(2.0 * n).view(n, 2)
            assert list(map(layout, compiled(x))) == list(map(layout, f(x))), n


def test_the_border_of_a_window_belongs_to_the_side_that_takes_all():
    def window(x):
        return x[-5:] + 1

    compiled = dynamo_lite.compile(window, backend="eager", dynamic=True)
    for n, graphs in ((3, 1), (5, 1), (4, 1), (6, 2), (9, 2), (5, 2)):
        x = torch.arange(float(n))
        assert torch.equal(compiled(x), window(x))
        assert log.counters()["graphs"] == graphs
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(window, backend="eager", dynamic=True)
    assert torch.equal(compiled(torch.ones(5)), torch.ones(5) + 1)
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 1)
    assert log.counters()["graphs"] in (1, 2)


def test_a_position_that_changes_ends_slices():
    def f(x, n):
        return x[:n].sum() + x[n:].sum() * 2 + x[-n:].sum()

    compiled = dynamo_lite.compile(f, backend="eager")
    x = torch.arange(12.0)
    for n in (3, 4, 5, 12, 13, 7):
        assert torch.equal(compiled(x, n), f(x, n))
    assert log.counters()["graphs"] <= 4
