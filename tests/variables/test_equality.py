"""``torch.equal`` and ``torch.allclose``: numbers of the graph where nothing decides by them, else a break."""
from __future__ import annotations

import pytest
import torch

import dynamo_lite
from dynamo_lite import exc, log

BACKENDS = ["eager", "inductor_lite"]


def compiled(fn, backend="eager", **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, **options)


def graphs():
    return log.counters().get("graphs", 0)


def same(got, want):
    assert type(got) is type(want)
    if isinstance(got, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(got, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)
    else:
        assert got == want


@pytest.mark.parametrize("backend", BACKENDS)
def test_returned_and_stored(backend):
    notes = []

    def f(x, y):
        z = x * 2
        notes.append(torch.equal(z, y))
        return z + 1, torch.equal(x, y), x.equal(z), torch.allclose(x, y, atol=0.5), z.allclose(y, equal_nan=True)

    fn = compiled(f, backend, fullgraph=True)
    for y in (torch.ones(3), torch.ones(3) * 2, torch.full((3,), 1.4), torch.full((3,), float("nan"))):
        same(fn(torch.ones(3), y), f(torch.ones(3), y))
        assert notes[-1] == notes[-2]
    assert graphs() <= 2  # the list has grown


def test_of_other_shapes():
    f = lambda x: (x + 1 if torch.equal(x, x[:1]) else x - 1, x.equal(x[None]))
    same(compiled(f, fullgraph=True)(torch.ones(3)), f(torch.ones(3)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_breaks_once(backend):
    f = lambda x, y: (x + 1).sin() if torch.equal(x * 2, y) else (x - 1).cos()
    with pytest.raises(exc.Unsupported, match="data_dependent_branch"):
        compiled(f, backend, fullgraph=True)(torch.ones(3), torch.ones(3))
    fn = compiled(f, backend)
    for y in (torch.ones(3), torch.ones(3) * 2, torch.ones(3)):
        same(fn(torch.ones(3), y), f(torch.ones(3), y))
    assert graphs() == 3 and log.counters()["graph_breaks"] == 1


def test_masks_are_guarded_by_their_elements():
    f = lambda x, mask: x[mask] if torch.equal(mask, mask.flip(0)) else x * mask
    fn = compiled(f)
    first, second = torch.tensor([True, False, True]), torch.tensor([True, False, False])
    for mask in (first, first, second, second, first):
        same(fn(torch.ones(3), mask), f(torch.ones(3), mask))
    assert log.counters().get("graph_breaks", 0) <= 1


def test_elements_that_change_between_call_and_branch():
    def f(x, mask):
        found = torch.equal(mask, torch.ones_like(mask))
        mask[0] = 0
        return x + 1 if found else x - 1

    fn = compiled(f)
    for values in ([1, 1], [0, 1], [1, 1]):
        ours, theirs = torch.tensor(values), torch.tensor(values)
        same(fn(torch.ones(2), ours), f(torch.ones(2), theirs))
        assert torch.equal(ours, theirs)


def test_negated_and_combined():
    def f(x, y):
        one, two = torch.equal(x, y), torch.equal(x * 2, y)
        return x * one, x + two, one + two, [one, two]

    fn = compiled(f, fullgraph=True)
    for y in (torch.ones(3), torch.ones(3) * 2):
        same(fn(torch.ones(3), y), f(torch.ones(3), y))


def test_types_that_differ():
    f = lambda x: (torch.equal(x, x.long()), x + 1)
    fn = compiled(f)
    same(fn(torch.ones(3)), f(torch.ones(3)))

    def g(x):
        try:
            return torch.allclose(x, x.double())
        except RuntimeError as error:
            return str(error)

    same(compiled(g)(torch.ones(3)), g(torch.ones(3)))
