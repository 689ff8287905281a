"""Special methods that are None, which raises as calling None does, and results that special methods must not give."""
from __future__ import annotations

import math
import operator
import types
import typing

import pytest
import torch

import dynamo_lite
from dynamo_lite import log

SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^",
}


class Other:
    """Answers where the other operand does not."""

    def __radd__(self, other):
        return "asked"

    __rmod__ = __rxor__ = __rmul__ = __eq__ = __gt__ = __radd__
    __hash__ = None  # type: ignore[assignment]


def ask(text, **names):
    """A function of x in one expression or statement, whose value is in `result`."""
    space = {"operator": operator, "math": math, "other": Other(), **names}
    exec(f"def asked(x):\n {text if ' = ' in text else f'result = {text}'}\n return result", space)
    return space["asked"]


def check(make, asked, one_graph=True):
    """Eager's result, or its exception with its text, at two calls; in one graph without a recompile."""
    def program(x, make):
        y = x + 1
        try:
            return y * 2, asked(make())
        except Exception as error:
            return y * 2, type(error).__name__, str(error)

    want = program(torch.ones(2), make)
    dynamo_lite.reset()
    log.reset_counters()
    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=one_graph)
    for _ in range(2):
        got = compiled(torch.ones(2), make)
        assert torch.equal(got[0], want[0])
        assert got[1:] == want[1:] and list(map(type, got)) == list(map(type, want))
    if one_graph:
        assert log.counters().get("graphs", 0) == 1 and not log.counters().get("recompiles", 0)


OF_NONE = {
    **{f"__{name}__": f"x {symbol} other" for name, symbol in SYMBOLS.items()},
    **{f"__r{name}__": f"1 {symbol} x" for name, symbol in SYMBOLS.items()},
    "__lt__": "x < other", "__le__": "x <= 1", "__eq__": "x == 1", "__ne__": "x != 1", "__gt__": "1 < x",
    "__len__": "len(x)", "__iter__": "list(x)", "__contains__": "1 in x", "__getitem__": "x[0]", "__call__": "x()",
    "__index__": "[1, 2][x]", "__neg__": "-x", "__invert__": "~x", "__abs__": "abs(x)", "__round__": "round(x)",
    "__getattr__": "x.absent", "__enter__": "operator.call(enter, x)", "__exit__": "operator.call(enter, x)",
    "__reversed__": "reversed(x)", "__str__": "str(x)", "__repr__": "repr(x)", "__format__": "format(x)",
    "__bool__": "bool(x)", "__init__": "type(x)()", "__hash__": "{x: 1}",
    "__length_hint__": "operator.length_hint(x, 3)",
}


def enter(x):
    with x:
        return 5


@pytest.mark.parametrize("name", OF_NONE)
@pytest.mark.parametrize("base", [object, list], ids=["object", "list"])
def test_of_none(name, base):
    space = {name: None, "__hash__": object.__hash__} | {name: None}
    space.update({"__enter__": {"__exit__": lambda *_: None}, "__exit__": {"__enter__": lambda self: 1}}.get(name, {}))
    made = type("Made", (base,), space)
    if name == "__init__":
        check(lambda: made, ask("x()"))
    elif base is list and name in ("__ne__", "__index__", "__hash__", "__iter__"):
        check(made, ask(OF_NONE[name], enter=enter), one_graph=False)
    else:
        check(made, ask(OF_NONE[name], enter=enter))


@pytest.mark.parametrize("name", SYMBOLS)
def test_in_place_of_none(name):
    made = type("Made", (), {f"__i{name}__": None, f"__{name}__": lambda self, other: "plain"})
    check(made, lambda x: getattr(operator, {"and": "iand", "or": "ior"}.get(name, f"i{name}"))(x, 1))
    check(made, ask(f"result = x; result {SYMBOLS[name]}= 1"))


def test_callable_though_it_is_none():
    check(type("Made", (), {"__call__": None}), ask("callable(x)"))


def test_iteration_by_items_that_are_none():
    check(type("Made", (), {"__getitem__": None}), ask("list(x)"))
    check(type("Made", (), {"__getitem__": None}), ask("1 in x"))
    check(type("Made", (), {"__iter__": None}), ask("1 in x"))
    check(type("Made", (), {"__iter__": None}), ask("[*x]"))
    check(type("Made", (), {}), ask("1 in x"))
    check(type("Made", (), {"__getitem__": lambda self, i: i}), ask("reversed(x)"))


def test_metaclasses():
    meta = type("Meta", (type,), {"__call__": None, "__instancecheck__": None})
    made = meta("Made", (), {})
    check(lambda: made, ask("x()"))
    check(lambda: made, ask("isinstance(1, x)"))


# ---------------------------------------------------------------- results
class Whole(int):
    pass


class Words(str):
    pass


