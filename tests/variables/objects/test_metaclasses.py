"""What classes have from their metaclass: attributes, descriptors and special methods. Changes of what is read there
are noticed, and code of the program is run when the program runs it."""
from __future__ import annotations

import abc
import enum
import functools
import operator

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


class Meta(type):
    table: dict = {}
    items: list = []
    number = 0
    nothing = None

    def first(cls):
        return cls.table.get("a", 0)

    @property
    def total(cls):
        return sum(cls.items)

    def __getattr__(cls, name):
        return cls.table.get(name, 50)

    def __instancecheck__(cls, value):
        return type(value) in cls.items


class EnumMeta(enum.EnumMeta):
    table: dict = {}


class AbstractMeta(abc.ABCMeta):
    table: dict = {}


class Made(metaclass=Meta):
    pass


class Kind(enum.Enum, metaclass=EnumMeta):
    A = 1


class Abstract(metaclass=AbstractMeta):
    pass


READS = {
    "len": (lambda x: x + len(Made.table), lambda n: Meta.table.update({n: 1})),
    "get": (lambda x: x + Made.table.get("a", 0), lambda n: Meta.table.update(a=n)),
    "sum": (lambda x: x + sum(Made.items), lambda n: Meta.items.append(n)),
    "number": (lambda x: x + Made.number, lambda n: setattr(Meta, "number", n)),
    "none": (lambda x: x + (Made.nothing is None), lambda n: setattr(Meta, "nothing", n)),
    "replaced": (lambda x: x + len(Made.table), lambda n: setattr(Meta, "table", {k: k for k in range(n)})),
    "method": (lambda x: x + Made.first(), lambda n: Meta.table.update(a=n)),
    "property": (lambda x: x + Made.total, lambda n: Meta.items.append(n)),
    "getattr": (lambda x: x + Made.is_not_there, lambda n: Meta.table.update(is_not_there=n)),
    "instancecheck": (lambda x: x + isinstance(3, Made), lambda n: Meta.items.append([int, str][n - 1])),
    "enum": (lambda x: x + len(Kind.table), lambda n: EnumMeta.table.update({n: 1})),
    "abstract": (lambda x: x + len(Abstract.table), lambda n: AbstractMeta.table.update({n: 1})),
}


@pytest.mark.parametrize("name", READS)
def test_what_a_class_reads_of_its_metaclass_is_guarded(name, monkeypatch):
    dynamo_lite.reset()
    for meta in (Meta, EnumMeta, AbstractMeta):
        monkeypatch.setattr(meta, "table", {})
    monkeypatch.setattr(Meta, "items", [])
    monkeypatch.setattr(Meta, "number", 0)
    monkeypatch.setattr(Meta, "nothing", None)
    program, change = READS[name]
    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    x = torch.zeros(1)
    for number in (0, 1, 2):
        if number:
            change(number)
        assert torch.equal(compiled(x), program(x)) and torch.equal(compiled(x), program(x))
    assert log.counters()["graphs"] <= 3


def test_what_is_written_through_a_class(monkeypatch):
    dynamo_lite.reset()
    monkeypatch.setattr(Meta, "table", {})

    def program(x):
        Made.table["n"] = Made.table.get("n", 0) + 1
        return x + Made.table["n"]

    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    assert [compiled(torch.zeros(1)).item() for _ in range(4)] == [1, 2, 3, 4] and Meta.table == {"n": 4}


def count(state):
    state["calls"] += 1
    return state["now"]


class Descriptor:
    def __init__(self, state):
        self.state = state

    def __get__(self, owner, cls):
        return count(self.state) + 10 * (owner is not None) + 100 * (cls is not None)


class DataDescriptor(Descriptor):
    def __set__(self, owner, value):
        raise AttributeError


DESCRIPTORS = {
    "plain": lambda s: {"read": Descriptor(s)},
    "data": lambda s: {"read": DataDescriptor(s)},
    "property": lambda s: {"read": property(lambda cls: count(s))},
    "partial": lambda s: {"read": functools.partial(lambda n, *bound: n, 3)},    # from 3.14 on it is bound to the class
    "static": lambda s: {"read": staticmethod(lambda: count(s))},
    "class_method": lambda s: {"read": classmethod(lambda meta: count(s))},
}


