"""The guard program's interpreter: every step, what it refuses, and that it leaks nothing."""

import collections
import contextlib
import enum
import gc
import sys
import threading
import types
import weakref

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dynamo_lite import _guards as G

G.init_torch(torch)


def program(*steps, inputs=0):
    registers = [s[1] for s in steps if s[0].startswith("load_")]
    return G.GuardProgram(steps, inputs, max(registers, default=-1) + 1)


def holds(*steps, args=(), closure=None, globals=None, builtins=None):
    return program(*steps).check(args, closure, globals or {}, builtins or {})[0]


def check(value, op, *operands):
    """Whether one check holds for a value."""
    return holds(("load_local", 0, 0), (op, 0, *operands), args=(value,))


def loaded(value, *step, **frame):
    """What one load from a value gives; KeyError when it does not hold."""
    p = program(("load_local", 0, 0), (step[0], 1, *step[1:]), ("collect", 1, 0), inputs=1)
    ok, result = p.check((value,), frame.get("closure"), frame.get("globals", {}), frame.get("builtins", {}))
    if not ok:
        assert result == 1
        raise KeyError(step)
    return result[0]


class Slotted:
    __slots__ = ("a", "b")


class Plain:
    @property
    def fails(self):
        raise ZeroDivisionError

    @property
    def lacks(self):
        raise AttributeError


def test_every_step_is_documented_and_tested():
    text = open(__file__).read()
    stub = open(G.__file__.rsplit("/", 1)[0] + "/_guards.pyi").read()
    for op in G.OPS:
        assert f'"{op}"' in text, op
        assert f'("{op}"' in stub, op


# ---------------------------------------------------------------- loads
def test_loads_from_the_frame():
    cell, empty = types.CellType(5), types.CellType()
    p = program(
        ("load_local", 0, 1),
        ("load_closure", 1, 0),
        ("load_cell_obj", 2, 0),
        ("load_global", 3, "x"),
        ("load_builtin", 4, "len"),
        ("load_globals_dict", 5),
        ("load_const", 6, [1]),
        *(("collect", i, 6 - i) for i in range(7)),
        inputs=7,
    )
    g = {"x": 7}
    ok, inputs = p.check(("a", "b"), (cell, empty), g, {"len": len})
    assert ok and inputs == ([1], g, len, 7, cell, 5, "b")
    assert inputs[1] is g and inputs[4] is cell
    assert p.check(("a",), (cell,), g, {"len": len}) == (False, 0)
    assert p.check(("a", "b"), None, g, {"len": len}) == (False, 1)
    assert p.check(("a", "b"), (empty,), g, {"len": len}) == (False, 1)
    assert p.check(("a", "b"), (cell,), {}, {"len": len}) == (False, 3)
    assert p.check(("a", "b"), (cell,), g, {}) == (False, 4)
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
    assert loaded(f, "load_type", 0) is types.FunctionType
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


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict])
def test_load_dict_key(cls):
    d = cls([("a", 1), ("b", 2), ("c", 3)])
    if cls is not dict:
        d.move_to_end("a")
    assert [loaded(d, "load_dict_key", 0, i) for i in range(3)] == list(d)
    for wrong in (3, -1):
        with pytest.raises(KeyError):
            loaded(d, "load_dict_key", 0, wrong)


# ---------------------------------------------------------------- checks
def test_identity_and_types():
    o = Plain()
    assert check(o, "type_is", Plain) and not check(o, "type_is", object) and not check(True, "type_is", int)
    assert check(o, "is", o) and not check(Plain(), "is", o)
    assert check(Plain(), "is_not", o) and not check(o, "is_not", o)

    class Lies:
        __class__ = int

    assert not check(Lies(), "type_is", int)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


