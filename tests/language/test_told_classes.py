"""Objects that say of themselves by ``__class__`` what they are: code of the program, run when the program asks."""
from __future__ import annotations

import traceback
import types
import weakref

import pytest
import torch

import dynamo_lite


class Node:
    v = 1


def dead():
    return weakref.proxy(Node())


class Raises:
    @property
    def __class__(self):
        raise KeyError("__class__")

    def __getattr__(self, name):
        raise KeyError(name)


class Counts:
    asked: list[object] = []

    @property
    def __class__(self):
        self.asked.append(traceback.format_stack(limit=7))
        return int


PROXY, RAISES, COUNTS, NODE = dead(), Raises(), Counts(), Node()
HOLDER = types.SimpleNamespace(proxy=PROXY, several=[PROXY, RAISES, COUNTS])


def not_used(x, *args):
    held = PROXY, RAISES, COUNTS
    return x + len(held)


def used_dead(x, *args):
    try:
        return x + PROXY.v
    except ReferenceError:
        return x


def held_by_others(x, *args):
    return x + len(HOLDER.several), HOLDER.proxy is PROXY


def looked_through(x, *args):
    for _ in HOLDER.several:
        x = x + 1
    return x


def beside_a_weak_reference(x, *args):
    watched = weakref.ref(NODE), PROXY, RAISES
    return x + len(watched)


def behind_a_break(x, *args):
    dynamo_lite.graph_break()
    return x + len(args), COUNTS


def compared(x, *args):
    return x + isinstance(COUNTS, Counts)


@pytest.mark.parametrize("fn", [not_used, used_dead, held_by_others, looked_through, beside_a_weak_reference,
                                behind_a_break, compared])
def test_nobody_asks_but_the_program(fn):
    compiled = dynamo_lite.compile(fn, backend="eager")
    with dynamo_lite.config.patch(raise_internal_errors=True):
        for args in ((), HOLDER.several, HOLDER.several):
            Counts.asked.clear()
            result = compiled(torch.ones(2), *args)
            seen = list(Counts.asked)
            asked = len(seen)
            Counts.asked.clear()
            wanted = fn(torch.ones(2), *args)
            assert asked == len(Counts.asked), seen
            assert len(repr(result)) == len(repr(wanted))
