"""The order in which sets give their members, which depends on all that was done to them.

``set_programs`` generates programs over sets with histories; `python tests/set_programs.py 5000 1` runs any number.
"""
from __future__ import annotations

import collections
import operator
import random
import types

import pytest
import set_programs
import torch
from language_support import Programs

import dynamo_lite
from dynamo_lite import log

program = Programs()


@pytest.mark.parametrize("start", range(0, 320, 40))
def test_generated_programs(start):
    # Others in every process, but for the first ones.
    first = random.Random(f"{start} {hash('a')}").randrange(10**9) if start else 0
    found = [set_programs.difference(seed) for seed in range(first + start, first + start + 40)]
    assert not any(found), "\n\n".join(filter(None, found))


def shrunken(*kept, most=100):
    made = set(range(most))
    for number in range(most):
        if number not in kept:
            made.discard(number)
    return made


SHRUNKEN = shrunken(8, 1)
FROZEN = frozenset(shrunken(40, 3, 16))
WORDS = {"relu", "tanh", "gelu", "sigmoid"}


@program
def a_set_that_was_larger(x):
    s = set(range(100))
    for number in range(100):
        if number not in (8, 1):
            s.discard(number)
    s.add(40)
    s.add(16)
    return x + 1, list(s), s, [*s.copy()], s.copy()


@program
def small_sets_are_iterated(x):
    for n in {1, 2, 3}:
        x = x * n
    for word in {"a", "b", "c"} | {"d"}:
        x = x + len(word)
    return x, [n for n in frozenset((8, 16, 3))], list(set("hello"))


@program
def a_set_of_a_list_of_names(x):
    names = ["weight", "bias", "running_mean"]
    return x + 1, list(set(names)), tuple({n.upper() for n in names}), sorted(set(names))


@program
def sets_from_outside_are_merged(x):
    return x + 1, list(SHRUNKEN | {40}), list(WORDS - {"tanh"}), list(FROZEN & {3, 16, 40}), list({8, 40} ^ SHRUNKEN)


@program
def a_set_is_popped_empty(x):
    todo, done = {3, 8, 16, 1}, []
    while todo:
        n = todo.pop()
        done.append(n)
        if n == 8:
            todo |= {40, 2}
    return x + 1, done, todo


@program
def what_asks_for_the_order(x):
    s = shrunken(8, 1, 40) | {16}
    a, *b = s
    return (x + 1, a, b, "".join(map(str, s)), repr(s), f"{s}", "%s" % (s,), list(zip(s, "abcd")), list(enumerate(s)),
            max(s, key=lambda v: 0), min(s, key=lambda v: 0), sorted(s, key=lambda v: 0), sum(0.1 * v for v in s),
            list(dict.fromkeys(s)), list(collections.Counter(s)), [*filter(None, s)])


@program
def views_of_dicts(x):
    d, e = {8 * n: n for n in range(5)}, {8 * n: 2 * n for n in range(3, 9)}
    made = [d.keys() | e.keys(), d.keys() & e, d.keys() & {8, 32, 0, 1, 2, 3}, d.keys() - {8}, d.keys() ^ e.keys(),
            d.items() ^ e.items(), d.items() | e.items(), {0, 8} | d.keys(), {32, 0} & d.keys()]
    return x + 1, made, [list(m) for m in made]


@program
def a_set_loses_a_member_and_gets_it_back(x):
    s = {0, 8, 16}
    s.discard(0)
    s.add(0)
    return x + 1, list(s), s


@program.breaks("unsupported_iteration")
def members_change_while_their_number_does_not(x):
    s, found = {0, 8, 16}, []
    for n in s:
        if len(found) < 9:
            s.discard(n)
            s.add(n)
        found.append(n)
    return x + 1, found


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)


def test_other_histories_of_equal_sets():
    """What an equal set gives is guarded by its table where more than its own order is asked for."""
    def f(x, s):
        grown = s | {64, 9}
        s.add(72)
        return x + 1, list(grown), list(s), s.pop(), s, grown

    log.reset()
    fn = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for most in (100, 20, 100, 500, 20, 10, 500):
        given, same = shrunken(8, 1, most=most), shrunken(8, 1, most=most)
        assert set_programs.same(fn(torch.ones(2), given)[1:], f(torch.ones(2), same)[1:]), most
        assert set_programs.same(given, same)
    assert log.counters()["graphs"] == 4


def test_pop_looks_on_from_where_the_last_one_ended():
    def f(x, s):
        return x + 1, s.pop(), s

    def given(popped):
        s = {0, 1, 2, 3}
        for _ in range(popped):
            s.add(s.pop())
        return s

    fn = dynamo_lite.compile(f, backend="eager")
    for popped in (0, 1, 2, 3, 0, 2):
        assert list(given(popped)) == [0, 1, 2, 3]
        s = given(popped)
        assert set_programs.same(fn(torch.ones(2), s)[1:], f(torch.ones(2), given(popped))[1:])


@pytest.mark.parametrize("change", [
    lambda s: operator.ior(s, {8, 16, 24}), lambda s: operator.isub(s, set(range(3, 90))),
    lambda s: operator.ixor(s, {1, 2, 200}), lambda s: operator.iand(s, {1, 2, 64, 9}),
    lambda s: s.update({40: 1, 48: 2}),
    lambda s: s.update([40], (n for n in (48, 56))), lambda s: [s.discard(n) for n in range(60)], lambda s: s.clear(),
    lambda s: s.difference_update(list(range(60))), lambda s: [s.pop() for _ in range(7)],
    lambda s: s.symmetric_difference_update(s), lambda s: (s.clear(), s.update("ab"), s.add(3)),
])
def test_a_set_from_outside_is_changed_step_by_step(change):
    def f(x, o):
        change(o.held)
        return x + 1

    fn = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        got, want = types.SimpleNamespace(held=set(range(100))), types.SimpleNamespace(held=set(range(100)))
        held = got.held
        fn(torch.ones(2), got)
        f(torch.ones(2), want)
        assert got.held is held and set_programs.same(got.held, want.held)


def test_members_are_the_programs_own_objects():
    """A set that is built again holds the very strings and tuples that the program has put in."""
    def f(x, word, pair):
        made = {word, pair, "b"}
        return x + 1, made, frozenset(made), {word} | made

    fn = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for _ in range(3):
        word, pair = "".join(["a word ", "made anew"]), (int("1000"), "x")
        for made in fn(torch.ones(2), word, pair)[1:]:
            held = {value: value for value in made}
            assert held[word] is word and held[pair] is pair


def test_nans_have_no_fixed_place():
    def f(x):
        nan = float("nan")
        return x + 1, len([v for v in {nan, 1, 2.5}])

    assert dynamo_lite.compile(f, backend="eager")(torch.ones(2))[1] == 3


def test_sets_of_frozensets_and_their_orders():
    def f(x, pair):
        return x + 1, list(pair[0]), f"{pair[0]}"

    fn = dynamo_lite.compile(f, backend="eager")
    for most in (100, 20, 10, 100):
        pair = (frozenset(shrunken(8, 1, most=most).copy()), 1)
        assert fn(torch.ones(2), pair)[1:] == f(torch.ones(2), pair)[1:]
    for order in ((0, 8), (8, 0), (0, 8)):
        pair = (frozenset(order), 1)
        assert fn(torch.ones(2), pair)[1:] == f(torch.ones(2), pair)[1:]