NAN = float("nan")
CONSTANTS = [
    0,
    1,
    True,
    False,
    None,
    ...,
    1.0,
    0.0,
    -0.0,
    float("inf"),
    NAN,
    1j,
    complex(0, -0.0),
    complex(NAN, 0),
    "a",
    "b",
    b"a",
    10**30,
    -(10**30),
    (),
    (1,),
    (1.0,),
    (True,),
    ((1,),),
    frozenset(),
    frozenset({1}),
    frozenset({True}),
    frozenset({(1, "a")}),
    slice(1),
    slice(1.0),
    range(3),
    range(4),
    torch.float32,
    torch.float64,
    torch.Size([2, 3]),
    (2, 3),
    torch.device("cpu"),
    torch.device("meta"),
    Color.RED,
    Color.BLUE,
    NotImplemented,
]


def same(a, b):
    """The definition: one type, one value, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    return a == b


def test_const():
    for a in CONSTANTS:
        for b in CONSTANTS:
            assert check(a, "const", b) == same(a, b) == G.const_equal(a, b), (a, b)
    assert check(float("nan"), "const", NAN) and check("".join(["lo", "ng"]), "const", "long")
    assert check((10**30, ("x" * 3,)), "const", (10**30, ("xxx",)))

    class Breaks:
        def __eq__(self, other):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check(Breaks(), "const", Breaks())


def test_lengths():
    class Long(list):
        def __len__(self):
            return 99

    for value in ([1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, collections.deque([1, 2]), "ab", range(2), Long([1, 2])):
        assert check(value, "len", 2) and not check(value, "len", 3)
        assert check(value, "bool_len", True) and not check(value, "bool_len", False)
    for empty in ([], (), {}, set(), collections.deque(), collections.OrderedDict()):
        assert check(empty, "len", 0) and check(empty, "bool_len", False)
    assert not check(5, "len", 0) and not check(5, "bool_len", False)


def test_dict_keys():
    for d in (
        {"a": 1, 2: 2},
        collections.OrderedDict([("a", 1), (2, 2)]),
        collections.defaultdict(int, {"a": 1, 2: 2}),
    ):
        assert check(d, "dict_keys", ("a", 2))
        for wrong in (("a",), (2, "a"), ("a", 2, 3), ("a", 2.0), ("a", "b"), ()):
            assert not check(d, "dict_keys", wrong)
    ordered = collections.OrderedDict(a=1, b=2)
    p = program(("load_local", 0, 0), ("dict_keys", 0, ("a", "b")))
    assert p.check((ordered,), None, {}, {})[0]
    ordered.move_to_end("a")
    assert not p.check((ordered,), None, {}, {})[0]
    assert not check([], "dict_keys", ())


def test_dict_keys_sees_every_change():
    """The check remembers the dict's version; each way to change a dict must show."""
    p = program(("load_local", 0, 0), ("dict_keys", 0, ("a", "b")))

    def ok(d):
        first = p.check((d,), None, {}, {})[0]
        assert first == p.check((d,), None, {}, {})[0] == (list(d) == ["a", "b"])
        return first

    changes = [
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.update(c=1),
        lambda d: d.__delitem__("a"),
        lambda d: d.setdefault("c", 1),
        lambda d: d.__ior__({"c": 1}),
        lambda d: d.__setitem__("c", 3),
        lambda d: d.update(a=d.pop("a")),
    ]
    for change in changes:
        d = {"a": 1, "b": 2}
        assert ok(d)
        change(d)
        assert not ok(d)
        d.clear()
        d.update(a=1, b=2)
        assert ok(d) and ok(d.copy())
    o = Plain()
    o.a, o.b = 1, 2
    for _ in range(3):
        assert ok(o.__dict__)
        o.a = 5
        assert ok(o.__dict__)
        o.c = 5
        assert not ok(o.__dict__)
        del o.c
        assert ok(o.__dict__)


