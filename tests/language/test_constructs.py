"""Many constructs of the language in one program each, mixed with tensors: classes, functions, patterns.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import abc
import collections
import math
import operator
import typing
from typing import Generic, Protocol, TypeVar

import pytest
from language_support import Programs
from sample_classes import Thing

program = Programs()


OBJ = Thing()


# --- classes
class Meta(type):
    def __new__(m, n, b, d, **k):
        c = super().__new__(m, n, b, d)
        c.made = n
        return c

    def __call__(c, *a):
        o = super().__call__(*a)
        o.via = "meta"
        return o

    def __len__(c):
        return 7

    def __getitem__(c, k):
        return k * 2

    def __contains__(c, k):
        return k == 1

    def __iter__(c):
        return iter([1, 2])

    @property
    def mp(c):
        return "mp"


class WM(metaclass=Meta):
    def __init__(self, a=0):
        self.a = a


@program
def metas(x):
    w = WM(2)
    return x * w.a, w.via, WM.made, len(WM), WM[3], 1 in WM, WM.mp, list(WM), isinstance(WM, Meta), type(WM).__name__


class Desc:
    def __set_name__(self, o, n):
        self.n = "_" + n

    def __get__(self, o, t=None):
        return self if o is None else getattr(o, self.n, 0)

    def __set__(self, o, v):
        setattr(o, self.n, v * 2)

    def __delete__(self, o):
        delattr(o, self.n)


class NonData:
    def __get__(self, o, t=None):
        return "nd"


class HD:
    d = Desc()
    nd = NonData()


@program
def descs(x):
    h = HD()
    h.d = x
    y = h.d
    del h.d
    h.__dict__["nd"] = "own"
    return y, h.d, h.nd, HD().nd, HD.nd, isinstance(HD.d, Desc)


class GA:
    def __init__(self):
        self.real = 1

    def __getattr__(self, n):
        if n.startswith("v"):
            return n
        raise AttributeError(n)


class GAT:
    def __getattribute__(self, n):
        return object.__getattribute__(self, "__dict__").get(n, "none")

    def __setattr__(self, n, v):
        object.__setattr__(self, n, v + 1)


@program
def getattrs(x):
    g = GA()
    t = GAT()
    t.z = 1
    return x + g.real, g.v2, hasattr(g, "q"), getattr(g, "q", 3), t.z, t.other


class Sl:
    __slots__ = ("a", "b", "__dict__")

    def __init__(self):
        self.a = 1


class Sl2:
    __slots__ = ("a",)


@program
def slotted(x):
    s = Sl()
    s.b = x
    s.c = 4
    e = None
    try:
        Sl2().zz = 1
    except AttributeError as er:
        e = str(er)
    try:
        Sl2().a
    except AttributeError as er:
        e = (e, str(er))
    return s.b + s.a, s.c, e, hasattr(Sl2(), "a")


class A0:
    reg = []

    def __init_subclass__(cls, **k):
        A0.reg.append(cls.__name__)
        super().__init_subclass__()

    def who(self):
        return ["A0"]

    @classmethod
    def mk(cls, *a):
        return cls(*a)

    @staticmethod
    def st(v):
        return v * 2

    @property
    def pr(self):
        return "A0p"


class B0(A0):
    def who(self):
        return ["B0"] + super().who()


class C0(A0):
    def who(self):
        return ["C0"] + super().who()


class D0(B0, C0):
    def __init__(self, k=1):
        self.k = k

    def who(self):
        return ["D0"] + super().who()

    @property
    def pr(self):
        return super().pr + "D"

    @classmethod
    def mk(cls, *a):
        o = super().mk(*a)
        o.extra = 1
        return o


@program
def inherit(x):
    d = D0.mk(4)
    return (
        x * d.k,
        d.who(),
        d.pr,
        d.extra,
        D0.st(2),
        super(B0, d).who(),
        isinstance(d, A0),
        issubclass(D0, C0),
        D0.__mro__[1] is B0,
        type(d) is D0,
        A0.reg,
        D0.__name__,
        D0.__bases__ == (B0, C0),
        d.__class__.__name__,
    )


class V:
    def __init__(self, v):
        self.v = v

    def __add__(s, o):
        return V(s.v + getattr(o, "v", o))

    __radd__ = __add__

    def __sub__(s, o):
        return NotImplemented

    def __rsub__(s, o):
        return "rsub"

    def __mul__(s, o):
        return V(s.v * o)

    def __eq__(s, o):
        return isinstance(o, V) and s.v == o.v

    def __hash__(s):
        return hash(s.v)

    def __lt__(s, o):
        return s.v < o.v

    def __bool__(s):
        return bool(s.v)

    def __len__(s):
        return 3

    def __call__(s, a):
        return a * s.v

    def __getitem__(s, i):
        return (s.v, i)

    def __contains__(s, i):
        return i == s.v

    def __iter__(s):
        yield from range(s.v)

    def __reversed__(s):
        return iter([9])

    def __neg__(s):
        return V(-s.v)

    def __abs__(s):
        return abs(s.v)

    def __int__(s):
        return s.v

    def __float__(s):
        return float(s.v)

    def __index__(s):
        return s.v

    def __repr__(s):
        return f"V({s.v})"

    def __str__(s):
        return "v!"

    def __format__(s, f):
        return f"<{f}>"

    def __enter__(s):
        return s.v

    def __exit__(s, *a):
        s.v = -1
        return True

    def __round__(s, n=None):
        return ("r", n)

    def __divmod__(s, o):
        return "dm"

    def __pow__(s, o, m=None):
        return ("pow", o, m)

    def __matmul__(s, o):
        return "mm"

    def __iadd__(s, o):
        s.v += o
        return s

    def __floor__(s):
        return 11

    def __ceil__(s):
        return 12

    def __trunc__(s):
        return 13

    def __complex__(s):
        return 1j

    def __bytes__(s):
        return b"B"

    def __missing__(s, k):
        return k

    def __dir__(s):
        return ["x"]

    def __length_hint__(s):
        return 1


@program
def dunders(x):
    v = V(2)
    w = v
    w += 3
    with V(7) as e:
        raise ValueError
    return (
        x * int(v),
        (V(1) + 2).v,
        (3 + V(1)).v,
        5 - V(1),
        V(1) == V(1),
        V(1) < V(2),
        bool(V(0)),
        len(v),
        v(x),
        v[1, 2],
        v[1:2],
        5 in v,
        list(V(3)),
        list(reversed(v)),
        (-V(2)).v,
        abs(V(-3)),
        float(V(2)),
        [1, 2, 3][V(1)],
        repr(V(1)),
        str(V(1)),
        f"{V(1)} {V(1):abc} {V(1)!r}",
        e,
        round(V(1)),
        round(V(1), 2),
        {V(1): 1}[V(1)],
        sum([V(1), V(2)]).v,
        max(V(1), V(3)).v,
        sorted([V(3), V(1)])[0].v,
        hash(V(1)) == hash(1),
        V(1) @ 3,
        V(2) ** 3,
    )


@program.breaks("unsupported_builtin")
def dunders2(x):
    return (
        x + 1,
        divmod(V(1), 2),
        pow(V(1), 2, 3),
        math.floor(V(1)),
        math.ceil(V(1)),
        complex(V(1)),
        bytes(V(1)),
        operator.index(V(4)),
        hex(V(10)),
        range(V(3)),
        "ab" * V(2),
        math.trunc(V(2)),
        int(V(9)),
        isinstance(V(1), collections.abc.Iterable),
        callable(V(1)),
    )


class ML(list):
    def __init__(self, *a):
        super().__init__(*a)
        self.tag = "t"

    def append(self, v):
        super().append(v * 2)

    def __getitem__(self, i):
        return ("g", super().__getitem__(i))


class MD(dict):
    def __missing__(self, k):
        return k + "!"

    def __setitem__(self, k, v):
        super().__setitem__(k, [v])


class MT(tuple):
    def __new__(cls, a, b):
        o = super().__new__(cls, (a, b))
        o.n = 1
        return o

    @property
    def first(self):
        return self[0]


class MS(str):
    def shout(self):
        return self.upper() + "!"


class MI(int):
    def __add__(self, o):
        return MI(int(self) + o + 100)

    def dbl(self):
        return self * 2


class MF(float):
    def half(self):
        return self / 2


class MSet(set):
    def add(self, v):
        super().add(v + 1)


@program
def subs_list(x):
    l = ML([1])
    l.append(x)
    return (
        l[1][1] + 1,
        l.tag,
        len(l),
        isinstance(l, list),
        list(l)[0],
        l == [1, 2] if False else l.index(1),
        [v for v in l][0],
        l[0:1],
        ML([3, 1]).copy(),
        sorted(ML([3, 1])),
        ML([1]) + [2],
    )


@program
def subs_dict(x):
    d = MD(a=1)
    d["b"] = x
    return d["b"][0] + 1, d["zz"], d.get("zz"), len(d), dict(d)["a"], "a" in d, list(d), isinstance(d, dict)


@program
def subs_tuple(x):
    t = MT(x, 2)
    return t.first + 1, t.n, len(t), t[1], t == (1, 2) if False else isinstance(t, tuple), tuple(t)[1], t + (1,) != ()


@program
def subs_str(x):
    s = MS("ab")
    return (
        x + 1,
        s.shout(),
        s + "c",
        len(s),
        s == "ab",
        type(s + "") is str,
        s.upper(),
        f"{s}",
        isinstance(s, str),
        {s: 1}["ab"],
    )


@program
def subs_int(x):
    i = MI(3)
    return (
        x * i,
        i + 1,
        i.dbl(),
        int(i),
        i == 3,
        isinstance(i, int),
        [1, 2, 3, 4][i],
        range(i),
        i - 1,
        type(i - 1) is int,
    )


@program
def subs_float(x):
    f = MF(3.0)
    return x * f, f.half(), f + 1, float(f), f == 3.0


@program
def subs_set(x):
    s = MSet([1])
    s.add(5)
    return x + 1, sorted(s), 6 in s, len(s), isinstance(s, set)


GI = MI(5)
GS = MS("q")
GL = ML([1])
GD = MD(a=1)


@program
def subs_outer(x):
    return x * GI, GS.shout(), len(GL), GD["nope"], GI.dbl(), GL.tag


class AB(abc.ABC):
    @abc.abstractmethod
    def m(self): ...
    @property
    @abc.abstractmethod
    def p(self): ...


class ABi(AB):
    def m(self):
        return 1

    @property
    def p(self):
        return 2


@program
def abstract(x):
    try:
        AB()
    except TypeError as e:
        r = str(e)
    return (
        x * ABi().m(),
        ABi().p,
        r,
        isinstance(ABi(), AB),
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        issubclass(list, collections.abc.Iterable),
    )


class Proto(Protocol):
    def go(self): ...


@typing.runtime_checkable
class RP(Protocol):
    def go(self): ...


class Go:
    def go(self):
        return 5


@program
def protocols(x):
    return x * Go().go(), isinstance(Go(), RP), isinstance(3, RP)


T = TypeVar("T")


class Gen(Generic[T]):
    def __init__(self, v):
        self.v = v


@program
def generics(x):
    return x * Gen(3).v, Gen[int](4).v, isinstance(Gen(1), Gen)


class Single:
    inst = None

    def __new__(cls, *a):
        if cls.inst is None:
            cls.inst = super().__new__(cls)
        return cls.inst


@program.breaks("traced again: it counts")
def classattr(x):
    Cnt.n += 1
    Cnt.l.append(1)
    c = Cnt()
    c.n = 50
    return x * 1, c.n, len(Cnt.l) > 0, type(c).n > 0


class Cnt:
    n = 0
    l = []


@program
def localclass(x):
    class L:
        k = 3

        def f(self, y):
            return y * self.k

    return L().f(x)


@program
def newobj(x):
    o = object.__new__(Thing)
    o.k = 4
    o2 = Thing.__new__(Thing)
    Thing.__init__(o2, 9)
    return x * o.k, o2.k, object() is object()


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
