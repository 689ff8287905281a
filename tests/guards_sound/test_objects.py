"""Changes between two calls are noticed: objects of the standard library, class protocols, aliases, calls."""

from __future__ import annotations

import array
import collections
import enum
import functools
import math
import os
import types

import pytest
import torch
from guard_cases import Cases, X

import dynamo_lite

case = Cases()


class Col(enum.Enum):
    R = 1


@case
def enum_extra_attribute():
    Col.R.extra = 1
    return lambda x: x * Col.R.extra, (X,), lambda: setattr(Col.R, "extra", 5)


@case
def deque_contents():
    d = collections.deque([1, 2])
    return lambda x: (x * d[0], len(d)), (X,), lambda: d.appendleft(7)


@case
def deque_maxlen():
    b = [collections.deque([1, 2])]

    def f(x):
        d = b[0].copy()
        d.append(3)
        return x * len(d)

    return f, (X,), lambda: b.__setitem__(0, collections.deque([1, 2], maxlen=2))


@case
def counter_contents():
    c = collections.Counter("aab")
    return lambda x: (x * c["a"], c["z"], sum(c.values())), (X,), lambda: c.update("az")


@case
def proxy_of_mutated():
    d = {"a": 1}
    m = types.MappingProxyType(d)
    return lambda x: x * m["a"] + len(m), (X,), lambda: d.update(a=5, b=1)


@case
def dict_view_stored():
    d = {"a": 1}
    v = d.values()
    return lambda x: x * sum(v), (X,), lambda: d.update(b=5)


@case
def bytearray_contents():
    b = bytearray(b"ab")
    return lambda x: x * b[0], (X,), lambda: b.__setitem__(0, 1)


@case
def array_contents():
    a = array.array("i", [1, 2])
    return lambda x: x * a[0], (X,), lambda: a.__setitem__(0, 9)


@case
def memoryview_contents():
    b = bytearray(b"ab")
    m = memoryview(b)
    return lambda x: x * m[0], (X,), lambda: b.__setitem__(0, 1)


@case
def partial_keywords_dict():
    p = functools.partial(lambda x, k: x * k, k=2)
    return lambda x: p(x), (X,), lambda: p.keywords.update(k=7)


@case
def partial_setstate():
    p = functools.partial(lambda x, k: x * k, k=2)
    return lambda x: p(x), (X,), lambda: p.__setstate__((lambda x, k: x + k, (), {"k": 1}, None))


KK = [2]


@case
def lru_value_kept():
    @functools.lru_cache(None)
    def f(n):
        return n * KK[0]

    return lambda x: x * f(3), (X,), lambda: KK.__setitem__(0, 5)


@case
def lru_cleared():
    k = [2]

    @functools.lru_cache(None)
    def f(n):
        return n * k[0]

    def ch():
        k[0] = 5
        f.cache_clear()

    return lambda x: x * f(3), (X,), ch


class CP:
    n = 1

    @functools.cached_property
    def v(self):
        return self.n * 2


@case
def cached_property_overwritten():
    c = CP()
    return lambda x: x * c.v, (X,), lambda: c.__dict__.__setitem__("v", 9)


@case
def cached_property_deleted():
    c = CP()

    def ch():
        del c.__dict__["v"]
        c.n = 7

    return lambda x: x * c.v, (X,), ch


@case
def class_list_mutated():
    class L:
        l = [1]

    return lambda x: x * len(L.l) + L.l[0], (X,), lambda: L.l.append(3)


@case
def tuple_inner_list():
    t = ([1], 2)
    return lambda x: x * t[0][0], (X,), lambda: t[0].__setitem__(0, 5)


@case
def mutable_default_mutated():
    def f(x, l=[1]):
        return x * l[0]

    return lambda x: f(x), (X,), lambda: f.__defaults__[0].__setitem__(0, 5)


@case
def math_patched():
    class C:
        def __call__(s):
            s.o = math.pi
            math.pi = 5.0

        def undo(s):
            math.pi = s.o

    return lambda x: x * math.pi, (X,), C()


@case
def environ():
    os.environ["H3Q"] = "2"
    return lambda x: x * int(os.environ["H3Q"]), (X,), lambda: os.environ.__setitem__("H3Q", "5")


@case
def environ_get():
    os.environ.pop("H3R", None)
    return lambda x: x * int(os.environ.get("H3R", "1")), (X,), lambda: os.environ.__setitem__("H3R", "5")


@pytest.mark.parametrize("name", case.all)
def test_a_change_is_noticed(name):
    case.check(name, globals())


def test_a_dict_behind_a_proxy_that_the_function_changes():
    def program(x, changed, proxy):
        changed["n"] = changed["n"] + 1
        return x * proxy["n"]

    compiled = dynamo_lite.compile(program, backend="eager")
    behind, other = {"n": 1}, {"n": 5}
    proxy = types.MappingProxyType(behind)
    x = torch.ones(1)
    assert compiled(x, other, proxy).item() == 1
    assert compiled(x, behind, proxy).item() == 2
    assert compiled(x, behind, proxy).item() == 3
