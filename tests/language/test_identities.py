"""``id(x)``: among ids, by the object's place in the program; as a number wherever that may matter."""
from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import exc, log


class Thing:
    def __init__(self, k):
        self.k = k


class Memo(nn.Module):
    """Which keeps what it has computed under ids, as caches of masks and plans do."""

    def __init__(self, kind):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.kind = kind
        self.seen = set()
        self.cache = {}
        self.misses = 0

    def forward(self, x):
        key = {"number": id(self.layer), "pair": (id(self.layer), x.shape[1]), "text": f"layer_{id(self.layer)}",
               "nested": (("a", id(self)), 1), "sum": id(self.layer) + 1}[self.kind]
        if key not in self.cache:
            self.misses += 1
            self.cache[key] = x.shape[0]
        self.seen.add(key)
        return self.layer(x) * self.cache.get(key)


def compiled(fn, **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend="eager", fullgraph=True, **options)


def graphs():
    return log.counters().get("graphs", 0)


@pytest.mark.parametrize("kind", ["number", "pair", "text", "nested", "sum"])
def test_keys_that_stay(kind):
    ours = Memo(kind)
    theirs = copy.deepcopy(ours)
    fn = compiled(ours)
    for _ in range(4):
        x = torch.ones(3, 2)
        torch.testing.assert_close(fn(x), theirs(x))
    assert ours.misses == theirs.misses == 1 and len(ours.cache) == len(ours.seen) == 1
    assert type(next(iter(ours.cache))) is type(next(iter(theirs.cache)))
    before = graphs()
    for _ in range(2):
        fn(torch.ones(3, 2))
    assert graphs() == before


def test_a_key_of_another_object():
    cache = {}

    def f(x, thing):
        return x * cache.setdefault(id(thing), thing.k)

    fn = compiled(f)
    one, two = Thing(1), Thing(2)
    for thing in (one, two, one, two):
        assert torch.equal(fn(torch.ones(2), thing), torch.ones(2) * thing.k)
    assert sorted(cache) == sorted([id(one), id(two)])
    one.k = 5
    assert torch.equal(fn(torch.ones(2), one), torch.ones(2))  # what is kept


def test_guards_do_not_keep_the_object():
    def f(x, thing):
        return x + id(thing) % 2 * 0

    fn = compiled(f)
    for _ in range(3):
        thing = Thing(1)
        fn(torch.ones(2), thing)
        del thing
        gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is Thing]


def test_compared_with_numbers():
    def f(x, thing, last):
        return x + 1 if id(thing) == last else x - 1 if last != id(thing) else x

    fn = compiled(f)
    one, two = Thing(1), Thing(1)
    for thing, last in ((one, id(one)), (two, id(one)), (two, id(two)), (one, 0), (one, id(one))):
        assert torch.equal(fn(torch.ones(2), thing, last), f(torch.ones(2), thing, last))


def test_a_saved_id():
    def f(x, thing, holder):
        if getattr(holder, "last", None) != id(thing):
            holder.last = id(thing)
            return x * 2
        return x * 3

    fn = compiled(f)
    ours, theirs = Thing(0), Thing(0)
    one, two = Thing(1), Thing(1)
    for thing in (one, one, two, two, one):
        assert torch.equal(fn(torch.ones(2), thing, ours), f(torch.ones(2), thing, theirs))
        assert ours.last == theirs.last


def test_numbers_and_texts():
    def f(x, thing):
        number = id(thing)
        return (x, f"{number}", "%d" % number, hex(number), number % 7, -number, number < 0, str(number), [number],
                f"{number:x}", max(number, 1), {"k": number}, number == id(thing), divmod(number, 2))

    fn = compiled(f)
    thing = Thing(1)
    for _ in range(2):
        assert fn(torch.ones(2), thing)[1:] == f(torch.ones(2), thing)[1:]
    assert graphs() <= 1


def test_among_ids_objects_of_a_kind_share_a_graph():
    def f(x, things):
        seen = set()
        for thing in things:
            if id(thing) not in seen:
                seen.add(id(thing))
                x = x + thing.k
        order = {id(thing): place for place, thing in enumerate(things)}
        return x, [order[id(thing)] for thing in things], len(seen)

    fn = compiled(f)
    for _ in range(3):
        one, two = Thing(1), Thing(2)
        got, want = fn(torch.zeros(1), [one, two, one]), f(torch.zeros(1), [one, two, one])
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    assert graphs() == 1
    one = Thing(1)
    assert fn(torch.zeros(1), [one, one, one])[1:] == ([2, 2, 2], 1)


def test_ids_among_numbers_in_a_dict_of_the_trace():
    cache = {}

    def f(x, thing, more):
        table = {**cache, 3: "three"}
        ids = {id(thing), 4}
        return x, table.get(id(thing)), id(thing) in table, id(thing) in ids, len(ids | set(more)), more[0] in ids

    fn = compiled(f)
    thing = Thing(1)
    for _ in range(2):
        assert fn(torch.ones(2), thing, [4, 5])[1:] == f(torch.ones(2), thing, [4, 5])[1:]
        cache[id(thing)] = "here"


def test_tensors():
    def f(x, y, table):
        return x + y, id(x) == id(y), table.get(id(x)), table.get(id(y))

    x, y = torch.ones(2), torch.ones(2)
    fn = compiled(f)
    for a, b in ((x, y), (y, x), (x, x), (x, y)):
        assert fn(a, b, {id(x): 1})[1:] == f(a, b, {id(x): 1})[1:]


def test_of_what_the_trace_makes():
    def f(x):
        made = Thing(1)
        return x, id(made) == id(made), {id(made): 1}[id(made)], made

    assert compiled(f)(torch.ones(2))[1:3] == (True, 1)
    with pytest.raises(exc.Unsupported):
        compiled(lambda x: (lambda made: (id(made) % 2 >= 0, made, x + 1))(Thing(1)))(torch.ones(2))


def test_deep_copies():
    def f(x, things):
        copied = copy.deepcopy(things)
        return x, [thing.k for thing in copied], copied[0] is copied[1], copied[0] is things[0]

    fn = compiled(f)
    for _ in range(2):
        thing = Thing(1)
        assert fn(torch.ones(2), [thing, thing])[1:] == ([1, 1], True, False)
    assert graphs() == 0


def test_equal_numbers_and_texts_are_one_key_only_if_they_are_one_object():
    def f(x):
        n, m = x.shape
        a, b = 1000, 1000
        c, d = 1.5 * x.ndim, 1.5 * x.ndim
        e, g = "ab" + str(x.ndim), "ab" + str(x.ndim)
        return x + 1, len({id(n), id(m)}), len({id(a), id(b)}), len({id(c): 0, id(d): 0}), len({id(e), id(g), id(e)})

    dynamo_lite.reset()
    compiled = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(500, 500))[1:] == f(torch.ones(500, 500))[1:] == (2, 1, 2, 2)
