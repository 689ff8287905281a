"""What decides an attribute lookup or an operator may change between calls: special methods, descriptors, slots, hooks,
metaclasses, torch's own methods. The next call then equals eager, and so does the one after the change is undone."""

from __future__ import annotations

import abc
import collections
import ctypes
import enum
import functools
import operator
import sys
import threading
import types
import weakref

import pytest
import torch
from guard_cases import same
from torch import nn

import dynamo_lite

X = torch.ones(2)
CASES = {}


def case(make):
    """Registers what gives a function, its arguments, and changes, each of which gives what undoes it."""
    assert make.__name__ not in CASES, make.__name__
    CASES[make.__name__] = make
    return make


class Plain:
    pass


class Slots:
    __slots__ = ("a", "b")


class WithHook:
    __slots__ = ("a",)

    def __getattr__(s, n):
        return ("dyn", n)


class CallM(nn.Module):
    def forward(s, x):
        return x * 2


class A1:
    k = 1

    def who(s):
        return "A1"


class A2:
    k = 2

    def who(s):
        return "A2"


class Structure(ctypes.Structure):
    _fields_ = [("i", ctypes.c_int), ("f", ctypes.c_float)]


class WithCode(Exception):
    def __init__(s, a):
        super().__init__(a)
        s.code = a


class CP:
    n = 0

    @functools.cached_property
    def c(s):
        CP.n += 1
        return CP.n


def patch(o, n, v):
    old = o.__dict__.get(n, None)
    had = n in o.__dict__
    setattr(o, n, v)

    def undo():
        if had:
            setattr(o, n, old)
        else:
            delattr(o, n)

    return undo


class Sized:
    def __init__(s):
        s.n = 1

    def __len__(s):
        return 3

    def __bool__(s):
        return True

    def __iter__(s):
        return iter([1, 2])

    def __eq__(s, o):
        return True

    def __hash__(s):
        return 5

    def __getitem__(s, i):
        return i

    def __contains__(s, i):
        return True

    def __call__(s, v):
        return v + 1

    def __add__(s, o):
        return 10

    def __lt__(s, o):
        return True

    def __enter__(s):
        return 1

    def __exit__(s, *a):
        return None

    def __index__(s):
        return 1

    def __repr__(s):
        return "sized"

    def __getattr__(s, n):
        return "ga" + n

    def meth(s):
        return "m"

    @property
    def prop(s):
        return "p"

    attr = 1


def mk_special(name, use, new):
    def f(x, o):
        return use(o), x + 1

    o = Sized()
    return f, (X, o), [lambda: patch(Sized, name, new)]


SP = dict(
    __len__=(lambda o: len(o), lambda s: 7),
    __bool__=(lambda o: bool(o), lambda s: False),
    __iter__=(lambda o: list(o), lambda s: iter([9])),
    __eq__=(lambda o: o == 3, lambda s, o: False),
    __hash__=(lambda o: hash(o), lambda s: 6),
    __getitem__=(lambda o: o[2], lambda s, i: -i),
    __contains__=(lambda o: 2 in o, lambda s, i: False),
    __call__=(lambda o: o(2), lambda s, v: -v),
    __add__=(lambda o: o + 1, lambda s, o: 11),
    __lt__=(lambda o: o < 1, lambda s, o: False),
    __enter__=(lambda o: type(o).__enter__(o), lambda s: 2),
    __index__=(lambda o: [1, 2, 3][o], lambda s: 2),
    __repr__=(lambda o: repr(o), lambda s: "other"),
    __getattr__=(lambda o: o.zz, lambda s, n: "new" + n),
    meth=(lambda o: o.meth(), lambda s: "mm"),
    prop=(lambda o: o.prop, property(lambda s: "pp")),
    attr=(lambda o: o.attr, 5),
    n=(lambda o: o.n, property(lambda s: "data")),
    n_=(lambda o: getattr(o, "n_"), 4),
    __getattribute__=(lambda o: o.n, lambda s, n: "gattr"),
    __setattr__=(lambda o: (setattr(o, "n", o.n), o.n), lambda s, n, v: None),
    __class_getitem__=(lambda o: 1, classmethod(lambda c, i: i)),
    __instancecheck__=(lambda o: isinstance(o, Sized), 3),
    __format__=(lambda o: f"{o}", lambda s, sp: "fmt"),
    __str__=(lambda o: str(o), lambda s: "str"),
    __ne__=(lambda o: o != 3, lambda s, o: "ne"),
    __radd__=(lambda o: 1 + o if hasattr(type(o), "__radd__") else 0, lambda s, o: "radd"),
    __iadd__=(lambda o: (lambda q: operator.iadd(q, 1))(o), lambda s, o: "iadd"),
    __delattr__=(lambda o: (setattr(o, "tmp", 1), delattr(o, "tmp"), hasattr(o, "tmp"), o.tmp)[2:], lambda s, n: None),
)
for k, (u, n) in SP.items():
    CASES["special" + k] = functools.partial(mk_special, k, u, n)


