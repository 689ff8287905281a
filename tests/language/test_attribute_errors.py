"""Descriptors that raise AttributeError, after which ``__getattr__`` is asked; attributes that are read once; numbers
left of objects of wider classes."""
from __future__ import annotations

import pytest
import torch
from language_support import Programs, same
from torch import nn

import dynamo_lite

program = Programs()


class Missing(AttributeError):
    pass


class Fallback:
    @property
    def p(self):
        return self.nothing_like_it

    @property
    def q(self):
        raise Missing("own")

    def __getattr__(self, name):
        if name in ("p", "q"):
            return 7
        raise AttributeError(name)


class OwnLookup:
    def __getattribute__(self, name):
        if name == "r":
            raise Missing(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        return 5


class Wrapper(nn.Module):
    """What is not here is the inner module's."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.inner.gain = 3.0

    @property
    def gain(self):
        return self._gain

    @property
    def weight_of(self):
        return self.nothing.weight

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return x + getattr(self, "gain", 1.0) + hasattr(self, "gain")


class Plain(nn.Module):
    @property
    def w2(self):
        return self.missing.weight

    def forward(self, x):
        try:
            return x + self.w2
        except AttributeError as error:
            return x, str(error)


@program
def properties(x):
    o = Fallback()
    return o.p, o.q, hasattr(o, "p"), getattr(o, "p", 50), hasattr(o, "s"), getattr(o, "s", 50), x + 1


@program
def own_lookup(x):
    return OwnLookup().r, x + 1


@pytest.mark.parametrize("make", [Wrapper, Plain])
def test_modules(make):
    module = make()
    x = torch.ones(2)
    assert same(dynamo_lite.compile(module, backend="eager", fullgraph=True)(x), module(x))


class Popped:
    def __init__(self):
        self.items = [1, 2, 3]

    @property
    def last(self):
        return self.items.pop()


class Popped2(Popped):
    __match_args__ = ("last",)


@program
def patterns_read_once(x):
    a, b = Popped(), Popped2()
    match a:
        case Popped(last=v):
            pass
    match b:
        case Popped2(w):
            pass
    match a:
        case Popped(no_such=_):
            v = 0
    return v, w, a.items, b.items, x + 1


class Wide(float):
    def __radd__(self, other):
        return 100.0

    def __rpow__(self, other):
        return 200.0

    def __gt__(self, other):
        return "greater"


class Complex(complex):
    def __rmul__(self, other):
        return 300


class Integer(int):
    def __radd__(self, other):
        return 400


class Inherits(float):
    pass


@program
def numbers_beside_wider_ones(x):
    w, c, i, n = Wide(1), Complex(2), Integer(3), Inherits(4)
    return (1 + w, True + w, 2 ** w, 1 < w, sum([w]), 1.5 + w, 2 * c, 2.5 * c, 1 + i, 1.5 + i, 1 + n, 2 ** n, 1 < n, x)


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
