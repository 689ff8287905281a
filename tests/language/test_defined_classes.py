"""Classes that a function makes: bodies, descriptors, bases, what leaves the function.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import abc
import enum
import functools

import pytest
import torch
from language_support import Programs

import dynamo_lite

program = Programs()


class E(enum.Enum):
    A = 1
    B = 2


OUTSIDE = [1, 2]


class WithATensor:
    attribute = torch.tensor([7.0])


@program
def attributes_by_way_of_a_subclass(x):
    class Base:
        factor = x
        values = OUTSIDE
        k = 3

        def get(self):
            return self.factor

    class Derived(Base, WithATensor):
        def get(self):
            return super().get() + 1

    Derived.values.append(4)
    try:
        return (x + Derived.factor + Derived().factor, Derived().get(), list(Derived.values),
                Derived().values is OUTSIDE, Derived.k + Derived().k, x + Derived.attribute[0],
                Derived().attribute is WithATensor.attribute)
    finally:
        OUTSIDE.pop()


@program
def class_in_fn(x):
    class A:
        k = 3

        def f(self, x):
            return x * self.k

    return A().f(x)


@program
def class_in_fn_closure(x):
    n = x.shape[0]

    class A:
        k = n

        def f(self, y):
            return y * self.k + n

    return A().f(x)


@program
def class_in_fn_super(x):
    class A:
        def __init__(self):
            self.z = 2

        def f(self, y):
            return y * self.z

    class B(A):
        def __init__(self):
            super().__init__()
            self.w = 3

        def f(self, y):
            return super().f(y) + self.w

    b = B()
    return b.f(x), isinstance(b, A), issubclass(B, A), B.__name__, B.__qualname__, B.__mro__[1] is A


@program
def type3(x):
    A = type("A", (), {"k": 2, "f": lambda self, y: y * self.k})
    return A().f(x)


@program
def cls_prop(x):
    class A:
        def __init__(self, v):
            self._v = v

        @property
        def v(self):
            return self._v * 2

        @v.setter
        def v(self, n):
            self._v = n

        @staticmethod
        def s(a):
            return a + 1

        @classmethod
        def c(cls, a):
            return cls(a)

        @functools.cached_property
        def cp(self):
            return self._v + 1

        def __eq__(self, o):
            return self._v == o._v

        def __call__(self, y):
            return y * self.v

        z = [1, 2]
        d = {"a": 1}
        f = lambda self: 5

        def __class_getitem__(cls, k):
            return k

    a = A(2)
    b = A.c(3)
    a.v = 7
    A.z.append(3)
    A.cnt = 4
    A.cnt += 1
    return (
        a(x),
        b.v,
        A.s(1),
        a.cp,
        a == b,
        a == A(7),
        A.z,
        a.z is A.z,
        a.d,
        a.f(),
        A[3],
        A.cnt,
        a.cnt,
        A.__name__,
        type(a) is A,
        callable(a),
        hasattr(a, "nope"),
        A.__doc__,
        A.__module__,
        a.__class__ is A,
        isinstance(a, A),
        getattr(A, "s")(4),
    )


@program
def cls_exc(x):
    class E(ValueError):
        def __init__(self, c):
            super().__init__(f"c{c}")
            self.c = c

    try:
        raise E(3)
    except ValueError as e:
        return x * e.c, str(e), type(e).__name__


@program
def cls_module(x):
    class N(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 2

        def forward(self, y):
            return y * self.k

    return N()(x)


@program
def cls_abc(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    class B(A):
        def f(self):
            return 2

    try:
        A()
    except TypeError as e:
        m = str(e)
    return x * B().f(), m, isinstance(B(), A)


@program
def cls_setname(x):
    class D:
        def __set_name__(self, o, n):
            self.n = n
            self.o = o

        def __get__(self, i, o=None):
            return self if i is None else i.__dict__.get(self.n, 5)

        def __set__(self, i, v):
            i.__dict__[self.n] = v * 2

    class A:
        v = D()
        w = D()

    a = A()
    a.v = 3
    return x * a.v, a.w, A.v.n, A.w.o is A


@program
def cls_iter(x):
    class It:
        def __init__(self, n):
            self.n = n
            self.i = 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.i >= self.n:
                raise StopIteration
            self.i += 1
            return self.i

    return x * sum(It(4)), list(It(2)), 3 in It(5)


@program
def cls_ctx(x):
    class C:
        def __enter__(self):
            self.e = 1
            return self

        def __exit__(self, *a):
            self.e = 2
            return True

    with C() as c:
        r = c.e
        raise KeyError
    return x * r, c.e


@program
def cls_dict_sub(x):
    class D(dict):
        def __missing__(self, k):
            return k * 2

    d = D(a=1)
    return x * d["a"], d["zz"], dict(d), len(d)


@program
def cls_loop(x):
    r = []
    for i in range(3):

        class A:
            k = i

        r.append(A)
    return x, [a.k for a in r], r[0] is r[1]


@program
def cls_in_cls(x):
    class A:
        class B:
            v = 3

        def g(self):
            return self.B.v

    return x * A().g(), A.B.__qualname__


@program
def cls_err(x):
    try:

        class A:
            v = 1 / 0
    except ZeroDivisionError as e:
        return x, str(e)


@program
def cls_method_attr(x):
    class A:
        def f(self):
            pass

        f.tag = 3
        g = f

    return x, A.f.tag, A().g.tag, A.f is A.g, A.f.__name__, A().f.__self__.__class__ is A


@program
def cls_comp(x):
    n = 2

    class A:
        l = [i * n for i in range(3)]
        m = n

    return x, A.l, A.m


@program
def cls_op(x):
    class V:
        def __init__(s, t):
            s.t = t

        def __add__(s, o):
            return V(s.t + o.t)

        def __mul__(s, k):
            return V(s.t * k)

        __rmul__ = __mul__

        def __len__(s):
            return 3

        def __getitem__(s, i):
            return s.t[i]

        def __contains__(s, i):
            return i == 1

        def __bool__(s):
            return False

        def __repr__(s):
            return "V!"

        def __hash__(s):
            return 7

        def __eq__(s, o):
            return True

        def __neg__(s):
            return V(-s.t)

    v = -(2 * (V(x) + V(x)) * 3)
    return v.t, len(v), v[0], 1 in v, not v, repr(v), f"{v}", {v: 1}[v], str([v])


# ---------------------------------------------------------------- what type.__new__ tells the descriptors
def _class_of_properties():
    class C:
        @property
        def first(self):
            return 1

        second = property(lambda self: 2)
        third = fourth = property(lambda self: 3)
        fifth = fourth.setter(None)

        @functools.cached_property
        def cached(self):
            return 7

    C.late = property(lambda self: 6)
    return C


def _names_told(C):
    said = [C().cached, C.__dict__["cached"].attrname]
    for name in ("first", "second", "third", "fourth", "fifth", "late"):
        try:
            setattr(C(), name, 1)
        except AttributeError as error:
            said.append(str(error).replace(_names_told.__name__, ""))
        said.append(getattr(C.__dict__[name], "__name__", None))
    return said


@program
def names_told_to_properties(x):
    def getter(self):
        return 1

    before = made = property(getter)
    names = [getattr(before, "__name__", None)]

    class C:
        bar = made

    names.append(getattr(C.bar, "__name__", None))
    names.append(getattr(C.bar.getter(lambda self: 2), "__name__", None))
    return x + C().bar, names


def test_names_told_to_descriptors_of_a_class_that_leaves():
    def f(x):
        return x + 1, _class_of_properties()

    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        assert _names_told(compiled(torch.ones(2))[1]) == _names_told(_class_of_properties())


class Meta(type):
    pass


class WithNames:
    pass


WithNames.__abstractmethods__ = 3  # type: ignore[attr-defined]


class Heir(WithNames):
    pass


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self):
        pass


class Implemented(Abstract):
    def f(self):
        pass


@program
def getters_of_type_look_at_the_class_itself(x):
    classes = (Meta, WithNames, Heir, Abstract, Implemented, type, int)
    return x + 1, [hasattr(c, "__abstractmethods__") for c in classes], getattr(Heir, "__abstractmethods__", 5)


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