def test_dict_membership_and_sets():
    assert check({"a": 1}, "dict_has", "a") and not check({"a": 1}, "dict_has", "b") and not check([], "dict_has", "b")
    assert (
        check({"a": 1}, "dict_lacks", "b")
        and not check({"a": 1}, "dict_lacks", "a")
        and not check([], "dict_lacks", "b")
    )
    with pytest.raises(TypeError):
        check({"a": 1}, "dict_has", [])
    for s in ({1, 2}, frozenset({1, 2})):
        assert check(s, "set_items", frozenset({1, 2})) and not check(s, "set_items", frozenset({1, 3}))
        assert not check(s, "set_items", frozenset({1.0, 2})) and not check(s, "set_items", frozenset())
    assert not check([1], "set_items", frozenset({1}))


def test_code_is():
    def make(n):
        return lambda: n

    assert check(make(1), "code_is", make(2).__code__) and not check(make, "code_is", make(2).__code__)
    assert not check(5, "code_is", make.__code__)


def test_no_hooks():
    names = ("_forward_hooks", "_forward_pre_hooks", "_nothing")
    m = torch.nn.Linear(1, 1)
    assert check(m, "no_hooks", names)
    handle = m.register_forward_hook(lambda *a: None)
    assert not check(m, "no_hooks", names)
    handle.remove()
    assert check(m, "no_hooks", names)
    m._nothing = None
    assert check(m, "no_hooks", names)
    m._nothing = 3
    assert not check(m, "no_hooks", names)
    assert not check(5, "no_hooks", names)


def test_relations():
    a, b = [], []
    two = (("load_local", 0, 0), ("load_local", 1, 1))
    assert holds(*two, ("tensor_same", 0, 1), args=(a, a)) and not holds(*two, ("tensor_same", 0, 1), args=(a, b))
    for n in (2, 5, 20, 100):
        loads = [("load_local", i, i) for i in range(n)]
        values = [Plain() for _ in range(n)]
        assert holds(*loads, ("not_same", list(range(n))), args=tuple(values))
        values[-1] = values[0]
        assert not holds(*loads, ("not_same", list(range(n))), args=tuple(values))
        assert holds(*loads, ("not_same", list(range(n - 1))), args=tuple(values))
    assert holds(("not_same", []))


def test_memory():
    base = torch.zeros(40)
    parts = [base[i * 4 : i * 4 + 4] for i in range(10)]

    def disjoint(*tensors, changed=1):
        loads = [("load_local", i, i) for i in range(len(tensors))]
        return holds(*loads, ("disjoint", list(range(len(tensors))), changed), args=tensors)

    assert disjoint(*parts, changed=10) and disjoint(*reversed(parts), changed=3)
    assert not disjoint(base, parts[0]) and not disjoint(parts[9], base) and not disjoint(base, base)
    assert disjoint(parts[0], base[4:], base[8:]) and not disjoint(parts[0], base[4:], base[8:], changed=2)
    assert disjoint(base, base, changed=0) and disjoint(base, base[:0]) and disjoint(base[:0], base)
    many = [torch.zeros(3) for _ in range(100)]
    assert disjoint(*many, changed=50) and not disjoint(*many, many[7][1:], changed=50)
    assert disjoint(*many, many[70][1:], changed=50) and not disjoint(many[3], many[3].t())
    columns = base.view(10, 4)
    assert not disjoint(columns[:, 0], columns[:, 1])  # they interleave
    assert not disjoint(torch.zeros(2), torch.zeros(2, device="meta"))
    two = (("load_local", 0, 0), ("load_local", 1, 1))
    assert holds(*two, ("memory_offset", 0, 1, 16), args=(base, parts[1]))
    assert not holds(*two, ("memory_offset", 0, 1, 16), args=(base, parts[2]))
    assert holds(*two, ("memory_offset", 0, 1, -16), args=(parts[1], base))