@case
def module_call():
    m = CallM()

    def f(x, m):
        return m(x)

    return f, (X, m), [lambda: patch(nn.Module, "__call__", lambda s, v: v * 100)]


@case
def module_call_before():
    m = CallM()
    u = patch(nn.Module, "__call__", lambda s, v: v * 100)

    def f(x, m):
        return m(x)

    r = f, (X, m), [lambda: (u(), (lambda: None))[1]]
    return r


@case
def module_call_impl():
    m = CallM()

    def f(x, m):
        return m(x)

    return f, (X, m), [lambda: patch(nn.Module, "_call_impl", lambda s, v: v * 100)]


@case
def module_call_impl_inst():
    m = CallM()

    def f(x, m):
        return m(x)

    def c():
        m._call_impl = lambda v: v * 100
        return lambda: m.__dict__.pop("_call_impl")

    return f, (X, m), [c]


@case
def module_getattr():
    m = nn.Linear(2, 2)

    def f(x, m):
        return m.weight * 1

    old = nn.Module.__getattr__
    return (
        f,
        (X, m),
        [lambda: patch(nn.Module, "__getattr__", lambda s, n: old(s, n) * 3 if n == "weight" else old(s, n))],
    )


@case
def module_getattr2():
    m = nn.Linear(2, 2)

    def f(x, m):
        return m(x)

    old = nn.Module.__getattr__
    return (
        f,
        (X, m),
        [lambda: patch(nn.Module, "__getattr__", lambda s, n: old(s, n) * 3 if n == "weight" else old(s, n))],
    )


@case
def module_setattr():
    m = CallM()

    def f(x, m):
        m.z = x
        return m.z * 1

    old = nn.Module.__setattr__
    return f, (X, m), [lambda: patch(nn.Module, "__setattr__", lambda s, n, v: old(s, n, v * 3 if n == "z" else v))]


@case
def linear_forward():
    m = nn.Linear(2, 2)

    def f(x, m):
        return m(x)

    return f, (X, m), [lambda: patch(nn.Linear, "forward", lambda s, v: v * 100)]


@case
def inst_forward():
    m = nn.Linear(2, 2)

    def f(x, m):
        return m(x)

    def c():
        m.forward = lambda v: v * 100
        return lambda: m.__dict__.pop("forward")

    return f, (X, m), [c]


@case
def tensor_method():
    def f(x):
        return x.relu()

    return f, (X,), [lambda: patch(torch.Tensor, "relu", lambda s: s * 100)]


@case
def tensor_op():
    def f(x):
        return x + 1

    return f, (X,), [lambda: patch(torch.Tensor, "__add__", lambda s, o: s * 100)]


@case
def torch_fn():
    def f(x):
        return torch.relu(x)

    return f, (X,), [lambda: patch(torch, "relu", lambda s: s * 100)]


@case
def F_fn():
    def f(x):
        return nn.functional.relu(x)

    return f, (X,), [lambda: patch(nn.functional, "relu", lambda s: s * 100)]


@case
def F_linear():
    m = nn.Linear(2, 2)

    def f(x):
        return m(x)

    return f, (X,), [lambda: patch(nn.functional, "linear", lambda s, w, b: s * 100)]


