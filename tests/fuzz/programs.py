"""Programs: a prelude that all find among their globals, arguments that may share memory, and a random ``f``."""
from __future__ import annotations

import random

from .expressions import EXPRESSIONS
from .harness import Options
from .maker import Maker, Scope
from .repair import repair
from .statements import COMPOUND, RESULTS, simple

PRELUDE = '''
import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import random

import torch
import torch.nn.functional as F

import dynamo_lite as dynamo_lite_itself

SEEN = ("STATE", "said", "COUNT", "WEIGHT", "Box")
STATE = {"count": 0}
COUNT = 1
WEIGHT = torch.full((4,), 0.5)
said = []


class Base:
    k = 2

    def scaled(self, by):
        return self.t * by

    @property
    def twice(self):
        return self.t * 2

    @twice.setter
    def twice(self, value):
        self.t = value


class Box(Base):
    made = 0
    shared = torch.ones(4)
    __match_args__ = ("t", "k")

    def __init__(self, t, k):
        super().__init__()
        self.t, self.k, self.held = t, k, [t]

    def __call__(self, a):
        return a + self.t

    def __add__(self, other):
        return type(self)(self.t + other.t, self.k)

    def __getitem__(self, a):
        return a * self.k

    def plus(self, a):
        return a + self.k

    @functools.cached_property
    def lazy(self):
        said.append("lazy")
        return self.t * 3

    def bump(self):
        type(self).made += 1
        self.k += 1
        return self.k

    def grow(self, by):
        self.k += by
        self.t = self.scaled(by)
        return self


class Deep(Box):
    def __getattr__(self, name):
        if name == "extra":
            return torch.ones(3, 4)
        raise AttributeError(name)

    def scaled(self, by):
        return super().scaled(by) - 1


class Slotted:
    __slots__ = ("t", "k", "extra", "held")
    __match_args__ = ("t", "k")
    twice = property(lambda self: self.t * 2)
    lazy = 4

    def __init__(self, t, k):
        self.t, self.k, self.held = t, k, [t]

    def __call__(self, a):
        return a - self.t

    def scaled(self, by):
        return self.t + by

    def bump(self):
        self.k += 2
        return self.k


@dataclasses.dataclass
class Pair:
    t: torch.Tensor
    k: int = 2
    held: list = dataclasses.field(default_factory=list)

    def scaled(self, by):
        return self.t * by + self.k

    def __call__(self, a):
        return a * self.k


class Manager:
    def __init__(self, said, value):
        self.said, self.value = said, value

    def __enter__(self):
        self.said.append("enter")
        return self.value

    def __exit__(self, kind, value, traceback):
        self.said.append(("exit", kind.__name__ if kind else None))
        return kind is not None and issubclass(kind, ArithmeticError)


@contextlib.contextmanager
def entered(said, value):
    said.append("in")
    try:
        yield value
    finally:
        said.append("out")


def pairs(t):
    yield t
    yield t * 2
    said.append("ended")


def zip_first(a, b):
    for p, _ in zip(a, b):
        yield p


def bump_count():
    global COUNT
    COUNT += 1
    return COUNT


def print_nothing(t):
    dynamo_lite_itself.graph_break()
    return t
'''

X = [
    "torch.randn(3, 4)", "torch.randn(3, 4)", "torch.randn(4, 3).t()", "torch.randn(3, 8)[:, ::2]",
    "torch.randn(3, 4).double()", "torch.randint(-3, 4, (3, 4))",
]
Y = [
    "torch.randn(4)", "torch.randn(3, 4)", "torch.randn(4, 3).t()", "torch.randn(3, 1)",
    "torch.randn(1, 4).expand(3, 4)", "torch.randn(4).double()", "torch.randn(())", "torch.randn(1, 3, 4)",
]
# Where the second argument and those in the list lie in the first one's memory.
SHARED = ["x[0]", "x", "x.t()", "x.reshape(3, 4)", "x.detach()", "x[:, 1:]"]
ARGUMENTS = '''

import dynamo_lite


def arguments(i):
    x = {x}
    y = {y}
    items = [{first}, torch.ones(4) * (i + 1)]
    return [x, y, {n} + i, i % 2 == 0, items, {{"a": {table}}}, Box(torch.ones(4) * i, 2)]

'''
NAMES = {"t": ["x", "y"], "n": ["n"], "l": ["items"], "d": ["table"], "o": ["box"], "m": ["sizes"], "c": []}


def program(seed: int, breaks: bool, grad: bool) -> str:
    """The source of a program."""
    rng = random.Random(f"{seed} {breaks}")
    own = rng.random() < 0.7
    first = rng.choice(["torch.randn(3, 4)", "x", "y", "x[1]"])
    arguments = ARGUMENTS.format(
        x=rng.choice(X), y=rng.choice(Y if own or grad else SHARED), first=first,
        n=rng.choice([0, 1, 2]), table=rng.choice(["torch.ones(3, 4)", "items[0]", "y", "x.reshape(-1)[:4]"]))
    maker = Maker(rng, EXPRESSIONS, simple(breaks), COMPOUND)
    names = {kind: list(found) for kind, found in NAMES.items()}
    scope = Scope(names, {"x", "y", "n", "sizes"})
    body = maker.function(
        "def f(x, y, n, flag, items, table, box):\n    sizes = [n, 2]", scope, rng.randint(3, 12), RESULTS)
    return PRELUDE + arguments + repair(PRELUDE + arguments, body, rng, Options(grad=grad))
