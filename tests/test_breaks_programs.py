# ruff: noqa: F821
"""Programs with breaks in all kinds of places, against plain Python: results, prints, exceptions, torch's state.

Each program runs in plain Python and compiled, with the same random numbers; all that a caller can see is compared.
"""

from __future__ import annotations

import contextlib
import copy
import io
import re
import sys
import traceback

import pytest
import torch

import dynamo_lite
from dynamo_lite import graph_break


@pytest.fixture(autouse=True)
def fresh():
    dynamo_lite.reset()
    yield
    put_state_back()


def put_state_back():
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    torch.set_default_device(None)
    torch.set_autocast_enabled("cpu", False)


def state():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.are_deterministic_algorithms_enabled(),
        torch.rand(1).item(),
    )


def described(error):
    lines = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__][1:]
    return type(error), str(error), lines, type(error.__context__), type(error.__cause__)


def outcome(call, args, kwargs):
    args = copy.deepcopy(args)
    torch.manual_seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            result = described(error)
    after = state()
    put_state_back()
    return re.sub("0x[0-9a-f]+", "0x", repr((result, args, after, printed.getvalue())))


def check(f, *args, **kwargs):
    expected = outcome(f, args, kwargs)
    compiled = dynamo_lite.compile(f, backend="eager")
    for turn in ("compiled", "found again"):
        assert outcome(compiled, args, kwargs) == expected, (f.__qualname__, turn)


x = torch.tensor([0.5, -1.5, 2.0])
xr = torch.tensor([0.5, -1.5, 2.0]).requires_grad_()