def test_integers():
    assert check(types.CellType(), "cell_empty") and not check(types.CellType(None), "cell_empty")
    assert not check(5, "cell_empty")
    assert all(check(i, "int_range", -2, 5) == (-2 <= i <= 5) for i in range(-4, 8))
    assert all(check(i, "int_div", 4, 3) == (i % 4 == 3) for i in range(-9, 9))
    for wrong in (2**63, True, 1.0):
        assert not check(wrong, "int_range", -(2**63), 2**63 - 1) and not check(wrong, "int_div", 1, 0)
    assert check(2**63 - 1, "int_range", 0, 2**63 - 1)
    assert check(NAN, "float_is_nan") and not check(1.0, "float_is_nan") and not check(1, "float_is_nan")


def test_attributes_exist():
    o = Plain()
    o.x = 1
    assert check(o, "hasattr", "x") and not check(o, "hasattr", "y") and not check(o, "hasattr", "lacks")
    assert check(o, "lacks_attr", "y") and not check(o, "lacks_attr", "x")
    with pytest.raises(ZeroDivisionError):
        check(o, "hasattr", "fails")


def test_calls():
    assert holds(("callable_true", len, ([1],))) and not holds(("callable_true", len, ([],)))
    assert holds(("callable_eq", torch.get_default_dtype, (), torch.float32))
    assert not holds(("callable_eq", torch.get_default_dtype, (), torch.float64))
    with pytest.raises(ZeroDivisionError):
        holds(("callable_true", lambda: 1 / 0, ()))


def test_type_version():
    class Base:
        def f(self):
            pass

    class Derived(Base):
        pass

    old = Base.f
    p = program(("load_local", 0, 0), ("type_version", 0, Derived, [("f", old), ("g", G.MISSING)]))
    q = program(("load_local", 0, 0), ("load_type", 1, 0), ("class_version", 1, [("f", old), ("g", G.MISSING)]))
    o = Derived()

    def both():
        results = {r.check((o,), None, {}, {})[0] for r in (p, q) for _ in range(3)}
        assert len(results) == 1
        return results.pop()

    assert both()
    assert not p.check((Base(),), None, {}, {})[0]
    assert q.check((Base(),), None, {}, {})[0] and not q.check((5,), None, {}, {})[0]
    Base.f = lambda self: 1
    assert not both()
    Base.f = old
    assert both()
    Derived.g = 1
    assert not both()
    del Derived.g
    Derived.h = 1
    assert both()
    Derived.__bases__ = (types.new_class("Other"),)
    assert not both()
    assert not check(5, "class_version", [("f", old)])


# ---------------------------------------------------------------- tensors
def tensor_step(t, requires_grad=None, flags=0, shape=None, strides=None):
    spec = list(G.tensor_spec(t))
    return ("tensor", 0, type(t), *spec[:4], shape or spec[4], strides or spec[5], requires_grad, flags)


def fits(step, t):
    return holds(("load_local", 0, 0), step, args=(t,))


def some_tensors():
    c = torch.randn(2, 3, dtype=torch.complex64)
    with torch.inference_mode():
        inference = torch.randn(2, 3)
    return {
        "plain": torch.randn(2, 3),
        "double": torch.randn(2, 3, dtype=torch.float64),
        "int": torch.ones(2, 3, dtype=torch.int32),
        "uint8": torch.ones(2, 3, dtype=torch.uint8),
        "int8": torch.ones(2, 3, dtype=torch.int8),
        "bool": torch.ones(2, 3, dtype=torch.bool),
        "half": torch.ones(2, 3, dtype=torch.half),
        "bfloat16": torch.ones(2, 3, dtype=torch.bfloat16),
        "fp8": torch.ones(2, 3).to(torch.float8_e4m3fn),
        "fp8b": torch.ones(2, 3).to(torch.float8_e5m2),
        "other shape": torch.randn(3, 2),
        "one dim": torch.randn(6),
        "scalar": torch.tensor(1.0),
        "grad": torch.randn(2, 3, requires_grad=True),
        "transposed": torch.randn(3, 2).t(),
        "expanded": torch.randn(1, 3).expand(2, 3),
        "size one": torch.randn(1, 3),
        "size one, odd stride": torch.empty_strided((1, 3), (100, 1)),
        "empty": torch.empty(0, 3),
        "empty, odd strides": torch.empty_strided((0, 3), (7, 5)),
        "complex": c,
        "conj": c.conj(),
        "neg": c.conj().imag,
        "inference": inference,
        "parameter": torch.nn.Parameter(torch.randn(2, 3)),
        "buffer": torch.nn.Buffer(torch.randn(2, 3)),
    }


