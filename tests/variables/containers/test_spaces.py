"""One dict under several names: an object's own dict, ``vars()`` of it, a module's, a function's, globals, keywords.

Whatever is written under one name is read under the others, in one trace and whichever of them a later call gives.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import argparse
import collections
import functools
import sys
import types

import pytest
import torch
from language_support import broken_everywhere, same

import dynamo_lite

CASES = {}
ALIASED = {}


def case(use=lambda left: left, mk=lambda: (torch.ones(2),)):
    """Registers a program that uses a dict under several names: what is done with its result, its arguments."""

    def register(program):
        assert program.__name__ not in CASES, program.__name__
        CASES[program.__name__] = (program, use, mk)
        return program

    return register


def outcomes(program, use, make):
    """What two calls on the same arguments give."""
    args, found = make(), []
    for _ in range(2):
        try:
            found.append(use(program(*args)))
        except dynamo_lite.exc.DynamoLiteError:
            raise
        except Exception as error:
            found.append((type(error), str(error)))
    return found


class Thing:
    pass


def mko():
    o = Thing()
    o.a = 1
    o.t = torch.ones(2)
    return o


def m1():
    o = mko()
    return (torch.ones(2), vars(o), o)


@case(mk=m1)
def base(x, d, o):
    d["k"] = 1
    o.k = 2
    return d["k"], list(d), x + d["k"]


@case(mk=m1)
def base2(x, d, o):
    o.k = 2
    d["k"] = 1
    return o.k, list(d), x + 1


@case(mk=m1)
def base3(x, d, o):
    o.k = 2
    return d["k"], d.pop("k"), hasattr(o, "k"), x + 1


@case(mk=m1)
def base4(x, d, o):
    del d["a"]
    return hasattr(o, "a"), getattr(o, "a", 5), x + 1


@case(mk=m1)
def base5(x, d, o):
    del o.a
    return "a" in d, d.get("a", 7), len(d), x + 1


@case(mk=m1)
def base6(x, d, o):
    v = vars(o)
    v["z"] = 3
    return v is d, o.__dict__ is d, d["z"], o.z, vars(o) is o.__dict__, x + 1


@case(mk=m1)
def tens(x, d, o):
    d["t"] = x + 1
    o.t = o.t * 2
    return d["t"], o.t is d["t"]


@case(lambda r: (r,), mk=m1)
def views(x, d, o):
    k = d.keys()
    o.n = 3
    return list(k), [*d.values()][-1], x + 1


@case(mk=m1)
def clear(x, d, o):
    d.clear()
    o.q = x + 1
    return list(d), hasattr(o, "a"), d["q"]


@case(mk=m1)
def upd(x, d, o):
    d.update(a=5, b=6)
    d |= {"c": 7}
    d.setdefault("e", 8)
    return o.a, o.b, o.c, o.e, x + 1


@case(mk=m1)
def setattr_(x, d, o):
    for k in ("p", "q"):
        setattr(o, k, x)
    return [k for k in d], d["p"] + d["q"]


@case(mk=m1)
def own_iter(x, d, o):
    out = []
    try:
        for k in o.__dict__:
            out.append(k)
            o.new = 1
    except RuntimeError as e:
        out.append(str(e))
    return out, x + 1


def mborg():
    d = {"s": 1}
    a, b = Thing(), Thing()
    a.__dict__ = d
    b.__dict__ = d
    return torch.ones(2), a, b


@case(mk=mborg)
def borg(x, a, b):
    a.k = x + 1
    b.s = 5
    return b.k, a.s, x + 1


class Borg:
    _st = {}

    def __init__(self):
        self.__dict__ = self._st


@case(mk=lambda: (torch.ones(2), Borg(), Borg()))
def borg2(x, a, b):
    a.v = x + 1
    r = b.v
    del b.v
    return r, hasattr(a, "v")


class AttrDict(dict):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.__dict__ = self


@case(mk=lambda: (torch.ones(2), AttrDict(a=1, b=2)))
def attrdict(x, d):
    d.a = 5
    d["b"] = 6
    d.c = x
    return d["a"], d.b, list(d), d["c"], len(d), x + 1


@case(mk=lambda: (torch.ones(2), AttrDict(a=1, b=2)))
def attrdict2(x, d):
    del d.a
    d["n"] = x + 1
    return "a" in d, d.n, getattr(d, "a", None)


@case(mk=lambda: (torch.ones(2),))
def attrdict3(x):
    d = AttrDict(a=1, b=2)
    d.a = 5
    d["z"] = x + 1
    return d["a"], d.z, list(d)


def mmod():
    mod = types.ModuleType("mymod")
    mod.v = 3
    sys.modules["mymod"] = mod
    return torch.ones(2), vars(mod), mod


@case(mk=mmod)
def module(x, d, m):
    d["k"] = 1
    m.k = 2
    m.v = x + 1
    return d["k"], d["v"], x + 1


@case(mk=mmod)
def module2(x, d, m):
    m.k = 2
    d["k"] = 1
    d["v"] = 9
    return m.k, m.v, vars(m)["k"], vars(m) is d, m.__dict__ is d, x + 1


@case(mk=mmod)
def module3(x, d, m):
    m.k = 2
    del m.k
    del m.v
    return "k" in d, hasattr(m, "v"), "v" in d, x + 1


def mfn():
    def f():
        return 1

    f.a = 1
    return torch.ones(2), f.__dict__, f


@case(mk=mfn)
def func(x, d, f):
    d["k"] = 1
    f.k = 2
    r = d["k"]
    d["k"] = 3
    return r, f.k, d["a"], vars(f) is d, f.__dict__ is d, x + 1


@case(mk=mfn)
def func2(x, d, f):
    f.__dict__["z"] = x + 1
    f.__dict__.update(y=4)
    return f.z, f.y, list(d)


@case(mk=mfn)
def func3(x, d, f):
    f.q = 1
    del f.q
    del f.a
    return hasattr(f, "a"), "q" in d, x + 1


GL = 1


@case(mk=lambda: (torch.ones(2), globals()))
def glob(x, d):
    global GL
    d["GL"] = 5
    a = GL
    GL = 7
    b = d["GL"]
    del d["GL"]
    try:
        c = GL
    except NameError as e:
        c = str(e)
    GL = 1
    return a, b, c, x + 1


@case(mk=lambda: (torch.ones(2), globals()))
def glob2(x, d):
    global NEWG
    d["NEWG"] = x + 1
    r = NEWG
    NEWG = 4
    return r, d["NEWG"], globals()["NEWG"], "NEWG" in d


@case(mk=lambda: (torch.ones(2), sys.modules[__name__]))
def glob3(x, m):
    global GL
    GL = 5
    a = m.GL
    m.GL = 6
    b = GL
    GL = 1
    return a, b, vars(m)["GL"], x + 1


@case()
def glob4(x):
    global GL
    GL = 3
    r = globals()["GL"]
    globals()["GL"] = 4
    s = GL
    GL = 1
    return r, s, x + 1


def outer_g():
    global GL
    GL = GL + 1
    return GL


@case(mk=lambda: (torch.ones(2), globals()))
def glob5(x, d):
    d["GL"] = 5
    r = outer_g()
    s = d["GL"]
    d["GL"] = 1
    return r, s, x + 1, outer_g.__globals__ is d


class Net(torch.nn.Module):
    def __init__(s):
        super().__init__()
        s.l = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(s.l.weight)
        s.register_buffer("b", torch.ones(2))
        s.k = 1
        s.w = torch.nn.Parameter(torch.ones(2))


@case(mk=lambda: (lambda m: (torch.ones(2), m, vars(m)))(Net()))
def nnm(x, m, d):
    d["k"] = 5
    m.j = 3
    return m.k, d["j"], vars(m)["k"], m.__dict__ is d, x + 1


@case(mk=lambda: (lambda m: (torch.ones(2), m, m._parameters, m._buffers))(Net()))
def nnm2(x, m, p, b):
    b["b"] = x * 3
    r = m.b
    m.b = x * 4
    s = b["b"]
    q = p.pop("w")
    return r, s, hasattr(m, "w"), "w" in m._parameters, q.detach()


@case(mk=lambda: (lambda m: (torch.ones(2), m, m._modules))(Net()))
def nnm3(x, m, p):
    l = p.pop("l")
    m.l2 = l
    del m.l2
    m.add_module("l3", l)
    return list(p), hasattr(m, "l"), p["l3"] is m.l3, x + 1


@case(mk=lambda: (lambda m: (torch.ones(2), m))(Net()))
def nnm4(x, m):
    del m.b
    r = hasattr(m, "b")
    m.register_buffer("b", x * 2)
    return r, m.b, m._buffers["b"]


@case(mk=lambda: (torch.ones(2), functools.partial(max, a=1)))
def part(x, p):
    p.keywords["b"] = 2
    return dict(p.keywords), x + 1


@case(mk=lambda: (torch.ones(2), functools.partial(lambda **k: k, a=1)))
def part2(x, p):
    p.keywords["b"] = 2
    return p(), p.keywords is p.keywords, x + 1


@case()
def part3(x):
    p = functools.partial(lambda **k: k, a=1)
    k = p.keywords
    k["b"] = x
    return p(), p.keywords is k


@case(mk=lambda: (torch.ones(2), functools.partial(max, a=1)))
def part4(x, p):
    p.zz = 2
    d = p.__dict__
    d["y"] = 4
    return p.y, d["zz"], p.__dict__ is d, x + 1


@case(mk=lambda: (torch.ones(2), {"a": 1}))
def kwd(x, d):
    def f(**k):
        k["b"] = x
        k["a"] = 3
        return k

    r = f(**d)
    return r, d


def mkw():
    def f(*, k=1):
        return k

    return torch.ones(2), f, f.__kwdefaults__


@case(mk=mkw)
def kwdefaults(x, f, d):
    d["k"] = 5
    return f(), f.__kwdefaults__["k"], f.__kwdefaults__ is d, x + 1


@case(mk=mkw)
def kwdefaults2(x, f, d):
    del d["k"]
    try:
        return f()
    except TypeError as e:
        return str(e), x + 1


@case()
def made(x):
    o = Thing()
    o.a = x
    d = o.__dict__
    d["k"] = 1
    o.k = 2
    return d["k"], d is o.__dict__, vars(o) is d, list(d), o.k


@case(lambda r: (r[0] is vars(r[1]), list(r[0].items())))
def made2(x):
    o = Thing()
    d = vars(o)
    o.a = x + 1
    d.update(b=2)
    d.pop("a")
    d.setdefault("c", 3)
    return d, o


@case()
def made3(x):
    o = Thing()
    o.__dict__ = d = {"a": 1}
    o.b = x + 1
    return d["b"], o.a


@case()
def made4(x):
    o = Thing()
    o.x = 1
    o.__dict__.clear()
    o.__dict__ |= {"z": x + 1}
    return (
        hasattr(o, "x"),
        o.z,
        len(vars(o)),
        dict(vars(o)),
        vars(o) == {"z": 1} if False else None,
        str(list(o.__dict__.keys())),
    )


@case(mk=lambda: (torch.ones(2), types.SimpleNamespace(a=1)))
def ns(x, o):
    d = vars(o)
    d["b"] = x + 1
    o.c = 2
    return o.b, d["c"], list(d), vars(o) is d


@case(mk=lambda: (torch.ones(2), argparse.Namespace(a=1)))
def argns(x, o):
    d = vars(o)
    d["b"] = x + 1
    o.c = 2
    return o.b, d["c"], list(d), "b" in o


class Sample:
    k = 1


@case(mk=lambda: (torch.ones(2), vars(Sample), Sample))
def cls(x, d, c):
    c.k = 2
    r = d["k"]
    c.k = 1
    return r, x + 1


@case(mk=lambda: (torch.ones(2), Sample))
def cls2(x, c):
    c.k = 2
    r = c.__dict__["k"], vars(c)["k"], Sample().k
    c.k = 1
    return r, x + 1


class Failure(Exception):
    pass


def mexc():
    e = Failure(1)
    e.a = 2
    return torch.ones(2), e, vars(e)


@case(mk=mexc)
def exc(x, e, d):
    e.k = 1
    d["a"] = 3
    return d["k"], e.a, vars(e) is d, x + 1


class Slotted:
    __slots__ = ("a", "__dict__")


def msl():
    s = Slotted()
    s.a = 1
    s.b = 2
    return torch.ones(2), s, vars(s)


@case(mk=msl)
def slots(x, s, d):
    s.c = 3
    d["b"] = 4
    s.a = 5
    d["a"] = 6
    return d["c"], s.b, s.a, list(d), x + 1


class WithProperty:
    @property
    def p(self):
        return self.__dict__["_p"]

    @p.setter
    def p(self, v):
        self.__dict__["_p"] = v


@case(mk=lambda: (lambda o: (torch.ones(2), o, vars(o)))(WithProperty()))
def prop(x, o, d):
    o.p = x + 1
    d["p"] = 5
    return o.p, d["_p"] is o.p, o._p is o.p


class Cfg(collections.OrderedDict):
    pass


def mcfg():
    c = Cfg(a=1)
    c.at = 2
    return torch.ones(2), c, vars(c)


@case(mk=mcfg)
def ordered(x, c, d):
    c.z = 1
    d["at"] = 5
    c["q"] = 2
    return c.at, d["z"], list(c), list(d), x + 1


@case(mk=lambda: (torch.ones(2), mko()))
def del_iter(x, o):
    for k in list(vars(o)):
        delattr(o, k)
    return len(o.__dict__), bool(vars(o)), x + 1


@case(mk=lambda: (torch.ones(2), mko(), mko()))
def swap(x, a, b):
    a.__dict__.update(b.__dict__)
    a.__dict__["t"] = x
    return b.t, a.t, a.a


@case(mk=lambda: (torch.ones(2), mko(), mko()))
def replace(x, a, b):
    a.__dict__ = b.__dict__
    a.zz = x + 1
    return b.zz, a.__dict__ is b.__dict__


@case(mk=lambda: (torch.ones(2), mko()))
def replace2(x, a):
    old = a.__dict__
    a.__dict__ = {"q": 1}
    a.w = x + 1
    return list(old), list(vars(a))


X = torch.ones(2)


def fresh(n):
    out = []
    for _ in range(n):
        o = Thing()
        o.a = 1
        out.append(o)
    return out


def aliased(make):
    """Registers a program and what makes its arguments: now as two dicts, now as one."""
    assert make.__name__ not in ALIASED, make.__name__
    ALIASED[make.__name__] = make
    return make


@aliased
def dict_vs_object():
    def f(x, d, o):
        d["a"] = 5
        return o.a, x + 1

    return f, [lambda: (X, {"a": 1}, fresh(1)[0]), lambda: (lambda o: (X, vars(o), o))(fresh(1)[0])]


@aliased
def dict_vs_object2():
    def f(x, d, o):
        o.a = 5
        return d["a"], x + 1

    return f, [
        lambda: (X, {"a": 1}, fresh(1)[0]),
        lambda: (lambda o: (X, vars(o), o))(fresh(1)[0]),
        lambda: (X, {"a": 1}, fresh(1)[0]),
    ]


@aliased
def alias_then_not():
    def f(x, d, o):
        o.a = 5
        return d["a"], x + 1

    return f, [lambda: (lambda o: (X, vars(o), o))(fresh(1)[0]), lambda: (X, {"a": 1}, fresh(1)[0])]


@aliased
def borg_later():
    def f(x, a, b):
        a.a = 7
        return b.a, x + 1

    def mk2():
        a, b = fresh(2)
        b.__dict__ = a.__dict__
        return X, a, b

    return f, [lambda: (X, *fresh(2)), mk2, lambda: (X, *fresh(2))]


@aliased
def borg_earlier():
    def f(x, a, b):
        a.a = 7
        return b.a, x + 1

    def mk2():
        a, b = fresh(2)
        b.__dict__ = a.__dict__
        return X, a, b

    return f, [mk2, lambda: (X, *fresh(2))]


@aliased
def borg_other_class():
    class Q:
        pass

    def f(x, a, b):
        a.a = 7
        return b.a, x + 1

    def mk(al):
        a = Thing()
        b = Q()
        a.a = b.a = 1
        if al:
            b.__dict__ = a.__dict__
        return X, a, b

    return f, [lambda: mk(0), lambda: mk(1)]


@aliased
def fn_alias():
    def f(x, g, h):
        g.k = 5
        return h.k, x + 1

    def mk(al):
        def a():
            pass

        def b():
            pass

        a.k = b.k = 1
        return X, a, (a if al else b)

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def fn_dict():
    def f(x, d, h):
        d["k"] = 5
        return h.k, x + 1

    def mk(al):
        def a():
            pass

        a.k = 1
        return X, (a.__dict__ if al else {"k": 1}), a

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def mod_dict():
    m = types.ModuleType("zz")

    def f(x, d):
        d["k"] = 5
        return m.k, x + 1

    def mk(al):
        m.k = 1
        return X, (vars(m) if al else {"k": 1})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def glob_dict():
    def f(x, d):
        d["GL"] = 5
        return GL, x + 1

    def mk(al):
        globals()["GL"] = 1
        return X, (f.__globals__ if al else {"GL": 1})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def glob_dict_w():
    def f(x, d):
        global GL
        GL = 5
        return d["GL"], x + 1

    def mk(al):
        globals()["GL"] = 1
        return X, (f.__globals__ if al else {"GL": 1})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def keyword_defaults():
    def f(x, g, d):
        d["k"] = 5
        return g(), x + 1

    def mk(al):
        def g(*, k=1):
            return k

        return X, g, (g.__kwdefaults__ if al else {"k": 1})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def params():
    def f(x, m, d):
        d["b"] = x * 7
        return m.b, x + 1

    def mk(al):
        m = Net()
        return X, m, (m._buffers if al else {"b": X})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def attrd():
    def f(x, a, d):
        d["a"] = 7
        return a.a, x + 1

    def mk(al):
        a = AttrDict(a=1)
        return X, a, (a if al else AttrDict(a=1))

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def attrd2():
    def f(x, o, d):
        d["a"] = 7
        return o.a, x + 1

    def mk(al):
        o = Thing()
        o.a = 1
        d = AttrDict(a=1)
        if al:
            o.__dict__ = d
        return X, o, d

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def partial_keywords():
    def f(x, p, d):
        d["b"] = 7
        return p(), x + 1

    def mk(al):
        p = functools.partial(lambda **k: k["b"], b=1)
        return X, p, (p.keywords if al else {"b": 1})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def two_dicts():
    def f(x, a, b):
        a["b"] = 7
        return b["b"], x + 1

    def mk(al):
        a = {"b": 1}
        return X, a, (a if al else {"b": 1})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def dict_in_attr():
    def f(x, o):
        o.d["a"] = 7
        o.z = 3
        return o.a, "z" in o.d, x + 1

    def mk(al):
        o = Thing()
        o.a = 1
        o.d = vars(o) if al else {"a": 1}
        return X, o

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def tensor_dict():
    def f(x, t, d):
        t.tag = 5
        return d.get("tag"), x + 1

    def mk(al):
        t = torch.ones(2)
        return X, t, (vars(t) if al else {})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def tensor_dict2():
    def f(x, t, d):
        d["tag"] = 5
        return t.tag, x + 1

    def mk(al):
        t = torch.ones(2)
        t.tag = 1
        return X, t, (vars(t) if al else {"tag": 1})

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(0)]


@aliased
def not_written():
    def f(x, d, o):
        return d["a"] + o.a, x + 1

    return f, [lambda: (X, {"a": 1}, fresh(1)[0]), lambda: (lambda o: (X, vars(o), o))(fresh(1)[0])]


@aliased
def keys_grow():
    def f(x, o):
        vars(o)["q"] = 1
        return o.q, x + 1

    def mk(n):
        o = Thing()
        for i in range(n):
            setattr(o, "k%d" % i, i)
        return X, o

    return f, [lambda: mk(0), lambda: mk(1), lambda: mk(3)]


@pytest.mark.parametrize("name", CASES)
def test_one_dict(name):
    program, use, make = CASES[name]
    before = dict(globals())
    want = outcomes(program, use, make)
    globals().update(before)
    got = outcomes(dynamo_lite.compile(program, backend="eager"), use, make)
    globals().update(before)
    assert same(got, want), f"{got} instead of {want}"


@pytest.mark.parametrize("name", CASES)
def test_with_breaks_everywhere(name):
    program, use, make = CASES[name]
    before = dict(globals())
    want = outcomes(program, use, make)
    globals().update(before)
    got = outcomes(broken_everywhere(program), use, make)
    globals().update(before)
    assert same(got, want), f"{got} instead of {want}"


@pytest.mark.parametrize("name", ALIASED)
def test_other_names_in_a_later_call(name):
    program, makers = ALIASED[name]()
    compiled = dynamo_lite.compile(program, backend="eager")
    for make in makers:
        want = program(*make())
        for _ in range(2):
            got = compiled(*make())
            assert same(got, want), f"{got} instead of {want}"


def test_an_own_dict_that_is_written_needs_no_guard_on_its_other_keys():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def program(x, thing):
        vars(thing)["seen"] = x
        return x + thing.seen

    compiled = dynamo_lite.compile(program, backend=backend, fullgraph=True)
    for number in range(3):
        thing = Thing()
        for n in range(number):
            setattr(thing, f"other_{n}", n)
        assert torch.equal(compiled(torch.ones(2), thing), torch.full((2,), 2.0))
        assert list(vars(thing))[-1] == "seen"
    assert len(graphs) == 1


def test_a_key_that_is_deleted_and_stored_again_moves_behind_keys_that_came_later():
    def function(x, d):
        d.pop("s", None)
        return d.setdefault("s", 1) * x

    compiled = dynamo_lite.compile(function, backend="eager")
    for d in ({"a": 1, "s": 1}, {"a": 1, "s": 1, "z": 3}, {"s": 1, "a": 1}):
        mine = dict(d)
        compiled(torch.ones(1), d)
        function(torch.ones(1), mine)
        assert list(d.items()) == list(mine.items())


def delete_and_set(x, o):
    del o.a
    y = x + 1
    o.a = 7
    return y


def set_late(x, o):
    o.z = 1
    o.a = 2
    del o.z
    o.z = 3
    return x + 1


def through_both_names(x, o):
    del o.a
    vars(o)["a"] = 4
    vars(o).pop("b")
    o.b = 5
    return x + 1


def in_handlers(x, o):
    for name in ("b", "a"):
        try:
            delattr(o, name)
            raise KeyError
        except KeyError:
            setattr(o, name, x)
    return [name for name in vars(o) if len(name) == 1], x + 1


def some_keepers():
    class Plain:
        pass

    class Mapping(dict):
        pass

    found = [Plain(), Mapping(), types.ModuleType("some"), types.SimpleNamespace(), lambda: 0, functools.partial(int),
             torch.nn.Identity(), Exception(), torch.ones(2), type("Made", (), {})]
    for keeper in found:
        keeper.a = keeper.b = keeper.c = 1
    return found


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("fn", [delete_and_set, set_late, through_both_names, in_handlers])
def test_a_name_that_is_deleted_and_set_comes_last(fn, at):
    """Whether or not the dict had it before the trace, which other entries can't tell."""
    def outcome(call, late):
        keeper = some_keepers()[at]
        if late:
            keeper.z = 0
            del keeper.a
            keeper.a = 1
        try:
            result = call(torch.ones(2), keeper)
        except Exception as error:
            result = type(error), str(error)
        return str(result), [name for name in vars(keeper) if len(name) == 1]

    compiled = dynamo_lite.compile(fn, backend="eager")
    for late in (False, True, False, True):
        assert outcome(compiled, late) == outcome(fn, late), late


def test_a_global_that_is_deleted_and_set_comes_last():
    source = """
def again(x):
    global G
    del G
    y = x + 1
    G = 5
    return y
def late(x):
    global K, L
    K = 1
    del K
    L = 2
    K = 3
    return x + 1
"""
    for name in ("again", "late"):
        def outcome(compiled, had):
            space = {"G": 1, "K": 2, "H": 3} if had else {"G": 1, "H": 3}
            exec(source, space)
            call = dynamo_lite.compile(space[name], backend="eager") if compiled else space[name]
            call(torch.ones(2))
            call(torch.ones(2))
            return [key for key in space if len(key) == 1]

        assert [outcome(True, had) for had in (False, True)] == [outcome(False, had) for had in (False, True)]
