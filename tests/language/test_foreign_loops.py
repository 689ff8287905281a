"""Loops over iterators that no trace can follow: values as in eager, and one break a turn where one is enough."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import log


def steps(n, fails_at=None):
    for i in range(n):
        if i == fails_at:
            raise KeyError(i)
        yield torch.full((2,), float(i))


def break_at_the_end(x, it):
    for b in it:
        x = x + b
        print(end="")
    return x


def break_in_the_middle(x, it):
    for b in it:
        x = x * b
        dynamo_lite.graph_break()
        x = x + 1
    else:
        x = x * 7
    return x


def continue_on_a_tensor(x, it):
    seen = []
    for b in it:
        x = x + b
        if x.sum() > 3:
            continue
        seen.append(x * 2)
    return x, seen


def nested(x, it):
    for b in it:
        for c in steps(2):
            x = x + b * c
            print(end="")
        print(end="")
    return x


def handler_around(x, it):
    try:
        for b in it:
            x = x + b
            print(end="")
    except KeyError as error:
        return x, error.args
    return x


def handler_inside(x, it):
    for b in it:
        try:
            x = x + b
            print(end="")
        finally:
            x = x * 2
    return x


PROGRAMS = [break_at_the_end, break_in_the_middle, continue_on_a_tensor, nested, handler_around, handler_inside]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("fails_at", [None, 2])
def test_as_eager(program, fails_at):
    def run(call, n):
        try:
            return str(call(torch.ones(2), steps(n, fails_at)))
        except KeyError as error:
            return repr(error)

    compiled = dynamo_lite.compile(program, backend="eager")
    for n in (3, 5, 1, 0):
        assert run(compiled, n) == run(program, n)


def test_a_break_at_the_end_of_the_body_goes_on_to_the_next_turn():
    compiled = dynamo_lite.compile(break_at_the_end, backend="eager")
    compiled(torch.ones(2), steps(5))
    # one before the loop's first turn, one in the body that serves all turns
    assert (log.counters()["graph_breaks"], log.counters()["graphs"]) == (2, 1)
