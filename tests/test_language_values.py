"""Numbers, text, containers and what the standard library does with them."""
from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import random
import string
import textwrap
import types
import typing
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from language_support import Programs

program = Programs()


# ---------------------------------------------------------------- text and numbers
@program
def str_methods(x):
    s = "Hello, World"
    return x + 1, (
        s.lower(), s.upper(), s.split(", "), s.replace("l", "L"), s.find("o"), s.startswith("He"),
        s.endswith(("x", "d")),
        s.partition(","), s.title(), s.swapcase(), s.center(20, "*"), s.zfill(20), s.count("l"), s.strip("Hd"), s[::-1],
        s.encode(), "-".join(["a", "b"]), s.isalpha(), s.rsplit("o", 1), s.casefold(), "a\tb".expandtabs(4),
        s.index("W"),
        "x".join(str(i) for i in range(3)), s * 2, "lo" in s, s < "Zebra", "a b".split(), "a\nb".splitlines(), s[1:3],
        s[-1],
        s.removeprefix("He"), s.translate(str.maketrans("l", "1")), "%s-%d" % ("a", 3), "%(k)s" % {"k": 1},
    )


@program
def fstrings(x):
    name, n, f = "w", 3, 2.5
    return (
        x * 2, f"{name}{n}", f"{n:04d} {f:.2f} {name!r:>5} {n + 1} {name:^{n}}", f"{x.shape} {x.dtype}", f"{[1, 'a']}",
        f"{None}{True}"
    )


@program
def format_calls(x):
    return x + 1, "{} {k}".format(1, k=2), "{0[1]} {1.real}".format([1, 2], 3), format(3.14159,
        ".3f"), "{:>8}".format("a")


@program
def bytes_methods(x):
    b = b"abc"
    return x + 1, b.decode(), b[0], b[1:], b + b"d", b.hex(), bytes([1,
        2]), list(b), b.upper(), len(b), b.find(b"c"), 97 in b


@program
def numbers(x):
    n, f = 7, 2.75
    return x + 1, (
        n.bit_length(), n.to_bytes(2, "big"), int.from_bytes(b"\x01\x02", "little"), f.is_integer(),
        f.as_integer_ratio(),
        divmod(n, 3), divmod(-n, 3), n // -2, n % -4, -n % 4, n**2, n**-1, n << 2, n >> 1, n & 3, n | 8, n ^ 1, ~n,
        round(f), round(f, 1), abs(-n), int("12"), int("ff", 16), float("1e3"), complex(1, 2).conjugate(),
        (1 + 2j).imag,
        hex(255), bin(5), oct(8), chr(97), ord("a"), pow(2, 5, 7), int(3.9), bool([]), float("inf"), n.numerator,
        f.hex(),
        3 < n < 9, 1 if n > 3 else 2, n and f, n or f, not n, max(3, 1), min([4, 2]), sum([1, 2], 3), int(True),
    )


@program
def float_division_by_zero(x):
    return x + 1 / 0


@program
def math_module(x):
    return x * math.pi, math.sqrt(2), math.floor(2.5), math.ceil(2.5), math.gcd(12,
        18), math.prod([1, 2, 3]), math.isnan(math.nan), math.log(8, 2), math.inf, math.comb(5, 2), math.hypot(3,
        4), math.isclose(0.1 + 0.2, 0.3), math.trunc(2.7), math.fsum([0.1] * 10), math.factorial(5), math.copysign(1,
        -0.0)


@program
def string_modules(x):
    return x + 1, string.ascii_lowercase, string.capwords("a b"), textwrap.dedent("  a")


# ---------------------------------------------------------------- lists and tuples
@program
def list_methods(x):
    a = [3, 1, 2]
    a.append(x.shape[0])
    a.extend((5, 6))
    a.insert(1, 9)
    a.remove(1)
    last = a.pop()
    first = a.pop(0)
    a.sort(reverse=True)
    b = a.copy()
    b.reverse()
    a += [7]
    a *= 2
    return x + 1, a, b, last, first, a.index(7), a.count(7), a[1:3], a[-1], a[::-1], len(a), 9 in a, a == b, [1,
        2] < [1, 3]


@program
def list_slices(x):
    a = list(range(10))
    a[2:4] = [20, 30, 40]
    a[::3] = [0] * len(a[::3])
    del a[1:3]
    del a[-1]
    a[len(a):] = [99]
    b, *c, d = a
    return x + 1, a, b, c, d, [*a, *c], (*c,)


