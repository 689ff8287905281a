"""Special methods of enums: those that a class, or its metaclass, defines in Python are evaluated like other code, and
what they read and how they are replaced is noticed; what enum itself does stays a constant."""
from __future__ import annotations

import dataclasses
import enum
import functools
import math
import operator
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite import log

TEXTS = {"1": 1, "2": 2, "3": 3, "7": 7, "(1,)": 4, "(2,)": 5, "(3,)": 6, "(7,)": 8, "[1]": 9, "[2]": 10, "[3]": 11,
         "[7]": 12}


def said(state):
    """What a method says, which changes and has an effect."""
    state["calls"] += 1
    return state["now"]


# How a method is called -> its name, what it makes of what is said, the call.
CALLS = {
    "str": ("__str__", str, lambda e: TEXTS[str(e.A)]),
    "str_by_repr": ("__repr__", str, lambda e: TEXTS[repr(e.A)]),
    "fstring": ("__format__", str, lambda e: TEXTS[f"{e.A}"]),
    "fstring_with_spec": ("__format__", str, lambda e: TEXTS[f"{e.A:>3}"]),
    "fstring_by_str": ("__str__", str, lambda e: TEXTS[f"{e.A}"]),
    "ascii": ("__repr__", str, lambda e: TEXTS[f"{e.A!a}"]),
    "format": ("__format__", str, lambda e: TEXTS["{}".format(e.A)]),
    "format_named": ("__str__", str, lambda e: TEXTS["{a!s}".format(a=e.A)]),
    "percent": ("__str__", str, lambda e: TEXTS["%s" % e.A]),
    "percent_of_tuple": ("__repr__", str, lambda e: TEXTS["%r" % (e.A,)]),
    "text_of_tuple": ("__repr__", str, lambda e: TEXTS[str((e.A,))]),
    "text_of_list": ("__repr__", str, lambda e: TEXTS[str([e.A])]),
    "join": ("__str__", str, lambda e: TEXTS["".join(map(str, [e.A]))]),
    "eq": ("__eq__", lambda n: n > 1, lambda e: 1 if e.A == e.B else 2),
    "ne": ("__ne__", lambda n: n > 1, lambda e: 1 if e.A != e.B else 2),
    "ne_by_eq": ("__eq__", lambda n: n > 1, lambda e: 1 if e.A != e.B else 2),
    "eq_of_other": ("__eq__", lambda n: n > 1, lambda e: 1 if "zz" == e.B else 2),
    "eq_in_tuple": ("__eq__", lambda n: n > 1, lambda e: 1 if (e.A, 1) == (e.B, 1) else 2),
    "lt": ("__lt__", lambda n: n > 1, lambda e: 1 if e.A < e.B else 2),
    "sorted": ("__lt__", lambda n: n > 1, lambda e: 1 if sorted([e.A, e.B])[0] is e.A else 2),
    "max": ("__gt__", lambda n: n > 1, lambda e: 1 if max(e.A, e.B) is e.A else 2),
    "in_list": ("__eq__", lambda n: n > 1, lambda e: 1 if e.B in [e.A] else 2),
    "in_set": ("__eq__", lambda n: n > 1, lambda e: 1 if e.B in {e.A} else 2),
    "key": ("__eq__", lambda n: n > 1, lambda e: {e.A: 1}.get(e.B, 2)),
    "hash": ("__hash__", int, lambda e: hash(e.A)),
    "hash_of_tuple": ("__hash__", int, lambda e: hash((e.A, 1)) % 1000),
    "bool": ("__bool__", lambda n: n > 1, lambda e: 1 if e.A else 2),
    "len": ("__len__", int, lambda e: len(e.A)),
    "int": ("__int__", int, lambda e: int(e.A)),
    "float": ("__float__", float, lambda e: float(e.A)),
    "index": ("__index__", int, lambda e: [5, 6, 7, 8, 9, 10, 11, 12][e.A]),
    "operator_index": ("__index__", int, lambda e: operator.index(e.A)),
    "range": ("__index__", int, lambda e: sum(range(e.A))),
    "add": ("__add__", int, lambda e: e.A + 1),
    "radd": ("__radd__", int, lambda e: 1 + e.A),
    "iadd": ("__iadd__", int, lambda e: operator.iadd(e.A, 1)),
    "tensor_radd": ("__radd__", int, lambda e: torch.ones(1) + e.A),
    "neg": ("__neg__", int, lambda e: -e.A),
    "abs": ("__abs__", int, lambda e: abs(e.A)),
    "round": ("__round__", int, lambda e: round(e.A)),
    "floor": ("__floor__", int, lambda e: math.floor(e.A)),
    "pow": ("__pow__", int, lambda e: pow(e.A, 2)),
    "pow_of_three": ("__pow__", int, lambda e: pow(e.A, 2, 5)),
    "divmod": ("__divmod__", lambda n: (n, 1), lambda e: divmod(e.A, 2)[0]),
    "getitem": ("__getitem__", int, lambda e: e.A[0]),
    "contains": ("__contains__", lambda n: n > 1, lambda e: 1 if 0 in e.A else 2),
    "contains_by_iter": ("__iter__", lambda n: iter(range(n)), lambda e: 1 if 1 in e.A else 2),
    "iter": ("__iter__", lambda n: iter(range(n)), lambda e: sum(e.A)),
    "reversed": ("__reversed__", lambda n: iter(range(n)), lambda e: sum(reversed(e.A))),
    "call": ("__call__", int, lambda e: e.A()),
    "by_name": ("__neg__", int, lambda e: e.A.__neg__()),
    "format_by_name": ("__str__", str, lambda e: TEXTS[e.A.__format__("")]),
    "getattr": ("__getattr__", int, lambda e: e.A.is_not_there),
}
OF_BUILTINS = [(call, base) for call in (
    "str", "str_by_repr", "fstring", "fstring_by_str", "eq", "ne", "ne_by_eq", "eq_of_other", "lt", "hash", "bool",
    "len", "add", "int", "format", "key", "max", "radd", "format_by_name") for base in (int, str)]


