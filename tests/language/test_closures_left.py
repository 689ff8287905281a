"""Closures that leave the captured part: returned, yielded, stored, bound to other objects, alone and in cycles.

Each program returns something that is used afterwards, in plain Python; the cells that it closes over have to be
bound as the program has left them, and two closures that share a variable share a cell.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import collections
import functools
import types

import pytest
import torch
from language_support import broken_everywhere, same

import dynamo_lite
from dynamo_lite import config

CASES = {}


def case(use=lambda left: left, make=lambda: (torch.ones(2),), graphs=1, breaks=False):
    """Registers a program: what is done with its result, its arguments, how many graphs it has, whether it breaks."""

    def register(program):
        assert program.__name__ not in CASES, program.__name__
        CASES[program.__name__] = (program, use, make, graphs, breaks)
        return program

    return register


def outcomes(program, use, make, strict):
    """What two calls and the uses of their results give."""
    found = []
    for attempt in range(2):
        with config.patch(error_on_recompile=strict and attempt == 1):
            try:
                found.append(use(program(*make())))
            except dynamo_lite.exc.DynamoLiteError:
                raise
            except Exception as error:
                found.append((type(error), str(error)))
    return found


call = lambda r: r()


@case(call)
def fresh(x):
    v = x + 1
    return lambda: v


@case(call)
def rebound(x):
    x = x + 1
    return lambda: x


@case(lambda r: [r(), r(), r()])
def counter(x):
    n = 0
    y = x * 2

    def bump():
        nonlocal n
        n += 1
        return y * n

    return bump


@case(lambda r: list(r))
def genexp(x):
    v = x + 1
    return (v * i for i in range(3))


@case(lambda r: [r["a"](), r["b"][0](), r["b"][0] is r["b"][1]])
def containers(x):
    v = x + 1
    f = lambda: v
    return {"a": lambda: v * 2, "b": [f, f]}


class Thing:
    pass


@case(lambda r: [r.f(), r.f()])
def attribute(x):
    o = Thing()
    v = x + 1
    o.f = lambda: v
    v = v + 1
    return o


@case(lambda o: o.f(), lambda: (torch.ones(2), Thing()))
def attr_outside(x, o):
    v = x + 1
    o.f = lambda: v
    v = v * 2
    return o


G = None


@case(lambda r: [G(), G(), r])
def glob(x):
    global G
    v = x + 1
    n = 0

    def g():
        nonlocal n
        n += 1
        return v * n

    G = g
    return v


@case(lambda r: r())
def default(x):
    v = x + 1

    def f(g=lambda: v):
        return g() * 2

    v = v + 1
    return f


@case(lambda r: r())
def part(x):
    v = x + 1

    def f(a, b):
        return a + b + v

    v = v * 3
    return functools.partial(f, x, b=2)


@case(lambda r: [r.m(), r.m(), r.get()])
def local_class(x):
    v = x + 1
    n = 0

    class A:
        def m(self):
            nonlocal n
            n += 1
            return v * n

        def get(self):
            return n, __class__ is A

    return A()


@case(lambda r: r()())
def two_deep(x):
    v = x + 1

    def a():
        w = v + 1

        def b():
            return v * w

        return b

    return a


@case(lambda r: [f() for f in r])
def compr(x):
    v = x + 1
    return [lambda: v * i for i in range(3)]


@case(lambda r: [f() for f in r])
def compr2(x):
    v = x + 1
    return [lambda i=i: v * i for i in range(3)]


@case(lambda r: r())
def inlined(x):
    def mk(a):
        a = a + 1

        def f():
            return a

        return f

    return mk(x)


@case(lambda r: [r(3), r.__closure__[0].cell_contents is r], graphs=0)
def selfref(x):
    def mk():
        def f(n):
            return 1 if n < 2 else n * f(n - 1)

        return f

    y = x + 1
    return mk()


@case(lambda r: [r(3), r.__closure__[0].cell_contents is r], graphs=0)
def selfref_own(x):
    y = x + 1

    def f(n):
        return 1 if n < 2 else n * f(n - 1)

    return f


@case(lambda r: [r[0](), r[1](5), r[0](), r[0].__closure__[0] is r[1].__closure__[0]], graphs=0)
def share(x):
    v = x + 1
    n = 1

    def get():
        return n

    def put(m):
        nonlocal n
        n = m

    return get, put


@case(lambda r: [r[0](), r[1](5), r[0](), r[0].__closure__[0] is r[1].__closure__[0]], graphs=0, breaks=True)
def share_break(x):
    n = 1

    def get():
        return n

    v = x + 1
    dynamo_lite.graph_break()
    n = 2

    def put(m):
        nonlocal n
        n = m

    return get, put


@case(lambda r: [r[0](), r[1](5), r[0](), r[0].__closure__[0] is r[1].__closure__[0]], graphs=0, breaks=True)
def share_break2(x):
    def mk():
        n = 1

        def get():
            return n

        def put(m):
            nonlocal n
            n = m

        return get, put

    v = x + 1
    a, b = mk()
    dynamo_lite.graph_break()
    b(7)
    return a, b


@case(call, graphs=0)
def deleted(x):
    v = x + 1
    f = lambda: v  # noqa: F821
    del v
    return f


@case(call, graphs=0)
def deleted_arg(x):
    y = x + 1
    f = lambda: x  # noqa: F821
    del x
    return f


@case(call, graphs=0, breaks=True)
def deleted_arg2(x):
    y = x + 1
    f = lambda: x  # noqa: F821
    dynamo_lite.graph_break()
    del x
    return f


@case(call, graphs=0)
def unset_later(x):
    y = x + 1
    f = lambda: zz
    if x is None:
        zz = 1
    return f


@case(lambda r: r, graphs=0)
def del_twice(x):
    y = x + 1

    def f():
        nonlocal y
        del y

    f()
    try:
        f()
    except NameError as e:
        return str(e), type(e).__name__


@case(lambda r: r, graphs=0)
def del_twice_own(x):
    y = x + 1

    def f():
        return y  # noqa: F821

    del y
    try:
        del y
    except NameError as e:
        return str(e), type(e).__name__


@case(lambda r: [r[0](), r[1]()])
def mutual(x):
    def mk(y):
        def a():
            return y, b.__name__

        def b():
            return y * 2, a.__name__

        return a, b

    return mk(x + 1)


@case(lambda r: [r.f is r, r()])
def attr_self(x):
    v = x + 1

    def f():
        return v

    f.f = f
    return f


@case(lambda r: [r.m.__self__ is r, r.m is r.m, r.m()])
def bound_self(x):
    v = x + 1

    class A:
        def m(self):
            return v

    a = A()
    a.m = a.m
    return a


@case(lambda r: [next(r), next(r)])
def gen_func(x):
    v = x + 1

    def g():
        nonlocal v
        while True:
            v = v + 1
            yield v

    return g()


@case(lambda r: [r[0](), r[1][0]])
def list_self(x):
    L = [x + 1]

    def f():
        return L[0], L[1] is f

    L.append(f)
    return f, L


@case(lambda r: [r.__defaults__[0][0] is r], graphs=0)
def default_self(x):
    y = x + 1
    L = []

    def f(a=L):
        return a

    L.append(f)
    return f


@case(lambda r: [r()[0] is r()[1]], graphs=0)
def cell_of_list(x):
    y = x + 1
    L = []
    L.append(L)
    return lambda: (L, L[0])


@case(lambda r: r(1)(2))
def curry(x):
    y = x * 2
    return lambda a: lambda b: (a, b, y)


@case(lambda r: r())
def star(x):
    def mk(*args, **kw):
        args = args + (1,)
        kw["z"] = 5
        return lambda: (args, kw)

    y = x + 1
    return mk(y, q=y)


@case(lambda r: r(), lambda: (torch.ones(2), 1, 2))
def star_own(x, *args, **kw):
    y = x + 1
    args = args + (y,)
    kw["a"] = y
    return lambda: (args, kw)


@case(lambda r: r())
def loop_cell(x):
    fs = []
    for i in range(3):
        y = x + i
        fs.append(lambda: (i, y))
    return lambda: [f() for f in fs]


@case(lambda r: r())
def try_cell(x):
    try:
        v = x + 1
        return lambda: v
    finally:
        v = v * 3


@case(lambda r: r())
def in_exc(x):
    v = x + 1
    try:
        raise ValueError("a")
    except ValueError as e:
        v = v + 1
    return lambda: v


@case(lambda r: r(), graphs=0)
def in_exc2(x):
    v = x + 1
    try:
        raise ValueError("a")
    except ValueError as e:
        f = lambda: e  # noqa: F821
    return f


@case(lambda r: r[0]().__class__.__name__)
def super_cell(x):
    y = x + 1

    class A(Thing):
        def __init__(self):
            super().__init__()
            self.v = y

    return A, y


@case(lambda r: (r[0]().v, r[0]().w))
def super_cell2(x):
    y = x + 1

    class A(Thing):
        def __init__(self):
            super().__init__()
            self.v = y
            self.w = __class__ is A

    y = y + 1
    return A, y


@case(lambda r: [r.cell_contents])
def cell_left(x):
    y = x + 1
    f = lambda: y
    return f.__closure__[0]


@case(lambda r: [next(r)(), next(r)()])
def yielded(x):
    def g():
        v = x + 1
        yield lambda: v
        v = v + 1
        yield lambda: v

    return iter(list(g()))


@case(lambda r: [next(r)()])
def genexp_lambda(x):
    v = x + 1
    return ((lambda: v * i) for i in range(3))


@case(lambda r: r())
def wraps(x):
    v = x + 1

    def dec(fn):
        @functools.wraps(fn)
        def inner(*a):
            return fn(*a) * v

        return inner

    @dec
    def h():
        return v

    return h


@case(lambda r: [r(), r.cache_info().hits], graphs=3, breaks=True)
def lru(x):
    v = x + 1

    @functools.lru_cache
    def h():
        return v

    v = v * 2
    return h


@case(lambda r: [r.p, r.q()])
def prop(x):
    v = x + 1

    class A:
        @property
        def p(self):
            return v

        @staticmethod
        def q():
            return v * 2

    v = v + 1
    return A()


@case(lambda r: r[0]())
def raises_after(x):
    v = x + 1
    fs = []
    fs.append(lambda: v)
    v = v + 1
    return fs


@case(lambda r: [f() for f in r], lambda: (torch.ones(2), []))
def list_out(x, L):
    v = x + 1
    L.append(lambda: v)
    v = v + 1
    return L


@case(lambda r: [f() for f in r], lambda: (torch.ones(2), []), graphs=2, breaks=True)
def list_out_break(x, L):
    v = x + 1
    L.append(lambda: v)
    dynamo_lite.graph_break()
    v = v + 1
    L.append(lambda: v)
    return L


class M(torch.nn.Module):
    def __init__(s):
        super().__init__()
        s.l = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(s.l.weight)
        torch.nn.init.ones_(s.l.bias)

    def forward(s, x):
        h = s.l(x)
        s.hook = lambda: h * 2
        h = h + 1
        return h


@case(lambda r: (r[0].detach(), r[1].hook().detach()), lambda: (torch.ones(2), M()))
def module_attr(x, m):
    return m(x), m


@case(lambda r: sorted(r[1], key=r[0]), graphs=0)
def key_fn(x):
    v = x + 1
    d = {"a": 3, "b": 1}
    d["c"] = 2
    return (lambda k: d[k]), list(d)


@case(lambda r: r(2))
def ycomb(x):
    v = x + 1
    return (lambda f: lambda n: f(f, n))(lambda s, n: v if n < 1 else s(s, n - 1) * 2)


@case(lambda r: r(), graphs=1, breaks=True)
def gen_send(x):
    def g():
        got = yield
        while True:
            got = yield got

    it = g()
    next(it)
    v = x + 1
    return lambda: it.send(v)


@case(lambda r: [r[0]() is r[1], next(r[1])], graphs=1, breaks=True)
def gen_holds_itself(x):
    v = x + 1
    g = ((v, g is None) for i in range(2))  # noqa: F821
    return (lambda: g), g


@case(lambda r: r(3))
def defaults_dict_iter(x):
    d = {"a": 1}
    v = x + 1

    def f(n, it=iter(d)):
        return n, v, f.__name__, list(it)

    return f


@case(lambda r: (r[0][0] is r, len(r)))
def tuple_cycle(x):
    L = []
    t = (L, x + 1)
    L.append(t)
    return t


@case(lambda r: (r.func.__closure__[0].cell_contents is r, r(1)[0] is r))
def partial_cycle(x):
    v = x + 1

    def f(a, b):
        return p, a, b

    p = functools.partial(f, v)
    return p


@case(lambda r: [r[0](), r[1].f(), r[1].g.__func__ is r[0], r[1].g()])
def method_of(x):
    v = x + 1

    class A:
        pass

    a = A()

    def m(self=None):
        return v, self is a

    a.f = m
    a.g = types.MethodType(m, a)
    return m, a


class Register:
    def __init__(s):
        s.cb = []

    def add(s, f):
        s.cb.append(f)
        return f


@case(lambda r: r, lambda: (torch.ones(2), Register()), graphs=2, breaks=True)
def reg_call_in(x, r):
    w = x * 3

    @r.add
    def cb(y):
        return y * w

    w = w + 1
    o = r.cb[0](x)
    dynamo_lite.graph_break()
    w = w + 1
    return o, r.cb[0](x)


@case(lambda r: [r(), r()], graphs=3, breaks=True)  # behind the break: for each n that bump() is at, and the end
def with_break_loop(x):
    n = 0

    def bump():
        nonlocal n
        n += 1
        return x * n

    for i in range(3):
        bump()
        dynamo_lite.graph_break()
        x = x + 1
    return bump


@case(lambda r: [r[0](), r[1](), r[0]()], graphs=1, breaks=True)
def break_in_try(x):
    n = 1

    def a():
        nonlocal n
        n *= 2
        return n

    try:
        n += 1
        dynamo_lite.graph_break()
        raise KeyError(n)
    except KeyError as e:
        n += e.args[0]

        def b():
            nonlocal n
            n += 10
            return n, x

    x = x + n
    return a, b


@case(lambda r: [r() for _ in range(3)], lambda: (torch.ones(2),), graphs=2, breaks=True)
def acc(x):
    tot = x

    def step():
        nonlocal tot
        tot = tot * 2
        return tot

    step()
    dynamo_lite.graph_break()
    step()
    return step


@case(lambda r: [f() for f in r])
def mixed_scope(x):
    out = []
    for k in range(2):

        def mk(k):
            s = x * k

            def inner():
                nonlocal s
                s = s + 1
                return s

            return inner

        g = mk(k)
        g()
        out.append(g)
        out.append(g)
    return out


@case(lambda r: r[0]() + r[1]())
def arg_cell_inplace(x):
    f = lambda: x
    x += 1
    y = x * 2
    g = lambda: y
    return f, g


@case(lambda r: (r[1](), r[0]))
def setter(x):
    def f():
        nonlocal x
        x = x * 2
        return x

    a = f()
    return a, f


@case(lambda r: [k for k in r[0]("k")])
def kwonly(x):
    z = x + 1

    def f(a, *, b=lambda: z):
        return [a, b()]

    z = z + 1
    return f, z


@case(lambda r: (r.__annotations__["a"], r()))
def ann(x):
    v = x + 1

    def f(a: "int" = 1):
        return v

    f.tag = [f]
    assert f.tag[0] is f
    return f


@case(lambda r: (r.tag[0] is r, r.__wrapped__()))
def fattr(x):
    v = x + 1

    def f():
        return v

    @functools.wraps(f)
    def g():
        return 1

    g.tag = [g]
    return g


@case(lambda r: list(map(lambda f: f(), r.values())))
def dictcomp(x):
    v = x + 1
    return {k: (lambda: (k, v)) for k in "ab"}


@case(lambda r: sorted(f(1) for f in r), graphs=0)
def setofl(x):
    z = x + 1
    return {(lambda n, i=i: n * i) for i in range(3)}


@case(lambda r: r.x())
def nspace(x):
    v = x + 1
    return types.SimpleNamespace(x=lambda: v)


Pair = collections.namedtuple("Pair", "a b")


@case(lambda r: (r.a(), r.b[0].a is r.a))
def ntuple(x):
    v = x + 1
    L = []
    p = Pair(lambda: v, L)
    L.append(p)
    return p


@case(lambda r: (r[0](), r[0].__closure__[0].cell_contents[0] is r[0]))
def deque_c(x):
    d = collections.deque()

    def f():
        return len(d)

    d.append(f)
    y = x + 1
    return f, y


@case(lambda r: (r["f"](), r["f"].__closure__[0].cell_contents is r))
def ddict(x):
    d = collections.defaultdict(list)
    d["f"] = lambda: (len(d), d["z"])
    d["q"].append(x + 1)
    return d


class Failure(Exception):
    pass


@case(lambda r: r.args[0]())
def exc_holds(x):
    v = x + 1
    return Failure(lambda: v)


@case(lambda r: r)
def raised(x):
    v = x + 1

    def f():
        return v

    try:
        raise Failure(f)
    except Failure as e:
        return e.args[0]()


@case(lambda r: [f() for f in r])
def mapped_list(x):
    v = x + 1
    return list(map(lambda a: lambda: (a, v), [1, 2]))


@case(lambda r: [next(r)(), next(r)()])
def mapobj(x):
    v = x + 1
    m = map(lambda a: lambda: (a, v), [1, 2])
    v = v + 1
    return m


@case(lambda r: next(r), graphs=0)
def filterobj(x):
    v = 2
    y = x + 1
    m = filter(lambda a: a > v, [1, 2, 3, 4])
    v = 3
    return m


@case(lambda r: r[1].go())
def class_attr(x):
    v = x + 1

    class A:
        def go(self=None):
            return v

        def __init_subclass__(cls):
            pass

        z = lambda: v

    v = v + 2
    return A.z(), A


@case(lambda r: (r[0](), r[0].__closure__ is None))
def noclos(x):
    y = x + 1
    return (lambda: 5), y


class Ctx:
    def __enter__(s):
        s.f = None
        return s

    def __exit__(s, *a):
        s.r = s.f()


@case(lambda r: r.r)
def ctx(x):
    c = Ctx()
    with c:
        v = x + 1
        c.f = lambda: v
        v = v + 1
    return c


@case(lambda r: r.r, lambda: (torch.ones(2), Ctx()), graphs=2, breaks=True)
def ctx2(x, c):
    with c:
        v = x + 1
        c.f = lambda: v
        dynamo_lite.graph_break()
        v = v + 1
    return c


@case(lambda r: r[1]())
def unbound_now(x):
    def f():
        return q

    try:
        f()
    except NameError as e:
        s = str(e)
    y = x + 1
    if s is None:
        q = 1
    return y, f


@case(lambda r: r, graphs=1, breaks=True)
def del_break(x):
    v = x + 1
    f = lambda: v  # noqa: F821
    dynamo_lite.graph_break()
    del v
    try:
        return f()
    except NameError as e:
        return str(e)


@case(lambda r: [r[0](1), r[0](2)])
def rec_closure_list(x):
    memo = {}

    def fib(n):
        if n < 2:
            return x
        if n not in memo:
            memo[n] = fib(n - 1) + fib(n - 2)
        return memo[n]

    fib(5)
    return fib, memo


@pytest.mark.parametrize("name", CASES)
def test_closure(name):
    program, use, make, graphs, breaks = CASES[name]
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    want = outcomes(program, use, make, False)
    got = outcomes(dynamo_lite.compile(program, backend=backend, fullgraph=not breaks), use, make, not breaks)
    assert same(got, want), f"{got} instead of {want}"
    assert len(seen) == graphs, seen


# In plain Python inside a resume function, a variable that has been deleted is a free one (resume.py says why).
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"del_twice_own"}))
def test_with_breaks_everywhere(name):
    program, use, make, *_ = CASES[name]
    want = outcomes(program, use, make, False)
    got = outcomes(broken_everywhere(program), use, make, False)
    assert same(got, want), f"{got} instead of {want}"