@program
def list_of_tensors(x):
    parts = [x + i for i in range(3)]
    parts[1] = parts[1] * 2
    total = sum(parts)
    return total, torch.stack(parts), parts[::-1]


@program
def list_comprehensions(x):
    return x + 1, [i * j for i in range(3) for j in range(i) if j], {i: i**2 for i in range(3)}, {i % 2
        for i in range(4)}, list(i for i in (1, 2))


@program
def nested_comprehension_closure(x):
    k = 2
    return [[x * i + k for i in range(2)] for _ in range(2)]


@program
def sorting(x):
    words = ["bb", "a", "ccc"]
    return x + 1, sorted(words), sorted(words, key=len, reverse=True), sorted({"b": 1, "a": 2}), sorted([(1, "b"), (1,
        "a")]), sorted([3, 1], key=lambda v: -v), sorted("cab"), sorted([(2, x), (1, x)],
        key=operator.itemgetter(0))[0][0]


@program
def tuples(x):
    t = (1, "a", x)
    return t[:2] + (3,), t.index("a"), (1, 2) * 2, (1, 2) == (1, 2), (1, 2) < (1,
        3), len(t), t[2] + 1, hash((1, 2)) == hash((1, 2)), tuple([1, 2]), (1, (2, 3))[1][0]


@program
def unpacking(x):
    (a, b), *rest = [(1, 2), 3, 4]
    c, d = x
    e, f, g = x[0]
    return a, b, rest, c + d, e + f + g


@program
def wrong_unpacking(x):
    a, b = [1, 2, 3]
    return x


@program
def zip_map_filter(x):
    return (
        x + 1, list(zip([1, 2], "ab")), list(map(lambda a, b: a + b, [1, 2], [3, 4])), list(filter(None, [0, 1, 2])),
        list(enumerate("ab", 1)), list(reversed([1, 2])), dict(zip("ab", [1, 2])), any([0, 1]), all([]),
        list(map(str, [1])),
        list(zip()), [*map(abs, (-1,))], list(zip([1], [2], strict=True)),
    )


@program
def zip_strict_error(x):
    return x + 1, list(zip([1], [2, 3], strict=True))


@program
def iter_next(x):
    it = iter([1, 2, 3])
    first = next(it)
    rest = list(it)
    return x + first, rest, next(it, "end"), next(iter({}), None)


@program
def iter_sentinel(x):
    values = iter([1, 2, 3, 4])
    return x + 1, list(iter(lambda: next(values), 3))


@program
def stop_iteration(x):
    return next(iter([]))


@program
def ranges(x):
    r = range(2, 10, 3)
    return x + r[1], len(r), r[-1], r[1:], 5 in r, list(r), r == range(2, 11,
        3), r.start, r.index(5), list(reversed(r)), r.count(2), range(0) == range(2,
        2), hash(r) == hash(range(2, 11, 3)), bool(range(0))


@program
def slices(x):
    s = slice(0, 1)
    return x[s], x[:, slice(None, None, 2)], [1, 2, 3][slice(1, None)], s.start, s.indices(5), s == slice(0, 1)


# ---------------------------------------------------------------- dicts and sets
@program
def dict_methods(x):
    d = {"a": 1, "b": 2}
    d["c"] = x
    d.update(e=5)
    d.update([("f", 6)])
    d.setdefault("a", 9)
    popped = d.pop("b")
    missing = d.pop("zz", None)
    item = d.popitem()
    e = d | {"g": 7}
    d |= {"h": 8}
    return d, popped, missing, item, list(e), d.get("q"), d.get("q",
        3), "a" in d, len(d), list(d.keys()), list(d.items())[0], {**d,
        "z": 1}, dict(a=1), dict([(1, 2)]), dict.fromkeys("ab", 0), list(reversed(d)), d == e, d.copy() == d


@program
def dict_views(x):
    d = {"a": 1, "b": 2}
    k, v, i = d.keys(), d.values(), d.items()
    d["c"] = 3
    return x + 1, list(k), list(v), list(i), k & {"a", "z"}, k - {"a"}, k | {"q"}, ("a",
        1) in i, 3 in v, len(k), k == {"a", "b", "c"}, sorted(k ^ {"a"}), k.isdisjoint({"x"}), sum(v)


@program
def dict_missing_key(x):
    return {"a": x}["b"]


@program
def dict_delete(x):
    d = {"a": 1, "b": x}
    del d["a"]
    d.clear()
    return x + 1, d


@program.breaks("python_exception_in_trace")
def dict_changed_while_iterated(x):
    d = {"a": 1, "b": 2}
    for k in d:
        d[k + "x"] = 1
    return x