class Dsc:
    def __get__(s, o, t=None):
        return 1


class HasD:
    d = Dsc()


@case
def desc_changed():
    def f(x, o):
        return o.d, x + 1

    def c():
        return patch(Dsc, "__get__", lambda s, o, t=None: 2)

    return f, (X, HasD()), [c]


@case
def desc_set_added():
    o = HasD()
    o.__dict__["d"] = 7

    def f(x, o):
        return o.d, x + 1

    return f, (X, o), [lambda: patch(Dsc, "__set__", lambda s, o, v: None)]


@case
def desc_get_removed():
    o = HasD()

    def f(x, o):
        return type(o.d).__name__, x + 1

    def c():
        g = Dsc.__get__
        del Dsc.__get__

        def u():
            Dsc.__get__ = g

        return u

    return f, (X, o), [c]


@case
def class_assigned():
    o = A1()

    def f(x, o):
        return o.k, o.who(), x + 1

    def c():
        o.__class__ = A2

        def u():
            o.__class__ = A1

        return u

    return f, (X, o), [c]


@case
def bases_assigned():
    class B1:
        k = 1

    class B2:
        k = 2

    class C(B1):
        pass

    o = C()

    def f(x, o):
        return o.k, x + 1

    def c():
        C.__bases__ = (B2,)

        def u():
            C.__bases__ = (B1,)

        return u

    return f, (X, o), [c]


@case
def metaclass_changed():
    class M1(type):
        k = 1

    class M2(type):
        k = 2

    class C(metaclass=M1):
        pass

    def f(x, c):
        return c.k, x + 1

    def ch():
        C.__class__ = M2

        def u():
            C.__class__ = M1

        return u

    return f, (X, C), [ch]


@case
def slot_filled():
    s = Slots()

    def f(x, s):
        return hasattr(s, "a"), getattr(s, "a", 4), x + 1

    def c():
        s.a = 3

        def u():
            del s.a

        return u

    return f, (X, s), [c]


@case
def slot_emptied():
    s = Slots()
    s.a = 1

    def f(x, s):
        return hasattr(s, "a"), getattr(s, "a", 4), x + 1

    def c():
        del s.a

        def u():
            s.a = 1

        return u

    return f, (X, s), [c]


@case
def slot_getattr():
    s = WithHook()

    def f(x, s):
        return s.a, x + 1

    def c():
        s.a = 3

        def u():
            del s.a

        return u

    return f, (X, s), [c]


@case
def mod_getattr_added():
    m = types.ModuleType("q1")
    m.a = 1

    def f(x, m):
        return getattr(m, "b", 0), x + 1

    def c():
        m.__getattr__ = lambda n: 5

        def u():
            del m.__getattr__

        return u

    return f, (X, m), [c]


@case
def mod_getattr_changed():
    m = types.ModuleType("q2")
    m.__getattr__ = lambda n: 5

    def f(x, m):
        return m.b, x + 1

    def c():
        m.__getattr__ = lambda n: 6

        def u():
            m.__getattr__ = lambda n: 5

        return u

    return f, (X, m), [c]


@case
def mod_getattr_state():
    m = types.ModuleType("q3")
    st = [5]
    m.__getattr__ = lambda n: st[0]

    def f(x, m):
        return m.b, x + 1

    def c():
        st[0] = 6

        def u():
            st[0] = 5

        return u

    return f, (X, m), [c]


@case
def mod_attr_added():
    m = types.ModuleType("q4")

    def f(x, m):
        return hasattr(m, "b"), x + 1

    def c():
        m.b = 6

        def u():
            del m.b

        return u

    return f, (X, m), [c]


@case
def mod_class_property():
    m = types.ModuleType("q6")
    m.v = 1

    def f(x):
        return x + m.v

    def c():
        m.__class__ = type("M", (types.ModuleType,), {"v": property(lambda s: 9)})

        def u():
            m.__class__ = types.ModuleType

        return u

    return f, (X,), [c]