def what_matters(t):
    return (type(t), t.dtype, t.device, t.shape, t.stride(), t.requires_grad, t.is_inference(), t.is_conj(), t.is_neg())


def test_tensor_fits_exactly_what_it_describes():
    tensors = some_tensors()
    bits = G.TENSOR_INFERENCE | G.TENSOR_CONJ | G.TENSOR_NEG
    for name, t in tensors.items():
        expected = t.is_inference() * G.TENSOR_INFERENCE | t.is_conj() * G.TENSOR_CONJ | t.is_neg() * G.TENSOR_NEG
        step = tensor_step(t, t.requires_grad, bits | expected << G.TENSOR_EXPECTED_SHIFT)
        for other, u in tensors.items():
            assert fits(step, u) == (what_matters(t) == what_matters(u)), (name, other)
    for other in (
        5,
        None,
        torch.ones(2, 3).to_sparse(),
        torch.empty(2, 3, device="meta"),
        torch.randn(2, 3).to_mkldnn(),
    ):
        assert not fits(tensor_step(tensors["plain"]), other)


def test_tensor_open_dimensions():
    t = torch.randn(4, 5, 6)
    step = tensor_step(t, shape=(None, 5, None), strides=(None, None, 1))
    assert fits(step, t) and fits(step, torch.randn(1, 5, 2)) and not fits(step, torch.randn(4, 4, 6))
    assert not fits(step, torch.randn(4, 6, 5).transpose(1, 2))
    spec = G.tensor_spec(t)
    step = ("tensor", 0, torch.Tensor, *spec[:4], spec[4], None, None, 0)
    assert fits(step, torch.randn(6, 5, 4).permute(2, 1, 0))
    assert fits(tensor_step(t, requires_grad=False), t) and not fits(tensor_step(t, requires_grad=True), t)
    t.requires_grad_()
    assert fits(tensor_step(t, requires_grad=True), t)


def test_tensor_subclasses_and_views_of_other_modes_do_not_fit():
    class Mine(torch.Tensor):
        pass

    t = torch.randn(3)
    assert not fits(tensor_step(t), t.as_subclass(Mine)) and not fits(tensor_step(t), torch.nn.Parameter(t))
    seen = []
    torch.func.vmap(lambda row: seen.append(fits(tensor_step(t), row)) or row)(torch.randn(2, 3))
    assert seen == [False]


def test_tensor_slow():
    sparse = torch.eye(3).to_sparse()
    step = ("tensor_slow", 0, torch.Tensor, sparse.dtype, sparse.device, (3, 3), None, False, sparse.layout)
    assert fits(step, sparse) and not fits(step, torch.eye(3)) and not fits(step, torch.eye(4).to_sparse())
    meta = torch.empty(2, 3, device="meta")
    step = ("tensor_slow", 0, torch.Tensor, meta.dtype, meta.device, (None, 3), (3, 1), None, meta.layout)
    assert fits(step, meta) and fits(step, torch.empty(5, 3, device="meta")) and not fits(step, torch.empty(2, 3))
    assert not fits(step, torch.empty(3, 2, device="meta").t()) and not fits(step, 5)
    assert not fits(("tensor_slow", 0, torch.Tensor, sparse.dtype, None, None, (3, 1), None, None), sparse)


def test_tensor_spec():
    assert G.tensor_spec(torch.empty_strided((1, 3), (100, 1))) == (2, 32, 1, 0, (1, 3), (100, 1))
    with pytest.raises(TypeError):
        G.tensor_spec(5)
    with pytest.raises(RuntimeError):
        G.tensor_spec(torch.empty(1, device="meta"))