@program
def dict_keys_of_kinds(x):
    d = {1: "a", (1, 2): "b", None: "c", 2.5: "d", torch.float32: "e", int: "f", len: "g", frozenset({1}): "h"}
    return x + 1, d[1.0], d[(1, 2)], d[None], d[2.5], d[x.dtype], d[int], d[len], d[frozenset({1})], True in d


@program
def unhashable(x):
    return {[1]: 2}


@program
def ordered_dict(x):
    d = collections.OrderedDict([("a", 1), ("b", 2)])
    d["c"] = x
    d.move_to_end("a")
    first = d.popitem(last=False)
    return (
        d, first, list(d), d == {"c": 1}, collections.OrderedDict(a=1) == collections.OrderedDict(a=1),
        list(reversed(d))
    )


@program
def default_dict(x):
    d = collections.defaultdict(list)
    d["a"].append(1)
    d["b"].extend([x, 2])
    e = collections.defaultdict(lambda: 5)
    return d["a"], len(d["b"]), "c" in d, e["q"], dict(e), d.get("zz"), list(d), d.default_factory is list


@program
def counter(x):
    c = collections.Counter("abca")
    c.update("bb")
    c["z"] += 1
    d = c + collections.Counter("a")
    return (
        x + c["a"], c["q"], c.most_common(2), sorted(c.elements()), dict(d), sum(c.values()),
        c - collections.Counter("ab"), c.total()
    )


@program
def deque(x):
    d = collections.deque([1, 2, 3], maxlen=4)
    d.append(4)
    d.append(5)
    d.appendleft(0)
    last, first = d.pop(), d.popleft()
    d.rotate(1)
    d.extend([7])
    return x + 1, list(d), last, first, len(d), d[0], d.maxlen, 7 in d, d


@program
def chain_map(x):
    c = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    return x + c["a"], c["b"], sorted(c), "z" in c, dict(c.new_child({"a": 9}))


Pair = collections.namedtuple("Pair", "left right", defaults=[7])


class Typed(typing.NamedTuple):
    a: int
    b: str = "z"

    def doubled(self):
        return self.a * 2


@program
def named_tuples(x):
    p = Pair(x, 2)
    q = p._replace(right=3)
    t = Typed(4)
    left, right = p
    return p, q, p.left + left, Pair(1).right, p[1], t, t.doubled(), t.b, Pair._fields, q._asdict(), Pair._make([1,
        2]), t == (4, "z"), isinstance(p, tuple), len(p), right, Typed(a=1, b="c")


@program
def local_named_tuple(x):
    Local = collections.namedtuple("Local", "a b")
    v = Local(x, 1)
    return v.a + v.b


@program
def sets(x):
    s = {1, 2}
    s.add(3)
    s.discard(9)
    s |= {5}
    s -= {1}
    t = s.copy()
    t.remove(2)
    u = frozenset([1, 2])
    return x + len(s), s, t, s & t, s | {7}, s ^ t, s - t, t <= s, s > t, s.union([9],
        [8]), s.issubset({1}), u | {3}, 2 in u, sorted(s), u == {1, 2}, s.isdisjoint(u), {*u,
        4}, set(), s.intersection({2}, {2, 3}), hash(u) == hash(frozenset([2, 1]))


@program
def set_updates(x):
    s = {1, 2, 3}
    s.intersection_update({2, 3})
    s.difference_update([3])
    s.symmetric_difference_update({2, 8})
    s.update([1], (4,))
    t = {5}
    return x + 1, s, t.pop(), t


@program
def set_missing(x):
    {1}.remove(2)
    return x


@program
def mapping_proxy(x):
    d = {"a": 1}
    p = types.MappingProxyType(d)
    d["b"] = 2
    return x + p["a"], list(p), len(p), "b" in p, p.get("z"), dict(p)


@program
def simple_namespace(x):
    n = types.SimpleNamespace(a=1, b=x)
    n.c = n.a + 1
    return n, n.c, hasattr(n, "zz"), n.b * n.a, vars(n)["a"]


