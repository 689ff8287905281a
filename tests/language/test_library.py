"""Many constructs of the language in one program each, mixed with tensors: values and the standard library.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import enum
import random
import time
import types
import typing
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import (
    NamedTuple,
)

import pytest
from language_support import Programs

program = Programs()


# --- values
@program
def str_methods(x):
    return (
        x + 1,
        "A b".swapcase(),
        "x".center(5, "*"),
        "a,b".split(","),
        "ab".partition("b"),
        "Ab".casefold(),
        "abc".translate({97: "z"}),
        "a\tb".expandtabs(4),
        "1".zfill(3),
        "%s-%d" % ("a", 3),
        "abc".removeprefix("a"),
        "é".encode("utf8"),
        "{:>5}|{!r}".format("a", "b"),
        "a b".title(),
        "ab".rjust(4),
        "abc"[::-1],
        "b" in "abc",
        "abc".find("c"),
        "a-b".replace("-", "+"),
    )


@program.breaks("unsupported_builtin")
def bytes_methods(x):
    b = b"abc"
    ba = bytearray(b"ab")
    return (
        x + 1,
        b.hex(),
        b[0],
        b[1:],
        b + b"d",
        bytes([1, 2]),
        b.decode(),
        b.find(b"c"),
        int.from_bytes(b"\x01\x02", "big"),
        (258).to_bytes(2, "little"),
        list(b),
    )


@program.breaks("unsupported_builtin")
def bytearrays(x):
    ba = bytearray(b"ab")
    ba.append(99)
    ba[0] = 65
    ba.extend(b"xy")
    return x + 1, bytes(ba), len(ba)


@program
def numbers(x):
    return (
        x + 1,
        (5).bit_length(),
        (2.5).is_integer(),
        (0.75).as_integer_ratio(),
        round(2.567, 1),
        divmod(-7, 3),
        pow(2, 5, 7),
        int("ff", 16),
        float("1e3"),
        complex(1, 2).conjugate(),
        abs(-3),
        7 // 2,
        -7 % 3,
        1 << 4,
        ~5,
        hex(255),
        bin(5),
        oct(8),
        (10).__index__(),
        float.fromhex("0x1p3"),
        int.from_bytes(b"a", "big"),
    )


@program
def fstrings(x):
    n = 3.14159
    w = 8
    d = {"a": 1}
    return (
        x + 1,
        f"{n:.2f}",
        f"{n:{w}.3f}",
        f"{d['a']!r:>4}",
        f"{x.shape[0]=}",
        f"{1_000_000:,}",
        f"{255:#x}",
        f"{0.5:%}",
        f"{'s':^5}",
        f"{tuple(x.shape)}",
        f"{True:d}",
        f"{[1, 2]}",
        f"{x.dtype}",
    )


@program
def odict(x):
    d = OrderedDict(a=1)
    d["b"] = x
    d.move_to_end("a")
    k, v = d.popitem(last=False)
    return x + 1, list(d), k, list(reversed(d)), d == OrderedDict(a=1)


@program
def ddict(x):
    d = defaultdict(list)
    d["a"].append(x)
    d["b"]
    e = defaultdict(lambda: 5, z=1)
    e["q"] += 1
    return d["a"][0] + 1, dict(e), len(d), "c" in d, d.default_factory is list


@program
def counter(x):
    c = Counter("abca")
    c.update("a")
    c["z"] += 2
    return (
        x + 1,
        c.most_common(2),
        c["nope"],
        dict(c + Counter(a=1)),
        dict(c - Counter("ab")),
        c.total(),
        sorted(c.elements()),
        dict(c & Counter("aab")),
        dict(c | Counter("zzzz")),
        +Counter(a=-1) == Counter(),
    )


@program
def deques(x):
    d = deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    d.extend([7])
    y = d.pop()
    z = d.popleft()
    d.extendleft([5, 6])
    return x + 1, list(d), y, z, d.maxlen, d[0], len(d), 5 in d, d.index(5), list(reversed(d)), d.count(5)


@program
def deque2(x):
    d = deque()
    d.append(x)
    d.insert(0, 1)
    d.remove(1)
    d2 = d.copy()
    d.clear()
    e = deque([1, 2]) + deque([3])
    e[0] = 9
    del e[1]
    e.reverse()
    return d2[0] + 1, len(d), list(e), bool(d), e == deque([3, 9])


NT = namedtuple("NT", "a b", defaults=[2])


class TNT(NamedTuple):
    a: int
    b: float = 1.5

    def tot(self):
        return self.a + self.b


@program
def namedtuples(x):
    n = NT(x)
    m = n._replace(b=5)
    t = TNT(3)
    a, b = m
    return (
        n.a + 1,
        m.b,
        n._fields,
        t.tot(),
        t._asdict(),
        NT._make([1, 2]),
        n[1],
        t == (3, 1.5),
        t._replace(a=1),
        len(t),
        repr(t),
        TNT.__annotations__ is not None,
        isinstance(t, tuple),
        t + (1,),
        hash(t) == hash((3, 1.5)),
        NT._field_defaults,
    )


@program.breaks("unsupported_builtin")
def simplens(x):
    s = types.SimpleNamespace(a=x, b=2)
    s.c = 3
    del s.b
    return (
        s.a + 1,
        vars(s).keys() == ({"a", "c"}),
        hasattr(s, "b"),
        s.c,
        types.SimpleNamespace(z=1) == types.SimpleNamespace(z=1),
        repr(types.SimpleNamespace(z=1)),
    )


@program
def dictviews(x):
    d = {"a": 1, "b": x}
    k = d.keys()
    d["c"] = 3
    return (
        d["b"] + 1,
        list(k),
        len(d.values()),
        ("a", 1) in d.items() if False else "a" in k,
        k & {"a"},
        k | {"z"},
        k - {"a"},
        {"a"} <= k,
        list(reversed(d)),
        sorted(k ^ {"a", "q"}),
        k.isdisjoint({"q"}),
        dict(zip(d.keys(), range(3))),
    )


@program
def mproxy(x):
    d = {"a": 1}
    m = types.MappingProxyType(d)
    d["b"] = 2
    return x + 1, m["b"], len(m), dict(m), list(m.items()), m.get("q", 5), "a" in m


@program
def ranges(x):
    r = range(10, 0, -3)
    return (
        x + 1,
        list(r),
        r[1],
        r[1:],
        len(r),
        7 in r,
        r.index(4),
        r.start,
        r.step,
        r == range(10, -1, -3),
        list(reversed(r)),
        r.count(7),
        sum(r),
        bool(range(0)),
        hash(range(3)) == hash(range(3)),
    )


@program
def slices(x):
    s = slice(1, None, 2)
    return (
        x[:, s],
        s.indices(5),
        s.start,
        s.stop,
        list(range(10))[s],
        [0, 1, 2, 3][slice(-2, None)],
        s == slice(1, None, 2),
        repr(s),
    )


@program.breaks("input_output")
def clocks(x):
    began = time.perf_counter()
    y = x + 1
    return y, time.perf_counter() >= began, time.time() > 0


@program
def pythons_random_numbers(x):
    random.seed(3)
    return x + random.random() * random.randint(1, 5), random.choice([1, 2, 3])


@program.breaks("class_definition")
def classes_that_are_made_by_more_than_type(x):
    class Slots:
        __slots__ = ("a", "b")

    class Colour(enum.Enum):
        RED = 1

    class Pair(typing.NamedTuple):
        a: int
        b: int = 2

    class Record:
        made: typing.ClassVar[int] = 0

        def __init_subclass__(cls, **kwargs):
            Record.made = len(kwargs)

    class Special(Record, kind="s"):
        pass

    s = Slots()
    s.a = x
    try:
        s.c = 1
    except AttributeError as error:
        said = str(error)
    return s.a + Colour.RED.value + Pair(1).b + Record.made, said, Special.__name__, Colour(1).name


@program.breaks("side_effect_unsupported")
def attributes_of_an_existing_class(x):
    Counted.count = 1
    Counted.later = lambda self: 5
    r = Counted().later() + Counted.count
    del Counted.later
    return x + r, hasattr(Counted, "later"), Counted().count


class Counted:
    count = 0


@program.breaks("unsupported_builtin")
def bytes_that_change(x):
    b = bytearray(b"abc")
    b[0] = 120
    b += b"zz"
    m = memoryview(b)
    return x + len(b), bytes(b), m[1], bytes(m[2:]), m.tolist()


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
