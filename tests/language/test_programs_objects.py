"""Programs as people write them: descriptors, containers of their own, enums, graphs, caches.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import enum
import functools
import heapq
import itertools
import math
import operator
import types
import typing

import pytest
import torch
from language_support import Programs

program = Programs()


class Lazy:
    def __init__(self, f):
        self.f = f

    def __get__(self, o, c):
        if o is None:
            return self
        v = self.f(o)
        setattr(o, self.f.__name__, v)
        return v


class Feat:
    def __init__(self, x):
        self.x = x
        self.n = 0

    @Lazy
    def norm(self):
        self.n += 1
        return self.x / self.x.sum()


@program
def lazy(x):
    f = Feat(x)
    return f.norm + f.norm, f.n


class Typed:
    def __init__(self, t):
        self.t = t

    def __set_name__(self, o, n):
        self.n = n

    def __get__(self, o, c=None):
        return self if o is None else o.__dict__[self.n]

    def __set__(self, o, v):
        if not isinstance(v, self.t):
            raise TypeError(f"{self.n}: {type(v).__name__}")
        o.__dict__[self.n] = v


class Pt:
    a = Typed(int)
    b = Typed((int, float))

    def __init__(self, a, b):
        self.a = a
        self.b = b


@program
def typed(x):
    try:
        Pt("a", 1)
    except TypeError as e:
        m = str(e)
    p = Pt(2, 3.5)
    return x * p.a + p.b, m


class Vec:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __add__(self, o):
        return Vec(self.x + o.x, self.y + o.y)

    def __mul__(self, k):
        return Vec(self.x * k, self.y * k)

    __rmul__ = __mul__

    def __iter__(self):
        yield self.x
        yield self.y

    def __eq__(self, o):
        return isinstance(o, Vec) and tuple(self) == tuple(o)

    def __hash__(self):
        return hash((self.x, self.y))

    def __matmul__(self, o):
        return self.x * o.x + self.y * o.y

    def __repr__(self):
        return f"Vec({self.x}, {self.y})"


@program
def vec(x):
    a = Vec(1, 2)
    b = 2 * a + Vec(3, 4) * 2
    return (
        x * (a @ b),
        repr(b),
        {a: 1}[Vec(1, 2)],
        a == Vec(1, 2),
        sum((a, b), Vec(0, 0)).x,
        Vec(x, x + 1) @ Vec(2, 3),
        [*b],
    )


class Ctx:
    stack = []

    def __init__(self, n):
        self.n = n

    def __enter__(self):
        Ctx.stack.append(self.n)
        return self

    def __exit__(self, *a):
        Ctx.stack.pop()


@program
def ctx_stack(x):
    with Ctx("a"):
        with Ctx("b") as c:
            s = list(Ctx.stack)
            y = x + len(Ctx.stack)
    return y, s, Ctx.stack


@contextlib.contextmanager
def override(o, **k):
    old = {n: getattr(o, n) for n in k}
    for n, v in k.items():
        setattr(o, n, v)
    try:
        yield o
    finally:
        for n, v in old.items():
            setattr(o, n, v)


GC = types.SimpleNamespace(scale=2, bias=1)


@program
def overridden(x):
    with override(GC, scale=5) as c:
        y = x * c.scale + c.bias
    return y + GC.scale


def retry(n):
    def deco(f):
        @functools.wraps(f)
        def w(*a, **k):
            for i in range(n):
                try:
                    return f(*a, attempt=i, **k)
                except ValueError as e:
                    err = e
            raise RuntimeError("retries") from err

        return w

    return deco


@retry(3)
def flaky(x, attempt):
    if attempt < 2:
        raise ValueError(attempt)
    return x + attempt


@program
def retried(x):
    return flaky(x), flaky.__name__


def memo(f):
    c = {}

    @functools.wraps(f)
    def w(*a):
        if a not in c:
            c[a] = f(*a)
        return c[a]

    w.cache = c
    return w


@program
def memoized(x):
    @memo
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return x * fib(20), len(fib.cache)


@program
def topo(x):
    g = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
    order = []
    seen = set()

    def dfs(n):
        if n in seen:
            return
        seen.add(n)
        for m in g[n]:
            dfs(m)
        order.append(n)

    for n in g:
        dfs(n)
    vals = {}
    for n in order:
        vals[n] = sum((vals[m] for m in g[n]), x)
    return vals["a"], order


@program
def pq(x):
    g = {0: [(1, 4), (2, 1)], 1: [(3, 1)], 2: [(1, 2), (3, 5)], 3: []}
    d = {0: 0}
    q = [(0, 0)]
    while q:
        c, u = heapq.heappop(q)
        if c > d.get(u, math.inf):
            continue
        for v, w in g[u]:
            if c + w < d.get(v, math.inf):
                d[v] = c + w
                heapq.heappush(q, (c + w, v))
    return x * d[3], d


class Stack(list):
    def push(self, v):
        self.append(v)
        return self

    def peek(self):
        return self[-1]

    @property
    def empty(self):
        return not self


@program
def stack(x):
    s = Stack()
    s.push(x).push(x + 1)
    y = s.peek()
    s.pop()
    return y, len(s), s.empty, isinstance(s, list), s


class AttrDict(dict):
    def __getattr__(self, k):
        try:
            return self[k]
        except KeyError:
            raise AttributeError(k) from None

    __setattr__ = dict.__setitem__


@program
def attrdict(x):
    d = AttrDict(a=1)
    d.b = x
    d.c = AttrDict(z=3)
    try:
        d.nope
    except AttributeError as e:
        m = str(e)
    return d.b * d.c.z, sorted(d), m, getattr(d, "q", 7)


class Interval(typing.NamedTuple):
    lo: int
    hi: int = 5

    @property
    def size(self):
        return self.hi - self.lo

    def __contains__(self, v):
        return self.lo <= v < self.hi


@program
def interval(x):
    i = Interval(2)
    j = i._replace(hi=9)
    return x[:, : i.lo], j.size, 4 in i, 7 in i, i._asdict(), Interval._fields, i < j, [*i]


class Flags(enum.Flag):
    A = 1
    B = 2
    C = 4
    AB = A | B


@program
def flags(x):
    f = Flags.A | Flags.C
    return (
        x * f.value,
        Flags.A in f,
        bool(f & Flags.B),
        f.name if False else None,
        Flags.AB & Flags.A is not None,
        (~f).value,
        list(Flags.AB),
    )


class Color(str, enum.Enum):
    R = "red"
    G = "green"

    @classmethod
    def parse(cls, s):
        try:
            return cls(s)
        except ValueError:
            return cls.R

    @classmethod
    def _missing_(cls, v):
        return cls.G if v == "g" else None


@program
def strenum(x):
    return (
        x,
        Color.parse("green") is Color.G,
        Color.parse("zzz"),
        Color("g"),
        Color.R == "red",
        f"{Color.R.value}",
        Color.R.upper(),
        {Color.R: 1}["red"],
        Color["G"],
    )


@program
def groupby_batch(x):
    items = [("a", 1), ("b", 2), ("a", 3)]
    g = {}
    for k, v in items:
        g.setdefault(k, []).append(v)
    s = sorted(items, key=operator.itemgetter(0, 1), reverse=True)
    return (
        x * sum(g["a"]),
        {k: max(v) for k, v in g.items()},
        s,
        list(zip(*items)),
        dict(collections.ChainMap({"z": 1}, dict(items))),
    )


def chunks(it, n):
    it = iter(it)
    while c := list(itertools.islice(it, n)):
        yield c


@program
def in_chunks(x):
    return x, list(chunks(range(7), 3))


@program
def decorator_class(x):
    class Timer:
        def __init__(self, f):
            functools.update_wrapper(self, f)
            self.f = f
            self.n = 0

        def __call__(self, *a):
            self.n += 1
            return self.f(*a)

    @Timer
    def g(y):
        return y + 1

    return g(g(x)), g.n, g.__name__


class Node:
    __slots__ = ("val", "next")

    def __init__(self, v, n=None):
        self.val = v
        self.next = n


class Linked:
    def __init__(self, it=()):
        self.head = None
        for v in reversed(list(it)):
            self.head = Node(v, self.head)

    def __iter__(self):
        n = self.head
        while n:
            yield n.val
            n = n.next

    def rev(self):
        p = None
        c = self.head
        while c:
            c.next, p, c = p, c, c.next
        self.head = p
        return self


@program
def linked(x):
    return x * sum(Linked([1, 2, 3])), list(Linked("abc").rev())


class Mat:
    def __init__(self, r):
        self.r = r

    def __getitem__(self, ij):
        i, j = ij
        return self.r[i][j]

    def __setitem__(self, ij, v):
        i, j = ij
        self.r[i][j] = v

    def __matmul__(self, o):
        return Mat([[sum(a * b for a, b in zip(r, c)) for c in zip(*o.r)] for r in self.r])


@program
def mat(x):
    m = Mat([[1, 2], [3, 4]])
    m[0, 1] = x
    return (m @ Mat([[1, 0], [0, 1]])).r


class Obs:
    def __init__(self):
        object.__setattr__(self, "_w", [])

    def watch(self, f):
        self._w.append(f)

    def __setattr__(self, n, v):
        old = self.__dict__.get(n)
        object.__setattr__(self, n, v)
        for f in self._w:
            f(n, old, v)


@program
def observable(x):
    o = Obs()
    l = []
    o.watch(lambda *a: l.append(a))
    o.k = 1
    o.k = 2
    return x * o.k, l


class Mixin:
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.mix = True


class BaseQ:
    def __init__(self, v):
        self.v = v

    def go(self):
        return ["base"]


class QA(Mixin, BaseQ):
    def go(self):
        return ["qa"] + super().go()


class QB(BaseQ):
    def go(self):
        return ["qb"] + super().go()


class QC(QA, QB):
    def go(self):
        return ["qc"] + super().go()


@program
def mro(x):
    q = QC(3)
    return x * q.v, q.go(), q.mix, [c.__name__ for c in QC.__mro__]


class KV:
    def __init__(self):
        self.k = []
        self.seen = 0

    def update(self, i, k):
        if len(self.k) <= i:
            self.k.append(k)
        else:
            self.k[i] = torch.cat([self.k[i], k])
        self.seen += k.shape[0] if i == 0 else 0
        return self.k[i]


@program
def kvcache(x):
    c = KV()
    for t in range(3):
        for l in range(2):
            h = c.update(l, x * (t + l))
    return h.shape, c.seen, torch.stack([k.sum() for k in c.k])


class Policy(abc.ABC):
    registry = {}

    def __init_subclass__(cls, name=None, **k):
        super().__init_subclass__(**k)
        if name:
            Policy.registry[name] = cls

    @abc.abstractmethod
    def act(self, x): ...
    @classmethod
    def create(cls, n, *a):
        return cls.registry[n](*a)


@program
def policy(x):
    try:
        Policy()
    except TypeError as e:
        m = str(e)
    return Policy.create("greedy").act(x), Policy.create("scaled", 3).act(x), m, sorted(Policy.registry)


@program
def string_build(x):
    parts = []
    for i, (k, v) in enumerate({"lr": 0.001, "n": 12, "s": "q"}.items()):
        parts.append(f"{i:02d}:{k:<4}={v!r:>8}" if not isinstance(v, float) else f"{k}={v:.1e}")
    return x, " | ".join(parts), "%s %d%%" % ("a", 5), "{:{w}.{p}f}".format(3.14159, w=8, p=2)


@program
def coroutine(x):
    def avg():
        t = c = 0
        a = None
        while True:
            v = yield a
            t += v
            c += 1
            a = t / c

    g = avg()
    next(g)
    r = [g.send(v) for v in (1, 2, 6)]
    g.close()
    return x * r[-1], r


@program
def flatten(x):
    def flat(o):
        match o:
            case dict():
                for k in sorted(o):
                    yield from flat(o[k])
            case list() | tuple():
                for v in o:
                    yield from flat(v)
            case _:
                yield o

    return sum(flat({"b": [x, (x * 2,)], "a": x + 1})), len(list(flat([1, [2, [3]]])))


@program
def undo(x):
    st = []
    d = {"a": 1}

    def setk(k, v):
        st.append((k, d.get(k), k in d))
        d[k] = v

    setk("a", 2)
    setk("b", 3)
    snap = dict(d)
    while st:
        k, o, h = st.pop()
        if h:
            d[k] = o
        else:
            del d[k]
    return x, snap, d


class DotDict(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


DOT = DotDict(k=3)


@program
def dotdict(x):
    d = DotDict(a=1)
    d.b = 2
    del d.a
    DOT.t = x
    r = DOT.t + DOT.k
    del DOT.t
    return r * d.b, d.nope, dict(d), d.keys()


class FN(typing.NamedTuple):
    a: int
    b: int = 2

    def __add__(s, o):
        return FN(s.a + o.a, s.b + o.b)

    def __bool__(s):
        return s.a > 0

    def __eq__(s, o):
        return s.a == o.a


FNO = FN(3, 4)


@program
def fancy_nt(x):
    f = FN(1) + FN(2, 3)
    return (
        x * f.a,
        f,
        bool(FN(0)),
        FN(1, 2) == FN(1, 9),
        f._replace(a=0),
        FNO.b * x,
        FNO + f,
        f[0],
        f._asdict(),
        f is FNO,
    )


class Clamp(float):
    def __new__(c, v):
        return super().__new__(c, min(1.0, max(0.0, v)))

    def half(s):
        return s / 2


@program
def float_sub(x):
    return (
        x * Clamp(3.0),
        Clamp(-1) + 1,
        Clamp(0.5).half(),
        isinstance(Clamp(1), float),
        f"{Clamp(0.25):.1f}",
        Clamp(0.5) == 0.5,
    )


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