# ---------------------------------------------------------------- enums and dataclasses
class Colour(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def lower(self):
        return self.name.lower()

    def describe(self, suffix):
        return f"{self.name}{suffix}"

    @classmethod
    def default(cls):
        return cls.RED


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Text(str, enum.Enum):
    HI = "hi"


@program
def enums(x):
    c = Colour.RED
    return (
        x * c.value, c.name, Colour("b"), Colour["RED"], c is Colour.RED, c == Colour.BLUE, [m.name for m in Colour],
        c.lower,
        c.describe("!"), Colour.default(), Number.TWO + 1, Number.ONE < 2, Flags.A | Flags.B,
        Flags.A in (Flags.A | Flags.B),
        Text.HI == "hi", Text.HI.upper(), isinstance(c, Colour), {c: 1}[Colour.RED], len(Colour), c in Colour,
        Number(2), f"{c}", str(Number.ONE),
    )


@program
def enum_missing(x):
    return Colour("nope")


@dataclasses.dataclass
class Point:
    a: int
    b: list = dataclasses.field(default_factory=list)
    c: int = dataclasses.field(default=5, repr=False)

    def __post_init__(self):
        self.total = self.a + self.c

    @property
    def double(self):
        return self.a * 2


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: int = 2


@dataclasses.dataclass
class Child(Point):
    d: int = 9


@program
def dataclass_use(x):
    p = Point(1)
    p.b.append(x)
    q = dataclasses.replace(p, a=4)
    return p.total, q.total, p.double, Child(2).d, [f.name
        for f in dataclasses.fields(p)], Point(1) == Point(1), p.b[0] + 1, dataclasses.is_dataclass(p)


@program
def dataclass_frozen(x):
    f = Frozen(1)
    return x + f.b, f == Frozen(1), f < Frozen(2), {f: 1}[Frozen(1)], hash(f) == hash(Frozen(1)), dataclasses.replace(f,
        a=5)


@program
def dataclass_frozen_set(x):
    Frozen(1).a = 3
    return x


@program
def dataclass_as_dict(x):
    return x + 1, dataclasses.asdict(Frozen(1)), dataclasses.astuple(Frozen(3))


@program
def dataclass_repr(x):
    return x + 1, repr(Frozen(1)), str(Point(1, [2]))


# ---------------------------------------------------------------- functools and itertools
@functools.lru_cache(maxsize=None)
def cached(n):
    return n * 2


@program
def lru_cache(x):
    return x * cached(3) + cached(3)


class Lazy:
    def __init__(self):
        self.calls = 0

    @functools.cached_property
    def value(self):
        self.calls += 1
        return 4


@program
def cached_property(x):
    o = Lazy()
    return x * o.value + o.value, o.calls


@functools.singledispatch
def kind_of(value):
    return "other"


@kind_of.register
def _(value: int):
    return "int"


@kind_of.register(list)
def _(value):
    return "list"


@program
def single_dispatch(x):
    return x + 1, kind_of(1), kind_of([]), kind_of("a")


@program
def partials(x):
    def f(a, b, c=0, *, d=1):
        return a * b + c + d

    p = functools.partial(f, 2, d=5)
    q = functools.partial(p, c=7)
    return p(x), q(x), p(x, d=6), q.func is f, q.args, q.keywords, functools.partial(torch.sum, dim=0)(x)


@program
def reduce_and_wraps(x):
    def deco(f):
        @functools.wraps(f)
        def inner(*a, **k):
            return f(*a, **k) + 1

        return inner

    @deco
    def g(v):
        """Doc."""
        return v * 2

    return g(x), g.__name__, g.__doc__, functools.reduce(operator.add, [x, x, x]), functools.reduce(lambda a, b: a * b,
        [1, 2, 3], 10)


@functools.total_ordering
class Ordered:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return self.v == other.v

    def __lt__(self, other):
        return self.v < other.v


@program
def total_ordering(x):
    return x + 1, Ordered(1) >= Ordered(0), Ordered(1) <= Ordered(1), sorted([Ordered(2),
        Ordered(1)])[0].v, max(Ordered(1), Ordered(3)).v


@program
def cmp_to_key(x):
    return x + 1, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


@program
def itertools_all(x):
    i = itertools
    return (
        x + 1, list(i.chain([1], (2,))), list(i.chain.from_iterable([[1], [2]])), list(i.product("ab", repeat=2)),
        list(i.permutations([1, 2, 3], 2)), list(i.combinations("abc", 2)),
        list(i.combinations_with_replacement("ab", 2)),
        list(i.islice(i.count(5, 2), 1, 6, 2)), list(i.islice(i.cycle("ab"), 5)), list(i.repeat(1, 3)),
        list(i.accumulate([1, 2, 3], operator.mul)), list(i.accumulate([1, 2], initial=5)),
        list(i.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(i.dropwhile(lambda v: v < 3, [1, 3, 1])), list(i.filterfalse(lambda v: v % 2, [1, 2])),
        list(i.starmap(pow, [(2, 3)])),
        list(i.compress("abc", [1, 0, 1])), list(i.pairwise([1, 2, 3])), list(i.zip_longest([1], [2, 3], fillvalue=0)),
        [(k, list(g)) for k, g in i.groupby("aabc")], [list(t) for t in i.tee([1, 2])],
    )


@program
def operator_module(x):
    o = operator
    return (
        o.add(x, 1), o.itemgetter(1)([1, 2]), o.itemgetter(0, 1)("ab"), o.attrgetter("shape")(x),
        o.methodcaller("sum")(x),
        o.getitem([1, 2], 0), o.contains([1], 1), o.not_(0), o.truth(1), o.is_(None, None), o.index(3), o.mul(2, 3),
        o.matmul(x, x.t()), o.neg(x), o.iadd([1], [2]), o.concat("a", "b"), o.countOf([1, 1], 1),
        o.attrgetter("a.b", "c")(types.SimpleNamespace(a=types.SimpleNamespace(b=1), c=2)),
    )


# ---------------------------------------------------------------- the rest of the standard library
@program
def copies(x):
    a = [1, [2, x], {"k": (3,)}]
    b, c = copy.copy(a), copy.deepcopy([1, [2], {"k": (3,)}])
    b[0] = 9
    c[1].append(4)
    return x + 1, a[0], b[0], a[1] is b[1], c


@program.breaks("unsupported_method")
def copied_object(x):
    o = types.SimpleNamespace(a=[1])
    p = copy.copy(o)
    p.b = 2
    return x + 1, p.a is o.a, hasattr(o, "b"), p.b


@program
def copied_user_object(x):
    o = Lazy()
    p = copy.copy(o)
    p.calls = 5
    return x + 1, o.calls, p.calls, type(p) is Lazy


@program
def deepcopied_user_object(x):
    o = Point(1, [2])
    p = copy.deepcopy(o)
    p.b.append(3)
    return x + 1, o.b, p.b


@program
def typing_helpers(x):
    v = typing.cast(int, 3)
    t: typing.Optional[int] = None
    return x + v, typing.get_args(typing.Union[int, str]), typing.get_origin(list[int]), t, isinstance(3,
        int | str), typing.TYPE_CHECKING


@program
def random_module(x):
    random.seed(3)
    return x + random.random(), random.randint(0, 9), random.choice([1, 2])


@program.breaks("print_or_log")
def warns(x):
    y = x + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("careful", stacklevel=2)
    return y * 2


@program
def weak_references(x):
    o = Lazy()
    r = weakref.ref(o)
    return x + 1, r() is o, r().calls


@program
def tree_map(x):
    tree = {"a": [x, (x + 1, None)], "b": 3}
    mapped = pytree.tree_map(lambda v: v * 2 if isinstance(v, torch.Tensor) else v, tree)
    leaves, spec = pytree.tree_flatten(tree)
    return mapped, len(leaves), pytree.tree_unflatten(leaves, spec), pytree.tree_leaves([1, [2]])


@program
def numpy_values(x):
    a = np.ones(3, dtype=np.float32)
    return x + torch.from_numpy(a), float(np.float64(2.0)), int(np.int64(3) + 1)


@program
def numpy_scalar_constants(x):
    return x * float(np.pi), np.float32 is np.float32


@program
def is_and_id(x):
    a = [1]
    b = a
    return x + 1, a is b, a is not b, None is None, id(a) == id(b), x is x, type(a) is list, a == [1]


@program
def type_queries(x):
    return x + 1, type(1), type(x), isinstance(x, torch.Tensor), isinstance([], (list, tuple)), issubclass(bool,
        int), callable(len), callable(3), type(None), isinstance(1, bool), type("a")(3), isinstance(x.shape,
        tuple), int.__name__, type(x).__name__


@program
def min_max(x):
    return x + 1, min(3, 1, 2), max([1, 5], key=lambda v: -v), min([], default=4), max("ab",
        "c"), max(x.shape), min((2, "a"), (1, "b"))


@program
def empty_max(x):
    return max([])


@program
def hash_of_values(x):
    return x + 1, hash(3), hash((1, 2)), hash("a") == hash("a"), hash(None) == hash(None)


@program
def star_args(x):
    def f(*a, **k):
        return len(a), sorted(k.items())

    d = {"p": 1}
    return x + 1, f(*[1, 2], 3, **d, q=2), f(*"ab"), f(**{"z": 0}), print is print


@pytest.mark.parametrize("name", program.names())
def test_values(name):
    program.check(name)
