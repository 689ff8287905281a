"""Sets from outside whose members are functions, classes, modules, tensors and other objects."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import exc, log


class Thing:
    def __init__(self, k):
        self.k = k


class Hashed(Thing):
    def __hash__(self):
        return hash(self.k)

    def __eq__(self, other):
        return self.k == other.k


def shift(x):
    return x + 1


def scale(x):
    return x * 2


ACTIVATIONS = frozenset({torch.relu, torch.sigmoid, nn.functional.gelu})
MIXED = {shift, "name", 3, Thing, (scale, 1)}
ONE, TWO, THREE = Thing(1), Thing(2), Thing(3)


def compiled(fn, **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend="eager", fullgraph=True, **options)


def graphs():
    return log.counters().get("graphs", 0)


def test_membership():
    def f(x, function):
        return (x + 1, function in ACTIVATIONS, torch.tanh in ACTIVATIONS, shift in MIXED, scale in MIXED,
                (scale, 1) in MIXED, (shift, 1) in MIXED, Thing in MIXED, Hashed in MIXED, "name" in MIXED, len(MIXED))

    fn = compiled(f)
    for function in (torch.relu, torch.relu, shift):
        assert fn(torch.ones(2), function)[1:] == f(torch.ones(2), function)[1:]
    assert graphs() == 2


def test_iteration_goes_in_the_sets_order():
    f = lambda x, things: [x * thing.k for thing in things]
    fn = compiled(f)
    for things in ({ONE, TWO}, {TWO, THREE}, {THREE, ONE, TWO}, {ONE}):
        for _ in range(2):
            for got, want in zip(fn(torch.ones(2), things), f(torch.ones(2), things)):
                assert torch.equal(got, want)


def test_other_objects_of_the_kind():
    fn = compiled(lambda x, things: sum(thing.k for thing in things) * x)
    for _ in range(3):
        assert torch.equal(fn(torch.ones(2), {Thing(1)}), torch.ones(2))
    assert graphs() == 1
    assert torch.equal(fn(torch.ones(2), {Thing(5)}), torch.ones(2) * 5)


def test_which_member_it_is():
    f = lambda x, thing, things: x + (1 if thing in things else 0)
    fn = compiled(f)
    both, rest = {ONE, TWO}, {TWO, THREE}
    for thing, things in ((ONE, both), (ONE, rest), (THREE, rest), (ONE, both), (ONE, {TWO})):
        assert torch.equal(fn(torch.zeros(1), thing, things), f(torch.zeros(1), thing, things))


def test_changes():
    def f(x, things, new, old):
        things.add(new)
        things.discard(old)
        return x * len(things), new in things, old in things, things == {new}

    fn = compiled(f)
    for members, new, old in (([ONE], TWO, ONE), ([ONE, TWO], THREE, TWO), ([ONE], ONE, TWO), ([ONE], ONE, ONE)):
        ours, theirs = set(members), set(members)
        assert fn(torch.ones(1), ours, new, old)[1:] == f(torch.ones(1), theirs, new, old)[1:]
        assert ours == theirs


def test_set_operations_with_modules():
    layers = {nn.Linear(2, 2), nn.Linear(2, 2)}
    first = next(iter(layers))

    def f(x, layers, first):
        rest = layers - {first}
        return sum(layer(x) for layer in rest), len(layers | {3}), first in rest, (layers & {first}) == {first}, rest

    fn = compiled(f)
    for _ in range(2):
        got, want = fn(torch.ones(1, 2), layers, first), f(torch.ones(1, 2), layers, first)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    assert graphs() == 1


def test_tensors():
    x, y = torch.ones(2), torch.ones(2)
    fn = compiled(lambda x, tensors: (x * len(tensors), x in tensors))
    assert fn(x, {x, y})[1] is True and fn(x, {y})[1] is False


def test_members_that_define_hash_break():
    with pytest.raises(exc.Unsupported, match="__hash__"):
        compiled(lambda x, things: x * len(things))(torch.ones(2), {Hashed(1)})


def test_a_set_that_is_changed_between_calls():
    things = {ONE}
    fn = compiled(lambda x: x + len(things) + sum(thing.k for thing in things))
    assert torch.equal(fn(torch.zeros(1)), torch.zeros(1) + 2)
    things.add(THREE)
    assert torch.equal(fn(torch.zeros(1)), torch.zeros(1) + 6)
    things.discard(ONE)
    assert torch.equal(fn(torch.zeros(1)), torch.zeros(1) + 4)