def make(name, method, base=None):
    """An enum with a special method that says something, and what it goes by."""
    state = {"now": 1, "calls": 0}
    _, convert, _ = CALLS[name]
    own = {method: lambda self, *args: convert(said(state))}
    if method == "__eq__":
        own["__hash__"] = lambda self: 3

    bases = (base, enum.Enum) if base is not None else (enum.Enum,)
    namespace = enum.EnumMeta.__prepare__("E", bases)
    for key, value in {**own, "A": 1, "B": 2}.items():
        namespace[key] = value
    cls = enum.EnumMeta("E", bases, namespace)
    state["calls"] = 0
    return cls, state


def results(name, base, compiler):
    method, convert, call = CALLS[name]
    cls, state = make(name, method, base)
    program = compiler(lambda x: x + call(cls))
    found = []
    for now in (1, 2, 2, 3):
        state["now"] = now
        found.append((program(torch.zeros(1)).item(), state["calls"]))
    type.__setattr__(cls, method, lambda self, *args: convert(7))  # nothing is left that has an effect
    found.append((program(torch.zeros(1)).item(), state["calls"]))
    return found


@pytest.mark.parametrize("name, base", [*((name, None) for name in CALLS), *OF_BUILTINS])
def test_a_special_method_is_evaluated(name, base):
    dynamo_lite.reset()
    want = results(name, base, lambda f: f)
    assert results(name, base, functools.partial(dynamo_lite.compile, backend="eager", fullgraph=True)) == want


class Plain(enum.Enum):
    A = 1
    B = 2


class Number(enum.IntEnum):
    A = 1
    B = 2