@case
def mod_class():
    m = types.ModuleType("q5")

    class MM(types.ModuleType):
        @property
        def b(s):
            return 9

    def f(x, m):
        return getattr(m, "b", 1), x + 1

    def c():
        m.__class__ = MM

        def u():
            m.__class__ = types.ModuleType

        return u

    return f, (X, m), [c]


@case
def sns_attr():
    n = types.SimpleNamespace(a=1)

    def f(x, n):
        return getattr(n, "b", 1), n.a, x + 1

    def c():
        n.b = 2
        n.a = 4

        def u():
            del n.b
            n.a = 1

        return u

    return f, (X, n), [c]


@case
def tls_attr():
    l = threading.local()
    l.a = 1

    def f(x, l):
        return getattr(l, "b", 1), l.a, x + 1

    def c():
        l.b = 2
        l.a = 4

        def u():
            del l.b
            l.a = 1

        return u

    return f, (X, l), [c]


@case
def enum_member():
    E = enum.Enum("E", "a b")

    def f(x, e):
        return e.value, x + 1

    class H:
        pass

    h = H()
    h.e = E.a

    def g(x, h):
        return h.e.value, h.e.name, x + 1

    def c():
        h.e = E.b

        def u():
            h.e = E.a

        return u

    return g, (X, h), [c]


@case
def fn_attr():
    def h():
        pass

    h.k = 1

    def f(x, h):
        return h.k, hasattr(h, "j"), x + 1

    def c():
        h.k = 2
        h.j = 1

        def u():
            h.k = 1
            del h.j

        return u

    return f, (X, h), [c]


@case
def partial_parts():
    p = functools.partial(lambda *a, **k: (a, k), 1, k=2)

    def f(x, p):
        return p(), x + 1

    def c():
        p.keywords["k"] = 3

        def u():
            p.keywords["k"] = 2

        return u

    def c2():
        old = p.__reduce__()[2]
        p.__setstate__((lambda *a, **k: "new", (4,), {"z": 1}, None))

        def u():
            p.__setstate__(old)

        return u

    return f, (X, p), [c, c2]


@case
def ctypes_field():
    s = Structure(1, 2.0)

    def f(x, s):
        return s.i, x + s.i

    def c():
        s.i = 9

        def u():
            s.i = 1

        return u

    return f, (X, s), [c]


@case
def method_func():
    class C:
        def m(s):
            return 1

    o = C()
    bm = o.m

    def f(x, bm):
        return bm(), x + 1

    def c():
        return patch(C, "m", lambda s: 2)

    def c2():
        C.m.__code__ = (lambda s: 3).__code__
        return lambda: None

    return f, (X, bm), [c, c2]


@case
def cached_prop():
    o = CP()
    CP.n = 0

    def f(x, o):
        return o.c, x + 1

    def c():
        o.c = 55
        return lambda: None

    return f, (X, o), [c]


@case
def exc_args():
    e = WithCode(3)

    def f(x, e):
        return e.args, e.code, x + 1

    def c():
        e.args = (9,)

        def u():
            e.args = (3,)

        return u

    return f, (X, e), [c]


@case
def namedtuple_patch():
    Pt = collections.namedtuple("Pt", "a b")
    p = Pt(1, 2)

    def f(x, p):
        return p.a, p[0], x + 1

    return f, (X, p), [lambda: patch(Pt, "a", property(lambda s: 50))]


@case
def dict_sub_missing():
    class DD(dict):
        pass

    d = DD(a=1)

    def f(x, d):
        try:
            return d["zz"], x + 1
        except KeyError:
            return "ke", x + 1

    return f, (X, d), [lambda: patch(DD, "__missing__", lambda s, k: "miss")]


@case
def list_sub_iter():
    class LL(list):
        pass

    d = LL([1, 2])

    def f(x, d):
        return [v for v in d], len(d), bool(d), 2 in d, d == [1, 2], x + 1

    return (
        f,
        (X, d),
        [
            lambda: patch(LL, "__iter__", lambda s: iter([9])),
            lambda: patch(LL, "__len__", lambda s: 0),
            lambda: patch(LL, "__contains__", lambda s, v: False),
            lambda: patch(LL, "__eq__", lambda s, v: False),
        ],
    )


