"""Generators that the program lets go of while they are suspended."""
import collections.abc

import torch

import dynamo_lite


class _Numbers(collections.abc.Sequence):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i >= 3:
            raise IndexError
        return i + 5


def test_a_handler_for_something_else_is_no_clean_up():
    def fn(x):
        for n in _Numbers():  # Sequence.__iter__ yields inside `try: ... except IndexError`
            x = x + n
            if n == 6:
                break
        return x

    x = torch.ones(3)
    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), fn(x))


def test_a_finally_is():
    said = []

    def numbers():
        try:
            yield 1
            yield 2
        finally:
            said.append("left")

    def fn(x):
        for n in numbers():
            x = x + n
            break
        said.append("after")
        return x

    x = torch.ones(3)
    want = fn(x)
    expected, said[:] = list(said), []
    assert torch.equal(dynamo_lite.compile(fn, backend="eager")(x), want)
    assert said == expected == ["left", "after"]


def test_so_is_a_handler_that_catches_everything():
    said = []

    def numbers():
        try:
            yield 1
        except BaseException as e:
            said.append(type(e).__name__)
            raise

    def fn(x):
        return x + next(numbers())

    x = torch.ones(3)
    want = fn(x)
    expected, said[:] = list(said), []
    assert torch.equal(dynamo_lite.compile(fn, backend="eager")(x), want)
    assert said == expected == ["GeneratorExit"]
