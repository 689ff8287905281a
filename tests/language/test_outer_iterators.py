"""Iterators of builtin containers that come in from outside: arguments, attributes, and comprehensions' own."""
from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import exc, log


def compiled(fn, **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend="eager", **options)


def graphs():
    return log.counters().get("graphs", 0)


def same(got, want):
    assert type(got) is type(want), (got, want)
    if isinstance(got, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(got, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)
    else:
        assert got == want


MAKERS = {
    "list": lambda: iter([1, 2, 3]),
    "tuple": lambda: iter((1, 2, 3)),
    "range": lambda: iter(range(1, 7, 2)),
    "keys": lambda: iter({1: 5, 2: 6, 3: 7}),
    "values": lambda: iter({1: 5, 2: 6, 3: 7}.values()),
    "enumerate": lambda: map(sum, enumerate([1, 2, 3], 4)),
    "zip": lambda: map(sum, zip([1, 2, 3], (4, 5, 6, 7))),
    "map": lambda: map(abs, iter([1, -2, 3])),
}
USES = {
    "next": lambda x, it: x * next(it),
    "some": lambda x, it: [x * next(it) for _ in range(2)],
    "all": lambda x, it: [x * v for v in it],
    "past the end": lambda x, it: (sum(it) * x, next(it, None), list(it)),
    "first": lambda x, it: (x, next((v for v in it if v > 2), None)),
    "islice": lambda x, it: [x * v for v in itertools.islice(it, 2)],
    "itself": lambda x, it: (x, iter(it) is it, next(it)),
    "loop": lambda x, it: [x * v for v in it if v < 6][-1],
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_taken_from_and_left_where_the_program_leaves_it(make, use):
    fn = compiled(use, fullgraph=True)
    for _ in range(3):
        ours, theirs = make(), make()
        same(fn(torch.ones(2), ours), use(torch.ones(2), theirs))
        assert list(ours) == list(theirs)
    assert graphs() <= 1


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_one_in_the_middle(make):
    f = lambda x, it: x * next(it)
    fn = compiled(f)
    ours, theirs = make(), make()
    for _ in range(3):
        same(fn(torch.ones(2), ours), f(torch.ones(2), theirs))
    for it in (ours, theirs):
        with pytest.raises(StopIteration):
            (fn if it is ours else f)(torch.ones(2), it)
    same(fn(torch.ones(2), make()), f(torch.ones(2), make()))


def test_another_container_and_its_changes():
    def f(x, it, items):
        first = next(it)
        items.append(9)
        return x * first, list(it), len(items)

    fn = compiled(f)
    for values in ([1, 2], [3, 4], [3, 4, 5]):
        ours, theirs = list(values), list(values)
        same(fn(torch.ones(2), iter(ours), ours), f(torch.ones(2), iter(theirs), theirs))
        same(fn(torch.ones(2), iter(list(values)), ours), f(torch.ones(2), iter(list(values)), theirs))
        assert ours == theirs


def test_one_iterator_under_two_names():
    def f(x, a, b):
        return x, next(a), next(b), next(a, None)

    fn = compiled(f)
    for shared in (True, False, True):
        pairs = []
        for _ in range(2):
            a = iter([1, 2, 3])
            pairs.append((a, a if shared else iter([1, 2, 3])))
        same(fn(torch.ones(1), *pairs[0]), f(torch.ones(1), *pairs[1]))
        assert [list(p) for p in pairs[0]] == [list(p) for p in pairs[1]]


def test_pairs_of_one_iterator():
    def f(x, pairs):
        return [x * a + b for a, b in pairs]

    fn = compiled(f, fullgraph=True)
    for _ in range(2):
        one, two = iter([1, 2, 3, 4]), iter([1, 2, 3, 4])
        same(fn(torch.ones(1), zip(one, one)), f(torch.ones(1), zip(two, two)))
    same(fn(torch.ones(1), zip([1, 2], [3, 4])), f(torch.ones(1), zip([1, 2], [3, 4])))


def test_ended_ones():
    f = lambda x, it: (x + 1, next(it, None), list(it))
    fn = compiled(f, fullgraph=True)
    for make in (MAKERS["list"], MAKERS["range"], MAKERS["keys"]):
        ours, theirs = make(), make()
        list(ours), list(theirs)
        same(fn(torch.ones(1), ours), f(torch.ones(1), theirs))


def test_a_strict_zip_raises():
    def f(x, it):
        try:
            return [x * a for a, b in it]
        except ValueError as error:
            return str(error)

    fn = compiled(f)
    for _ in range(2):
        same(fn(torch.ones(1), zip([1, 2], [1], strict=True)), f(torch.ones(1), zip([1, 2], [1], strict=True)))
        same(fn(torch.ones(1), zip([1, 2], [1])), f(torch.ones(1), zip([1, 2], [1])))


def test_dicts_that_change():
    def f(x, it, table):
        key = next(it)
        table["new"] = key
        return x * len(table)

    fn = compiled(f)
    ours, theirs = {"a": 1}, {"a": 1}
    a, b = iter(ours), iter(theirs)
    same(fn(torch.ones(1), a, ours), f(torch.ones(1), b, theirs))
    for it in (a, b):
        with pytest.raises(RuntimeError):
            next(it)
    changed = {"a": 1}
    stale = iter(changed)
    changed["b"] = 2
    with pytest.raises(RuntimeError):
        compiled(lambda x, it: x * len(next(it)))(torch.ones(1), stale)


LAYERS = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))


@pytest.mark.parametrize("f", [
    lambda x: [x * v + x.sum().item() for v in [1, 2, 3]],
    lambda x: [layer(x) + place for place, layer in enumerate(LAYERS) if x.sum().item() > -9],
    lambda x: {name: x * v for name, v in {"a": 1, "b": 2}.items() if x.sum().item()},
    lambda x: sum(x * a * b for a, b in zip([1, 2], [x.sum().item(), 4])),
    lambda x: [x * v + k for k, v in enumerate({3: 4, 5: 6}.items()) if x.sum().item() for v in v],
    lambda x: [x * v for row in [[1, 2], [3]] for v in row if x.sum().item()],
    lambda x: (lambda it: ([x * next(it) for _ in range(2)], x.sum().item(), list(it)))(iter([1, 2, 3, 4])),
])
def test_comprehensions_with_a_break(f):
    fn = compiled(f)
    for _ in range(3):
        got, want = fn(torch.ones(2)), f(torch.ones(2))
        if isinstance(want, dict):
            got, want = [*got, *got.values()], [*want, *want.values()]
        same(got, want)


def test_next_behind_a_break():
    def f(x):
        it = iter([1, 2, 3, 4])
        dynamo_lite.graph_break()
        return [x * next(it) for _ in range(2)], next(it), list(it)

    same(compiled(f)(torch.ones(2)), f(torch.ones(2)))
    kinds = [reason.kind for reason in dynamo_lite.explain(f)(torch.ones(2)).break_reasons]
    assert kinds == ["explicit_break"]


def test_a_graph_that_raises_takes_nothing():
    def f(x, index, it):
        return x[index] * next(it)

    fn = compiled(f)
    for index in (0, 7):
        ours, theirs = iter([1, 2]), iter([1, 2])
        for function, it in ((fn, ours), (f, theirs)):
            try:
                function(torch.ones(2), torch.tensor([index]), it)
            except IndexError:
                pass
        assert list(ours) == list(theirs)


def test_generators_still_break():
    with pytest.raises(exc.Unsupported, match="unsupported_iteration"):
        compiled(lambda x, it: x * next(it), fullgraph=True)(torch.ones(1), (v for v in (1, 2)))