PLAIN = {
    "eq": ("__eq__", lambda self, other: True, lambda x: x + (1 if Plain.A == Plain.B else 2)),
    "ne": ("__eq__", lambda self, other: True, lambda x: x + (1 if Plain.A != Plain.B else 2)),
    "lt": ("__lt__", lambda self, other: False, lambda x: x + (1 if Number.A < Number.B else 2)),
    "str": ("__str__", lambda self: "abc", lambda x: x + len(str(Plain.A))),
    "format": ("__str__", lambda self: "abc", lambda x: x + len(f"{Plain.A}")),
    "repr": ("__repr__", lambda self: "abc", lambda x: x + len(repr(Plain.A))),
    "percent": ("__str__", lambda self: "abc", lambda x: x + len("%s" % Plain.A)),
    "list": ("__repr__", lambda self: "abc", lambda x: x + len(f"{[Plain.A]}")),
    "hash": ("__hash__", lambda self: 5, lambda x: x + hash(Number.A)),
    "bool": ("__bool__", lambda self: False, lambda x: x + (1 if Plain.A else 2)),
    "len": ("__len__", lambda self: 0, lambda x: x + (1 if Plain.A else 2)),
    "add": ("__add__", lambda self, other: 50, lambda x: x + (Number.A + 1)),
    "radd": ("__radd__", lambda self, other: 50, lambda x: x + (1 + Number.A)),
    "neg": ("__neg__", lambda self: 50, lambda x: x + -Number.A),
    "abs": ("__abs__", lambda self: 50, lambda x: x + abs(Number.A)),
    "int": ("__int__", lambda self: 50, lambda x: x + int(Number.A)),
    "key": ("__hash__", lambda self: 5, lambda x: x + {Plain.A: 1, Plain.B: 2}[Plain.B]),
    "getattr": ("__getattribute__", lambda self, name: 50, lambda x: x + Plain.A.value),
    "missing": ("_missing_", classmethod(lambda cls, value: cls.A), lambda x: x + of_value("zz")),
}


def of_value(value):
    try:
        return Plain(value).value
    except ValueError:
        return 5


@pytest.mark.parametrize("name", PLAIN)
def test_a_method_that_a_plain_enum_gets_later_is_noticed(name, monkeypatch):
    dynamo_lite.reset()
    method, new, program = PLAIN[name]
    x = torch.zeros(1)
    compiled = dynamo_lite.compile(program, backend="eager")
    before = program(x)
    assert torch.equal(compiled(x), before) and torch.equal(compiled(x), before) and log.counters()["graphs"] == 1
    with monkeypatch.context() as patch:
        for cls in (Plain, Number):
            patch.setattr(cls, method, new, raising=False)
        now = program(x)
        assert torch.equal(compiled(x), now) and (name == "key") == torch.equal(now, before)
    assert torch.equal(compiled(x), before)


def test_plain_members_are_constants():
    dynamo_lite.reset()

    def program(x, kind):
        table = {Plain.A: 2, Plain.B: 3}
        same = kind is Plain.B, kind == Plain.B, kind != Plain.A, kind in (Plain.A, Plain.B), kind in {Plain.B}
        return x * table[kind] * sum(same) + len(f"{kind} {kind!r} {kind.name}") + Plain(2).value + Plain["A"].value + (
            len(Plain) + sum(member.value for member in Plain) + (1 if kind else 2) + Number.A + Number(2) * 2)

    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    for kind in (Plain.A, Plain.B, Plain.A):
        assert torch.equal(compiled(torch.ones(2), kind), program(torch.ones(2), kind))
    assert log.counters()["graphs"] == 2


# ---------------------------------------------------------------- attributes
class Descriptor:
    def __init__(self, state):
        self.state = state

    def __get__(self, owner, cls):
        return said(self.state)


