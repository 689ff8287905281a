"""Loops that a graph break has left: one break a turn, the code of a turn shared by all, and the iterator where CPython
has it."""
from __future__ import annotations

import collections
import traceback

import pytest
import torch

import dynamo_lite
from dynamo_lite import graph_break, log

pytestmark = pytest.mark.by_turns(3)


class Listing(list):
    def __getitem__(self, place):
        raise AssertionError("an iterator does not call it")

    def __len__(self):
        raise AssertionError("an iterator does not call it")


TURNS = 6
CONTAINERS = {
    "list": lambda ts: ts,
    "tuple": tuple,
    "list subclass": Listing,
    "range": lambda ts: range(2, 2 * TURNS + 2, 2),
    "downward range": lambda ts: range(TURNS, 0, -1),
    "zip": lambda ts: zip(ts, range(TURNS)),
    "zip of different lengths": lambda ts: zip(ts, [*range(TURNS), 7, 8]),
    "strict zip": lambda ts: zip(ts, tuple(range(TURNS)), strict=True),
    "enumerate": lambda ts: enumerate(ts, 3),
    "enumerate of zip": lambda ts: enumerate(zip(ts, ts[::-1])),
    "zip of enumerate": lambda ts: zip(enumerate(ts), ts),
    "keys": lambda ts: dict(enumerate(ts)),
    "values": lambda ts: dict(enumerate(ts)).values(),
    "items": lambda ts: dict(enumerate(ts)).items(),
    "ordered items": lambda ts: collections.OrderedDict(enumerate(ts)).items(),
    "chunks": lambda ts: torch.stack(ts).unbind(),
    "slices": lambda ts: [slice(i, i + 1) for i in range(TURNS)],
    "empty zip": lambda ts: zip(),
    "strings": lambda ts: ["a", "bc", "def"],
}


def numbers(value):
    """A tensor of whatever a loop gives."""
    if isinstance(value, (tuple, list)):
        return sum(map(numbers, value))
    if isinstance(value, slice):
        return value.start * 10
    return len(value) if isinstance(value, str) else value


def tensors():
    return [torch.full((2,), float(i)) for i in range(TURNS)]


def broken(f, *args, backend="eager"):
    """What the function gives, which its compiled form gives, too, each time."""
    def run(function):
        try:
            return function(*[make() for make in args])
        except Exception as error:
            return type(error), str(error), traceback.extract_tb(error.__traceback__)[-1].lineno
    want = run(f)
    compiled = dynamo_lite.compile(f, backend=backend)
    for _ in range(3):
        same(run(compiled), want)
    return want


def same(got, want):
    if isinstance(want, torch.Tensor):
        assert torch.equal(got, want)
    elif isinstance(want, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)
    elif isinstance(want, dict):
        same(list(got.items()), list(want.items()))
    else:
        assert type(got) is type(want) and got == want


@pytest.mark.parametrize("kind", CONTAINERS)
def test_the_body_breaks_and_the_loop_does_not(kind):
    def f(ts):
        total, turns = ts[0] * 0, 0
        for value in CONTAINERS[kind](ts):
            total = total * 2 + numbers(value)
            graph_break()
            turns += 1
        return total + 1, turns

    broken(f, tensors)
    dynamo_lite.reset()
    report = dynamo_lite.explain(f)(tensors())
    kinds = {reason.kind for reason in report.break_reasons}
    if kind == "ordered items":  # an iterator of another class
        assert kinds == {"explicit_break", "unsupported_iteration"}
    else:
        assert kinds <= {"explicit_break"}, report


def test_all_turns_share_their_code():
    def f(ts):
        total = ts[0] * 0
        for t in ts:
            total = total * 2 + t
            graph_break()
            total = total + 1
        return total

    compiled = dynamo_lite.compile(f, backend="eager")
    for count in (40, 30, 70):
        ts = [torch.full((2,), 0.01 * i) for i in range(count)]
        assert torch.equal(compiled(ts), f(ts))
    # a first turn for each length of the list, the others, the end
    assert log.counters()["graphs"] <= 5


def test_turns_without_a_break_end_at_the_loop():
    def f(ts):
        total = ts[0] * 0
        for i, t in enumerate(ts):
            total = total * 2 + t
            if i == 0:
                graph_break()
        return total

    broken(f, tensors)


def changes_the_list(ts):
    total = ts[0] * 0
    for t in ts:
        total = total * 2 + t
        graph_break()
        if len(ts) < TURNS + 3:
            ts.append(t + 10)
        elif len(ts) > TURNS + 1 and t[0] > 12:
            ts.pop()
    return total, ts


def inserts(ts):
    total = ts[0] * 0
    for t in ts:
        graph_break()
        total = total * 2 + t
        if len(ts) < TURNS + 2:
            ts.insert(0, t + 1)
    return total, ts


