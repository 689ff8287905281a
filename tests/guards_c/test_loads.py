"""Steps that load: what each gives, and what it refuses."""
import collections
import math
import operator
import types
import weakref

import pytest
import torch
from guard_programs import Plain, Slotted, loaded, program

from dynamo_lite._guards import GuardProgram


def test_loads_from_the_frame():
    cell, empty = types.CellType(5), types.CellType()
    p = program(
        ("load_local", 0, 1),
        ("load_cell_obj", 1, 0),
        ("load_cell_contents", 2, 1),
        ("load_globals_dict", 3),
        ("load_dict_item", 4, 3, "x"),
        ("load_builtin", 5, "len"),
        ("load_const", 6, [1]),
        *(("collect", i, 6 - i) for i in range(7)),
        inputs=7,
    )
    g = {"x": 7}
    ok, inputs = p.check(("a", "b"), (cell, empty), g, {"len": len})
    assert ok and inputs == ([1], len, 7, g, 5, cell, "b")
    assert inputs[3] is g and inputs[5] is cell
    assert p.check(("a",), (cell,), g, {"len": len}) == (False, 0)
    assert p.check(("a", "b"), None, g, {"len": len}) == (False, 1)
    assert p.check(("a", "b"), (empty,), g, {"len": len}) == (False, 2)
    assert p.check(("a", "b"), (cell,), {}, {"len": len}) == (False, 4)
    assert p.check(("a", "b"), (cell,), g, {}) == (False, 5)
    assert (p.evaluations, p.failures) == (6, 5)


def test_load_attr_and_what_it_raises():
    o = Plain()
    o.x = 1
    assert loaded(o, "load_attr", 0, "x") == 1
    for name in ("nothing", "lacks"):
        with pytest.raises(KeyError):
            loaded(o, "load_attr", 0, name)
    with pytest.raises(ZeroDivisionError):
        loaded(o, "load_attr", 0, "fails")


def test_load_instance_dict():
    o = Plain()
    assert loaded(o, "load_instance_dict", 0) is o.__dict__
    o.x = 1
    assert loaded(o, "load_instance_dict", 0) == {"x": 1}
    m = torch.nn.Linear(1, 1)
    assert loaded(m, "load_instance_dict", 0) is m.__dict__
    with pytest.raises(KeyError):
        loaded(Slotted(), "load_instance_dict", 0)

    class Lies:
        @property
        def __dict__(self):
            raise ZeroDivisionError

    assert loaded(Lies(), "load_instance_dict", 0) == {}


def test_load_slot():
    s = Slotted()
    s.a = 3
    assert loaded(s, "load_slot", 0, Slotted.__dict__["a"]) == 3
    for wrong in (s, 5):
        with pytest.raises(KeyError):
            loaded(wrong, "load_slot", 0, Slotted.__dict__["b"])
    with pytest.raises(ValueError, match="descriptor"):
        loaded(s, "load_slot", 0, property())


def test_load_items():
    class Loud(dict):
        def __getitem__(self, key):
            raise ZeroDivisionError

    class LoudList(list):
        __getitem__ = Loud.__getitem__

    class LoudTuple(tuple):
        __getitem__ = Loud.__getitem__

    assert loaded({"a": 1, (1, 2): 2}, "load_dict_item", 0, (1, 2)) == 2
    assert loaded(Loud(a=1), "load_dict_item", 0, "a") == 1
    assert loaded(LoudList([1, 2]), "load_list_item", 0, 1) == 2
    assert loaded(LoudTuple([1, 2]), "load_tuple_item", 0, 0) == 1
    assert loaded(collections.deque([4, 5]), "load_item", 0, 1) == 5
    for value, op, key in [
        ({}, "load_dict_item", "a"),
        ([1], "load_dict_item", 0),
        ([1], "load_list_item", 1),
        ((1,), "load_list_item", 0),
        ([1], "load_list_item", -1),
        ((1,), "load_tuple_item", 2),
        ([], "load_tuple_item", 0),
        ([], "load_item", 0),
        ({}, "load_item", "a"),
    ]:
        with pytest.raises(KeyError):
            loaded(value, op, 0, key)
    with pytest.raises(ZeroDivisionError):
        loaded(Loud(), "load_item", 0, "a")


def test_load_call():
    def fails(value):
        raise value

    assert loaded("abc", "load_call", 0, len) == 3
    assert loaded([1, 2], "load_call", 0, lambda value: value) == [1, 2]
    with pytest.raises(KeyError):
        loaded(KeyError("no such thing"), "load_call", 0, fails)
    with pytest.raises(ZeroDivisionError):
        loaded(ZeroDivisionError(), "load_call", 0, fails)