# ---------------------------------------------------------------- the thread's state
def test_global_state_tells_apart_what_matters():
    class Function(TorchFunctionMode):
        pass

    class Dispatch(TorchDispatchMode):
        pass

    @contextlib.contextmanager
    def setting(set, value, back):
        set(value)
        try:
            yield
        finally:
            set(back)

    function, another, device = Function(), Function(), torch.device("meta")
    states = {
        "plain": contextlib.nullcontext,
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
        "autocast": lambda: torch.autocast("cpu"),
        "autocast half": lambda: torch.autocast("cpu", dtype=torch.float16),
        "autocast without cache": lambda: torch.autocast("cpu", cache_enabled=False),
        "default dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
        "deterministic": lambda: setting(torch.use_deterministic_algorithms, True, False),
        "function mode": lambda: function,
        "another function mode": lambda: another,
        "device": lambda: device,
        "another device": lambda: torch.device("cpu"),
        "dispatch mode": Dispatch,
        "no torch function": torch._C.DisableTorchFunction,
    }
    programs = {}
    for name, enter in states.items():
        with enter():
            programs[name] = (
                program(("global_state", *G.current_global_state())),
                program(("global_state", G.current_global_state())),
            )
    for name, enter in states.items():
        with enter():
            for other, (p, q) in programs.items():
                ok = p.check((), None, {}, {})[0]
                assert ok == q.check((), None, {}, {})[0] == (name == other), (name, other)
    seen = []
    torch.func.vmap(lambda t: seen.append(programs["plain"][0].check((), None, {}, {})[0]) or t)(torch.ones(2))
    assert seen == [False]
    assert len(G.GLOBAL_STATE_FIELDS) == len(G.current_global_state())


def test_global_state_is_of_the_thread():
    p = program(("global_state", G.current_global_state()))
    seen = []

    def run():
        seen.append(p.check((), None, {}, {})[0])
        with torch.no_grad():
            seen.append(p.check((), None, {}, {})[0])

    thread = threading.Thread(target=run)
    with torch.no_grad():
        thread.start()
        thread.join()
    assert seen == [True, False]


# ---------------------------------------------------------------- making programs
@pytest.mark.parametrize(
    "steps, n_inputs, n_registers, message",
    [
        ([("nonsense", 0)], 0, 1, "unknown operation"),
        ([()], 0, 1, "non-empty tuple"),
        ([["load_local", 0, 0]], 0, 1, "non-empty tuple"),
        ([("load_local", 1, 0)], 0, 1, "out of range"),
        ([("load_local", -1, 0)], 0, 1, "out of range"),
        ([("type_is", 0, int)], 0, 1, "not written before"),
        ([("load_local", 0, 0), ("load_local", 0, 0)], 0, 1, "written twice"),
        ([("load_local", 0)], 0, 1, "number of operands"),
        ([("load_local", 0, 0, 0)], 0, 1, "number of operands"),
        ([("load_local", 0, 0), ("type_is", 0, 5)], 0, 1, "expected a type"),
        ([("load_local", 0, 0), ("collect", 0, 1)], 1, 1, "malformed"),
        ([("load_local", 0, 0), ("collect", 0, 0), ("collect", 0, 0)], 1, 1, "malformed"),
        ([("load_local", 0, 0)], 1, 1, "no step collects input 0"),
        ([("load_local", 0, 0), ("not_same", [1])], 0, 2, "not written before"),
        ([("load_global", 0, 5)], 0, 1, "expected a name"),
        ([("load_local", 0, 0), ("int_div", 0, 0, 0)], 0, 1, "remainder"),
        ([("callable_true", 5, ())], 0, 1, "callable"),
        ([("global_state", 1, 2)], 0, 1, "current_global_state"),
        ([], -1, 0, "not negative"),
    ],
)
def test_malformed_programs_are_refused(steps, n_inputs, n_registers, message):
    with pytest.raises(ValueError, match=message):
        G.GuardProgram(steps, n_inputs, n_registers)