def clears(ts):
    total = ts[0] * 0
    for t in ts:
        total = total * 2 + t
        graph_break()
        ts.clear()
    return total, ts


def replaces_the_next(ts):
    total = ts[0] * 0
    for i, t in enumerate(ts):
        total = total * 2 + t
        graph_break()
        if i + 1 < len(ts):
            ts[i + 1] = total + 1
    return total, ts


def changes_a_dict(ts):
    d = dict(enumerate(ts))
    total = ts[0] * 0
    for k, t in d.items():
        total = total + t
        graph_break()
        d[k + 100] = t
    return total


def changes_values_of_a_dict(ts):
    d = dict(enumerate(ts))
    total = ts[0] * 0
    for k in d:
        total = total + d[k]
        graph_break()
        if k + 1 in d:
            d[k + 1] = total * 2
    return total, d


def strict_and_too_short(ts):
    total = ts[0] * 0
    for t, u in zip(ts, ts[:2], strict=True):
        total = total * 2 + t + u
        graph_break()
        total = total + 1
    return total


def takes_more_inside(ts):
    total = ts[0] * 0
    rest = iter(ts)
    for t in rest:
        total = total * 2 + t
        graph_break()
        total = total + next(rest, 0)
    return total, list(rest)


def leaves(ts):
    total = ts[0] * 0
    rest = iter(ts)
    for t in rest:
        graph_break()
        total = total * 2 + t
        if t[0] >= 2:
            break
    else:
        total = total - 100
    return total, list(rest)


def goes_on(ts):
    total = ts[0] * 0
    for i, t in enumerate(ts):
        if i % 2:
            graph_break()
            continue
        total = total * 2 + t
    else:
        total = total - 100
    return total


def nested(ts):
    total = ts[0] * 0
    for i in range(3):
        for t, k in zip(ts, (5, 6, 7)):
            total = total * 2 + t * i + k
            graph_break()
            total = total + 1
        total = total / 2
    return total


def within_try_and_with(ts):
    total = ts[0] * 0
    for t in ts:
        try:
            with torch.no_grad():
                total = total * 2 + t
                graph_break()
                if len(ts) > 3:
                    ts.pop()
                raise ValueError("x")
        except ValueError as e:
            total = total + len(str(e))
        finally:
            total = total + 1
    return total


def raises_in_the_middle(ts):
    total = ts[0] * 0
    for t in ts:
        graph_break()
        total = total * 2 + t
        [total][len(ts) - 6 + (1 if t is ts[3] else 0)]
    return total


def keeps_elements(ts):
    kept, total = [], ts[0] * 0
    for pair in enumerate(ts):
        kept.append(pair)
        graph_break()
        total = total + pair[1]
    kept[2][1].add_(1)
    return kept, total, ts


def writes_to_elements(ts):
    for a, b in zip(ts, ts[1:]):
        a.add_(b)
        graph_break()
        b.mul_(2)
    return ts


PROGRAMS = [
    changes_the_list, inserts, clears, replaces_the_next, changes_a_dict, changes_values_of_a_dict,
    strict_and_too_short,
    takes_more_inside, leaves, goes_on, nested, within_try_and_with, raises_in_the_middle, keeps_elements,
    writes_to_elements]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(program, backend):
    broken(program, tensors, backend=backend)


def test_a_list_that_is_another_name_for_the_one_that_is_gone_over():
    def f(ts, other):
        total = ts[0] * 0
        for t in ts:
            total = total * 2 + t
            graph_break()
            if len(other) < 9:
                other.append(t)
        return total, other

    compiled = dynamo_lite.compile(f, backend="eager")
    for shared in (False, True, False, True, True):
        def arguments(shared=shared):
            ts = tensors()
            return ts, ts if shared else [ts[0]]
        same(compiled(*arguments()), f(*arguments()))


def test_a_dict_that_is_another_name_for_the_one_that_is_gone_over():
    def f(ts, other):
        total = 0
        for _, t in ts.items():
            total = total * 2 + t
            graph_break()
            if len(other) < 9:
                other["new"] = t
        return total

    compiled = dynamo_lite.compile(f, backend="eager")
    for shared in (False, True, False, True):
        def run(function, shared=shared):
            ts = dict(enumerate(tensors()))
            try:
                return function(ts, ts if shared else {})
            except RuntimeError as error:
                return str(error)
        same(run(compiled), run(f))


def test_elements_of_different_kinds():
    def f(values):
        out = []
        for v in values:
            graph_break()
            out.append(v * 2)
        return out

    for values in ([1, 2.5, "a", torch.ones(2), [3], (4,), None],
                   [torch.ones(2), torch.ones(3), torch.ones(2).double()],
                   [1, 2.5, "a", torch.ones(2), [3], (4,)]):
        broken(f, lambda values=values: values)