def test_load_formula():
    def made(function, registers, inputs=3):
        loads = [("load_local", i, i) for i in range(inputs)]
        return GuardProgram([*loads, ("load_formula", 5, function, registers), ("collect", 5, 0)], 1, 6)

    def value(function, registers, *args):
        held, found = made(function, registers, len(args)).check(args, None, {}, {})
        return found[0] if held else None

    assert value(operator.sub, (1, 0), 2.5, 3) == 0.5
    assert value(math.sqrt, (0,), 9) == 3.0
    assert value(lambda *xs: xs, (0, 0, 1, 2), 1, 2, 3) == (1, 1, 2, 3)
    for function, *args in ((operator.truediv, 1, 0), (math.sqrt, -1), (math.exp, 1e9), (int, math.nan)):
        assert value(function, tuple(range(len(args))), *args) is None
    with pytest.raises(TypeError):
        value(operator.sub, (0, 1), "a", 2)
    for registers in ((0, 1, 2, 0, 1), (4,), (-1,), (9,)):
        with pytest.raises(ValueError):
            made(operator.sub, registers)
    with pytest.raises(ValueError):
        made(3, (0,))


def test_loads_of_parts():
    def f(a, b=1, *, c=2):
        return x

    x = 5
    f.mark = 1
    for part in ("__defaults__", "__kwdefaults__", "__closure__", "__code__", "__globals__", "__dict__"):
        assert loaded(f, "load_func_part", 0, part) is getattr(f, part)
    assert loaded(lambda: 1, "load_func_part", 0, "__closure__") is None
    with pytest.raises(KeyError):
        loaded(len, "load_func_part", 0, "__defaults__")
    with pytest.raises(ValueError):
        loaded(f, "load_func_part", 0, "__name__")
    d = {}
    method = types.MethodType(f, d)
    assert loaded(method, "load_method_part", 0, "__self__") is d
    assert loaded(method, "load_method_part", 0, "__func__") is f
    assert loaded(f.__closure__[0], "load_cell_contents", 0) == 5
    assert loaded(Plain, "load_type_attr", 0, "fails") is Plain.__dict__["fails"]
    for value, op in [(types.CellType(), "load_cell_contents"), (f, "load_cell_contents")]:
        with pytest.raises(KeyError):
            loaded(value, op, 0)
    with pytest.raises(KeyError):
        loaded(Plain, "load_type_attr", 0, "nothing")
    with pytest.raises(KeyError):
        loaded(f, "load_method_part", 0, "__self__")


def test_load_weakref():
    o = Plain()
    ref = weakref.ref(o)
    assert loaded(ref, "load_weakref", 0) is o
    del o
    for dead in (ref, 5):
        with pytest.raises(KeyError):
            loaded(dead, "load_weakref", 0)


@pytest.mark.parametrize("deleted", [(), (0,), (3,), (8, 9), (9,), (0, 4, 9), range(9), range(1, 10)])
@pytest.mark.parametrize("made", ["dict", "attributes", "refilled"])
def test_load_dict_entries_where_some_were_deleted(made, deleted):
    """The table has holes then, until it is made anew."""
    class Plain:
        pass

    owner = Plain()
    d = vars(owner) if made == "attributes" else {}
    for i in range(10):
        d[f"k{i}"] = i
    for i in deleted:
        del d[f"k{i}"]
    if made == "refilled":
        d["new"] = 11
    assert [loaded(d, "load_dict_key", 0, i) for i in range(len(d))] == list(d)
    assert [loaded(d, "load_dict_value", 0, i) for i in range(len(d))] == list(d.values())
    with pytest.raises(KeyError):
        loaded(d, "load_dict_value", 0, len(d))


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict])
def test_load_dict_key(cls):
    d = cls([("a", 1), ("b", 2), ("c", 3)])
    if cls is not dict:
        d.move_to_end("a")
    assert [loaded(d, "load_dict_key", 0, i) for i in range(3)] == list(d)
    assert [loaded(d, "load_dict_value", 0, i) for i in range(3)] == list(d.values())
    for load in ("load_dict_key", "load_dict_value"):
        for wrong in (3, -1):
            with pytest.raises(KeyError):
                loaded(d, load, 0, wrong)
        with pytest.raises(KeyError):
            loaded([d], load, 0, 0)
