"""functools.partial and partialmethod: the attributes that programs hang on them, theirs and those of update_wrapper.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import functools

import pytest
import torch
from language_support import Programs

import dynamo_lite

program = Programs()


def base(x, k, j=1):
    """What is wrapped."""
    return x * k + j


TAGGED = functools.partial(base, k=2)
TAGGED.tag = 5
WRAPPED = functools.update_wrapper(functools.partial(base, k=3), base)


class Methods:
    def go(self, x, k, j=1):
        return x * k + j

    twice = functools.partialmethod(go, k=2)
    thrice = functools.partialmethod(go, k=3, j=5)


@program
def attributes(x):
    return (
        TAGGED(x) + TAGGED.tag, WRAPPED.__name__, WRAPPED.__doc__, WRAPPED.__wrapped__(x, 2), TAGGED.__doc__[:7],
        hasattr(TAGGED, "__name__"), getattr(TAGGED, "other", None), WRAPPED.__module__, sorted(vars(TAGGED)),
    )


@program
def attributes_of_a_new_one(x):
    p = functools.partial(base, k=4)
    p.note = [1]
    p.note.append(2)
    q = functools.update_wrapper(functools.partial(base, k=3), base)
    del p.note[0]
    return p(x) + q(x), p.note, q.__name__, vars(p), q.__wrapped__ is base


@program
def attributes_deleted(x):
    TAGGED.later = 1
    del TAGGED.later
    try:
        del TAGGED.later
    except AttributeError as error:
        return x + 1, str(error)


@program
def methods(x):
    m = Methods()
    return m.twice(x) + Methods.thrice(m, x) + m.thrice(x, j=0), m.twice.__self__ is m


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)


def test_attributes_that_change_are_noticed():
    def count(x):
        counted.calls = getattr(counted, "calls", 0) + 1
        return x * counted.scale

    compiled = dynamo_lite.compile(count, backend="eager", fullgraph=True)
    counted = functools.partial(base, k=2)
    counted.scale = 2.0
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    counted.scale = 3.0
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    assert counted.calls == 2


def test_a_new_one_leaves_with_its_attributes():
    def make(x):
        p = functools.partial(base, k=x)
        p.scale = x + 1
        return p

    compiled = dynamo_lite.compile(make, backend="eager", fullgraph=True)
    for _ in range(2):
        p = compiled(torch.ones(2))
        assert type(p) is functools.partial and vars(p).keys() == {"scale"}
        assert p.scale.tolist() == [2.0, 2.0] and p.keywords["k"].tolist() == [1.0, 1.0]
