"""What a compile holds: nothing of the program's, once it is done."""
import contextlib
import gc
import sys
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite import exc


class Held:
    def __init__(self):
        self.k = 3
        self.list = [1]

    def scaled(self, x):
        return x * self.k


def one_graph(x, held):
    parts = [held.scaled(x) for _ in range(3)]
    return sum(parts), len(held.list)


def a_break(x, held):
    y = held.scaled(x)
    print(end="")
    return y + held.k


def a_break_on_data(x, held):
    y = held.scaled(x)
    if y.sum() > 0:
        y = y + 1
    return y


def raises(x, held):
    try:
        raise KeyError(held)
    except KeyError as error:
        assert error.args[0] is held
    return x + held.k


def lets_out(x, held):
    y = x + 1
    raise ValueError(y.shape[0] + held.k)


def generates(x, held):
    return sum(held.scaled(x) + i for i in range(3))


def changes(x, held):
    held.list.append(x.sum())
    held.other = x + 1
    del held.list[:], held.other
    return x


def closes_over(x, held):
    def inner(y):
        return y * held.k + x

    return inner(x)


def handles(x, held):
    try:
        raise ValueError(held.k)
    except ValueError as error:
        print(x, held.k, error, file=open("/dev/null", "w"))
    return x + 1


def prints(x, held):
    held.text = f"{x}{held.k}"
    return x


PROGRAMS = [one_graph, a_break, a_break_on_data, raises, lets_out, generates, changes, closes_over, prints, handles]


@pytest.mark.parametrize("f", PROGRAMS)
def test_arguments_end_with_the_call(f):
    dynamo_lite.reset()
    fn = dynamo_lite.compile(f, backend="eager")
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            for size in (2, 3):
                x, held = torch.ones(size), Held()
                ends = weakref.ref(x), weakref.ref(held)
                with contextlib.suppress(ValueError):
                    fn(x, held)
                del x, held
                assert [end() for end in ends] == [None, None]
    finally:
        gc.enable()


def test_arguments_end_with_a_refusal():
    dynamo_lite.reset()
    fn = dynamo_lite.compile(a_break_on_data, backend="eager", fullgraph=True)
    gc.collect()
    gc.disable()
    try:
        x, held = torch.ones(2), Held()
        ends = weakref.ref(x), weakref.ref(held)
        with pytest.raises(exc.Unsupported):
            fn(x, held)
        del x, held
        sys.exc_info()
        assert [end() for end in ends] == [None, None]
    finally:
        gc.enable()
