"""Attribute lookup, however a class arranges it: in C, by descriptors, slots, metaclasses, hooks; and the protocols
that check what special methods of the user's give.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import array
import collections
import collections.abc
import copy
import ctypes
import dataclasses
import datetime
import decimal
import fractions
import functools
import math
import numbers
import operator
import threading
import types
import typing
import unittest.mock
import weakref

import pytest
import torch
from language_support import same
from torch import nn

import dynamo_lite

CASES = {}


def case(mk=lambda: (torch.ones(2),)):
    """Registers a program that is called twice on the same arguments."""

    def register(program):
        assert program.__name__ not in CASES, program.__name__
        CASES[program.__name__] = (program, mk)
        return program

    return register


def outcomes(program, make):
    args, found = make(), []
    for _ in range(2):
        try:
            found.append(program(*args))
        except dynamo_lite.exc.DynamoLiteError:
            raise
        except Exception as error:
            found.append((type(error), str(error)))
    return found


class Plain:
    pass


LOC = threading.local()


def mloc():
    l = threading.local()
    l.x = 5
    return torch.ones(2), l


@case(mk=mloc)
def tl1(x, l):
    return getattr(l, "x", 1), getattr(l, "y", 2), x + l.x


@case(mk=mloc)
def tl2(x, l):
    l.z = 3
    l.x = 4
    return l.z, l.x, hasattr(l, "x"), hasattr(l, "q"), x + 1


@case(mk=mloc)
def tl3(x, l):
    del l.x
    try:
        l.x
    except AttributeError as e:
        return type(e).__name__, x + 1


@case(mk=mloc)
def tl4(x, l):
    return l.__dict__["x"], vars(l), x + 1


class TL(threading.local):
    k = 3

    def __init__(self):
        self.y = 7

    def get(self):
        return self.y + self.k


def mtl():
    return torch.ones(2), TL()


@case(mk=mtl)
def tls(x, l):
    l.y = l.get()
    return l.get(), l.k, x * l.y


@case()
def tlglob(x):
    if not hasattr(LOC, "n"):
        LOC.n = 0
    LOC.n = LOC.n + 1
    r = LOC.n
    del LOC.n
    return r, x + 1


def mo():
    o = Plain()
    o.a = 1
    return torch.ones(2), o


@case(mk=mo)
def dictclaims(x, o):
    d = o.__dict__
    out = []
    for n in ("keys", "foo", "a", "__len__", "append"):
        out.append(hasattr(d, n))
    return out, getattr(d, "foo", 9), x + 1


@case(mk=mo)
def dictattr(x, o):
    try:
        return o.__dict__.foo
    except AttributeError as e:
        return str(e), x + 1


class Slots:
    __slots__ = ("a", "b")


def ms():
    s = Slots()
    s.a = 1
    return torch.ones(2), s


@case(mk=ms)
def slot1(x, s):
    del s.a
    try:
        del s.a
    except AttributeError as e:
        return str(e), x + 1


@case(mk=ms)
def slot2(x, s):
    try:
        s.b
    except AttributeError as e:
        r = str(e)
    try:
        del s.b
    except AttributeError as e:
        return r, str(e), x + 1


@case(mk=ms)
def slot3(x, s):
    del s.a
    r = getattr(s, "a", 7), hasattr(s, "a"), hasattr(s, "b")
    s.a = x
    s.b = 2
    return r, s.a, s.b


@case()
def slot4(x):
    s = Slots()
    r = hasattr(s, "a")
    s.a = 1
    del s.a
    try:
        del s.a
    except AttributeError as e:
        return r, str(e), x + 1


@case()
def slot5(x):
    s = Slots()
    try:
        s.zz = 1
    except AttributeError as e:
        return str(e), x + 1


class SG:
    __slots__ = ("a",)

    def __getattr__(self, n):
        return ("dyn", n)


@case(mk=lambda: (torch.ones(2), SG()))
def slotga(x, s):
    r = s.a, s.q
    s.a = 4
    r2 = s.a
    del s.a
    return r, r2, s.a, x + 1


class SD:
    __slots__ = ("a",)
    d = 5


@case(mk=lambda: (torch.ones(2), SD()))
def slotd(x, s):
    try:
        s.d = 3
    except AttributeError as e:
        return str(e), x + 1


class Desc:
    def __get__(s, o, t=None):
        return "got"


class WD:
    d = Desc()


@case(mk=lambda: (torch.ones(2), WD()))
def desc1(x, o):
    return o.d, WD.d, x + 1


class DataDesc:
    def __get__(s, o, t=None):
        return s if o is None else o.__dict__.get("_v", 0)

    def __set__(s, o, v):
        o.__dict__["_v"] = v * 2

    def __delete__(s, o):
        o.__dict__.pop("_v", None)


class WDD:
    d = DataDesc()


@case(mk=lambda: (torch.ones(2), WDD()))
def desc2(x, o):
    a = o.d
    o.d = 4
    b = o.d
    del o.d
    return a, b, o.d, x + 1


class WithProperty:
    def __init__(s):
        s._v = 1

    @property
    def v(s):
        return s._v

    @v.setter
    def v(s, n):
        s._v = n + 1

    @v.deleter
    def v(s):
        s._v = -1

    @property
    def ro(s):
        return 3


@case(mk=lambda: (torch.ones(2), WithProperty()))
def prop1(x, p):
    p.v = 5
    a = p.v
    del p.v
    try:
        p.ro = 3
    except AttributeError as e:
        r = str(e)
    try:
        del p.ro
    except AttributeError as e:
        q = str(e)
    return a, p.v, r, q, x + 1


class A1:
    k = 1

    def who(s):
        return "A1"


class A2:
    k = 2

    def who(s):
        return "A2"


@case(mk=lambda: (torch.ones(2), A1()))
def setclass(x, a):
    a.__class__ = A2
    return a.k, a.who(), type(a).__name__, isinstance(a, A2), x + 1


class GA:
    def __init__(s):
        s.real = 1

    def __getattr__(s, n):
        if n.startswith("x"):
            return n * 2
        raise AttributeError(n)


@case(mk=lambda: (torch.ones(2), GA()))
def ga(x, o):
    try:
        o.foo
    except AttributeError as e:
        r = str(e)
    return o.xy, o.real, hasattr(o, "zz"), r, x + 1


class GAttr:
    def __getattribute__(s, n):
        if n == "magic":
            return 42
        return object.__getattribute__(s, n)


@case(mk=lambda: (torch.ones(2), GAttr()))
def gattribute(x, o):
    o.q = 3
    return o.magic, o.q, hasattr(o, "nope"), x + 1


class SA:
    def __setattr__(s, n, v):
        object.__setattr__(s, n, ("set", v))

    def __delattr__(s, n):
        object.__setattr__(s, n + "_deleted", True)
        object.__delattr__(s, n)


@case(mk=lambda: (torch.ones(2), SA()))
def sa(x, o):
    o.q = 3
    r = o.q
    del o.q
    return r, o.q_deleted, hasattr(o, "q"), x + 1


@case(mk=lambda: (lambda o: (torch.ones(2), o, weakref.proxy(o)))(mo()[1]))
def wproxy(x, o, p):
    p.b = 3
    return p.a, o.b, x + 1


@case(mk=lambda: (torch.ones(2), types.SimpleNamespace(a=1)))
def sns(x, n):
    n.b = 2
    del n.a
    return hasattr(n, "a"), n.b, n == types.SimpleNamespace(b=2), repr(n), x + 1


class CS(ctypes.Structure):
    _fields_ = [("i", ctypes.c_int), ("f", ctypes.c_float)]


@case(mk=lambda: (torch.ones(2), CS(1, 2.5)))
def ct(x, c):
    c.i = 7
    a = c.i
    c.j = 3
    return a, c.f, c.j, hasattr(c, "zz"), x + 1


@case(mk=lambda: (torch.ones(2), ctypes.c_int(3)))
def ct2(x, c):
    c.value = 7
    return c.value, x + 1


@case(mk=lambda: (torch.ones(2), ctypes.py_object(3)))
def ct3(x, c):
    return c.value, x + 1


mg = types.ModuleType("mg")
mg.__getattr__ = lambda n: ("modattr", n)
mg.real = 1


@case(mk=lambda: (torch.ones(2), mg))
def modga(x, m):
    return m.real, m.foo, x + 1


mg2 = types.ModuleType("mg2")


@case(mk=lambda: (torch.ones(2), mg2))
def modnoattr(x, m):
    r = getattr(m, "zz", 5)
    m.zz = 6
    s = m.zz
    del m.zz
    try:
        m.zz
    except AttributeError as e:
        t = str(e)
    return r, s, t, x + 1


@dataclasses.dataclass(frozen=True)
class FZ:
    a: int = 1


@case(mk=lambda: (torch.ones(2), FZ()))
def frozen(x, o):
    try:
        o.a = 3
    except dataclasses.FrozenInstanceError as e:
        return str(e), o.a, x + 1


@dataclasses.dataclass(slots=True)
class DS:
    a: int = 1


@case(mk=lambda: (torch.ones(2), DS()))
def dslots(x, o):
    o.a += 1
    return o.a, o == DS(2), x + 1


@case(mk=lambda: (torch.ones(2), array.array("i", [1, 2])))
def arr(x, a):
    return a.typecode, a[1], len(a), x + 1


@case(mk=lambda: (torch.ones(2), decimal.Decimal("1.5"), fractions.Fraction(1, 3), datetime.date(2020, 1, 2)))
def nums(x, d, f, t):
    return d.real == d, f.numerator, t.year, x + 1


@case(mk=lambda: (torch.ones(2), functools.partial(max)))
def partattr(x, p):
    return getattr(p, "foo", 3), p.func is max, x + 1


class Base:
    def __init__(s):
        s.n = 1


class Prox:
    def __init__(s, o):
        object.__setattr__(s, "_o", o)

    def __getattr__(s, n):
        return getattr(object.__getattribute__(s, "_o"), n)

    def __setattr__(s, n, v):
        setattr(s._o, n, v)

    def __delattr__(s, n):
        delattr(s._o, n)


@case(mk=lambda: (lambda b: (torch.ones(2), Prox(b), b))(Base()))
def prox(x, p, b):
    p.n = 5
    p.m = 6
    r = b.n, b.m
    del p.m
    return r, hasattr(b, "m"), x + 1


class Meta(type):
    def __getattr__(cls, n):
        return "meta_" + n

    @property
    def mp(cls):
        return 11


class WM(metaclass=Meta):
    a = 1


@case(mk=lambda: (torch.ones(2), WM))
def meta(x, C):
    return C.a, C.zz, C.mp, hasattr(WM(), "mp"), x + 1


class SubList(list):
    pass


@case(mk=lambda: (torch.ones(2), SubList([1, 2])))
def lsub(x, l):
    l.tag = 5
    l.append(3)
    return l.tag, list(l), hasattr(l, "nope"), x + 1


class SubDict(dict):
    def __getattr__(s, k):
        try:
            return s[k]
        except KeyError:
            raise AttributeError(k)

    def __setattr__(s, k, v):
        s[k] = v

    def __delattr__(s, k):
        del s[k]


@case(mk=lambda: (torch.ones(2), SubDict(a=1)))
def dsub(x, d):
    d.b = 2
    r = d.a + d.b
    del d.a
    return r, "a" in d, hasattr(d, "a"), list(d), x + 1


@case(mk=lambda: (torch.ones(2),))
def tattr(x):
    x.foo = 3
    r = x.foo
    y = x + 1
    return r, hasattr(y, "foo"), hasattr(x, "bar"), y


@case(mk=lambda: (torch.ones(2),))
def tattr2(x):
    x.foo = 3
    del x.foo
    return hasattr(x, "foo"), x + 1


class EXC(Exception):
    def __init__(s, a):
        super().__init__(a)
        s.code = a


@case(mk=lambda: (torch.ones(2), EXC(3)))
def excattr(x, e):
    e.code += 1
    e.args = (7,)
    return e.code, e.args, str(e), x + 1


class CP:
    n = 0

    @functools.cached_property
    def c(s):
        CP.n += 1
        return CP.n


def mcp():
    CP.n = 0
    return torch.ones(2), CP()


@case(mk=mcp)
def cprop(x, o):
    a = o.c
    b = o.c
    del o.c
    c = o.c
    return a, b, c, x + 1


@case(mk=mo)
def delmissing(x, o):
    try:
        del o.zz
    except AttributeError as e:
        return str(e), x + 1


@case(mk=mo)
def setdunder(x, o):
    o.__doc__ = "hi"
    o.__module__ = "m"
    return o.__doc__, o.__module__, x + 1


@case(mk=mo)
def gg(x, o):
    return (
        object.__getattribute__(o, "a"),
        o.__getattribute__("a"),
        type(o).__getattribute__(o, "a"),
        o.__class__ is Plain,
        x + 1,
    )


@case(mk=mo)
def ss(x, o):
    object.__setattr__(o, "z", 3)
    o.__setattr__("y", 4)
    type(o).__delattr__(o, "a")
    return o.z, o.y, hasattr(o, "a"), x + 1


@case(mk=mo)
def dirs(x, o):
    o.bb = 1
    return "bb" in dir(o), "a" in dir(o), x + 1


class MoreSlots(Slots):
    pass


@case(mk=lambda: (torch.ones(2), MoreSlots()))
def slotmix(x, s):
    s.a = 1
    s.zz = 2
    return vars(s), s.a, x + 1


@case(mk=lambda: (torch.ones(2), Plain()))
def instmeth(x, o):
    o.f = lambda: 3
    o.__len__ = lambda: 5
    try:
        len(o)
    except TypeError as e:
        return o.f(), str(e), x + 1


@case(mk=lambda: (torch.ones(2), collections.OrderedDict(a=1)))
def od(x, d):
    d.tag = 1
    return d.tag, hasattr(d, "x"), x + 1


@case(mk=lambda: (torch.ones(2), collections.UserDict(a=1)))
def ud(x, d):
    d["b"] = 2
    return d.data, "b" in d, x + 1


@case(mk=lambda: (torch.ones(2), collections.ChainMap({"a": 1}, {"b": 2})))
def cm(x, d):
    d["b"] = 3
    return d["b"], d.maps, x + 1


@case(mk=lambda: (torch.ones(2), iter([1, 2])))
def itattr(x, i):
    return hasattr(i, "foo"), hasattr(i, "__next__"), x + 1


@case(mk=lambda: (torch.ones(2), (lambda: 1)))
def fattr(x, f):
    f.q = 1
    r = f.q, hasattr(f, "__wrapped__"), f.__name__
    f.__name__ = "n"
    f.__doc__ = "d"
    return r, f.__name__, f.__doc__, x + 1


@case(mk=lambda: (torch.ones(2), WithProperty().__init__))
def mattr(x, m):
    return m.__name__, hasattr(m, "zz"), x + 1


class NS(types.SimpleNamespace):
    def __init__(s, **k):
        super().__init__(**k)
        s.extra = 1


@case()
def ns_sub(x):
    n = NS(a=x)
    return n.a, n.extra


@case()
def ns_eq(x):
    return (
        types.SimpleNamespace(a=1) == types.SimpleNamespace(a=1),
        types.SimpleNamespace(a=1).__eq__(types.SimpleNamespace(a=2)),
        x + 1,
    )


class PT(collections.namedtuple("PT", "a b")):
    @property
    def a(self):
        return "prop"

    def sum(self):
        return self.a, self.b


@case(mk=lambda: (torch.ones(2), PT(1, 2)))
def nt_over(x, p):
    return p.a, p[0], p.sum(), PT(3, 4).a, x + 1


class MetaGA(type):
    def __getattribute__(c, n):
        if n == "magic":
            return 5
        return super().__getattribute__(n)


class WMGA(metaclass=MetaGA):
    q = 1


@case(mk=lambda: (torch.ones(2), WMGA))
def meta_ga(x, C):
    return C.magic, C.q, x + 1


class MD:
    def __get__(s, o, t=None):
        return "mdata"

    def __set__(s, o, v):
        pass


class MetaD(type):
    z = MD()


class WMD(metaclass=MetaD):
    z = 1


@case(mk=lambda: (torch.ones(2), WMD))
def meta_data(x, C):
    return C.z, x + 1


class LT(list):
    def __setattr__(s, n, v):
        super().__setattr__(n, v * 2)


@case(mk=lambda: (torch.ones(2), LT()))
def list_setattr(x, l):
    l.q = 2
    return l.q, x + 1


class ExS(Exception):
    __slots__ = ("z",)


@case()
def exc_slot(x):
    e = ExS(1)
    try:
        e.z
    except AttributeError as q:
        r = str(q)
    e.z = 4
    return r, e.z, x + 1


class DSl:
    __slots__ = {"a": "doc"}

    def __init__(s):
        s.a = 1


@case()
def del_slot_made(x):
    s = DSl()
    del s.a
    return hasattr(s, "a"), x + 1


@case(mk=lambda: (torch.ones(2), DSl()))
def del_set(x, s):
    del s.a
    s.a = x + 1
    del s.a
    return hasattr(s, "a"), x + 1


class Un:
    __hash__ = None

    def __eq__(s, o):
        return NotImplemented


@case(mk=lambda: (torch.ones(2), Un(), Un()))
def unhash(x, a, b):
    try:
        hash(a)
    except TypeError as e:
        r = str(e)
    return r, a == b, a == a, a != b, x + 1


class NoIter:
    __iter__ = None

    def __getitem__(s, i):
        return i


@case(mk=lambda: (torch.ones(2), NoIter()))
def noiter(x, o):
    try:
        iter(o)
    except TypeError as e:
        return str(e), x + 1


class NoC:
    __contains__ = None

    def __iter__(s):
        return iter([1])


@case(mk=lambda: (torch.ones(2), NoC()))
def nocont(x, o):
    try:
        1 in o
    except TypeError as e:
        return str(e), x + 1


class BoolBad:
    def __bool__(s):
        return 3


@case(mk=lambda: (torch.ones(2), BoolBad()))
def boolbad(x, o):
    try:
        bool(o)
    except TypeError as e:
        return str(e), x + 1


class LenBad:
    def __len__(s):
        return -1


@case(mk=lambda: (torch.ones(2), LenBad()))
def lenbad(x, o):
    out = []
    for f in (len, bool):
        try:
            f(o)
        except ValueError as e:
            out.append(str(e))
    return out, x + 1


class LenBad2:
    def __len__(s):
        return "a"


@case(mk=lambda: (torch.ones(2), LenBad2()))
def lenbad2(x, o):
    try:
        len(o)
    except TypeError as e:
        return str(e), x + 1


class LenIdx:
    def __len__(s):
        return True


@case(mk=lambda: (torch.ones(2), LenIdx()))
def lenidx(x, o):
    return len(o), bool(o), x + 1


class HashBad:
    def __hash__(s):
        return "a"


@case(mk=lambda: (torch.ones(2), HashBad()))
def hashbad(x, o):
    try:
        hash(o)
    except TypeError as e:
        return str(e), x + 1


class HashBig:
    def __hash__(s):
        return 1 << 70


@case(mk=lambda: (torch.ones(2), HashBig()))
def hashbig(x, o):
    return hash(o), x + 1


class IterBad:
    def __iter__(s):
        return 3


@case(mk=lambda: (torch.ones(2), IterBad()))
def iterbad(x, o):
    try:
        list(o)
    except TypeError as e:
        return str(e), x + 1


class ContRet:
    def __contains__(s, i):
        return "yes"


@case(mk=lambda: (torch.ones(2), ContRet()))
def contret(x, o):
    return 3 in o, x + 1


class ReprBad:
    def __repr__(s):
        return 3


@case(mk=lambda: (torch.ones(2), ReprBad()))
def reprbad(x, o):
    try:
        repr(o)
    except TypeError as e:
        return str(e), x + 1


class IdxBad:
    def __index__(s):
        return "a"


@case(mk=lambda: (torch.ones(2), IdxBad()))
def idxbad(x, o):
    try:
        [1, 2][o]
    except TypeError as e:
        return str(e), x + 1


class SM:
    __len__ = staticmethod(lambda: 4)
    __call__ = classmethod(lambda c, v: (c.__name__, v))
    __getitem__ = lambda s, i: i * 2


@case(mk=lambda: (torch.ones(2), SM()))
def sm(x, o):
    return len(o), o(3), o[4], x + 1


class PartM:
    m = functools.partialmethod(lambda s, a, b: (a, b), 1)
    n = functools.singledispatchmethod(lambda s, a: "any")


@case(mk=lambda: (torch.ones(2), PartM()))
def partm(x, o):
    return o.m(2), o.n(3), x + 1


class InstOverMeth:
    def m(s):
        return "class"


def miom():
    o = InstOverMeth()
    o.m = lambda: "inst"
    return torch.ones(2), o


@case(mk=miom)
def iom(x, o):
    a = o.m()
    del o.m
    return a, o.m(), x + 1


class SetName:
    def __set_name__(s, o, n):
        s.n = n

    def __get__(s, o, t=None):
        return s.n


class WSN:
    abc_ = SetName()


@case(mk=lambda: (torch.ones(2), WSN()))
def setname(x, o):
    return o.abc_, x + 1


class Mod(nn.Module):
    def __init__(s):
        super().__init__()
        s.p = nn.Parameter(torch.ones(2))
        s.register_buffer("b", torch.ones(2))
        s.sub = nn.Linear(2, 2)

    def __getattr__(s, n):
        if n == "dyn":
            return 7
        return super().__getattr__(n)


@case(mk=lambda: (torch.ones(2), Mod()))
def modga2(x, m):
    r = m.dyn, hasattr(m, "nope")
    m.b = x * 2
    del m.sub
    m.q = None
    return r, m.b, hasattr(m, "sub"), m.q, [n for n, _ in m.named_children()]


@case(mk=lambda: (torch.ones(2), Mod()))
def modset(x, m):
    m.p = None
    try:
        m.p = 3
    except TypeError as e:
        r = str(e)
    try:
        m.b = "a"
    except TypeError as e:
        q = str(e)
    return m.p, r, q, [n for n, _ in m.named_parameters()], x + 1


@case(mk=lambda: (torch.ones(2), Mod()))
def moddel(x, m):
    del m.p
    del m.b
    try:
        m.p
    except AttributeError as e:
        r = str(e)
    try:
        del m.p
    except AttributeError as e:
        q = str(e)
    return r, q, x + 1


@case(mk=lambda: (torch.ones(2), Mod()))
def modown(x, m):
    m.__dict__["p"] = 5
    return m.p, x + 1


@case(mk=lambda: (torch.ones(2), Mod()))
def modclass(x, m):
    m.__class__ = nn.Module
    return type(m).__name__, hasattr(m, "p"), x + 1


@case(mk=lambda: (torch.ones(2), CS(1, 2)))
def ctarr(x, c):
    a = (ctypes.c_int * 3)(1, 2, 3)
    a[1] = 5
    return list(a), c.i, x + 1


class WithWeird:
    def __init__(s):
        s.__dict__[1] = "one"
        s.a = 2


@case(mk=lambda: (torch.ones(2), WithWeird()))
def weird(x, o):
    return o.a, o.__dict__[1], list(vars(o)), x + 1


class StrSub(str):
    pass


def mstrk():
    o = Plain()
    o.__dict__[StrSub("k")] = 3
    return torch.ones(2), o


@case(mk=mstrk)
def strkey(x, o):
    r = o.k
    o.k = 4
    return r, o.k, x + 1


@case(mk=lambda: (torch.ones(2), operator.attrgetter("a.b"), types.SimpleNamespace(a=types.SimpleNamespace(b=3))))
def attrget(x, g, o):
    o.a.b = 5
    return g(o), x + 1


class TensorLike:
    def __init__(s):
        s.t = torch.ones(2)

    def __getattr__(s, n):
        return getattr(s.t, n)


@case(mk=lambda: (torch.ones(2), TensorLike()))
def tlike(x, o):
    return o.shape, o.sum(), o.dtype, hasattr(o, "nope")


class Frz:
    __slots__ = ("a",)

    def __init__(s, a):
        object.__setattr__(s, "a", a)

    def __setattr__(s, n, v):
        raise AttributeError("frozen " + n)

    def __delattr__(s, n):
        raise AttributeError("frozen del " + n)


@case(mk=lambda: (torch.ones(2), Frz(1)))
def frz(x, o):
    try:
        o.a = 2
    except AttributeError as e:
        r = str(e)
    try:
        del o.a
    except AttributeError as e:
        q = str(e)
    return r, q, o.a, x + 1


class Fake:
    @property
    def __class__(s):
        return int


@case(mk=lambda: (torch.ones(2), Fake()))
def lying(x, o):
    return (
        isinstance(o, int),
        isinstance(o, Fake),
        isinstance(o, str),
        o.__class__ is int,
        type(o) is Fake,
        isinstance(o, (str, int)),
        x + 1,
    )


class Fake2:
    __class__ = dict


@case(mk=lambda: (torch.ones(2), Fake2()))
def lying2(x, o):
    return isinstance(o, dict), o.__class__ is dict, x + 1


class Inst:
    def __init__(s):
        s.__dict__["__class__"] = str


@case(mk=lambda: (torch.ones(2), Inst()))
def lying3(x, o):
    return isinstance(o, str), o.__class__ is Inst, x + 1


class GAC:
    def __getattribute__(s, n):
        if n == "__class__":
            return list
        return object.__getattribute__(s, n)


@case(mk=lambda: (torch.ones(2), GAC()))
def lying4(x, o):
    return isinstance(o, list), o.__class__ is list, x + 1


class SubC(type):
    def __subclasscheck__(c, o):
        return True


class SC(metaclass=SubC):
    pass


@case()
def subc(x):
    return issubclass(int, SC), isinstance(3, SC), x + 1


class NoBool:
    __bool__ = None


@case(mk=lambda: (torch.ones(2), NoBool()))
def nobool(x, o):
    try:
        return bool(o), x + 1
    except TypeError as e:
        return str(e), x + 1


class EqT:
    def __eq__(s, o):
        return torch.ones(2)

    __hash__ = object.__hash__


@case(mk=lambda: (torch.ones(2), EqT()))
def eqt(x, o):
    return (o == 3) + x


class EqList:
    def __eq__(s, o):
        return []


@case(mk=lambda: (torch.ones(2), EqList()))
def eql(x, o):
    return o == 3, o != 3, [o] == [3], o in [3], x + 1


class Ord:
    def __init__(s, v):
        s.v = v

    def __lt__(s, o):
        return s.v < o.v


@case(mk=lambda: (torch.ones(2), [Ord(3), Ord(1)]))
def order(x, l):
    m = min(l).v, max(l).v, [o.v for o in sorted(l)]
    try:
        l[0] <= l[1]
    except TypeError as e:
        return m, str(e), x + 1


class AsIndex:
    def __index__(s):
        return 1


@case(mk=lambda: (torch.ones(2), AsIndex()))
def idx(x, i):
    return [1, 2, 3][i], (1, 2)[i], "ab"[i], x[i], range(5)[i], hex(i), [1, 2, 3][i:], x + 1


class MI:
    def __init__(s):
        s.items = []

    def __iadd__(s, o):
        s.items.append(o)
        return s

    def __isub__(s, o):
        return "replaced"

    def __matmul__(s, o):
        return "mm"

    def __rmatmul__(s, o):
        return "rmm"

    def __neg__(s):
        return "neg"

    def __abs__(s):
        return "abs"

    def __round__(s, n=None):
        return ("round", n)

    def __divmod__(s, o):
        return "dm"

    def __pow__(s, o, m=None):
        return ("pow", o, m)

    def __invert__(s):
        return "inv"

    def __int__(s):
        return 4

    def __float__(s):
        return 4.5

    def __complex__(s):
        return 1j

    def __trunc__(s):
        return "tr"

    def __ceil__(s):
        return "ce"

    def __reversed__(s):
        return iter("rev")

    def __length_hint__(s):
        return 3

    def __missing__(s, k):
        return "miss"

    def __format__(s, f):
        return "fmt" + f

    def __bytes__(s):
        return b"by"

    def __dir__(s):
        return ["d"]

    def __sizeof__(s):
        return 5

    def __fspath__(s):
        return "path"

    def __copy__(s):
        return "copied"

    def __deepcopy__(s, m):
        return "deep"

    def __instancecheck__(s, o):
        return True


@case(mk=lambda: (torch.ones(2), MI()))
def mi(x, o):
    p = o
    o += 1
    r = [
        o is p,
        o.items,
        o @ 1,
        1 @ o,
        -o,
        abs(o),
        round(o),
        round(o, 2),
        divmod(o, 1),
        o**2,
        pow(o, 2, 3),
        ~o,
        int(o),
        float(o),
        complex(o),
        math.ceil(o),
        list(reversed(o)),
        f"{o:>4}",
        copy.copy(o),
        copy.deepcopy(o),
        dir(o),
    ]
    o -= 1
    return r, o, x + 1


@case(mk=lambda: (torch.ones(2), unittest.mock.Mock(a=3)))
def mocked(x, m):
    m.b = 4
    return m.a, m.b, x + 1


class Lazy:
    def __getattr__(s, n):
        v = len(n)
        s.__dict__[n] = v
        return v


@case(mk=lambda: (torch.ones(2), Lazy()))
def lazyattr(x, o):
    return o.abc, o.abc, vars(o), hasattr(o, "q"), x + 1


class Typed:
    a: int
    b: int = 3


@case(mk=lambda: (torch.ones(2), Typed()))
def annotated(x, o):
    return hasattr(o, "a"), o.b, Typed.__annotations__["a"], o.__annotations__ is Typed.__annotations__, x + 1


class ClsProp:
    @classmethod
    @property
    def cp(cls):
        return cls.__name__

    @classmethod
    def make(cls):
        return cls()

    @staticmethod
    def st():
        return 3


@case(mk=lambda: (torch.ones(2), ClsProp()))
def clsprop(x, o):
    return ClsProp.cp, o.cp, type(o.make()).__name__, o.st(), x + 1


class SubClsProp(ClsProp):
    pass


@case(mk=lambda: (torch.ones(2), SubClsProp()))
def clsprop2(x, o):
    return o.cp, SubClsProp.cp, type(SubClsProp.make()).__name__, x + 1


class NumLike(numbers.Number):
    pass


@case(mk=lambda: (torch.ones(2), NumLike()))
def numlike(x, o):
    return (
        isinstance(o, numbers.Number),
        isinstance(3, numbers.Integral),
        isinstance([], collections.abc.Sequence),
        isinstance(o, collections.abc.Hashable),
        callable(o),
        x + 1,
    )


@typing.runtime_checkable
class Proto(typing.Protocol):
    def close(self): ...


class HasClose:
    def close(self):
        pass


@case(mk=lambda: (torch.ones(2), HasClose()))
def proto(x, o):
    return isinstance(o, Proto), isinstance(3, Proto), x + 1


class DelA:
    def __delattr__(s, n):
        raise RuntimeError("no " + n)

    def __getattr__(s, n):
        raise KeyError(n)


@case(mk=lambda: (torch.ones(2), DelA()))
def dela(x, o):
    out = []
    try:
        del o.q
    except RuntimeError as e:
        out.append(str(e))
    try:
        o.zz
    except KeyError as e:
        out.append(str(e))
    try:
        hasattr(o, "zz")
    except KeyError as e:
        out.append("k")
    try:
        getattr(o, "zz", 3)
    except KeyError as e:
        out.append("k")
    return out, x + 1


class PropRaises:
    @property
    def p(s):
        return s.nope

    def __getattr__(s, n):
        return "hook:" + n


class PropRaises2:
    @property
    def p(s):
        raise AttributeError("inner")


@case(mk=lambda: (torch.ones(2), PropRaises(), PropRaises2()))
def propraises(x, o, q):
    try:
        q.p
    except AttributeError as e:
        r = str(e)
    return o.p, r, hasattr(q, "p"), getattr(q, "p", 1), x + 1


class PropRaises3:
    @property
    def p(s):
        raise AttributeError("inner")

    def __getattr__(s, n):
        return "hook:" + n


@case(mk=lambda: (torch.ones(2), PropRaises3()))
def propraises3(x, o):
    return o.p, x + 1


@pytest.mark.parametrize("name", CASES)
def test_lookup(name):
    program, make = CASES[name]
    want = outcomes(program, make)
    got = outcomes(dynamo_lite.compile(program, backend="eager"), make)
    assert same(got, want), f"{got} instead of {want}"