def test_modes():
    for ctx in (
        torch.no_grad,
        torch.enable_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.set_grad_enabled(False),
        lambda: torch.autograd.set_multithreading_enabled(False),
        lambda: torch.device("cpu"),
        lambda: torch.inference_mode(False),
    ):

        def f(x):
            a = x * 2
            with ctx():
                y = x.unsqueeze(0) @ x.unsqueeze(1)
                graph_break()
                z = y * 2
                print(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"))
                w = z + 1
            u = x * 3
            return (
                a.requires_grad,
                y.requires_grad,
                z.requires_grad,
                w.requires_grad,
                u.requires_grad,
                y.dtype,
                w.is_inference(),
                u.is_inference(),
                z,
                w,
            )

        check(f, torch.ones(3).requires_grad_())

        def f2(x):
            try:
                with ctx():
                    y = x * 2
                    graph_break()
                    raise ValueError("x")
            except ValueError as e:
                graph_break()
                return (x * 2).requires_grad, torch.is_grad_enabled()

        check(f2, torch.ones(3).requires_grad_())

        def f3(x):
            with ctx():
                y = x * 2
                graph_break()
                raise ValueError("x")

        check(f3, torch.ones(3).requires_grad_())

        def f4(x):
            with ctx():
                for i in range(3):
                    x = x * 2
                    if x.sum() > 4:
                        print(i, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
            return x.requires_grad, x.is_inference()

        check(f4, torch.ones(3).requires_grad_())


def test_decorators():
    @torch.no_grad()
    def f(x):
        y = x * 2
        graph_break()
        return (y * 2).requires_grad

    check(f, torch.ones(3).requires_grad_())

    def g(x):
        return f(x), (x * 2).requires_grad

    check(g, torch.ones(3).requires_grad_())

    @torch.inference_mode()
    def h(x):
        y = x * 2
        graph_break()
        return (y * 2).is_inference()

    def k(x):
        return h(x), (x * 2).is_inference()

    check(k, torch.ones(3).requires_grad_())


def test_plain_modes():
    def f(x):
        torch.set_grad_enabled(False)
        y = x * 2
        graph_break()
        z = y * 2
        torch.set_grad_enabled(True)
        return y.requires_grad, z.requires_grad

    check(f, torch.ones(3).requires_grad_())

    def g(x):
        torch.set_grad_enabled(False)
        y = x * 2
        graph_break()
        raise ValueError(3)

    check(g, torch.ones(3).requires_grad_())

    def h(x):
        torch.set_default_dtype(torch.float64)
        y = torch.zeros(2)
        graph_break()
        z = torch.zeros(2)
        torch.set_default_dtype(torch.float32)
        return y, z, torch.zeros(2)

    check(h, x)

    def d(x):
        torch.use_deterministic_algorithms(True)
        y = x + 1
        graph_break()
        return y, torch.are_deterministic_algorithms_enabled()

    check(d, x)

    def e(x):
        torch.set_default_device("cpu")
        y = torch.zeros(2)
        graph_break()
        return y

    check(e, x)

    def ee(x):
        with torch.device("meta"):
            y = torch.zeros(2)
            graph_break()
            z = torch.ones(2)
        return y.device, z.device, torch.zeros(1).device

    check(ee, x)


def test_rng():
    def f(x):
        a = torch.rand(2)
        graph_break()
        b = torch.randn(2)
        print(b.sum().item())
        c = torch.nn.functional.dropout(x, 0.5)
        graph_break()
        return a, b, c, torch.randint(0, 5, (2,))

    check(f, x)

    def g(x):
        torch.manual_seed(3)
        a = torch.rand(2)
        graph_break()
        return a, torch.rand(2)

    check(g, x)
    import random

    def h(x):
        random.seed(2)
        a = x * random.random()
        graph_break()
        return a + random.random()

    check(h, x)


def test_managers():
    ev = []

    class M:
        def __init__(s, n, sup=False):
            s.n = n
            s.sup = sup

        def __enter__(s):
            ev.append(("in", s.n))
            return s

        def __exit__(s, *a):
            ev.append(("out", s.n, a[0]))
            return s.sup

    @contextlib.contextmanager
    def gm(n):
        ev.append(("gin", n))
        try:
            yield n
        except KeyError:
            ev.append("key")
        finally:
            ev.append(("gout", n))

    def f(x):
        ev.clear()
        with M(1) as a, gm(2) as b, M(3, True) as c:
            y = x * 2
            graph_break()
            raise KeyError("a")
        graph_break()
        return y * 2, list(ev)

    check(f, x)

    def g(x):
        ev.clear()
        with contextlib.ExitStack() as s:
            s.enter_context(M(1))
            s.enter_context(gm(2))
            s.callback(ev.append, 5)
            s.enter_context(torch.no_grad())
            y = x * 2
            graph_break()
            s.enter_context(M(4, True))
            z = (xr * y).requires_grad
            raise ValueError
        return y * 2, z, list(ev), torch.is_grad_enabled()

    check(g, x)

    def h(x):
        ev.clear()
        for i in range(3):
            with gm(i) as k, torch.no_grad():
                x = x * 2 + k
                if x.sum() > 0:
                    continue
                if x.sum() > 1000:
                    break
                x = x - 1
        return x, list(ev)

    check(h, torch.ones(3))
    check(h, -torch.ones(3))

    def gg(x):
        ev.clear()
        with gm(1):
            y = x * 2
            graph_break()
            raise IndexError("q")

    check(gg, x)

    def nested(x):
        ev.clear()
        with contextlib.suppress(ZeroDivisionError):
            with gm(1), contextlib.redirect_stdout(io.StringIO()) as o:
                print(x.sum())
                graph_break()
                1 // 0
        return x * 2, o.getvalue(), list(ev)

    check(nested, x)


def test_handlers():
    def f(x):
        try:
            x = x * 2
            raise ValueError("a")
        except ValueError as e:
            graph_break()
            x = x + 1
            try:
                raise KeyError("b")
            except KeyError as k:
                graph_break()
                print(type(k.__context__), sys.exc_info()[0])
                x = x * 3
            finally:
                x = x - 1
                graph_break()
        return x

    check(f, x)

    def g(x):
        try:
            return x.view(17)
        except RuntimeError as e:
            graph_break()
            return str(e)

    check(g, x)

    def h(x):
        try:
            y = x @ torch.ones(17, 2)
        except RuntimeError as e:
            return type(e).__name__
        return y

    check(h, x)

    def i(x):
        return x.sin() @ torch.ones(17, 2)

    check(i, x)

    def j(x):
        y = x * 2
        raise ValueError("no") from KeyError(1)

    check(j, x)

    def inner(x):
        z = x * 2
        raise ValueError(z.sum())

    def k(x):
        try:
            inner(x)
        except ValueError as e:
            return e.args[0] * 2

    check(k, x)

    def el(x):
        return inner(x * 2)

    check(el, x)

    def m(x):
        try:
            x + 1
            raise ValueError("q")
        finally:
            graph_break()
            print("fin")

    check(m, x)

    def n(x):
        for i in range(3):
            try:
                if x.sum() > i:
                    raise ValueError(i)
                x = x + 1
            except ValueError as e:
                print(e.args)
                continue
            finally:
                print("f", i)
        else:
            x = x * 2
        return x

    check(n, x)
    check(n, x + 5)

    def o(x):
        e = ValueError("z")
        y = x + 1
        return y, e

    def p(x):
        try:
            raise ValueError("z")
        except ValueError as e:
            err = e
        return x + 1, repr(err), err.__traceback__.tb_lineno, len(traceback.extract_tb(err.__traceback__))

    check(p, x)

    def q(x):
        return x + undefined_name

    check(q, x)

    def r(x):
        del x
        return x

    check(r, x)


def test_comps():
    def f(x):
        return [t * 2 for t in (x, x + 1) if t.sum() > 0]

    check(f, x)

    def g(x):
        return {i: (x * i).sum().item() for i in range(3)}

    check(g, x)

    def h(x):
        return sum(t.sum().item() for t in (x, x * 2))

    check(h, x)

    def i(x):
        def gen():
            for k in range(3):
                yield x * k
                graph_break()

        return [t.sum() for t in gen()]

    check(i, x)

    def j(x):
        gen = (x * k for k in range(3))
        a = next(gen)
        graph_break()
        return a, list(gen)

    check(j, x)

    def esc(x):
        def gen():
            s = 0
            for k in range(3):
                got = yield x * k
                s = s + (got or 0)
            return s

        return gen()

    def drive(x):
        g = dynamo_lite.compile(esc, backend="eager")(x)
        o = [next(g)]
        for v in (1, 2, 3):
            try:
                o.append(g.send(v))
            except StopIteration as e:
                o.append(e.value)
        return o

    a = drive(x)
    g = esc(x)
    b = [next(g)]
    for v in (1, 2, 3):
        try:
            b.append(g.send(v))
        except StopIteration as e:
            b.append(e.value)
    assert repr(a) == repr(b)


def test_calls():
    class C:
        k = 2

        def __init__(s):
            s.v = torch.ones(2)

        @property
        def p(s):
            print("prop")
            return s.v * 2

        @staticmethod
        def st(x):
            graph_break()
            return x + 1

        @classmethod
        def cm(c, x):
            graph_break()
            return x * c.k

        def __call__(s, x, *a, k=1, **kw):
            graph_break()
            return x * k + len(a) + len(kw)

        def m(s, x):
            graph_break()
            s.v = s.v + x
            return s.v

        def __getitem__(s, i):
            graph_break()
            return s.v[i]

        def __iter__(s):
            graph_break()
            return iter([s.v, s.v])

        def __enter__(s):
            graph_break()
            return s

        def __exit__(s, *a):
            graph_break()

        def __add__(s, o):
            graph_break()
            return s.v + o

    def f(x):
        c = C()
        y = c.p + x
        y = c.st(y)
        y = c.cm(y)
        y = c(y, 1, 2, k=3, z=4)
        y = c.m(y)
        with c as d:
            y = y + d[0]
        for q in c:
            y = y + q
        return y + (c + 1), c.v

    check(f, torch.ones(2))
    c0 = C()
    check(lambda x: c0(x, *[1, 2], **{"k": 3}), x)

    def deep(x, n):
        if n == 0:
            graph_break()
            return x
        return deep(x * 2, n - 1) + 1

    check(deep, x, 5)

    def fib(x, n):
        if n < 2:
            return x
        if x.sum() > 1e6:
            return x
        return fib(x, n - 1) + fib(x, n - 2)

    check(fib, torch.ones(2), 6)

    def va(x, *a, k=2, **kw):
        y = x * k
        graph_break()
        a = a + (1,)
        kw["q"] = y
        return y, a, sorted(kw), k

    check(va, x, 1, 2, k=5, z=1)

    def clos(x):
        n = 0

        def inc():
            nonlocal n
            n += 1
            graph_break()
            return n

        a = inc()
        x = x * a
        inc()
        graph_break()
        return x * n, inc(), n

    check(clos, x)

    def unb(x):
        def use():
            return q

        try:
            use()
        except NameError as e:
            print(e)
        graph_break()
        q = x * 2
        return use()

    check(unb, x)

    def dl(x):
        y = x * 2
        z = y
        del y
        graph_break()
        try:
            return y
        except UnboundLocalError as e:
            return str(e), z

    check(dl, x)

    def lam(x):
        fs = [lambda: i * x for i in range(3)]
        graph_break()
        return [f() for f in fs]

    check(lam, x)

    def walrus(x):
        if (s := x.sum()) > 0:
            return s
        return s * 2

    check(walrus, x)
    check(walrus, -x)

    def boolop(x, y):
        return (x.sum() > 0 and y.sum() > 0) or x

    check(boolop, x, x)

    def chained(x):
        return 0 < x.sum() < 3

    check(chained, x)

    def asrt(x):
        assert x.sum() < -1000, f"no {x.shape}"

    check(asrt, x)

    def star(x):
        a, *b = [x, x * 2, x * 3]
        graph_break()
        return (*b, a), {**{"a": a}}

    check(star, x)

    def sliced(x):
        y = x.clone()
        y[1 if x.sum() > 0 else 0] = 5
        y[y > 1] = 0
        return y

    check(sliced, x)

    def mtch(x):
        match [x.sum().item() > 0, x]:
            case [True, t]:
                return t * 2
            case [False, t]:
                return t * 3

    check(mtch, x)
    check(mtch, -x)

    def glob(x):
        global GG
        GG = x * 2
        graph_break()
        GG = GG + 1
        r = GG
        del GG
        return r

    check(glob, x)

    def fstr(x):
        return f"{x.shape} {x.sum().item():.2f} {x!r:>3}"

    check(fstr, x)
