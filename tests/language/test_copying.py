"""copy and deepcopy of what programs keep, tuples by identity, deques.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum

import pytest
import torch
from language_support import Programs

import dynamo_lite

program = Programs()


class Cfg:
    def __init__(self):
        self.a = [1, 2]
        self.t = (1, 2)
        self.u = self.t
        self.s = {1, 2}
        self.d = {"k": [1]}
        self.od = collections.OrderedDict(a=1)
        self.dd = collections.defaultdict(list, {1: [2]})
        self.dq = collections.deque([1, 2], maxlen=3)
        self.fs = frozenset((1,))
        self.c = collections.Counter("aab")


CFG = Cfg()


@program
def deepcopy_cfg(x):
    c = copy.deepcopy(CFG)
    c.a.append(3)
    c.s.add(9)
    c.d["k"].append(2)
    c.dq.append(7)
    return x * len(c.a), c.a, c.t, c.s, c.d, c.od, dict(c.dd), list(c.dq), c.fs, c.u is c.t, dict(c.c)


@program
def copy_cfg(x):
    c = copy.copy(CFG)
    return x + len(c.a), c.a is CFG.a


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@program
def deepcopy_slots(x):
    s = Slots([1])
    t = copy.deepcopy(s)
    t.a.append(2)
    return x, s.a, t.a, hasattr(t, "b")


class MyList(list):
    pass


class MyDict(dict):
    pass


@program
def deepcopy_sub(x):
    l = MyList([1, [2]])
    l.tag = "q"
    m = copy.deepcopy(l)
    m[1].append(3)
    d = MyDict(a=[1])
    e = copy.deepcopy(d)
    e["a"].append(2)
    return x, list(l), list(m), m.tag, dict(d), dict(e), type(e) is MyDict


@program
def copy_sub(x):
    l = MyList([1, [2]])
    l.tag = "q"
    m = copy.copy(l)
    return x, m[1] is l[1], m.tag


@dataclasses.dataclass
class DC:
    a: int
    b: list = dataclasses.field(default_factory=list)


@program
def deepcopy_dc(x):
    d = DC(1, [2])
    e = copy.deepcopy(d)
    e.b.append(3)
    return x * e.a, d, e


@program
def deepcopy_tensor(x):
    y = copy.deepcopy(x)
    y.add_(1)
    return x, y


@program
def deepcopy_list_tensors(x):
    a = [x, x, {"k": x}]
    b = copy.deepcopy(a)
    b[0].add_(1)
    return a, b, b[0] is b[1]


NT = collections.namedtuple("NT", "a b")


@program
def deepcopy_nt(x):
    n = NT([1], 2)
    m = copy.deepcopy(n)
    m.a.append(2)
    return x, n, m


class E(enum.Enum):
    A = 1
    B = 2


@program
def deepcopy_enum(x):
    return x, copy.deepcopy(E.A) is E.A, copy.copy([E.B])


DQ = collections.deque([1.0, 2.0], maxlen=3)


@program
def deque_out(x):
    DQ.append(5.0)
    s = sum(DQ)
    DQ.pop()
    DQ.appendleft(9.0)
    DQ.rotate(1)
    DQ[0] = 4.0
    r = list(DQ)
    DQ.clear()
    DQ.extend([1.0, 2.0])
    return x * s, r, DQ


class Buf:
    def __init__(self):
        self.d = collections.deque([1], maxlen=2)


@program
def deque_tensor(x):
    b = BUF
    b.d.append(x)
    r = b.d[-1] + 1
    b.d.clear()
    b.d.append(1)
    return r


BUF = Buf()


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)


@dataclasses.dataclass
class Sizes:
    rows: int
    shape: tuple


SIZES = {
    "list": lambda x, n: (copy.deepcopy([n, [n, 2], (n, [n])]), copy.copy([n, 2]), [n].copy()),
    "tuple": lambda x, n: (copy.deepcopy((n, 2)), copy.copy((n, 2)), copy.deepcopy(((n, 1), n))),
    "dict": lambda x, n: copy.deepcopy({"a": n, "b": {"c": (n, n + 1)}}),
    "shape": lambda x, n: (copy.deepcopy(x.shape), copy.copy(x.shape), type(copy.deepcopy(x.shape)) is torch.Size),
    "dataclass": lambda x, n: (copy.deepcopy(Sizes(n, x.shape)), dataclasses.replace(Sizes(n, ()), rows=n + 1)),
    "as dict": lambda x, n: (dataclasses.asdict(Sizes(n, x.shape)), dataclasses.astuple(Sizes(n, (n, 1)))),
    "shared": lambda x, n: (lambda a: [copy.deepcopy([a, a, n]), a is copy.deepcopy(a)])((n, [n])),
}


@pytest.mark.parametrize("name", SIZES)
def test_copies_of_what_holds_a_size_are_one_graph(name):
    idiom = SIZES[name]

    def f(x):
        return x + 1, idiom(x, x.shape[0])

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (6, 5, 9, 300, 7):
        x = torch.ones(n, 4)
        got, want = compiled(x)[1], f(x)[1]
        assert got == want and repr(got) == repr(want)
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 1 and "recompiles" not in metrics and "graph_breaks" not in metrics


def test_ids_of_sizes_as_keys_are_no_question_of_the_trace():
    def f(x, y):
        n, m = x.shape[0], y.shape[0]
        seen = {id(n): 1}
        seen[id(m)] = 2
        return x + 1, len(seen), len({id(n), id(3), id(m)})

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n, m in ((6, 5), (5, 5), (3, 4), (3, 3), (7, 9)):  # small ints are one object in Python
        assert compiled(torch.ones(n), torch.ones(m))[1:] == f(torch.ones(n), torch.ones(m))[1:]
