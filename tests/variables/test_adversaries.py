"""The table of adversaries is whole and true: every tracker is listed, every test that it names exists.

The programs below are those of the table that no other module has: each changes what a tracker stands for behind its
back, by another name or another protocol.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import ast
import collections
import copy
import enum
import functools
import importlib
import itertools
import operator
import pathlib
import pkgutil
import re
import sys
import types
import weakref

import numpy as np
import pytest
import torch
from language_support import same

import dynamo_lite
from dynamo_lite.variables.base import VariableTracker

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "docs" / "design" / "adversaries.md"
CASES = {}


def case(use=lambda left: left, mk=lambda: (torch.ones(2),)):
    """Registers a program: what is done with its result, its arguments."""

    def register(program):
        assert program.__name__ not in CASES, program.__name__
        CASES[program.__name__] = (program, use, mk)
        return program

    return register


def outcomes(program, use, make):
    found = []
    for _ in range(2):
        try:
            found.append(use(program(*make())))
        except dynamo_lite.exc.DynamoLiteError:
            raise
        except Exception as error:
            found.append((type(error), str(error)))
    return found


class Plain:
    pass


def mo():
    o = Plain()
    o.a = 1
    return o


@case(mk=lambda: (torch.ones(2), {"a": 1}))
def view_live(x, d):
    k = d.keys()
    v = d.values()
    i = d.items()
    d["b"] = x
    del d["a"]
    return list(k), len(v), [n for n, _ in i], x + 1


@case(lambda r: (r[0].update(q=1), list(r[1]), list(r[2]))[1:], mk=lambda: (torch.ones(2), {"a": 1}))
def view_escapes(x, d):
    d["z"] = x + 1
    return d, d.keys(), iter(list(d.items()))


@case(mk=lambda: (torch.ones(2), [1, 2, 3]))
def it_shared(x, l):
    a = iter(l)
    next(a)
    l.insert(0, 9)
    r = list(a)
    l.append(4)
    return r, list(a), l[:2], x + 1


@case(mk=lambda: (torch.ones(2), 3))
def deque_iter_changed(x, n):
    d = collections.deque(range(n))
    it = iter(d)
    first = next(it)
    d.append(n)
    try:
        return first, next(it), x + 1
    except RuntimeError as e:
        return first, str(e), list(d), x + 1


@case(mk=lambda: (torch.ones(2), 3))
def map_stopped(x, n):
    def step(i):
        if i == n:
            raise StopIteration(i)
        return i

    it = map(step, itertools.count())
    return [*it], next(it, None), x + 1


@case(mk=lambda: (torch.ones(2), [1, 2, 3]))
def reversed_object(x, l):
    class Row:
        def __len__(self):
            return len(l)

        def __getitem__(self, i):
            return l[i]

    it = reversed(Row())
    first = next(it)
    l[0] = 7
    return first, list(it), x + 1


@case(lambda r: (list(r[0]), list(r[1])), mk=lambda: (torch.ones(2), [1, 2, 3]))
def zip_escapes(x, l):
    i = iter(l)
    z = zip(i, i)
    e = enumerate(i)
    y = x + 1
    return z, e, y


@case(mk=lambda: (torch.ones(2), slice([1], None, None)))
def slice_parts(x, s):
    s.start.append(3)
    return s.start, s.start is s.start, x + 1


@case(mk=lambda: (torch.ones(2), [slice(0, 1)]))
def slice_id(x, l):
    return x[l[0]], l[0] is l[0]


@case(mk=lambda: (torch.ones(2), {1, 2}))
def set_alias(x, s):
    t = s
    t.add(3)
    s.discard(1)
    t |= {7}
    return sorted(s), t is s, x + 1


@case(mk=lambda: (torch.ones(2), {1, 2}))
def set_iter_changed(x, s):
    try:
        for v in s:
            s.add(v + 10)
    except RuntimeError as e:
        return str(e), x + 1


def mlist():
    l = [1]
    return torch.ones(2), l, [l, l]


@case(mk=mlist)
def list_alias(x, l, ll):
    ll[0].append(5)
    l += [6]
    ll[1] = None
    return ll[0] is l, l, len(ll), x + 1


@case(mk=lambda: (torch.ones(2), (lambda l: (l, (l,)))([1])))
def tuple_inner(x, t):
    t[1][0].append(x)
    t[0].append(2)
    return len(t[0]), t[0] is t[1][0], x + 1


@case(mk=lambda: (torch.ones(2), collections.deque([1, 2], 3)))
def deque_alias(x, d):
    e = d
    e.append(3)
    e.append(4)
    d.rotate(1)
    return list(e), e is d, d.maxlen, x + 1


@case(mk=lambda: (torch.ones(2), collections.defaultdict(list)))
def dd_factory(x, d):
    d["a"].append(x)
    d.default_factory = dict
    d["b"]["q"] = 1
    d.default_factory = None
    try:
        d["c"]
    except KeyError as e:
        return list(d), x + 1


@case(mk=lambda: (torch.ones(2), collections.Counter("aab")))
def counter(x, c):
    c["a"] += 1
    c.update("zz")
    del c["b"]
    return c.most_common(1), c["nope"], len(c), x + 1


@case(mk=lambda: (torch.ones(2), collections.OrderedDict(a=1, b=2)))
def odict(x, d):
    d.move_to_end("a")
    d["a"] = 5
    return list(d), list(reversed(d)), x + 1


@case()
def except_tb(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        t = e.__traceback__ is not None
        e.add_note("n")
        return t, e.__notes__, x + 1


@case()
def exc_ctx(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise KeyError("b")
    except KeyError as e:
        e.__cause__ = None
        return type(e.__context__).__name__, e.__suppress_context__, x + 1


@case()
def exc_in_handler(x):
    import sys

    try:
        raise ValueError("a")
    except ValueError as e:
        dynamo_lite.graph_break()
        try:
            raise
        except ValueError as f:
            return f is e, sys.exc_info()[1] is e, x + 1


@case(mk=lambda: (torch.ones(2), np.arange(3.0)))
def nparr(x, a):
    b = a
    b[0] = 5
    a += 1
    return a.tolist(), b is a, x + 1


@case(mk=lambda: (torch.ones(2), mo()))
def wref(x, o):
    r = weakref.ref(o)
    r().a = 7
    return o.a, r() is o, r is weakref.ref(o), x + 1


@case()
def descr_made(x):
    p = property(lambda s: 3)

    class A:
        q = p

    A.z = p
    return A().q, A().z, A.q is p, x + 1


@case()
def made_class_changed(x):
    class A:
        k = 1

        def m(s):
            return s.k

    a = A()
    A.k = 2
    r = a.m()
    A.m = lambda s: "new"
    setattr(A, "n", 5)
    del A.k
    return r, a.m(), a.n, hasattr(a, "k"), x + 1


@case()
def made_subclass_changed(x):
    class A:
        k = 1

    class B(A):
        pass

    A.k = 3
    B.j = A.k
    B.k = 9
    return B().k, A().k, B.j, x + 1


@case()
def nt_made(x):
    P = collections.namedtuple("P", "a b")
    P.extra = lambda s: s.a
    p = P(x, 2)
    return p.extra(), P._fields


@case()
def gen_frame(x):
    n = [1]

    def g():
        while True:
            yield n[0]
            n[0] += 1

    i = g()
    a = next(i)
    n[0] = 50
    b = next(i)
    n.append(3)
    i.close()
    return a, b, n, list(i), x + 1


@case()
def gen_nonlocal(x):
    k = 1

    def g():
        nonlocal k
        while k < 5:
            yield k
            k += 1

    i = g()
    a = next(i)
    k = 3
    b = list(i)
    return a, b, k, x + 1


@case()
def map_stateful(x):
    seen = []
    m = map(lambda v: seen.append(v) or v, [1, 2, 3])
    next(m)
    s1 = list(seen)
    f = filter(lambda v: len(seen) > 1, m)
    return s1, list(f), seen, x + 1


@case()
def tee_shared(x):
    src = [1, 2]
    a, b = itertools.tee(src)
    next(a)
    src.append(3)
    c = copy.copy(a)
    return list(b), list(a), list(c), x + 1


@case()
def call_iter(x):
    n = [0]

    def f():
        n[0] += 1
        return n[0]

    i = iter(f, 3)
    a = next(i)
    return a, list(i), list(i), n, x + 1


@case(mk=lambda: (torch.ones(2), [3, 1, 2]))
def reversed_live(x, l):
    r = reversed(l)
    next(r)
    l.append(9)
    l[0] = 7
    return list(r), x + 1


class ByIndex:
    def __init__(s):
        s.n = [1, 2]

    def __getitem__(s, i):
        return s.n[i]


@case(mk=lambda: (torch.ones(2), ByIndex()))
def getitem_iter(x, g):
    i = iter(g)
    a = next(i)
    g.n.append(3)
    b = list(i)
    g.n.append(4)
    return a, b, list(i), x + 1


@case(mk=lambda: (torch.ones(2), functools.lru_cache(lambda a: [a])))
def lru_obj(x, f):
    a = f(1)
    a.append(2)
    r = f(1)
    f.cache_clear()
    return r, f(1), f.cache_info().misses, x + 1


class Kind(enum.Enum):
    A = [1]
    B = "b"


@case(mk=lambda: (torch.ones(2), Kind.A))
def enum_mut(x, e):
    e.value.append(3)
    e.tag = 4
    r = list(Kind.A.value), Kind.A.tag
    e.value.pop()
    del e.tag
    return r, x + 1


class Base:
    def m(s):
        return "Base"


class Derived(Base):
    def m(s):
        su = super()
        Derived.__bases__
        r = su.m()
        Base.m = lambda s: "patched"
        q = su.m()
        return r, q


@case(mk=lambda: (torch.ones(2), Derived()))
def super_live(x, c):
    old = Base.m
    try:
        return c.m(), x + 1
    finally:
        Base.m = old


@case(mk=lambda: (torch.ones(2), torch.ones(2)))
def tensor_alias(x, t):
    v = t.view(2, 1)
    w = t[:1]
    t.add_(1)
    v.mul_(2)
    t.foo = 3
    return t, w, v, v._base is t, hasattr(v, "foo")


@case(mk=lambda: (torch.ones(2), torch.ones(2)))
def tensor_data(x, t):
    d = t.detach()
    d.add_(1)
    n = t.numpy()
    return t + n.sum(), d.data_ptr() == t.data_ptr()


@case(mk=lambda: (torch.ones(2), {"a": 1}))
def mproxy(x, d):
    p = types.MappingProxyType(d)
    d["b"] = 2
    return p["b"], list(p), len(p), dict(p), "a" in p, x + 1


@case(mk=lambda: (lambda d: (torch.ones(2), d, types.MappingProxyType(d)))({"a": 1}))
def mproxy2(x, d, p):
    d["b"] = 2
    return list(p), x + 1


@case(mk=lambda: (torch.ones(2), []))
def method_of_list(x, l):
    f = l.append
    f(1)
    l.clear()
    f(2)
    g = l.__len__
    l.append(3)
    return l, g(), f.__self__ is l, x + 1


@case(mk=lambda: (torch.ones(2), {}))
def method_of_dict(x, d):
    g = d.get
    s = d.setdefault
    d["k"] = 1
    s("j", x)
    return g("k"), g("j") is x, x + 1


@case(mk=lambda: (torch.ones(2), mo()))
def bound_live(x, o):
    class A:
        def __init__(s):
            s.v = 1

        def m(s):
            return s.v

    a = A()
    m = a.m
    a.v = 5
    A.m = lambda s: "other"
    return m(), a.m(), m.__self__ is a, x + 1


sys.modules["extra_mod"] = types.ModuleType("extra_mod")


@case()
def import_live(x):
    import extra_mod

    extra_mod.v = x
    from extra_mod import v

    m = sys.modules["extra_mod"]
    m.v = 5
    import extra_mod as q

    return v is x, q.v, x + 1


@case()
def rng_live(x):
    import random

    random.seed(3)
    a = random.random()
    random.seed(3)
    return a == random.random(), x + 1


@case()
def grad_mode(x):
    with torch.no_grad():
        a = torch.is_grad_enabled()
        torch._C._set_grad_enabled(True)
        b = torch.is_grad_enabled()
    return a, b, torch.is_grad_enabled(), x + 1


@case()
def device_scope(x):
    with torch.device("meta"):
        a = torch.ones(2)
        with torch.device("cpu"):
            b = torch.ones(2)
    return a.device.type, b.device.type, torch.ones(1).device.type, x + 1


@case(mk=lambda: (torch.ones(2), operator.itemgetter(1)))
def getter(x, g):
    return g([1, 2]), x + 1


@case(mk=lambda: (torch.ones(2), []))
def attr_dict_order(x, l):
    o = Plain()
    o.a = 1
    o.b = 2
    del o.a
    o.a = 3
    p = Plain()
    p.__dict__.update(o.__dict__)
    return list(o.__dict__), list(vars(p)), x + 1


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    program, use, make = CASES[name]
    want = outcomes(program, use, make)
    got = outcomes(dynamo_lite.compile(program, backend="eager"), use, make)
    assert same(got, want), f"{got} instead of {want}"


# What may be known by two names and is guarded by value or has a tracker for each.
KINDS = {
    "slice": lambda: slice(1, 2),
    "method": lambda: Plain().__init__,
    "method_in_c": lambda: [].append,
    "range": lambda: range(3),
    "tuple": lambda: (1, [2]),
    "size": lambda: torch.Size([2]),
    "frozenset": lambda: frozenset([1]),
    "text": lambda: "".join(["a", "b"]),
    "float": lambda: float("2.5"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_identity_by_two_names(kind):
    def program(x, value, thing):
        return x + 1, value is thing.value, thing.value

    compiled = dynamo_lite.compile(program, backend="eager")
    for one in (True, False, True, False):
        thing = Plain()
        thing.value = KINDS[kind]()
        value = thing.value if one else KINDS[kind]()
        _, is_one, given = compiled(torch.ones(2), value, thing)
        assert is_one is (value is thing.value) and given is thing.value


# ---------------------------------------------------------------- the table
def rows():
    """The trackers of each row, and the tests that it names."""
    found = []
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            found.append((re.findall(r"`(\w+)`", cells[0]), re.findall(r"`([\w/]+\.py)::(\w+)`", cells[2])))
    return found


def trackers():
    """The names of all classes of trackers."""
    for module in pkgutil.walk_packages(dynamo_lite.__path__, "dynamo_lite."):
        if module.name.startswith(("dynamo_lite.variables.", "dynamo_lite.interpreter.")):
            importlib.import_module(module.name)
    found, pending = set(), [VariableTracker]
    while pending:
        for cls in pending.pop().__subclasses__():
            if cls.__module__.startswith("dynamo_lite."):
                found.add(cls.__name__)
                pending.append(cls)
    return found


def test_every_tracker_is_listed_once():
    listed = [name for names, _ in rows() for name in names]
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == trackers()


def test_every_row_names_tests_that_exist():
    known = {}
    for names, tests in rows():
        assert tests, names
        for file, test in tests:
            if file not in known:
                nodes = list(ast.walk(ast.parse((ROOT / "tests" / file).read_text())))
                known[file] = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
                known[file] |= {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            assert test in known[file], f"{names}: {file}::{test}"
