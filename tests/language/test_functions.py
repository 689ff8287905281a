"""Functions: closures, defaults, decorators, builtins that take functions; generators.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import functools
import inspect

import pytest
from language_support import Programs

program = Programs()


# ---------------------------------------------------------------- functions
@program
def closures(x):
    total = 0

    def add(n):
        nonlocal total
        total += n
        return total

    fs = [lambda v, i=i: v * i for i in range(3)]
    add(2)
    add(3)
    return x + total, [f(2) for f in fs]


@program
def late_binding(x):
    fs = [lambda: i for i in range(3)]
    return x + 1, [f() for f in fs]


@program
def counter_closure(x):
    def make():
        n = 0

        def step():
            nonlocal n
            n += 1
            return n

        return step

    a, b = make(), make()
    return x * a() + a() + b(), a


@program
def recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def depth(tree):
        return 1 + max(map(depth, tree), default=0) if isinstance(tree, list) else 0

    return x * fact(5), depth([1, [2, [3]]])


@program
def arguments(x):
    def f(a, /, b, c=3, *args, d, e=5, **kw):
        return a, b, c, args, d, e, sorted(kw)

    return x + 1, f(1, 2, d=4), f(1, 2, 3, 4, 5, d=6, z=7, e=8), f(*[1], **{"b": 2, "d": 3})


def parametrized(times):
    def deco(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            out = fn(*args, **kwargs)
            for _ in range(times - 1):
                out = fn(out, **kwargs)
            return out

        return inner

    return deco


@parametrized(3)
def doubled(v, add=0):
    return v * 2 + add


@program
def decorators(x):
    @parametrized(2)
    def local(v):
        return v + 1

    return doubled(x, add=1), local(x), local.__name__


@program
def function_attributes(x):
    def f(v):
        f.calls += 1
        return v * f.calls

    f.calls = 0
    f(x)
    return f(x), f.calls, f.__name__, f.__defaults__, hasattr(f, "nope")


@program
def returned_function(x):
    k = 3

    def g(v, m=2):
        return v * k + m

    return x + 1, g


@program
def signature_use(x):
    def f(a, b=2, *c, d=4):
        return a

    s = inspect.signature(doubled)
    return x + 1, list(s.parameters), "add" in s.parameters, s.parameters["add"].default


@program
def star_expressions(x):
    a = [1, 2]
    return x + 1, [*a, *"bc"], {*a, 3}, {**{"k": 1}, "j": 2}, (*a, *a), max(*a, 5)


@program
def walrus_and_conditionals(x):
    if (n := x.shape[0]) > 1 and not n == 3:
        y = x * n
    else:
        y = x
    return y, n, (m := 3) + m, [z for v in range(4) if (z := v * 2) > 2]


@program
def chained_comparison(x):
    return x + 1, 1 < x.shape[0] <= 2 < 3, not 1, 1 if x.dim() == 2 else 0, None or 5, 0 or [] or "a", 1 and 2


@program
def loops(x):
    out = []
    for i in range(10):
        if i == 2:
            continue
        if i == 5:
            break
        out.append(i)
    else:
        out.append("no")
    n = 0
    while True:
        n += 1
        if n > 3:
            break
    for j in []:
        pass
    else:
        out.append("else")
    while n > 0:
        n -= 2
    else:
        out.append("while-else")
    for k, (a, b) in enumerate([(1, 2), (3, 4)]):
        out.append(k + a + b)
    return x * n, out


# ---------------------------------------------------------------- generators
def counting(n):
    try:
        for i in range(n):
            got = yield i
            if got:
                yield got * 10
        return "done"
    finally:
        LOG.append("closed")


LOG: list = []


@program
def generator_protocol(x):
    LOG.clear()
    g = counting(3)
    a = next(g)
    b = g.send(5)
    c = next(g)
    g.close()
    h = counting(0)
    try:
        next(h)
    except StopIteration as e:
        d = e.value
    return x + 1, a, b, c, d, list(LOG)


@program
def generator_throw(x):
    def g():
        while True:
            try:
                yield 1
            except ValueError as e:
                yield str(e)
            finally:
                seen.append(1)

    seen = []
    it = g()
    next(it)
    result = it.throw(ValueError("bad")), next(it)
    it.close()
    return x + 1, result, seen


@program
def yield_from(x):
    def inner():
        got = yield 1
        yield got
        return "r"

    def outer():
        result = yield from inner()
        yield result
        yield from [7, 8]

    it = outer()
    return x + 1, next(it), it.send("s"), next(it), list(it)


@program
def yield_from_throw(x):
    def inner():
        try:
            yield 1
        except KeyError:
            yield "caught"

    def outer():
        yield from inner()
        yield "end"

    it = outer()
    next(it)
    return x + 1, it.throw(KeyError("k")), list(it)


@program
def generator_expressions(x):
    total = sum(i * i for i in range(4))
    pairs = dict((k, v) for k, v in zip("ab", (1, 2)))
    return x * total, pairs, any(i > 2 for i in range(5)), ",".join(str(i) for i in range(3)), tuple(x * i
        for i in range(2)), max((i for i in (3, 1)), default=0)


@program
def returned_generator(x):
    return x + 1, (i for i in range(3))


@program
def infinite_generator(x):
    def nat():
        n = 0
        while True:
            yield n
            n += 1

    return x + 1, [a for a, _ in zip(nat(), "abc")]


@program
def generator_pep479(x):
    def g():
        yield 1
        raise StopIteration

    try:
        list(g())
    except RuntimeError as e:
        return x + 1, str(e)


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
