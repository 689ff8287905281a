"""Iterators and itertools: as late as the C classes take their elements, whatever is left, copied or asked again.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import copy
import itertools
import operator

import pytest
import torch
from language_support import Programs

import dynamo_lite

program = Programs()


@program
def groupby_leaves_the_rest(x):
    it = iter([1, 1, 2, 2, 3])
    found = []
    for key, _ in itertools.groupby(it):
        found.append(key)
        break
    return x + 1, found, list(it)


@program
def groupby_of_an_endless_iterator(x):
    for key, group in itertools.groupby(itertools.count(), lambda v: v // 3):
        x = x + sum(group)
        if key > 2:
            break
    return x


@program
def groups_end_with_their_turn(x):
    groups = list(itertools.groupby([1, 1, 2]))
    one = itertools.groupby("aab")
    _, first = next(one)
    next(first)
    _, second = next(one)
    return x + 1, [(k, list(g)) for k, g in groups], list(first), list(second)


@program
def groupby_asks_for_identity_first(x):
    nan = float("nan")
    return x * 2, [len(list(g)) for _, g in itertools.groupby([nan, nan, float("nan")])]


class Growing:
    """Iterated by index."""

    def __init__(self):
        self.items = [1, 2]

    def __getitem__(self, index):
        return self.items[index]


@program
def iterators_by_index_stay_at_their_end(x):
    growing = Growing()
    it = iter(growing)
    found = list(it)
    growing.items.append(3)
    return x + 1, found, list(it), next(it, "end")


@program
def next_of_iterators_of_containers(x):
    steps = [iter({"a": 1}).__next__, iter({1}).__next__, iter(Growing()).__next__, iter([5]).__next__]
    it = iter({"b": 2}.items())
    return x + 1, [step() for step in steps], it.__iter__() is it, len({it, it})


@program
def tee_leaves_the_rest(x):
    it = iter([1, 2, 3, 4])
    a, b = itertools.tee(it)
    return x + next(a) + next(a) + next(b), list(it), list(a), list(b)


@program
def tee_of_an_endless_iterator(x):
    a, b, c = itertools.tee(itertools.count(5), 3)
    return x + next(a) + next(a) * next(b), next(c), itertools.tee([1], 0)


@program
def tee_of_a_tee(x):
    a, b = itertools.tee("abc")
    c, d = itertools.tee(a)
    next(a)
    e = copy.copy(a)
    return x + 1, a is c, list(e), list(d), list(b), list(type(a)("xy")), type(a).__name__


@program
def tee_of_wrong_counts(x):
    said = []
    for n in (-1, "two"):
        try:
            itertools.tee([1], n)
        except (ValueError, TypeError) as error:
            said.append(str(error))
    return x + len(said), said


@program
def products_begin_at_once(x):
    first = next(itertools.product(range(1000), repeat=3))
    orders = list(itertools.islice(itertools.permutations(range(12)), 3))
    return x + sum(first), orders, list(itertools.product("ab", "", "c"))


@program
def combinatorics(x):
    counts = []
    for n, r in itertools.product(range(4), range(5)):
        pool = "abcd"[:n]
        counts.append((list(itertools.permutations(pool, r)), list(itertools.combinations(pool, r)),
                       list(itertools.combinations_with_replacement(pool, r))))
    return x + len(counts), counts


@program
def a_generator_that_asks_itself(x):
    def numbers():
        yield next(it)

    it = numbers()
    try:
        next(it)
    except ValueError as error:
        return x + 1, str(error)


class Again:
    """An iterator that asks what iterates over it."""

    def __init__(self):
        self.count = 0
        self.outer = None

    def __iter__(self):
        return self

    def __next__(self):
        self.count += 1
        return next(self.outer) if self.count == 2 else self.count


@program.breaks("generator_frame")
def pairwise_asked_again(x):
    inner = Again()
    inner.outer = itertools.pairwise(inner)
    return x + 1, next(inner.outer), next(inner.outer)


@program.breaks("unsupported_builtin")
def id_of_what_is_gone(x):
    return x + 1, len(set(map(id, zip("abc", "def"))))


@program
def id_of_what_is_held(x):
    pairs = list(zip("abc", "def"))
    y = x + 1
    return y, len(set(map(id, pairs))), id(y) == id(x), {id(pairs): 1}[id(pairs)]


class Sized:
    """What list() asks for its length first."""

    def __init__(self, said, length):
        self.said = said
        self.length = length

    def __iter__(self):
        self.said.append("iter")
        return iter([1, 2])

    def __length_hint__(self):
        self.said.append("hint")
        if isinstance(self.length, Exception):
            raise self.length
        return self.length


class WithLen(Sized):
    def __len__(self):
        self.said.append("len")
        if self.length is None:
            raise TypeError("no length")
        return 2


@program
def length_hints(x):
    said = []
    sized, with_len = Sized(said, 7), WithLen(said, 3)
    found = [list(sized), tuple(sized), [0, *sized], sorted(sized), set(sized), list(with_len)]
    found[0].extend(sized)
    hints = [operator.length_hint(v) for v in (sized, with_len, [1], "abc")]
    return x + len(said), said, found, hints, operator.length_hint(object(), 9)


@program
def length_hints_that_are_wrong(x):
    said = []
    errors = []
    for length in (KeyError("no"), -1, "two"):
        try:
            list(Sized(said, length))
        except (KeyError, ValueError, TypeError) as error:
            errors.append((type(error).__name__, str(error)))
    return x + 1, said, errors, list(Sized(said, NotImplemented)), list(Sized(said, TypeError("none")))


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)


def test_iterators_of_tee_leave_together():
    def escaping(x):
        a, b = itertools.tee(iter([1, 2, 3, 4]))
        return x + next(a) + next(a) * next(b), a, b

    compiled = dynamo_lite.compile(escaping, backend="eager", fullgraph=True)
    for f in (escaping, compiled, compiled):
        y, a, b = f(torch.ones(2))
        assert torch.equal(y, torch.ones(2) + 3)
        assert (next(a), next(b), next(b), next(b), next(a)) == (3, 2, 3, 4, 4)
        assert type(a) is type(b) is type(itertools.tee([])[0])
