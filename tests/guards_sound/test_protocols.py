"""Changes between two calls are noticed: class protocols, aliases, calls, values of many kinds."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import datetime
import decimal
import fractions
import inspect
import pathlib
import re
import sys
import threading
import types
import typing
import weakref

import pytest
import torch
from guard_cases import Cases, Plain, X

case = Cases()


@case
def match_args():
    class P:
        __match_args__ = ("a",)

        def __init__(s):
            s.a, s.b = 1, 2

    p = P()

    def f(x):
        match p:
            case P(v):
                return x * v

    return f, (X,), lambda: setattr(P, "__match_args__", ("b",))


@case
def exception_args():
    e = ValueError(1)
    return lambda x: x * e.args[0], (X,), lambda: setattr(e, "args", (5,))


@case
def method_rebound():
    b = [Plain(2).scale]
    return lambda x: b[0](x), (X,), lambda: b.__setitem__(0, Plain(5).scale)


@case
def contextvar():
    v = contextvars.ContextVar("v", default=1)
    return lambda x: x * v.get(), (X,), lambda: v.set(5)


@case
def thread_local():
    t = threading.local()
    t.k = 1
    return lambda x: x * t.k, (X,), lambda: setattr(t, "k", 5)


@case
def signature_override():
    def f(a, b):
        pass

    return (
        lambda x: x * len(inspect.signature(f).parameters),
        (X,),
        lambda: setattr(f, "__signature__", inspect.Signature()),
    )


@case
def signature_defaults():
    def f(a, b=1):
        pass

    return lambda x: x * inspect.signature(f).parameters["b"].default, (X,), lambda: setattr(f, "__defaults__", (5,))


@case
def annotations():
    def f(a: int):
        pass

    return lambda x: (x + 1, f.__annotations__["a"]), (X,), lambda: f.__annotations__.update(a=str)


@case
def int_subclass_value():
    class MI(int):
        pass

    h = Plain()
    h.k = MI(3)
    return lambda x: (x * h.k, h.k + 1), (X,), lambda: setattr(h, "k", MI(5))


@case
def int_subclass_to_int():
    class MI(int):
        def __add__(s, o):
            return 100

    h = Plain()
    h.k = MI(3)
    return lambda x: (x * 1, h.k + 1), (X,), lambda: setattr(h, "k", 3)


@case
def str_subclass_attr():
    class MS(str):
        pass

    s = MS("a")
    s.k = 1
    return lambda x: x * s.k + len(s), (X,), lambda: setattr(s, "k", 5)


@case
def int_subclass_method_added():
    class MI(int):
        pass

    k = MI(3)
    return lambda x: (x * 1, k + 1), (X,), lambda: setattr(MI, "__add__", lambda s, o: 50)


@case
def list_subclass_method_added():
    class ML(list):
        pass

    l = ML([1, 2])
    return lambda x: x * l[0] + len(l), (X,), lambda: setattr(ML, "__getitem__", lambda s, i: 50)


@case
def dict_subclass_iter_added():
    class MD(dict):
        pass

    d = MD(a=1)
    return (
        lambda x: (x * 1, list(d), [k for k in d.keys()]),
        (X,),
        lambda: setattr(MD, "__iter__", lambda s: iter("zz")),
    )


@case
def meta_iter_added():
    class M(type):
        def __iter__(c):
            return iter([1])

    class C(metaclass=M):
        pass

    return lambda x: (x + 1, list(C)), (X,), lambda: setattr(M, "__iter__", lambda c: iter([2, 3]))


@case
def meta_len_changed():
    class M(type):
        def __len__(c):
            return 3

    class C(metaclass=M):
        pass

    return lambda x: (x + 1, len(C)), (X,), lambda: setattr(M, "__len__", lambda c: 5)


@case
def orig_class():
    T = typing.TypeVar("T")

    class G(typing.Generic[T]):
        k = 1

    b = [G[int]]
    return lambda x: (x + 1, b[0]().__orig_class__), (X,), lambda: b.__setitem__(0, G[str])


@case
def del_added():
    class D:
        pass

    def f(x):
        d = D()
        return x + 1

    return f, (X,), lambda: setattr(D, "__del__", lambda s: None)


@case
def iadd_added():
    class A:
        def __init__(s):
            s.v = 1

        def __add__(s, o):
            return 10

    def f(x):
        a = A()
        a += 1
        return x + 1, a if isinstance(a, int) else a.v

    return f, (X,), lambda: setattr(A, "__iadd__", lambda s, o: 77)


@case
def radd_subclass_override():
    class A:
        def __add__(s, o):
            return 1

        def __radd__(s, o):
            return 2

    class B(A):
        pass

    return lambda x: (x + 1, A() + B()), (X,), lambda: setattr(B, "__radd__", lambda s, o: 3)


@case
def ne_added():
    class A:
        def __eq__(s, o):
            return True

        __hash__ = None

    a, b = A(), A()
    return lambda x: (x + 1, a != b), (X,), lambda: setattr(A, "__ne__", lambda s, o: "ne")


@case
def enter_replaced():
    class A:
        def __enter__(s):
            return 1

        def __exit__(s, *a):
            return False

    def f(x):
        with A() as v:
            return x * v

    return f, (X,), lambda: setattr(A, "__enter__", lambda s: 5)


@case
def exit_swallows():
    class A:
        def __enter__(s):
            return 1

        def __exit__(s, *a):
            return False

    def f(x):
        with A():
            raise ValueError
        return x

    return f, (X,), lambda: setattr(A, "__exit__", lambda s, *a: True)


@case
def getattr_on_module():
    m = types.ModuleType("mm")
    m.k = 1
    return lambda x: x * m.k, (X,), lambda: setattr(m, "k", 5)


@case
def sys_modules_swap():
    sys.modules["h3mod"] = a = types.ModuleType("h3mod")
    a.k = 1
    b = types.ModuleType("h3mod")
    b.k = 5

    def f(x):
        import h3mod

        return x * h3mod.k

    return f, (X,), lambda: sys.modules.__setitem__("h3mod", b)


@case
def from_import_attr():
    sys.modules["h3mod2"] = a = types.ModuleType("h3mod2")
    a.k = 1

    def f(x):
        from h3mod2 import k

        return x * k

    return f, (X,), lambda: setattr(a, "k", 5)


@case
def global_deleted_builtin():
    globals()["abs"] = lambda v: 40
    return lambda x: x * abs(-3), (X,), lambda: globals().pop("abs")


@case
def set_in_attr():
    p = Plain()
    p.k = {1, 2}
    return lambda x: x * len(p.k) + (2 in p.k), (X,), lambda: p.k.discard(2)


@case
def frozenset_objs():
    p = Plain()
    p.k = frozenset([1])
    return lambda x: x * len(p.k), (X,), lambda: setattr(p, "k", frozenset([1, 2]))


@case
def decimal_value():
    p = Plain()
    p.k = decimal.Decimal("1.5")
    return lambda x: x * float(p.k), (X,), lambda: setattr(p, "k", decimal.Decimal("2.5"))


@case
def fraction_value():
    p = Plain()
    p.k = fractions.Fraction(1, 2)
    return lambda x: x * float(p.k), (X,), lambda: setattr(p, "k", fractions.Fraction(3, 2))


@case
def date_value():
    p = Plain()
    p.k = datetime.timedelta(1)
    return lambda x: x * p.k.days, (X,), lambda: setattr(p, "k", datetime.timedelta(5))


@case
def path_value():
    p = Plain()
    p.k = pathlib.PurePosixPath("a/b")
    return lambda x: x * len(p.k.name), (X,), lambda: setattr(p, "k", pathlib.PurePosixPath("a/bcd"))


@case
def regex_value():
    p = Plain()
    p.k = re.compile("a")
    return lambda x: x * len(p.k.pattern), (X,), lambda: setattr(p, "k", re.compile("abc"))


@case
def slice_attr():
    p = Plain()
    p.k = slice(0, 1)
    return lambda x: x[p.k] * 1, (X,), lambda: setattr(p, "k", slice(0, 2))


@case
def range_attr():
    p = Plain()
    p.k = range(2)
    return lambda x: x * len(p.k), (X,), lambda: setattr(p, "k", range(5))


@case
def complex_neg_zero():
    p = Plain()
    p.k = complex(0.0, 0.0)
    return lambda x: (x * 1, p.k), (X,), lambda: setattr(p, "k", complex(-0.0, 0.0))


@case
def weakref_dies():
    o = Plain(3)
    r = weakref.ref(o)
    box = [o]
    del o

    def f(x):
        v = r()
        return x * (0 if v is None else v.k)

    return f, (X,), lambda: box.clear()


@case
def weakref_swapped():
    a, b = Plain(3), Plain(4)
    box = [weakref.ref(a)]
    keep = (a, b)
    return lambda x: x * box[0]().k + 0 * keep[0].k, (X,), lambda: box.__setitem__(0, weakref.ref(b))


@case
def self_containing():
    l = [1]
    l.append(l)
    return lambda x: x * len(l[1][1]), (X,), lambda: l.append(3)


@case
def nested_alias_broken():
    a = [1]
    d = {"p": a, "q": a}

    def f(x):
        d["p"].append(2)
        n = len(d["q"])
        d["p"].pop()
        return x * n

    return f, (X,), lambda: d.update(q=[1])


@case
def attr_alias_made():
    p, q = Plain([1]), Plain([1])

    def f(x):
        p.k.append(2)
        n = len(q.k)
        p.k.pop()
        return x * n

    return f, (X,), lambda: setattr(q, "k", p.k)


@case
def obj_alias_made():
    b = [Plain(1), Plain(1)]

    def f(x):
        b[0].k = 5
        n = b[1].k
        b[0].k = 1
        return x * n

    return f, (X,), lambda: b.__setitem__(1, b[0])


@case
def bool_to_int_key():
    d = {1: "a"}
    p = Plain(1)
    return lambda x: (x + 1, d[p.k], p.k), (X,), lambda: setattr(p, "k", True)


@case
def nan_key():
    p = Plain(float("nan"))
    return lambda x: (x + 1, p.k == p.k, p.k in [p.k]), (X,), lambda: setattr(p, "k", 1.0)


@case
def same_str_obj():
    p = Plain("ab c")
    q = "ab c"
    return lambda x: (x + 1, p.k is q), (X,), lambda: setattr(p, "k", "".join(["ab", " c"]))


@case
def defaultdict_factory_none():
    d = collections.defaultdict(int)

    def f(x):
        try:
            return x * d["q"]
        except KeyError:
            return x + 9
        finally:
            d.clear()

    return f, (X,), lambda: setattr(d, "default_factory", None)


@case
def kwdefaults_value():
    def f(x, *, k=1):
        return x * k

    return lambda x: f(x), (X,), lambda: f.__kwdefaults__.update(k=5)


@case
def closure_rebound():
    k = 1

    def f(x):
        return x * k

    def ch():
        nonlocal k
        k = 5

    return f, (X,), ch


@case
def closure_deleted():
    k = 1

    def f(x):
        try:
            return x * k
        except NameError:
            return x - 1

    def ch():
        nonlocal k
        del k

    return f, (X,), ch


@case
def dataclass_field_added():
    @dataclasses.dataclass
    class D:
        a: int = 1

    d = D()
    return lambda x: x * len(dataclasses.fields(d)) + d.a, (X,), lambda: setattr(d, "a", 7)


@case
def namespace_added():
    n = types.SimpleNamespace(a=1)
    return lambda x: x * len(vars(n)), (X,), lambda: setattr(n, "b", 2)


@case
def staticmethod_swapped():
    class A:
        @staticmethod
        def f(x):
            return x * 2

    return lambda x: A.f(x) + A().f(x), (X,), lambda: setattr(A, "f", staticmethod(lambda x: x * 9))


@case
def classmethod_swapped():
    class A:
        @classmethod
        def f(c, x):
            return x * 2

    return lambda x: A.f(x), (X,), lambda: setattr(A, "f", classmethod(lambda c, x: x * 9))


@case
def init_swapped():
    class A:
        def __init__(s):
            s.k = 1

    return lambda x: x * A().k, (X,), lambda: setattr(A, "__init__", lambda s: setattr(s, "k", 9))


@case
def new_added():
    class A:
        k = 1

    def nw(c):
        o = object.__new__(c)
        o.k = 9
        return o

    return lambda x: x * A().k, (X,), lambda: setattr(A, "__new__", staticmethod(nw))


@case
def call_added():
    class A:
        def __call__(s, x):
            return x * 1

    a = A()
    return lambda x: a(x), (X,), lambda: setattr(A, "__call__", lambda s, x: x * 9)


@case
def bool_added():
    class A:
        pass

    a = A()
    return lambda x: x * 1 if a else x * 2, (X,), lambda: setattr(A, "__bool__", lambda s: False)


@case
def generator_function_code():
    def g():
        yield 1
        yield 2

    def h():
        yield 5

    return lambda x: x * sum(g()), (X,), lambda: setattr(g, "__code__", h.__code__)


@case
def generic_alias_attr():
    p = Plain(list[int])
    return lambda x: (x + 1, p.k.__args__), (X,), lambda: setattr(p, "k", list[str])


@case
def union_arg():
    p = Plain(int | str)
    return lambda x: (x + 1, isinstance(1.5, p.k), isinstance(1, p.k)), (X,), lambda: setattr(p, "k", int | float)


@case
def isinstance_tuple():
    p = Plain((int, str))
    return lambda x: (x + 1, isinstance(1.5, p.k)), (X,), lambda: setattr(p, "k", (float,))


@case
def type_name():
    p = Plain(int)
    return lambda x: (x + 1, p.k.__name__, p.k("3")), (X,), lambda: setattr(p, "k", float)


@case
def string_template():
    p = Plain("{} a")
    return lambda x: (x + 1, p.k.format(3)), (X,), lambda: setattr(p, "k", "{} b")


@case
def torch_size_attr():
    p = Plain(torch.Size([2, 3]))
    return lambda x: (x.reshape(p.k) + 1, p.k[0]), (X,), lambda: setattr(p, "k", torch.Size([3, 2]))


@case
def dtype_attr():
    p = Plain(torch.float32)
    return lambda x: x.to(p.k), (X,), lambda: setattr(p, "k", torch.float64)


@case
def generator_torch():
    p = Plain(torch.Generator())
    p.k.manual_seed(1)

    def f(x):
        p.k.manual_seed(3)
        return x + torch.rand(2, 3, generator=p.k)

    return f, (X,), lambda: setattr(p, "k", torch.Generator())


@case
def odict_reordered():
    d = collections.OrderedDict(a=1, b=2)
    return lambda x: (x + 1, list(d.items())), (X,), lambda: d.move_to_end("a")


@case
def chainmap_maps():
    c = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    return lambda x: x * c["a"] + c["b"], (X,), lambda: c.maps[0].update(a=9)


@case
def userdict_data():
    c = collections.UserDict(a=1)
    return lambda x: x * c["a"], (X,), lambda: c.update(a=9)


@case
def userlist_data():
    c = collections.UserList([1])
    return lambda x: x * c[0] + len(c), (X,), lambda: c.append(9)


@pytest.mark.parametrize("name", case.all)
def test_a_change_is_noticed(name):
    case.check(name, globals())
