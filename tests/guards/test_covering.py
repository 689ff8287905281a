"""Whether one entry's guards admit all calls of another's."""
from __future__ import annotations

import torch

import dynamo_lite
from dynamo_lite import config, log
from dynamo_lite._eval_frame import entries
from dynamo_lite.guards.covering import GuardFacts, covers


def facts(fn):
    """Those of a function's entries, in the order in which they were made."""
    made = sorted(entries(fn.__code__), key=lambda entry: int(entry.extra.frame_id.partition("/")[2]))
    return [GuardFacts(entry.extra.guards, None) for entry in made]


def compiled_for(fn, *calls):
    compiled = dynamo_lite.compile(fn, backend="eager")
    for args in calls:
        assert torch.equal(compiled(*args), fn(*args))
    return facts(fn)


def add(x, n):
    return x * n + x.shape[0]


def test_a_symbol_covers_the_numbers_that_it_may_be():
    static, symbolic = compiled_for(add, (torch.ones(4, 3), 2), (torch.ones(5, 3), 2))
    assert covers(symbolic, static) and not covers(static, symbolic)
    assert covers(static, static)


def test_a_number_that_became_a_symbol_covers_its_value():
    static, symbolic = compiled_for(add, (torch.ones(4, 3), 2), (torch.ones(4, 3), 3))
    assert covers(symbolic, static) and not covers(static, symbolic)


def test_one_is_no_value_of_a_symbol():
    first, second = compiled_for(add, (torch.ones(1, 3), 2), (torch.ones(5, 3), 2))
    assert not covers(second, first) and not covers(first, second)


def test_another_layout_or_type_is_not_covered():
    x = torch.ones(4, 3)
    found = compiled_for(add, (x, 2), (torch.ones(3, 4).t(), 2), (x.double(), 2), (torch.ones(6, 3), 2))
    assert not any(covers(a, b) for a in found[:3] for b in found if a is not b)
    assert covers(found[3], found[0]) and not covers(found[3], found[1]) and not covers(found[3], found[2])


def branches(x):
    return x + 1 if x.shape[0] > 10 else x.view(-1, 2).sum()


def test_a_decision_that_went_otherwise_is_not_covered():
    small, symbolic, large = compiled_for(
        branches, (torch.ones(4, 3),), (torch.ones(6, 3),), (torch.ones(12, 3),))
    assert covers(symbolic, small) and not covers(large, small) and not covers(large, symbolic)


def test_entries_that_others_cover_do_not_count_against_the_limit():
    def f(x, kind):
        return x + len(kind)

    with config.patch(recompile_limit=4):
        compiled = dynamo_lite.compile(f, backend="eager")
        for kind in ("a", "bb", "ccc", "dddd"):
            for n in (3, 4):
                x = torch.ones(n)
                assert torch.equal(compiled(x, kind), f(x, kind))
    assert log.counters().get("recompile_limit", 0) == 0


def test_no_more_than_twice_as_many_entries_as_the_limit_says():
    def f(x, kind):
        return x + len(kind)

    with config.patch(recompile_limit=2):
        compiled = dynamo_lite.compile(f, backend="eager")
        for n in range(2, 20):
            assert torch.equal(compiled(torch.ones(n), "a" * n), torch.ones(n) + n)
    assert len(entries(f.__code__)) <= 4


def test_a_relation_of_a_dimension_that_another_entry_has_not():
    """At the limit, an entry for vectors is compared with those whose guards compare a second dimension."""
    def f(x, z, n):
        for _ in z[:4]:
            y = z.expand_as(z) if n in (2, 3, 5) else x
            dynamo_lite.graph_break()
            y.float().mean()

    sizes = ((3, 4, 3), (3, 16, 6), (3, 0, 6), (8, 8, 9), (2, 16, 0), (1, 0, 1), (9, 4, 4))
    with config.patch(raise_internal_errors=True):
        compiled = dynamo_lite.compile(f, backend="eager")
        for rows, columns, n in sizes:
            compiled(torch.randn(columns, rows).t(), torch.randn(rows), n)
