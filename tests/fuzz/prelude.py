"""What every program finds among its globals."""
from __future__ import annotations

PRELUDE = '''
import abc
import bisect
import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import heapq
import io
import itertools
import json
import math
import operator
import random
import re
import sys
import threading
import types

import numpy
import torch
import torch.utils.checkpoint
import torch.nn.functional as F

import dynamo_lite as dynamo_lite_itself

SEEN = ("STATE", "said", "COUNT", "WEIGHT", "Box", "Base", "Registered", "LATE", "HELD", "GLOBAL_BOX", "NET", "BN",
        "helper")
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


class Oops(Exception):
    def __init__(self, text="none", code=1):
        super().__init__(text)
        self.code = code

    def __str__(self):
        return f"{self.args[0]}/{self.code}"


ERRORS = (ZeroDivisionError, ValueError)


class Swallow:
    def __init__(self, *kinds):
        self.kinds, self.caught = kinds, None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.caught = value
        return kind is not None and issubclass(kind, self.kinds)


class Rich:
    """Most of what Python asks of an object by its type."""

    def __init__(self, t, k):
        self.t, self.k = t, k
        self.items = [t, t + 1]

    def __len__(self):
        said.append("len")
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __reversed__(self):
        yield from self.items[::-1]

    def __getitem__(self, i):
        return self.items[i]

    def __setitem__(self, i, v):
        self.items[i] = v

    def __delitem__(self, i):
        del self.items[i]

    def __contains__(self, v):
        said.append("contains")
        return v == self.k

    def __eq__(self, o):
        said.append("eq")
        return self.k == o.k if isinstance(o, Rich) else NotImplemented

    def __lt__(self, o):
        return self.k < o.k

    def __hash__(self):
        said.append("hash")
        return hash(self.k)

    def __bool__(self):
        said.append("bool")
        return self.k > 1

    def __int__(self):
        return int(self.k)

    __index__ = __int__

    def __add__(self, o):
        return Rich(self.t + o, self.k)

    def __radd__(self, o):
        return Rich(o + self.t, self.k + 1)

    def __iadd__(self, o):
        self.k += o
        return self

    def __rmul__(self, o):
        return o * self.t

    def __matmul__(self, o):
        return self.t * o

    def __neg__(self):
        return Rich(-self.t, -self.k)

    def __call__(self, a, *rest, **named):
        return a * self.k + len(rest) + len(named)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        said.append(name)
        return self.t if name == "missing" else len(name)

    def __delattr__(self, name):
        said.append(("del", name))
        object.__delattr__(self, name)

    def __str__(self):
        return f"Rich {self.k}"

    def __format__(self, how):
        return f"<{self.k}{how}>"


Point = collections.namedtuple("Point", "a b", defaults=[2])


class Color(enum.Enum):
    RED = 0
    GREEN = 1
    BLUE = 2

    def __str__(self):
        return self.name.lower()


class Flag(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: str = "b"


class Meta(type):
    made = 0

    def __call__(cls, *args):
        Meta.made += 1
        return super().__call__(*args)


class Tracked(metaclass=Meta):
    def __init__(self, v):
        self.v = v


class Odd(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        return NotImplemented


Odd.register(int)


class Registered:
    known = 0

    def __init_subclass__(cls, tag="", **rest):
        super().__init_subclass__(**rest)
        cls.tag = tag
        Registered.known += 1


def bumped(t, by=1):
    return t + by


def collecting(n, acc=[]):
    acc.append(n)
    return len(acc)


def keyed(t, *, k, z=None):
    return t * k if z is None else t * k + z


def many(*ts, k=1, **rest):
    return sum(ts) * k + len(rest)


def counted_calls(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        inner.calls += 1
        return fn(*args, **kwargs)

    inner.calls = 0
    return inner


@counted_calls
def counted(t):
    return t * counted.calls


@functools.singledispatch
def single(v):
    return "any"


@single.register
def _(v: int):
    return "int"


@single.register
def _(v: str):
    return "str"


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * 2

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return g * 3 + a * 0


class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, n):
        ctx.n = n
        ctx.mark_dirty()
        return a.clamp(-n, n)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.n, None


def helper(t, by=2):
    return t * by


helper.calls = 0
HELD = []
GLOBAL_BOX = Box(torch.ones(3, 4), 3)
GLOBAL_HOOKS = torch.nn.modules.module


def named_hook(module, args, kwargs, result):
    said.append(list(kwargs))


def doubling_hook(module, args, kwargs):
    return args, {k: v * 2 for k, v in kwargs.items()}


def shown_hook(module, args):
    said.append(module is NET)


def noting_hook(module, args, result):
    said.append(result is None)


NET = torch.nn.Linear(4, 4)
BN = torch.nn.BatchNorm1d(4)
COUNTER = itertools.count()
VAR = contextvars.ContextVar("VAR", default=1)
LOCAL = threading.local()


@functools.lru_cache(maxsize=None)
def CACHED(k):
    said.append(("cached", k))
    return k * 2
'''
