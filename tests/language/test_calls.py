"""Many constructs of the language in one program each, mixed with tensors: functions, generators, patterns.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import functools

import pytest
import torch
from language_support import Programs
from sample_classes import FDC, Col, Thing

program = Programs()


OBJ = Thing()


# --- functions
@program
def nonlocals(x):
    n = 0

    def inc(k=1):
        nonlocal n
        n += k
        return n

    inc()
    inc(5)
    fs = [lambda i=i: i * n for i in range(3)]
    gs = [lambda: i for i in range(3)]
    return x * n, [f() for f in fs], [g() for g in gs]


def deco(f):
    @functools.wraps(f)
    def w(*a, **k):
        return f(*a, **k) + 1

    w.calls = 0
    return w


def decop(n):
    def d(f):
        return lambda *a: f(*a) * n

    return d


@program
def decorators(x):
    @deco
    @decop(3)
    def f(a):
        "doc"
        return a

    @deco
    def g(a, /, b=2, *, c=3):
        return a + b + c

    return f(x), f.__name__, g.__name__, g.__wrapped__.__name__, f.calls, g(x, c=1), g.__kwdefaults__


@program
def gens(x):
    l = []

    def g(n):
        try:
            r = yield n
            l.append(r)
            yield from sub(n)
        except ValueError as e:
            l.append(str(e))
            yield "caught"
        finally:
            l.append("fin")
        return "ret"

    def sub(n):
        r = yield n * 2
        l.append(("sub", r))
        return 9

    a = g(x)
    y = next(a)
    z = a.send(3)
    w = a.throw(ValueError("boom"))
    try:
        next(a)
    except StopIteration as e:
        v = e.value
    b = g(1)
    next(b)
    b.close()
    return y, z, w, v, l, [v for v in (i * 2 for i in range(3))], sum(i for i in range(4))


@program
def gen_return(x):
    def s():
        yield 1
        return x * 2

    def g():
        v = yield from s()
        yield v

    return list(g())


@program
def gen_escapes(x):
    def g():
        for i in range(3):
            yield x * i

    return g()


@program
def recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def walk(t):
        return sum(map(walk, t)) if isinstance(t, (list, tuple)) else t

    return x * fact(5), walk([1, [2, (3, x)]])


@program
def builtins_(x):
    l = [3, 1, 2]
    z = 0
    try:
        list(zip([1], [1, 2], strict=True))
    except ValueError as e:
        z = str(e)
    try:
        max([])
    except ValueError as e:
        z = (z, str(e))
    return (
        x + 1,
        list(map(lambda a, b: a + b, l, l)),
        list(filter(None, [0, 1])),
        z,
        sorted(l, key=lambda v: -v),
        min(l, key=lambda v: -v),
        max([], default=7),
        any(v > 2 for v in l),
        all([]),
        sum(l, 10),
        sum([[1], [2]], []),
        list(reversed(l)),
        list(enumerate(l, 5)),
        isinstance(x, torch.Tensor),
        getattr(OBJ, "zz", 1),
        hasattr(OBJ, "k"),
        callable(len),
        type(3) is int,
        id(OBJ) == id(OBJ),
        max(3, 1, key=lambda v: -v),
        list(zip()),
        iter([]) is not None,
        next(iter([]), 5),
        list(iter([5, 6, 7].pop, 5)),
        chr(97),
        ord("a"),
        repr([1]),
        ascii("é"),
        abs(-2),
        divmod(7, 2),
        pow(2, 3),
        slice(1),
        bool([]),
        list(range(3)),
        tuple("ab"),
        format(3.14159, ".2f"),
        vars(OBJ)["k"],
        hash("a") == hash("a"),
        issubclass(bool, int),
    )


@program.breaks("call_skipped")
def setattrs(x):
    o = Thing()
    setattr(o, "q", x)
    delattr(o, "k")
    o.__dict__["w"] = 2
    return o.q + o.w, hasattr(o, "k"), sorted(o.__dict__), dir(o)[-1]


@program
def kwargs_(x):
    def f(a, /, b, *c, d=1, **e):
        return a, b, c, d, e

    return f(x, *[1, 2], **{"d": 5, "z": 6}), f(1, b=2), (lambda *a, **k: (a, k))(*"ab", **dict(q=1))


@program
def match_(x):
    out = []
    for s in [
        1,
        "a",
        [1, 2, 3],
        {"k": 1, "z": 2},
        FDC(1, 2),
        (1, (2, 3)),
        None,
        True,
        Col.R,
        3.5,
        [],
        {"k": {"n": 5}},
        Thing,
        b"x",
        {1: 2},
        "long string",
        -1,
        range(3),
        [0, "x"],
    ]:
        match s:
            case True:
                out.append("T")
            case Col.R:
                out.append("colR")
            case None:
                out.append("N")
            case 1 | 2:
                out.append("12")
            case [0, str(q)]:
                out.append(q)
            case int(n) if n < 0:
                out.append(("neg", n))
            case [a, *rest] if len(rest) == 2:
                out.append((a, rest))
            case (a, (b, c)):
                out.append((a, b, c))
            case []:
                out.append("e")
            case {"k": {"n": n}}:
                out.append(("nest", n))
            case {"k": v, **r}:
                out.append((v, r))
            case FDC(a=aa, b=bb):
                out.append((aa, bb))
            case float():
                out.append("f")
            case str() as t:
                out.append(t)
            case _:
                out.append("_")
    return x + 1, out


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