@case
def str_sub():
    class SS(str):
        pass

    s = SS("ab")

    def f(x, s):
        return len(s), str(s), s + "c", s == "ab", f"{s}", x + 1

    return (
        f,
        (X, s),
        [
            lambda: patch(SS, "__len__", lambda s: 0),
            lambda: patch(SS, "__str__", lambda s: "zz"),
            lambda: patch(SS, "__add__", lambda s, o: "added"),
            lambda: patch(SS, "__eq__", lambda s, o: False),
        ],
    )


@case
def int_sub():
    class II(int):
        pass

    s = II(3)

    def f(x, s):
        return s + 1, s * 2, bool(s), s == 3, [1, 2, 3, 4][s], x * s

    return (
        f,
        (X, s),
        [
            lambda: patch(II, "__add__", lambda s, o: "a"),
            lambda: patch(II, "__bool__", lambda s: False),
            lambda: patch(II, "__eq__", lambda s, o: False),
            lambda: patch(II, "__index__", lambda s: 0),
        ],
    )


@case
def abc_register():
    class AB(abc.ABC):
        pass

    class K:
        pass

    def f(x, k):
        return isinstance(k, AB), x + 1

    def c():
        AB.register(K)
        return lambda: None

    return f, (X, K()), [c]


@case
def subclass_hook():
    class AB(abc.ABC):
        @classmethod
        def __subclasshook__(cls, C):
            return NotImplemented

    class K:
        pass

    def f(x, k):
        return isinstance(k, AB), x + 1

    return f, (X, K()), [lambda: patch(AB, "__subclasshook__", classmethod(lambda c, C: True))]


@case
def instancecheck():
    class MT(type):
        def __instancecheck__(c, o):
            return True

    class K(metaclass=MT):
        pass

    def f(x, k):
        return isinstance(3, K), isinstance(k, K), x + 1

    return f, (X, Plain()), [lambda: patch(MT, "__instancecheck__", lambda c, o: False)]


@case
def buffers_class():
    m = nn.BatchNorm1d(2).eval()

    def f(x, m):
        return m(x.reshape(1, 2))

    def c():
        m.running_mean = m.running_mean + 5

        def u():
            m.running_mean = torch.zeros(2)

        return u

    return f, (X, m), [c]


@case
def global_class_attr():
    def f(x):
        return Sized.attr, x + 1

    return f, (X,), [lambda: patch(Sized, "attr", 50)]


@case
def dunder_dict_replaced():
    o = Plain()
    o.a = 1

    def f(x, o):
        return o.a, x + 1

    def c():
        old = o.__dict__
        o.__dict__ = {"a": 5}

        def u():
            o.__dict__ = old

        return u

    return f, (X, o), [c]


@case
def weakref_dead():
    class K:
        pass

    box = [K()]
    r = weakref.ref(box[0])

    def f(x, r):
        return r() is None, x + 1

    def c():
        box.clear()
        return lambda: None

    return f, (X, r), [c]


@case
def wprox():
    o = Plain()
    o.a = 1
    p = weakref.proxy(o)

    def f(x, p):
        return p.a, x + 1

    def c():
        o.a = 5

        def u():
            o.a = 1

        return u

    return f, (X, p), [c]


def outcome(program, args):
    try:
        return program(*args)
    except dynamo_lite.exc.DynamoLiteError:
        raise
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_noticed(name):
    if name == "mod_class_property" and sys.version_info >= (3, 14):
        pytest.skip("the instruction that 3.14 specializes for modules does not look at properties of a module's class")
    program, args, changes = CASES[name]()
    compiled = dynamo_lite.compile(program, backend="eager")

    def check(when):
        want = outcome(program, args)
        for _ in range(2):
            got = outcome(compiled, args)
            assert same(got, want), f"{when}: {got} instead of {want}"

    check("at first")
    for number, change in enumerate(changes):
        undo = change()
        try:
            check(f"after change {number}")
        finally:
            undo()
        check(f"after undoing change {number}")