READS = {
    "property": lambda s: {"value_of": property(lambda self: said(s))},
    "enum_property": lambda s: {"value_of": enum.property(lambda self: said(s))},
    "dynamic": lambda s: {"value_of": types.DynamicClassAttribute(lambda self: said(s))},
    "method": lambda s: {"value_of": lambda self: said(s)},
    "static": lambda s: {"value_of": staticmethod(lambda: said(s))},
    "class_method": lambda s: {"value_of": classmethod(lambda cls: said(s) + len(cls.__members__))},
    "getattr": lambda s: {"__getattr__": lambda self, name: said(s) if name == "value_of" else absent(name)},
    "descriptor": lambda s: {"value_of": Descriptor(s)},
}


def absent(name):
    raise AttributeError(name)


@pytest.mark.parametrize("name", READS)
def test_an_attribute_that_is_computed(name):
    dynamo_lite.reset()

    def outcomes(compiler):
        state = {"now": 1, "calls": 0}
        namespace = enum.EnumMeta.__prepare__("E", (enum.Enum,))
        for key, value in {**READS[name](state), "A": 1}.items():
            namespace[key] = value
        cls = enum.EnumMeta("E", (enum.Enum,), namespace)
        called = name in ("method", "static", "class_method")
        program = compiler(lambda x: x + (cls.A.value_of() if called else cls.A.value_of))
        state["calls"], found = 0, []
        for now in (1, 2, 3):
            state["now"] = now
            found.append((program(torch.zeros(1)).item(), state["calls"]))
        return found

    assert outcomes(functools.partial(dynamo_lite.compile, backend="eager")) == outcomes(lambda f: f)


def test_a_value_property_with_an_effect_and_a_lookup_of_its_own():
    dynamo_lite.reset()
    state = {"now": 1, "calls": 0}

    class Own(enum.Enum):
        A = 1

        @property
        def value(self):
            return said(state) * 10

    class Looks(enum.Enum):
        A = 1

        def __getattribute__(self, name):
            return said(state) if name == "value" else super().__getattribute__(name)

    def program(x):
        return x + Own.A.value + Looks.A.value + len(Looks.A.name)

    compiled = dynamo_lite.compile(program, backend="eager")
    for calls, now in enumerate((1, 2, 3), 1):
        state["now"] = now
        assert compiled(torch.zeros(1)).item() == now * 11 + 1 and state["calls"] == calls * 2


def test_containers_beside_the_members():
    dynamo_lite.reset()

    class Listed(enum.Enum):
        A = 1

    Listed.table = {}
    compiled = dynamo_lite.compile(lambda x: x + len(Listed.table) + sum(Listed.A.table.values()), backend="eager")
    for number in range(3):
        assert compiled(torch.zeros(1)).item() == number * 2
        Listed.table[number] = 1


def test_a_value_with_a_text_of_its_own():
    dynamo_lite.reset()

    @dataclasses.dataclass
    class Held:
        name: str

        def __repr__(self):
            return self.name

    class Holds(enum.Enum):
        A = Held("a")
        B = [1]

    compiled = dynamo_lite.compile(lambda x: (x + len(repr(Holds.A)), repr(Holds.B)), backend="eager")
    for text in ("a", "ab", "abc"):
        Holds.A.value.name = text
        Holds.B.value.append(text)
        got, shown = compiled(torch.zeros(1))
        assert got.item() == len(repr(Holds.A)) and shown == repr(Holds.B)


# ---------------------------------------------------------------- flags
def test_flags_of_a_class_of_its_own():
    dynamo_lite.reset()
    state = {"now": 1, "calls": 0}

    class Flags(enum.Flag):
        A = 1
        B = 2

        def __or__(self, other):
            return said(state)

        def __contains__(self, other):
            return said(state) > 1

    compiled = dynamo_lite.compile(lambda x: x + (Flags.A | Flags.B) + (10 if Flags.A in Flags.B else 0),
                                   backend="eager")
    for calls, now in enumerate((1, 2, 3), 1):
        state["now"] = now
        assert compiled(torch.zeros(1)).item() == now + (10 if now > 1 else 0) and state["calls"] == calls * 2