def outcomes(make, call, compiler):
    """What a program gives, and how often it has called, while what it calls says something else."""
    state = {"now": 1, "calls": 0}
    meta = type("M", (type,), make(state))
    classes = meta("P", (), {}), meta("Q", (), {})
    state["calls"], found = 0, []
    program = compiler(lambda x: x + call(*classes))
    for now in (1, 2, 2, 3):
        state["now"] = now
        found.append((program(torch.zeros(1)).item(), state["calls"]))
    return found


def compiled_alike(make, call, **options):
    dynamo_lite.reset()
    compiler = functools.partial(dynamo_lite.compile, backend="eager", **options)
    assert outcomes(make, call, compiler) == outcomes(make, call, lambda f: f)


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_descriptors_of_a_metaclass(name):
    called = name in ("partial", "static", "class_method")
    # From 3.13 on a partial is a descriptor, whose code, which warns there, is C.
    captured = name != "partial" or not hasattr(functools.partial, "__get__")
    compiled_alike(DESCRIPTORS[name], lambda p, q: p.read() if called else p.read, fullgraph=captured)


def text(n):
    return "a" * n


SPECIAL = {
    "str": ("__str__", text, lambda p, q: len(str(p))),
    "repr": ("__repr__", text, lambda p, q: len(repr(p))),
    "fstring": ("__format__", text, lambda p, q: len(f"{p}")),
    "fstring_by_repr": ("__repr__", text, lambda p, q: len(f"{p}")),
    "format": ("__str__", text, lambda p, q: len("{0}-{1!s:>9}".format(p, q))),
    "percent": ("__str__", text, lambda p, q: len("%s%%" % p)),
    "text_of_list": ("__repr__", text, lambda p, q: len(f"{[p]}")),
    "text_of_tuple": ("__repr__", text, lambda p, q: len(str((p,)))),
    "text_of_dict": ("__repr__", text, lambda p, q: len("{}".format({1: [p]}))),
    "int": ("__int__", int, lambda p, q: int(p)),
    "float": ("__float__", float, lambda p, q: float(p)),
    "index": ("__index__", int, lambda p, q: [5, 6, 7, 8][p]),
    "bin": ("__index__", int, lambda p, q: len(bin(p))),
    "hash": ("__hash__", int, lambda p, q: hash(p)),
    "key": ("__eq__", lambda n: n > 1, lambda p, q: {p: 1}.get(q, 2)),
    "key_beside_others": ("__eq__", lambda n: n > 1, lambda p, q: {int: 1, p: 3}.get(q, 2)),
    "in_set": ("__eq__", lambda n: n > 1, lambda p, q: 1 if p in {q} else 2),
    "eq": ("__eq__", lambda n: n > 1, lambda p, q: 1 if 3 == p else 2),
    "neg": ("__neg__", int, lambda p, q: -p),
    "abs": ("__abs__", int, lambda p, q: abs(p)),
    "iadd": ("__iadd__", int, lambda p, q: operator.iadd(p, 1)),
    "radd": ("__radd__", int, lambda p, q: 1 + p),
    "contains_by_iter": ("__iter__", lambda n: iter(range(n)), lambda p, q: 1 if 1 in p else 2),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_a_special_method_of_a_metaclass_is_evaluated(name):
    method, convert, call = SPECIAL[name]

    def make(state):
        methods = {method: lambda cls, *args: convert(count(state))}
        return {**methods, "__hash__": lambda cls: 3} if method == "__eq__" else methods

    compiled_alike(make, call)


@pytest.mark.parametrize("container", [
    lambda a: {a: 1}, lambda a: {a}, lambda a: frozenset({a}), lambda a: [a], lambda a: (a,), lambda a: {(a, 1): 1},
])
def test_members_in_containers_from_outside(container):
    dynamo_lite.reset()

    def results(compiler):
        state = {"now": 1, "calls": 0}

        class Same(enum.Enum):
            A = 1
            B = 2

            def __hash__(self):
                return 3

            def __eq__(self, other):
                return count(state) > 1

        held = container(Same.A)
        state["calls"], found = 0, []
        program = compiler(lambda x: x + (5 if Same.B in held else 1))
        for now in (1, 2, 2, 3):
            state["now"] = now
            found.append((program(torch.zeros(1)).item(), state["calls"]))
        return found

    assert results(functools.partial(dynamo_lite.compile, backend="eager")) == results(lambda f: f)