def test_wrong_operand_types():
    for step in [("load_local", "x", 0), ("load_local", 0, "x")]:
        with pytest.raises(TypeError):
            G.GuardProgram([step], 0, 1)
    for step in [("tensor", 0, 5), ("type_version", 0, int, [5])]:
        with pytest.raises(TypeError):
            G.GuardProgram([("load_local", 0, 0), step], 0, 1)
    with pytest.raises(TypeError):
        program().check([], None, {}, {})


def test_attributes():
    steps = [("load_local", 0, 0), ("collect", 0, 0)]
    p = G.GuardProgram(steps, 1, 1)
    assert p.steps == tuple(steps) and p.n_inputs == 1 and p.n_registers == 1 and "2 steps" in repr(p)


def test_many_registers():
    n = 500
    p = program(*(("load_local", i, i) for i in range(n)), *(("collect", i, n - 1 - i) for i in range(n)), inputs=n)
    assert p.check(tuple(range(n)), None, {}, {}) == (True, tuple(reversed(range(n))))
    assert p.check(tuple(range(n - 1)), None, {}, {}) == (False, n - 1)


# ---------------------------------------------------------------- leaks
def all_kinds_of_steps(o, t):
    return [
        ("load_local", 0, 0),
        ("load_instance_dict", 1, 0),
        ("load_dict_item", 2, 1, "x"),
        ("load_const", 3, o),
        ("load_type", 4, 0),
        ("is", 0, o),
        ("dict_keys", 1, ("x", "me")),
        ("set_items", 2, frozenset({o})),
        ("no_hooks", 0, ("none",)),
        ("callable_true", len, ((o,),)),
        ("type_version", 0, type(o), [("x", G.MISSING)]),
        ("class_version", 4, [("x", G.MISSING)]),
        ("not_same", [0, 1]),
        ("load_local", 5, 1),
        ("tensor_slow", 5, type(t), None, None, None, None, None, None),
        ("tensor", 5, type(t), *G.tensor_spec(t), False, 7),
        ("global_state", G.current_global_state()),
        ("callable_eq", type, (o,), type(o)),
        ("collect", 0, 0),
        ("collect", 5, 1),
    ]


def test_programs_in_cycles_are_collected():
    class Local(Plain):
        pass

    o = Local()
    o.x = {o}
    t = torch.ones(2)
    o.me = G.GuardProgram(all_kinds_of_steps(o, t), 2, 6)
    assert o.me.check((o, t), None, {}, {}) == (True, (o, t))
    ref, class_ref = weakref.ref(o), weakref.ref(Local)
    del o, Local
    gc.collect()
    assert ref() is None and class_ref() is None


def test_checks_leave_reference_counts_as_they_were():
    class Local(Plain):
        pass

    o = Local()
    o.x, o.me = {o}, None
    t = torch.ones(2)
    p = G.GuardProgram(all_kinds_of_steps(o, t), 2, 6)
    watched = [o, t, Local, o.x, o.__dict__, p]

    def run():
        for _ in range(50):
            assert p.check((o, t), None, {}, {})[0]
            assert not p.check((t, o), None, {}, {})[0]
            assert not p.check((o, o), None, {}, {})[0]
            assert not p.check((), None, {}, {})[0]

    run()
    before = [sys.getrefcount(w) for w in watched]
    run()
    assert [sys.getrefcount(w) for w in watched] == before


def test_malformed_programs_do_not_leak():
    o = Plain()
    steps = [("load_const", 0, o)]
    count = sys.getrefcount(o)
    for i in range(100):
        with pytest.raises((ValueError, TypeError)):
            G.GuardProgram([*steps, ("tensor", 0, torch.Tensor, o)], 0, 2)
        with pytest.raises(ValueError):
            G.GuardProgram([*steps, ("nonsense", o)], 0, 2)
    del i
    assert sys.getrefcount(o) == count