# ---------------------------------------------------------------- missing values
def test_a_missing_value_asks_the_class():
    dynamo_lite.reset()
    state = {"now": 1, "calls": 0}

    class Finds(enum.Enum):
        A = 1
        B = 2

        @classmethod
        def _missing_(cls, value):
            return [None, cls.A, cls.B, value][said(state)]

    def program(x):
        try:
            return x + Finds("zz").value
        except (ValueError, TypeError) as error:
            return x + len(str(error))

    def outcomes(compiler):
        made, found = compiler(program), []
        state["calls"] = 0
        for now in (1, 2, 0, 3, 1):
            state["now"] = now
            found.append((made(torch.zeros(1)).item(), state["calls"]))
        return found

    assert outcomes(functools.partial(dynamo_lite.compile, backend="eager")) == outcomes(lambda f: f)


# ---------------------------------------------------------------- metaclasses
def of_metaclass(methods, **others):
    """An enum whose metaclass defines special methods that count their calls."""
    class Meta(enum.EnumMeta):
        alias: dict = {}
        calls = 0

    for name, method in methods(Meta).items():
        setattr(Meta, name, method)

    class E(enum.Enum, metaclass=Meta):
        A = 1
        B = 2

    Meta.alias, Meta.calls = {}, 0
    return E, Meta


def counted(meta, result):
    meta.calls += 1
    return result


_M = enum.EnumMeta
OF_META = {
    "getitem": (lambda m: {"__getitem__": lambda c, k: counted(m, _M.__getitem__(c, m.alias.get(k, k)))},
                lambda e: e["A"].value),
    "len": (lambda m: {"__len__": lambda c: counted(m, len(m.alias) + _M.__len__(c))}, lambda e: len(e)),
    "contains": (lambda m: {"__contains__": lambda c, v: counted(m, v in m.alias)}, lambda e: 10 if "q" in e else 1),
    "call": (lambda m: {"__call__": lambda c, v, *a, **k: counted(m, _M.__call__(c, len(m.alias) % 2 + 1, *a, **k))},
             lambda e: e(1).value),
    "iter": (lambda m: {"__iter__": lambda c: counted(m, iter([c.A] * (1 + len(m.alias))))},
             lambda e: sum(member.value for member in e)),
    "iter_of_enums": (lambda m: {"__iter__": lambda c: counted(m, iter(list(_M.__iter__(c))[:1 + len(m.alias)]))},
                      lambda e: sum(member.value for member in e)),
    "method": (lambda m: {"names": lambda c: counted(m, len(c.alias))}, lambda e: e.names()),
    "property": (lambda m: {"names": property(lambda c: counted(m, len(c.alias)))}, lambda e: e.names),
    "bool": (lambda m: {"__bool__": lambda c: counted(m, len(m.alias) > 1)}, lambda e: 5 if e else 0),
    "str": (lambda m: {"__str__": lambda c: counted(m, "a" * len(m.alias))}, lambda e: len(str(e))),
    "instance": (lambda m: {"__instancecheck__": lambda c, o: counted(m, len(m.alias) > 1)},
                 lambda e: 5 if isinstance(3, e) else 0),
}


@pytest.mark.parametrize("name", OF_META)
def test_a_special_method_of_a_metaclass_is_evaluated(name):
    dynamo_lite.reset()
    methods, call = OF_META[name]

    def outcomes(compiler):
        cls, meta = of_metaclass(methods)
        meta.calls = 0
        program, found = compiler(lambda x: x + call(cls)), []
        for key, value in (("", ""), ("A", "B"), ("q", 1), ("q", 1)):
            if key:
                meta.alias[key] = value
            found.append((program(torch.zeros(1)).item(), meta.calls))
        return found

    assert outcomes(functools.partial(dynamo_lite.compile, backend="eager")) == outcomes(lambda f: f)
