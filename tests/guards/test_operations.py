"""Every operation of the guard program is emitted for a program of the user's."""
import collections
import functools
import math
import types
import weakref

import torch

import dynamo_lite
from dynamo_lite import _guards
from dynamo_lite.guards import program

X, Y = torch.arange(6.0), torch.arange(6.0)
SETTINGS = types.SimpleNamespace(k=2, sizes=(1, 2), table={"a": 1, "b": 2})


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k


class Plain:
    def __init__(self, k=2):
        self.k = k

    def scale(self, x):
        return x * self.k


def closure(k):
    def inner(x):
        return x * k

    return inner


def unbound():
    def inner(x):
        try:
            return x * k
        except NameError:
            return x + 1

    if not X.numel():
        k = 1
    return inner


def default(x, k=2, *, flag=True):
    return x * k if flag else x


def globals_and_builtins(x):
    return x * SETTINGS.k + len(SETTINGS.sizes) + SETTINGS.table["a"]


def containers(x, items, pair, table, deque):
    return x * items[0] + pair[1] + sum(v for v in table.values()) + deque[0] + ("c" in table)


def objects(x, plain, slotted, scale, partial):
    return scale(x) + plain.k + slotted.k + partial(x) + (plain is slotted)


def references(x, ref, keys):
    return x + ref().k + sum(len(k) for k in keys)


def sets(x, members, ordered):
    for member in ordered:
        x = x * 2 + member
    return x + (3 in members)


def popped(x, members):
    return x + members.pop()


def written(x, y, z):
    x.add_(y)
    return x + z


def written_view(x, z):
    x.mul_(2)
    return x + z


def module(model, x):
    return model(x)


def gradient(x):
    return x if x.grad is None else x + x.grad


def counted(x):
    Counter.calls += 1
    return x * Counter.calls


def keyed(x, table):
    return x + sum(value for key, value in table.items())


def stored(x, plain, table):
    plain.k = 3
    return x + table["k"]


def elements(x, lengths):
    return x[: lengths.tolist()[0]]


def same(x, y):
    return x + 1 if x is y else x + 2


def computed(x, step):
    return x * (1 - 0.9 ** step) * math.sqrt(step)


def sizes(x, y):
    return x.sum() if x.shape[0] * 2 > y.shape[0] else y.sum()


def taken(x, iterator):
    for number in iterator:
        x = x + number
    return x


def strided(x):
    return x * 2


class Counter:
    calls = 0


PLAIN, SLOTTED = Plain(), Slotted(3)
HOOKED = torch.nn.Linear(6, 6)
HOOKED.register_forward_hook(lambda module, args, result: result * 2)
CALLS = {
    "closure": (closure(2), [(X,)]),
    "unbound": (unbound(), [(X,)]),
    "default": (default, [(X,)]),
    "globals": (globals_and_builtins, [(X,)]),
    "containers": (containers, [(X, [1, 2], (3, 4), {"a": 5, "b": 6}, collections.deque([7]))]),
    "objects": (objects, [(X, PLAIN, SLOTTED, PLAIN.scale, functools.partial(default, k=3))]),
    "references": (references, [(X, weakref.ref(PLAIN), {("a", "b"): 1, "c": 2})]),
    "sets": (sets, [(X, {3, 4}, {1, 2})]),
    "popped": (popped, [(X, {3, 4})]),
    "written": (written, [(torch.ones(3), torch.ones(3), torch.ones(3))]),
    "aliased": (written_view, [(Y[:3], Y[1:4])]),
    "module": (module, [(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout()), X)]),
    "hooked": (module, [(HOOKED, X)]),
    "elements": (elements, [(X, torch.tensor([2]))]),
    "same": (same, [(X, X), (X, X + 1)]),
    "computed": (computed, [(X, 1.5), (X, 2.5), (X, 3.5)]),
    "gradient": (gradient, [(torch.ones(2, requires_grad=True),)]),
    "counted": (counted, [(X,)] * 3),
    "keyed": (keyed, [(X, {PLAIN: 1, SLOTTED: 2})]),
    "stored": (stored, [(X, Plain(), types.MappingProxyType({"k": 1}))]),
    "strided": (strided, [(torch.ones(n, 2 * n)[:, :n],) for n in (5, 6, 7)]),
    "taken": (taken, [(X, iter([1, 2]))]),
    "sizes": (sizes, [(torch.ones(n), torch.ones(n + 1)) for n in (4, 5, 6)]),
}


def test_every_operation_is_emitted(monkeypatch):
    emitted = set()
    make = program.GuardProgram

    def recorded(steps, *rest):
        emitted.update(step[0] for step in steps)
        return make(steps, *rest)

    monkeypatch.setattr(program, "GuardProgram", recorded)
    for function, calls in CALLS.values():
        compiled = dynamo_lite.compile(function, backend="eager")
        for arguments in calls:
            compiled(*arguments)
    assert set(_guards.OPS) == emitted
