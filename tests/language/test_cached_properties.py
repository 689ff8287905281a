"""functools.cached_property: what it keeps, where, and what it raises; and descriptors derived from Python's own that
are read in another way."""
from __future__ import annotations

import functools
from functools import cached_property

import pytest
import torch

import dynamo_lite


class Slots:
    __slots__ = ("x",)

    @cached_property
    def p(self):
        return 1


class Counted:
    n = 0

    @cached_property
    def p(self):
        self.n += 1
        return self.n * 10


class BySuper(Counted):
    def asked(self):
        return super().p


class Extended(Counted):
    @cached_property
    def p(self):
        return super().p + 1

    def asked(self):
        return super().p


class Renamed:
    n = 0


Renamed.q = Counted.__dict__["p"]  # whose name is another one
Renamed.nameless = cached_property(lambda self: 3)


class Shown(cached_property):
    def __get__(self, instance, owner=None):
        found = super().__get__(instance, owner)
        return found if instance is None else (found, "shown")


class Derived:
    @Shown
    def p(self):
        return 1


def answers(*asked):
    found = []
    for ask in asked:
        try:
            found.append(ask())
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


def slots(o):
    return answers(lambda: o.p)


def by_super(o):
    return answers(o.asked, o.asked, lambda: o.p, lambda: o.n, lambda: dict(vars(o)))


def extended(o):
    first = answers(lambda: o.p, o.asked, lambda: o.p)
    del o.p
    return first, answers(o.asked, lambda: o.p, lambda: dict(vars(o)))


def renamed(o):
    return answers(lambda: o.nameless, lambda: o.q, lambda: o.q, lambda: dict(vars(o)))


def derived(o):
    return answers(lambda: o.p, lambda: o.p, lambda: dict(vars(o)))


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("program, cls", [
    (slots, Slots), (by_super, BySuper), (extended, Extended), (renamed, Renamed), (derived, Derived)])
def test_as_eager(program, cls, inside):
    def run(x, o):
        return x + 1, program(cls() if inside else o)

    dynamo_lite.reset()
    compiled = dynamo_lite.compile(run, backend="eager")
    mine, theirs = cls(), cls()
    for _ in range(3):
        assert compiled(torch.ones(2), mine)[1] == run(torch.ones(2), theirs)[1]


class Class(classmethod):
    def __get__(self, instance, owner=None):
        bound = super().__get__(instance, owner)
        return lambda *args: ("class", bound(*args))


class Static(staticmethod):
    def __get__(self, instance, owner=None):
        function = super().__get__(instance, owner)
        return lambda *args: ("static", function(*args))


class Partial(functools.partialmethod):
    def __get__(self, instance, owner=None):
        bound = super().__get__(instance, owner)
        return lambda *args: ("partial", bound(*args))


class Base:
    @Class
    def c(cls, *args):
        return cls.__name__, args

    @Static
    def s(*args):
        return args

    def m(self, *args, k=1):
        return args, k

    p = Partial(m, k=3)


class Below(Base):
    def c(self, *args):
        return super().c(*args)

    def s(self, *args):
        return super().s(*args)

    def p(self, *args):
        return super().p(*args)


@pytest.mark.parametrize("cls", [Base, Below])
def test_derived_descriptors(cls):
    def run(x, o):
        return x + 1, o.c(1), Base.c(2), o.s(3), Base.s(4), o.p(5)

    dynamo_lite.reset()
    compiled = dynamo_lite.compile(run, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2), cls())[1:] == run(torch.ones(2), cls())[1:]
