"""Many constructs of the language in one program each, mixed with tensors: enums, dataclasses, contexts, iterators.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import inspect
import itertools
import math
import operator
import random
import re
import types
import typing
import warnings
import weakref
from collections import ChainMap, UserDict
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Dict,
    List,
    Optional,
    Union,
    get_type_hints,
)

import pytest
import torch
from language_support import Programs
from sample_classes import FDC, Col, Thing

program = Programs()


class Fl(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    C = enum.auto()
    AB = A | B


class IE(enum.IntEnum):
    X = 1
    Y = 2


class SE(str, enum.Enum):
    U = "u"
    V = "v"


class IF(enum.IntFlag):
    P = 1
    Q = 2


@program
def enums(x):
    return (
        x * Col.R.value,
        Col(1) is Col.R,
        Col["G"].name,
        Col.B is Col.R,
        [c.name for c in Col],
        Col.R.low,
        Col.R.mix(Col.G),
        Col.default(),
        Col.R in Col,
        len(Col),
        {Col.R: 1}[Col.R],
        Col.R == Col.G,
        Col.R != 1,
        repr(Col.R),
        str(Col.G),
        isinstance(Col.R, Col),
        Col.__members__["R"].value,
        hash(Col.R) == hash(Col.R),
        list(Col.__members__),
    )


@program
def flags(x):
    return (
        x + 1,
        (Fl.A | Fl.B) == Fl.AB,
        Fl.A in Fl.AB,
        Fl.AB & Fl.B,
        ~Fl.A & Fl.AB,
        bool(Fl.A & Fl.B),
        (Fl.A | Fl.C).value,
        Fl(3),
        Fl.A ^ Fl.AB,
        [f.name for f in Fl.AB],
        (IF.P | IF.Q) == 3,
        IF.P + 1,
    )


@program
def intenums(x):
    return (
        x * IE.Y,
        IE.X + 1,
        IE.X < IE.Y,
        IE(2),
        [1, 2, 3][IE.X],
        max(IE),
        SE.U == "u",
        SE.V.upper(),
        SE("u") is SE.U,
        f"{IE.X}",
        "%d" % IE.Y,
        SE.U + "x",
        sorted([IE.Y, IE.X]),
        range(IE.Y)[-1],
        {1: 2}[IE.X],
        x.sum(dim=IE.X) if x.dim() > 1 else 0,
    )


@dataclasses.dataclass
class DC:
    a: Any
    b: int = 2
    c: list = dataclasses.field(default_factory=list)
    d: int = dataclasses.field(default=0, repr=False, compare=False)
    e: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.e = self.b * 10


@dataclasses.dataclass(slots=True, kw_only=True)
class SDC:
    a: int
    b: Any = None


@dataclasses.dataclass
class IV:
    a: int
    k: dataclasses.InitVar[int] = 3
    K: ClassVar[int] = 9

    def __post_init__(self, k):
        self.z = k + self.a


@dataclasses.dataclass
class Sub(DC):
    f: float = 1.5


@dataclasses.dataclass(eq=False)
class NoEq:
    a: int


@dataclasses.dataclass(unsafe_hash=True)
class UH:
    a: int


@program
def dataclasses_(x):
    d = DC(x)
    d.c.append(1)
    return (
        d.a + 1,
        d.e,
        d.c,
        dataclasses.replace(FDC(1), b=7),
        FDC(1) < FDC(2),
        FDC(1) == FDC(1),
        hash(FDC(1)) == hash(FDC(1)),
        dataclasses.asdict(FDC(4)),
        dataclasses.astuple(FDC(4)),
        [f.name for f in dataclasses.fields(DC)],
        SDC(a=1).b,
        IV(1).z,
        IV.K,
        repr(FDC(1)),
        dataclasses.is_dataclass(d),
        DC.__dataclass_fields__["b"].default,
    )


@program
def dataclasses2(x):
    s = Sub(x, f=2.5)
    try_ = None
    try:
        FDC(1).a = 3
    except dataclasses.FrozenInstanceError as e:
        try_ = str(e)
    return (
        s.a * s.f,
        s.e,
        try_,
        repr(DC(1)),
        DC(1) == DC(1),
        NoEq(1) == NoEq(1),
        {UH(1): 2}[UH(1)],
        {FDC(1), FDC(1)} == {FDC(1)},
        sorted([FDC(3), FDC(1)])[0],
        max(FDC(1), FDC(5)).a,
        DC(1, c=[2]).c,
        FDC.__match_args__,
        SDC(a=2) == SDC(a=2),
    )


@program
def dataclass_errors(x):
    out = []
    for f in (
        lambda: FDC(),
        lambda: FDC(1, 2, 3),
        lambda: SDC(1),
        lambda: DC(1, q=2),
        lambda: dataclasses.replace(FDC(1), z=2),
    ):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return x + 1, out


@program.breaks("call_skipped")
def weak(x):
    class_obj = OBJ
    r = weakref.ref(class_obj)
    return x + 1, r() is class_obj, r == weakref.ref(class_obj), weakref.proxy(OBJ).k


OBJ = Thing()


@program
def partials(x):
    f = functools.partial(lambda a, b, c=1: a * b + c, x, c=5)
    g = functools.partial(f, 3)
    return (
        g(),
        g.args[1],
        g.keywords,
        f.func is not None,
        functools.partial(max, 3)(5),
        functools.partialmethod is not None,
    )


class PM:
    def base(self, x, k):
        return x * k

    twice = functools.partialmethod(base, k=2)


@program
def partialmeth(x):
    return PM().twice(x)


@functools.lru_cache(None)
def cached(n):
    return n * 2


@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@program
def lru(x):
    return x * cached(3), fib(10), cached(3)


class CP:
    def __init__(self):
        self.n = 0

    @functools.cached_property
    def v(self):
        self.n += 1
        return self.n * 10


@program
def cachedprop(x):
    c = CP()
    a = c.v
    b = c.v
    return x * a, b, c.n, "v" in c.__dict__


@program
def itert(x):
    it = itertools
    return (
        x + 1,
        list(it.accumulate([1, 2, 3])),
        list(it.accumulate([1, 2, 3], operator.mul, initial=2)),
        list(it.batched([1, 2], 1)) if hasattr(it, "batched") else 0,
        list(it.chain([1], [2])),
        list(it.chain.from_iterable([[1], [2]])),
        list(it.combinations("abc", 2)),
        list(it.combinations_with_replacement("ab", 2)),
        list(it.compress("abc", [1, 0, 1])),
        list(it.islice(it.count(3, 2), 3)),
        list(it.islice(it.cycle("ab"), 5)),
        list(it.dropwhile(lambda v: v < 2, [1, 2, 1])),
        list(it.filterfalse(lambda v: v % 2, range(5))),
        [(k, list(g)) for k, g in it.groupby("aabc")],
        list(it.pairwise([1, 2, 3])),
        list(it.permutations([1, 2, 3], 2)),
        list(it.product([1, 2], "ab")),
        list(it.product([0, 1], repeat=2)),
        list(it.repeat(1, 2)),
        list(it.starmap(pow, [(2, 3)])),
        list(it.takewhile(lambda v: v < 2, [1, 2, 1])),
        [list(t) for t in it.tee([1, 2])],
        list(it.zip_longest([1], [2, 3], fillvalue=0)),
    )


@program
def itert_tensor(x):
    a, b = itertools.tee([x, x + 1])
    return (
        sum(itertools.chain(a, b)),
        [u + v for u, v in itertools.product([x], [x, 2])],
        next(itertools.islice([x * 3, x], 0, None)),
        functools.reduce(operator.add, [x, x, 1]),
    )


@program
def ops(x):
    o = operator
    return (
        o.add(x, 1),
        o.itemgetter(1)([5, 6]),
        o.itemgetter("a", "b")({"a": 1, "b": 2}),
        o.attrgetter("k")(OBJ),
        o.methodcaller("upper")("a"),
        o.methodcaller("sum")(x),
        o.mul(x, 2),
        o.neg(3),
        o.index(4),
        o.contains([1], 1),
        o.countOf([1, 1], 1),
        o.indexOf([5, 6], 6),
        o.iadd([1], [2]),
        o.matmul(x, x.T),
        o.truth([]),
        o.not_(1),
        o.xor(5, 1),
        o.floordiv(7, 2),
        o.getitem([1, 2], 0),
        o.concat([1], [2]),
        o.length_hint([1, 2]),
        o.is_(None, None),
        o.call(lambda: 3),
    )


@program
def maths(x):
    m = math
    return (
        x * m.sqrt(4),
        m.floor(2.5),
        m.ceil(2.1),
        m.gcd(12, 18),
        m.lcm(4, 6),
        m.comb(5, 2),
        m.factorial(5),
        m.isclose(1, 1 + 1e-12),
        m.inf,
        m.isnan(m.nan),
        m.log(8, 2),
        m.prod([1, 2, 3]),
        m.hypot(3, 4),
        m.fsum([0.1] * 10),
        m.modf(2.5),
        m.frexp(8.0),
        m.copysign(1, -2),
        m.trunc(-2.5),
        m.dist([1, 2], [3, 4]),
        m.perm(5, 2),
        m.isqrt(17),
        m.remainder(5, 3),
        m.pi,
    )


@program.breaks("rng_state")
def randoms(x):
    random.seed(3)
    a = random.random()
    b = random.randint(1, 10)
    l = [1, 2, 3]
    random.shuffle(l)
    r = random.Random(5)
    return (
        x * a,
        b,
        l,
        random.choice(l),
        r.random(),
        random.sample(range(10), 3),
        random.uniform(1, 2),
        random.gauss(0, 1),
    )


@program
def copies(x):
    a = [1, [2, {"k": x}]]
    b = copy.copy(a)
    c = copy.deepcopy(a)
    a[1].append(5)
    o = copy.copy(OBJ)
    d = copy.deepcopy(DC(1))
    return (
        c[1][1]["k"] + 1,
        b[1] is a[1],
        len(c[1]),
        o is OBJ,
        o.k,
        d == DC(1),
        copy.deepcopy({"a": (1, [2])}),
        copy.deepcopy(FDC(1)),
        copy.copy({1, 2}),
        copy.deepcopy(Col.R) is Col.R,
    )


@program
def typings(x):
    return (
        typing.cast(int, 3),
        x + 1,
        Optional[int] is not None,
        get_type_hints(FDC)["a"] is int,
        typing.get_origin(List[int]) is list,
        typing.get_args(Dict[str, int]),
        isinstance(x, Union[int, torch.Tensor]) if False else isinstance(3, (int, str)),
        isinstance(3, int | str),
        TYPE_CHECKING,
        list[int]([1, 2]),
    )


@contextlib.contextmanager
def cm(l):
    l.append("in")
    try:
        yield 5
    except KeyError:
        l.append("key")
    finally:
        l.append("out")


class CMO(contextlib.ContextDecorator):
    def __init__(self, l):
        self.l = l

    def __enter__(self):
        self.l.append(1)
        return self

    def __exit__(self, *e):
        self.l.append(2)
        return False


@program
def ctxs(x):
    l = []
    with cm(l) as v, contextlib.nullcontext(3) as w:
        y = x * v + w
    with cm(l):
        raise KeyError("a")
    with contextlib.suppress(ValueError):
        int("z")
    with contextlib.ExitStack() as st:
        st.enter_context(cm(l))
        st.callback(l.append, "cb")
        st.push(lambda *e: l.append("push"))

    @CMO(l)
    def h(z):
        return z + 1

    with contextlib.closing(types.SimpleNamespace(close=lambda: l.append("closed"))):
        pass
    return y, h(x), l


@program
def exitstack2(x):
    l = []
    with contextlib.ExitStack() as st:
        for i in range(2):
            st.enter_context(CMO(l))
        y = x + len(l)
        st2 = st.pop_all()
    l.append("mid")
    st2.close()
    return y, l


@program
def signatures(x):
    def f(a, b=2, *args, c, d=4, **kw):
        return a

    s = inspect.signature(f)
    return (
        x + 1,
        list(s.parameters),
        s.parameters["b"].default,
        s.parameters["c"].kind.name,
        inspect.isfunction(f),
        inspect.isclass(Thing),
        inspect.signature(Thing.__init__).parameters.keys() >= ({"k"}),
        "a" in s.parameters,
        s.parameters["a"].default is inspect.Parameter.empty,
    )


@program
def sigbind(x):
    def f(a, b=2):
        return a

    ba = inspect.signature(f).bind(1)
    ba.apply_defaults()
    return x + 1, ba.arguments["b"]


@program.breaks("print_or_log")
def warns(x):
    warnings.warn("careful")
    return x + 1


@program.breaks("print_or_log")
def warn_catch(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x + 1
    return y


@program
def pytrees(x):
    import torch.utils._pytree as pt

    flat, spec = pt.tree_flatten({"a": [x, 1], "b": (2, None)})
    return (
        flat[0] + 1,
        len(flat),
        pt.tree_unflatten([v for v in flat], spec)["b"],
        pt.tree_map(lambda v: v * 2 if isinstance(v, torch.Tensor) else v, [x, 3]),
        pt.tree_leaves((1, [2])),
        spec.num_leaves,
        pt.tree_map_only(int, lambda v: v + 1, [1, "a"]),
    )


@program
def sets(x):
    s = {1, 2, 3}
    s |= {4}
    s -= {1}
    s.add(5)
    s.discard(9)
    f = frozenset([1, 2])
    return (
        x + len(s),
        sorted(s),
        f | {3},
        s & {2, 3},
        {2} <= s,
        s.isdisjoint({9}),
        f == frozenset({2, 1}),
        {f: 1}[frozenset([2, 1])],
        sorted(s ^ {2, 7}),
        3 in s,
        {i % 3 for i in range(9)} == {0, 1, 2},
        s.issuperset({2}),
    )


@program
def lists(x):
    l = [3, 1, 2]
    l.sort(key=lambda v: -v)
    l[1:2] = [7, 8]
    del l[0]
    l += (9,)
    l *= 2
    l.insert(1, x)
    l.pop(1)
    a, *b, c = l
    l.remove(9)
    return (
        x + 1,
        l,
        a,
        b,
        c,
        l.index(8),
        l.count(7),
        l[::-1],
        [*l, *"ab"],
        sorted(l, reverse=True),
        min(l),
        l < [9],
        [1, 2] == [1, 2],
        [[0] * 2 for _ in range(2)],
        l[-1],
        l.copy() is l,
    )


@program
def dicts(x):
    d = {"a": 1, **{"b": x}}
    d |= {"c": 3}
    d.update(e=5)
    d.setdefault("f", []).append(1)
    p = d.pop("a")
    k = dict.fromkeys("ab", 0)
    return (
        d["b"] + 1,
        p,
        d.get("zz", 4),
        list(d),
        k,
        {v: k for k, v in {"q": 1}.items()},
        d | {"z": 0} != d,
        dict([(1, 2)]),
        len(d),
        next(iter(d)),
        list(d.items())[-1],
        {**d, "c": 9}["c"],
        d.popitem()[0],
        {1: "a", **{True: "b"}},
        dict(a=1) == {"a": 1},
    )


@program
def bisects(x):
    l = [1, 3, 5]
    bisect.insort(l, 4)
    h = [5, 1, 4]
    heapq.heapify(h)
    a = heapq.heappop(h)
    return (
        x + 1,
        l,
        bisect.bisect_left(l, 3),
        a,
        h,
        heapq.nlargest(2, [1, 5, 3]),
        heapq.nsmallest(1, [3, 2]),
        list(heapq.merge([1, 3], [2])),
        heapq.heappushpop(h, 0),
    )


@program
def regex(x):
    return (
        x + 1,
        re.sub("a", "b", "banana"),
        re.match(r"(\w)(\d)", "a1").groups(),
        re.findall("a", "aba"),
        re.compile("x+").split("axxb"),
        bool(re.search("z", "abc")),
        re.fullmatch("a.", "ab").group(0),
    )


@program
def chainmap(x):
    c = ChainMap({"a": 1}, {"b": x})
    c["z"] = 3
    return c["b"] + 1, c["a"], dict(c)["a"], len(c), c.maps[0], "b" in c, list(c.new_child({"q": 1}))


@program
def userdict(x):
    u = UserDict(a=1)
    u["b"] = x
    return u["b"] + 1, len(u), "a" in u, list(u), u.get("z")


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
