"""Programs as people write them: registries, trainers, parsers, state machines, caches, containers.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import heapq
import math
import operator
import types
import typing

import pytest
import torch
from language_support import Programs
from torch import nn

program = Programs()


class Registry:
    def __init__(self):
        self._fns = {}

    def register(self, name=None):
        def deco(f):
            self._fns[name or f.__name__] = f
            return f

        return deco

    def get(self, n):
        try:
            return self._fns[n]
        except KeyError:
            raise KeyError(f"{n} not in {sorted(self._fns)}") from None


ACT = Registry()


@ACT.register()
def relu(x):
    return torch.relu(x)


@ACT.register("sq")
def square(x):
    return x * x


@program
def registry(x):
    try:
        ACT.get("none")
    except KeyError as e:
        m = e.args[0]
    return ACT.get("sq")(ACT.get("relu")(x)), m


@dataclasses.dataclass
class Config:
    hidden: int = 4
    layers: int = 2
    act: str = "relu"
    extra: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.layers < 0:
            raise ValueError("layers")
        self.total = self.hidden * self.layers

    @classmethod
    def from_dict(cls, d):
        names = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in d.items() if k in names})

    def to_dict(self):
        return dataclasses.asdict(self)


@program
def config(x):
    c = Config.from_dict({"hidden": 3, "bogus": 1, "layers": 5})
    d = dataclasses.replace(c, hidden=7)
    try:
        Config(layers=-1)
    except ValueError as e:
        m = str(e)
    return x * c.total + d.total, c.to_dict(), d, m, c == Config(3, 5)


class ModelOutput(collections.OrderedDict):
    def __post_init__(self):
        for f in dataclasses.fields(self):
            v = getattr(self, f.name)
            if v is not None:
                self[f.name] = v

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, n, v):
        if n in self.keys() and v is not None:
            super().__setitem__(n, v)
        super().__setattr__(n, v)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class Out(ModelOutput):
    loss: typing.Optional[torch.Tensor] = None
    logits: torch.Tensor = None
    hidden: typing.Optional[tuple] = None


@program
def model_output(x):
    o = Out(logits=x * 2, hidden=(x, x + 1))
    o.loss = x.sum()
    return o[0], o["hidden"][1], o.to_tuple()[0], list(o.keys()), len(o), "loss" in o, o.logits


class AverageMeter:
    def __init__(self, n):
        self.name = n
        self.reset()

    def reset(self):
        self.val = self.sum = self.count = 0
        self.hist = collections.deque(maxlen=3)

    def update(self, v, n=1):
        self.val = v
        self.sum += v * n
        self.count += n
        self.hist.append(v)

    @property
    def avg(self):
        return self.sum / max(1, self.count)

    def __str__(self):
        return f"{self.name} {self.val:.2f} ({self.avg:.3f})"


@program
def meter(x):
    m = AverageMeter("loss")
    for i in range(5):
        m.update(i * 0.5)
    return x * m.avg, str(m), list(m.hist)


class MetricCollection:
    def __init__(self, **m):
        self.m = m

    def __getattr__(self, n):
        m = self.__dict__.get("m", {})
        if n in m:
            return m[n]
        raise AttributeError(n)

    def __iter__(self):
        return iter(self.m.items())


@program
def metrics(x):
    c = MetricCollection(a=AverageMeter("a"), b=AverageMeter("b"))
    c.a.update(3)
    c.b.update(x.sum(), 2)
    return {k: v.avg for k, v in c}, hasattr(c, "zz"), c.a.count


class State(enum.Enum):
    IDLE = enum.auto()
    RUN = enum.auto()
    DONE = enum.auto()

    def next(self):
        ms = list(type(self))
        return ms[(ms.index(self) + 1) % len(ms)]


class Machine:
    table = {State.IDLE: "start", State.RUN: "work", State.DONE: "stop"}

    def __init__(self):
        self.s = State.IDLE
        self.log = []

    def start(self, x):
        return x + 1

    def work(self, x):
        return x * 2

    def stop(self, x):
        return -x

    def step(self, x):
        r = getattr(self, self.table[self.s])(x)
        self.log.append(self.s.name.lower())
        self.s = self.s.next()
        return r


@program
def state_machine(x):
    m = Machine()
    while m.s is not State.DONE:
        x = m.step(x)
    return m.step(x), m.log, m.s


class Visitor:
    def visit(self, n):
        for c in type(n).__mro__:
            f = getattr(self, "visit_" + c.__name__, None)
            if f:
                return f(n)
        raise TypeError(type(n))


@dataclasses.dataclass
class Num:
    v: float


@dataclasses.dataclass
class Bin:
    op: str
    l: object
    r: object


@dataclasses.dataclass
class Var:
    name: str


class Eval(Visitor):
    ops = {"+": operator.add, "*": operator.mul, "-": operator.sub}

    def __init__(self, env):
        self.env = env

    def visit_Num(self, n):
        return n.v

    def visit_Var(self, n):
        return self.env[n.name]

    def visit_Bin(self, n):
        return self.ops[n.op](self.visit(n.l), self.visit(n.r))


@program
def visitor(x):
    return Eval({"x": x}).visit(Bin("+", Bin("*", Var("x"), Num(2.0)), Num(1)))


def tokenize(s):
    i = 0
    while i < len(s):
        c = s[i]
        if c.isspace():
            i += 1
            continue
        if c.isdigit():
            j = i
            while j < len(s) and (s[j].isdigit() or s[j] == "."):
                j += 1
            yield ("num", float(s[i:j]))
            i = j
            continue
        if c.isalpha():
            yield ("var", c)
            i += 1
            continue
        yield ("op", c)
        i += 1
    yield ("end", None)


class Parser:
    prec = {"+": 1, "-": 1, "*": 2}

    def __init__(self, s):
        self.t = tokenize(s)
        self.cur = next(self.t)

    def eat(self):
        t = self.cur
        self.cur = next(self.t, None)
        return t

    def expr(self, env, p=0):
        k, v = self.eat()
        if k == "num":
            l = v
        elif k == "var":
            l = env[v]
        elif v == "(":
            l = self.expr(env)
            assert self.eat()[1] == ")"
        else:
            raise SyntaxError(v)
        while self.cur[0] == "op" and (q := self.prec.get(self.cur[1], 0)) > p:
            o = self.eat()[1]
            r = self.expr(env, q)
            l = {"+": operator.add, "-": operator.sub, "*": operator.mul}[o](l, r)
        return l


@program
def parser(x):
    return Parser("2*(x+3)-x*x").expr({"x": x})


class Scheduler:
    def __init__(self, base, warm=3):
        self.base = base
        self.warm = warm
        self.t = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.t += 1
        if self.t > 6:
            raise StopIteration
        return self.base * min(1, self.t / self.warm) * 0.5 * (1 + math.cos(math.pi * self.t / 6))


@program
def scheduler(x):
    for lr in Scheduler(0.1):
        x = x - lr * x
    return x


@dataclasses.dataclass(order=True)
class Hyp:
    score: float
    toks: tuple = dataclasses.field(compare=False)


@program
def beam(x):
    logp = [[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.3, 0.3, 0.4]]
    beams = [Hyp(0.0, ())]
    for row in logp:
        cand = [Hyp(b.score + math.log(p), b.toks + (i,)) for b in beams for i, p in enumerate(row)]
        beams = heapq.nlargest(2, cand)
    return x * beams[0].score, [b.toks for b in beams]


@program
def beam_tensor(x):
    lp = torch.log_softmax(x, -1)
    beams = [([], torch.zeros(()))]
    for t in range(2):
        new = []
        for toks, s in beams:
            for j in range(lp.shape[-1]):
                new.append((toks + [j], s + lp[t, j]))
        beams = new[:4]
    return torch.stack([s for _, s in beams]), [t for t, _ in beams]


class Tree:
    def __init__(self, v, *ch):
        self.v = v
        self.ch = ch

    def __iter__(self):
        yield self.v
        for c in self.ch:
            yield from c

    def depth(self):
        return 1 + max((c.depth() for c in self.ch), default=0)


class TreeLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.w = nn.Linear(3, 3)
        self.u = nn.Linear(3, 3)

    def forward(self, t):
        if not t.ch:
            return torch.tanh(self.w(t.v))
        hs = [self(c) for c in t.ch]
        return torch.tanh(self.w(t.v) + self.u(functools.reduce(operator.add, hs) / len(hs)))


TL = TreeLSTM()


@program
def tree_lstm(x):
    t = Tree(x[0], Tree(x[1]), Tree(x[0] + 1, Tree(x[1] * 2)))
    return TL(t).detach(), t.depth(), len(list(t))


class LRUCache:
    def __init__(self, n):
        self.n = n
        self.d = collections.OrderedDict()
        self.hits = 0

    def get(self, k, make):
        if k in self.d:
            self.d.move_to_end(k)
            self.hits += 1
            return self.d[k]
        v = self.d[k] = make(k)
        if len(self.d) > self.n:
            self.d.popitem(last=False)
        return v


@program
def lru_cache_obj(x):
    c = LRUCache(2)
    s = 0
    for k in [1, 2, 1, 3, 2]:
        s = s + c.get(k, lambda k: x * k)
    return s, c.hits, list(c.d)


class EventBus:
    def __init__(self):
        self.h = collections.defaultdict(list)

    def on(self, e, f=None):
        if f is None:
            return lambda f: self.on(e, f)
        self.h[e].append(f)
        return f

    def emit(self, e, *a, **k):
        return [f(*a, **k) for f in self.h[e]]


@program
def events(x):
    b = EventBus()
    out = []

    @b.on("s")
    def _(v, **k):
        out.append((v.sum(), k))

    b.on("s", lambda v, **k: v * 2)
    return b.emit("s", x, tag=1)[1], out, b.emit("none")


class Pipeline:
    def __init__(self, *s):
        self.s = list(s)

    def __or__(self, o):
        return Pipeline(*self.s, o)

    def __rshift__(self, x):
        return self(x)

    def __call__(self, x):
        return functools.reduce(lambda a, f: f(a), self.s, x)

    def __len__(self):
        return len(self.s)

    def __getitem__(self, i):
        return Pipeline(*self.s[i]) if isinstance(i, slice) else self.s[i]


@program
def pipeline(x):
    p = Pipeline(torch.sin) | torch.exp | (lambda v: v + 1)
    return p >> x, len(p), p[:1](x), p[-1](x)


class Loader:
    def __init__(self, data, bs, drop=False):
        self.data = data
        self.bs = bs
        self.drop = drop

    def __len__(self):
        n = len(self.data)
        return n // self.bs if self.drop else -(-n // self.bs)

    def __iter__(self):
        b = []
        for d in self.data:
            b.append(d)
            if len(b) == self.bs:
                yield torch.stack(b)
                b = []
        if b and not self.drop:
            yield torch.stack(b)


@program
def loader(x):
    dl = Loader([x[0], x[1], x[0] * 2], 2)
    t = 0
    for i, b in enumerate(dl):
        t = t + (i + 1) * b.sum()
    return t, len(dl), [b.shape for b in dl]


class Trainer:
    def __init__(self, model, cbs=()):
        self.model = model
        self.cbs = list(cbs)
        self.state = types.SimpleNamespace(step=0, losses=[])

    def call(self, n, *a):
        for c in self.cbs:
            getattr(c, n, lambda *a: None)(self, *a)

    def fit(self, data):
        self.call("on_start")
        for b in data:
            l = self.model(b)
            self.state.losses.append(l)
            self.state.step += 1
            self.call("on_step", l)
            if getattr(self, "stop", False):
                break
        self.call("on_end")
        return torch.stack(self.state.losses).mean()


class EarlyStop:
    def __init__(self, n):
        self.n = n

    def on_step(self, tr, l):
        if tr.state.step >= self.n:
            tr.stop = True


class Rec:
    def __init__(self):
        self.ev = []

    def on_start(self, t):
        self.ev.append("s")

    def on_end(self, t):
        self.ev.append("e")


@program
def trainer(x):
    r = Rec()
    t = Trainer(lambda b: (b * b).mean(), [EarlyStop(2), r])
    return t.fit([x, x + 1, x + 2]), t.state.step, r.ev


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