GIVEN = {"int": 3, "bool": True, "float": 2.5, "str": "7", "None": None, "complex": 2j, "Words": Words("7")}
OF_RESULTS = {
    "__int__": ["int(x)"], "__float__": ["float(x)", "complex(x)", "math.floor(x)"], "__complex__": ["complex(x)"],
    "__index__": ["operator.index(x)", "int(x)", "float(x)", "complex(x)", "range(x)", "[1, 2, 3, 4][x]", "[0] * x",
                  "x * 'ab'", "(1,).__mul__(x)", "[1].__imul__(x)", "result = [1]; result *= x"],
    "__bool__": ["bool(x)", "not x", "1 if x else 2"], "__len__": ["len(x)", "bool(x)", "operator.length_hint(x, 4)"],
    "__length_hint__": ["operator.length_hint(x)"], "__format__": ["format(x)", "f'{x:4}'"],
    "__str__": ["str(x)", "f'{x}'", "format(x, '4')"], "__repr__": ["repr(x)", "str(x)", "f'{x!r}'", "f'{x}'"],
}
WARNS = {("__int__", "bool"), ("__index__", "bool")}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", OF_RESULTS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_results(name, given):
    result = GIVEN[given]
    made = type("Made", (), {name: lambda self, *_: result})
    for text in OF_RESULTS[name]:
        check(made, ask(text), one_graph=(name, given) not in WARNS and given != "Words")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_subclass_is_converted():
    for name, text in (("__int__", "int(x)"), ("__index__", "operator.index(x)"), ("__index__", "float(x)")):
        check(type("Made", (), {name: lambda self: Whole(4)}), ask(text), one_graph=False)


def test_of_two_methods_the_first_counts():
    made = type("Made", (), {"__float__": lambda self: 2.5, "__index__": lambda self: 3})
    for text in ("complex(x)", "float(x)", "int(x)"):
        check(made, ask(text))


def test_what_an_integer_holds_comes_before_its_index():
    made = type("Made", (int,), {"__index__": lambda self: 8})
    for text in ("int(x)", "operator.index(x)", "float(x)", "[0] * x", "complex(x)"):
        check(lambda: made(2), ask(text))


def test_a_list_is_repeated_in_place():
    made = type("Made", (), {"__index__": lambda self: 2})
    check(lambda: (made(), [1]), ask("a = b = x[1]; a *= x[0]; result = a is b, a"))
    check(lambda: (made(), [1]), ask("result = x[0]; result *= x[1]"))
    check(lambda: (type("Own", (made,), {"__rmul__": lambda self, o: "own"})(), [1]), ask("x[1] * x[0]"), False)


# ---------------------------------------------------------------- texts of what holds a builtin
class Shown(str):
    def __repr__(self):
        return "repr"


class Said(str):
    def __str__(self):
        return "str"


class Numbered(int):
    def __repr__(self):
        return "repr"

    def __radd__(self, other):
        return NotImplemented

    def __lt__(self, other):
        return NotImplemented


@pytest.mark.parametrize("text", ["'%r' % x[0]", "'%s' % x[1]", "'%s' % (x[1],)"])
def test_a_text_formats_the_object_itself(text):
    check(lambda: (Shown("a"), Said("b")), ask(text), one_graph=False)


@pytest.mark.parametrize("text", ["f'{x}'", "format(x)", "f'{x:4}'", "str(x)", "1 + x", "x < 4", "4 > x", "x + 1"])
def test_a_number_with_methods_of_its_own(text):
    check(lambda: Numbered(3), ask(text))


@pytest.mark.parametrize("value", [[1], (1,), {}, {1}, None, types.SimpleNamespace()], ids=repr)
def test_what_no_format_is_for(value):
    check(lambda: 0, lambda x: format(value, "5"), one_graph=not isinstance(value, (types.SimpleNamespace, set)))


# ---------------------------------------------------------------- cells
def cell(*contents):
    if contents:
        value, = contents
    return (lambda: value).__closure__[0]


@pytest.mark.parametrize("a", [(), (1,), (2,), ([1],), ("a",)], ids=repr)
@pytest.mark.parametrize("b", [(), (1,), ([1],)], ids=repr)
def test_cells_compare_by_their_contents(a, b):
    for symbol in ("<", "<=", "==", "!=", ">", ">="):
        check(lambda: (cell(*a), cell(*b)), ask(f"x[0] {symbol} x[1]"))


# ---------------------------------------------------------------- classes that typing checks
@typing.runtime_checkable
class Protocol(typing.Protocol):
    def method(self): ...


class Own:
    pass


def with_method():
    made = Own()
    made.method = lambda: 1
    return made


@pytest.mark.parametrize("kind", [typing.Any, typing.ClassVar, typing.Protocol, list[int], int | list[int], Protocol,
                                  typing.SupportsInt, typing.Sequence, typing.Union[int, str]], ids=repr)
def test_checks_of_typing(kind):
    for value in (42, None, int):
        check(lambda: value, lambda value: isinstance(value, kind))
    for made in (Own, with_method, lambda: [], lambda: (1,)):
        check(made, lambda value: isinstance(value, kind), one_graph=False)


# ---------------------------------------------------------------- texts of subclasses of sets
class OwnSet(set):
    def __repr__(self):
        return "*" * len(set.__repr__(self))


class OwnFrozen(frozenset):
    def __repr__(self):
        return f"<{super().__repr__()}>"


@pytest.mark.parametrize("cls", [OwnSet, OwnFrozen, type("PlainSet", (set,), {}), type("Plain", (frozenset,), {})])
def test_the_text_of_a_set_names_its_class(cls):
    for elements in ((), (1,)):
        for text in (repr, str, cls.__base__.__repr__, lambda made: f"{made}", lambda made: [made].__repr__()):
            check(lambda: cls(elements), text, one_graph=False)
