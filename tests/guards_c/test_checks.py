"""Steps that check a value."""
import collections
import enum
import types

import pytest
import torch
from guard_programs import Plain, check, holds, program

from dynamo_lite import _guards as G


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
    for empty in ([], (), {}, set(), collections.deque(), collections.OrderedDict()):
        assert check(empty, "len", 0)
    assert not check(5, "len", 0)


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


def test_sets_of_many_and_of_equal_constants():
    nan = float("nan")
    many = [f"{i:05}" for i in range(20_000)]
    held = {*many, 1, 2.5, nan, (nan, "a"), complex(0, nan), None, ..., -0.0, (1, (2, True))}
    other_nan = float("nan")
    same = {
        (1, (2, True)), -0.0, ..., None, complex(0, other_nan), (other_nan, "a"), other_nan, 2.5, 1, *reversed(many),
    }
    assert check(held, "set_items", frozenset(same)) and check(frozenset(same), "set_items", frozenset(held))
    for given, other in (
        (1, True), (1, 1.0), (2.5, 2.25), (-0.0, 0.0), ((nan, "a"), (nan, "b")), ("00007", "7"), (None, False),
        ((1, (2, True)), (1, (2, 1))),
    ):
        changed = set(held)
        changed.remove(given)
        changed.add(other)
        assert not check(changed, "set_items", frozenset(held)), (given, other)
    copy = frozenset(held)
    assert check(held, "set_items", copy)  # the very same objects
    last = list(held)[-1]
    held.remove(last)
    held.add("another")
    assert not check(held, "set_items", copy)
    assert not check({nan, 1}, "set_items", frozenset({1, 2})) and not check({1, 2}, "set_items", frozenset({nan, 1}))


def test_checking_a_set_runs_no_code_of_its_members_classes():
    class Member:
        def __hash__(self):
            calls.append("hash")
            return hash(1)

        def __eq__(self, other):
            calls.append("eq")
            return True

    calls = []
    held = {Member(), 2}
    calls.clear()
    assert not check(held, "set_items", frozenset({1, 2}))
    assert calls == []


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
    for wrong in (2**63, True, 1.0):
        assert not check(wrong, "int_range", -(2**63), 2**63 - 1)
    assert check(2**63 - 1, "int_range", 0, 2**63 - 1)


def test_calls():
    assert holds(("callable_eq", torch.get_default_dtype, (), torch.float32))
    assert not holds(("callable_eq", torch.get_default_dtype, (), torch.float64))
    with pytest.raises(ZeroDivisionError):
        holds(("callable_eq", lambda: 1 / 0, (), 0))


def test_class_version():
    class Base:
        def f(self):
            pass

    class Derived(Base):
        pass

    old = Base.f
    made = program(("load_local", 0, 0), ("class_version", 0, [("f", old), ("g", G.MISSING)]))

    def holds_of(cls):
        results = {made.check((cls,), None, {}, {})[0] for _ in range(3)}
        assert len(results) == 1
        return results.pop()

    assert holds_of(Derived) and holds_of(Base) and not holds_of(int)
    Base.f = lambda self: 1
    assert not holds_of(Derived)
    Base.f = old
    assert holds_of(Derived)
    Derived.g = 1
    assert not holds_of(Derived) and holds_of(Base)
    del Derived.g
    Derived.h = 1
    assert holds_of(Derived)
    Derived.__bases__ = (types.new_class("Other"),)
    assert not holds_of(Derived)
    assert not check(5, "class_version", [("f", old)])


def test_a_class_without_version_tags_left():
    class Changing:
        f = 1

    made = program(("load_local", 0, 0), ("class_version", 0, [("f", 1)]))
    for i in range(1200):  # CPython 3.13 gives a class a thousand tags
        Changing.other = i
        assert made.check((Changing,), None, {}, {})[0]
    Changing.f = 2
    assert not made.check((Changing,), None, {}, {})[0]
    Changing.f = 1
    assert made.check((Changing,), None, {}, {})[0]
