"""Classes of the user's: construction, inheritance, descriptors, metaclasses, subclasses of builtins.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import abc
import math
import types

import pytest
import torch
from language_support import Programs

program = Programs()


class Base:
    count = 0

    def __init__(self, k=1):
        self.k = k

    def scale(self, x):
        return x * self.k


class Shape:
    registry: dict = {}
    default = 3

    def __init__(self, size, *rest, name="s", **more):
        self.size = size
        self.rest = rest
        self.name = name
        self.more = more

    @property
    def area(self):
        return self.size**2

    @area.setter
    def area(self, value):
        self.size = int(value**0.5)

    @area.deleter
    def area(self):
        self.size = 0

    @classmethod
    def unit(cls, **k):
        return cls(1, **k)

    @staticmethod
    def helper(a, b=2):
        return a + b

    def __call__(self, x):
        return x * self.size

    def __add__(self, other):
        return Shape(self.size + (other.size if isinstance(other, Shape) else other))

    __radd__ = __add__

    def __iadd__(self, other):
        self.size += other
        return self

    def __eq__(self, other):
        return isinstance(other, Shape) and self.size == other.size

    def __hash__(self):
        return hash(self.size)

    def __lt__(self, other):
        return self.size < other.size

    def __len__(self):
        return self.size

    def __bool__(self):
        return self.size > 0

    def __getitem__(self, i):
        if isinstance(i, slice):
            return ("slice", i.start, i.stop)
        if i >= self.size:
            raise IndexError(i)
        return i * 10

    def __setitem__(self, i, v):
        self.more[i] = v

    def __delitem__(self, i):
        del self.more[i]

    def __contains__(self, v):
        return v == self.size

    def __neg__(self):
        return Shape(-self.size)

    def __repr__(self):
        return f"Shape({self.size})"

    def __format__(self, spec):
        return f"<{self.size}:{spec}>"

    def __enter__(self):
        self.size += 1
        return self

    def __exit__(self, *exc):
        self.size -= 1
        return exc[0] is ValueError

    def __matmul__(self, other):
        return "mm", other

    def __index__(self):
        return self.size

    def __float__(self):
        return float(self.size)

    def __int__(self):
        return self.size

    def __abs__(self):
        return abs(self.size)


class Square(Shape):
    def __init__(self, size):
        super().__init__(size, name="sq")

    @property
    def area(self):
        return super().area + 1

    @classmethod
    def unit(cls):
        return super().unit.__func__ is Shape.unit.__func__


@program
def construction(x):
    s = Shape(2, 3, 4, name="n", extra=x)
    return s(x), s.rest, s.name, s.more["extra"], s.area, Shape.unit().size, Shape.helper(1), s.helper(1,
        b=5), Shape.default, s.default


@program
def properties(x):
    s = Shape(3)
    s.area = 16
    before = s.size
    del s.area
    return x + before, s.size, Square(2).area, Square.unit()


@program
def operators(x):
    a, b = Shape(1), Shape(2)
    c = a + b
    d = 5 + a
    a += 4
    return (
        x + c.size, d.size, a.size, a == Shape(5), a != b, b < a, a > b, len(b), bool(Shape(0)), b[1], b[0:2], 2 in b,
        list(b),
        -b == Shape(-2), repr(b), f"{b:>3}", str([b]), (b @ 1), float(b), int(b), abs(Shape(-4)), [1, 2, 3][b],
        {a: 1}[Shape(5)],
        sorted([Shape(3), Shape(1)])[0].size, max([Shape(1), Shape(9)]).size, range(b), x[b - b if False else 0],
    )


@program
def item_methods(x):
    s = Shape(1)
    s["k"] = x
    s["z"] = 1
    del s["z"]
    return s.more["k"] + 1, list(s.more)


@program
def unsupported_operand(x):
    try:
        Base() + 1
    except TypeError as e:
        return x + 1, str(e)


@program
def missing_attribute(x):
    try:
        Base().nope
    except AttributeError as e:
        return x + 1, str(e)


@program
def missing_argument(x):
    def f(a, b, *, c):
        return a

    out = []
    for args, kwargs in [((), {}), ((1,), {}), ((1, 2), {}), ((1, 2, 3), {"c": 1}), ((1, 2), {"c": 1, "d": 2}),
        ((1,), {"a": 1, "b": 2, "c": 3})]:
        try:
            f(*args, **kwargs)
        except TypeError:
            out.append("error")
        else:
            out.append("fine")
    return x + 1, out


class A:
    def who(self):
        return ["A"]


class B(A):
    def who(self):
        return ["B", *super().who()]


class C(A):
    def who(self):
        return ["C", *super().who()]


class D(B, C):
    def who(self):
        return ["D", *super().who()]


@program
def diamond(x):
    return x + 1, D().who(), super(B, D()).who(), [c.__name__ for c in D.__mro__], isinstance(D(), C), issubclass(D,
        A), D.__name__, type(D()).__mro__[1] is B, D.__bases__ == (B, C)


class Dynamic:
    def __init__(self):
        self.stored = {"a": 1}

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self.stored.get(name, name)

    def __setattr__(self, name, value):
        if name == "twice":
            value = value * 2
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        super().__delattr__(name)
        super().__setattr__("deleted", name)


@program
def dynamic_attributes(x):
    d = Dynamic()
    d.twice = 4
    d.gone = 1
    del d.gone
    return x * d.twice, d.a, d.other, hasattr(d, "_x"), d.deleted, getattr(d, "_y", 5), "twice" in d.__dict__


class Typed:
    def __init__(self, kind):
        self.kind = kind

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls):
        return self if obj is None else obj.__dict__.get(self.name, self.kind())

    def __set__(self, obj, value):
        obj.__dict__[self.name] = self.kind(value)

    def __delete__(self, obj):
        obj.__dict__.pop(self.name, None)


class Holder:
    number = Typed(int)
    text = Typed(str)


@program
def descriptors(x):
    h = Holder()
    h.number = "12"
    before = h.number
    del h.number
    return x + before, h.number, h.text, Holder.number.kind is int, h.__dict__


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


@program
def slots(x):
    s = Slotted()
    s.b = x
    result = hasattr(s, "b")
    del s.b
    try:
        s.c = 1
    except AttributeError:
        return x * s.a, result, hasattr(s, "b")


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = cls.label
        return made

    @property
    def label(cls):
        return cls.__name__.lower()

    def __len__(cls):
        return 7

    def __contains__(cls, v):
        return v == 1

    def __getitem__(cls, k):
        return k * 2


class WithMeta(metaclass=Meta):
    pass


class FalseMeta(type):
    def __bool__(cls):
        return False


class EmptyMeta(type):
    def __len__(cls):
        return len(cls.members)


class ComparingMeta(type):
    def __eq__(cls, other):
        return cls.__name__ == getattr(other, "__name__", other)

    __hash__ = type.__hash__

    def __or__(cls, other):
        return [cls.__name__, other]

    def __ror__(cls, other):
        return [other, cls.__name__]

    def __lt__(cls, other):
        return True


class False_(metaclass=FalseMeta):
    pass


class Empty(metaclass=EmptyMeta):
    members: list = []


class Compared(metaclass=ComparingMeta):
    pass


@program
def metaclasses_decide_what_is_true(x):
    return x + 1, bool(False_), not False_, 1 if Empty else 2, len(Empty), bool(Compared)


@program
def metaclasses_have_operators(x):
    return x + 1, Compared == "Compared", Compared != 3, Compared == Empty, Compared | 1, 2 | Compared, Compared < 3


class Module(types.ModuleType):
    def __bool__(self):
        return False

    def __eq__(self, other):
        return other == 3

    __hash__ = types.ModuleType.__hash__


a_module = Module("a_module")


@program
def modules_of_a_class_of_its_own(x):
    return x + 1, bool(a_module), a_module == 3, a_module != 3, a_module == math, bool(math)


@program
def metaclasses(x):
    return x + 1, WithMeta().tag, WithMeta.label, len(WithMeta), 1 in WithMeta, WithMeta[4], type(WithMeta) is Meta


class Singleton:
    instance = None

    def __new__(cls, *args):
        made = super().__new__(cls)
        made.args = args
        return made

    def __init__(self, *args):
        self.inited = len(args)


@program
def new_and_init(x):
    s = Singleton(1, 2)
    return x + s.inited, s.args


class Abstract(abc.ABC):
    @abc.abstractmethod
    def run(self): ...


class Concrete(Abstract):
    def run(self):
        return 3


@program
def abstract_classes(x):
    try:
        Abstract()
    except TypeError:
        return x * Concrete().run(), isinstance(Concrete(), Abstract)


class MyList(list):
    def total(self):
        return sum(self)

    def append(self, v):
        super().append(v * 2)


class MyDict(dict):
    def __missing__(self, key):
        return f"no {key}"

    def __setitem__(self, key, value):
        super().__setitem__(key.upper(), value)

    def __getattr__(self, name):
        return self[name]


class MyTuple(tuple):
    def __new__(cls, items):
        return super().__new__(cls, [i + 1 for i in items])

    @property
    def first(self):
        return self[0]


class MyInt(int):
    def double(self):
        return self * 2


class MyStr(str):
    def shout(self):
        return self.upper() + "!"


@program
def list_subclass(x):
    m = MyList([1, 2])
    m.append(3)
    m[0] = 10
    m += [1]
    return x + m.total(), m, len(m), m[1:], isinstance(m, list), list(m), m == [10, 2, 6, 1], 6 in m, sorted(m)


@program
def dict_subclass(x):
    d = MyDict()
    d["a"] = x
    d.update(b=1)
    return d["A"] + 1, d["zz"], d.A is d["A"], list(d), len(d), "A" in d, d.get("q"), isinstance(d, dict), {**d}["b"]


@program
def tuple_subclass(x):
    t = MyTuple([1, 2])
    return x + t.first, t, len(t), t == (2, 3), t[1], list(t), isinstance(t, tuple)


@program
def number_and_text_subclasses(x):
    return x + 1, MyInt(3).double(), MyStr("a").shout(), MyInt(3) + 1, MyStr("b") + "c"


@program
def set_subclass(x):
    class S(set):
        def more(self):
            return len(self) + 1

    return x + 1


@program
def class_attribute_written(x):
    return x + 1, hasattr(Base, "nothing")


@program
def class_attribute_assignment(x):
    Base.count += 1
    y = x * Base.count
    Base.count -= 1
    return y


@program
def local_class(x):
    class Local:
        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v + x

    return Local(2).get()


@program
def bound_methods(x):
    b = Base(3)
    m = b.scale
    return m(x), m.__self__ is b, m.__func__ is Base.scale, m == b.scale, Base.scale(b,
        x), m.__name__, [f(x) for f in (b.scale, torch.relu)]


@program
def attribute_functions(x):
    b = Base(2)
    setattr(b, "z", 5)
    value = getattr(b, "z")
    delattr(b, "z")
    return x + value, hasattr(b, "z"), getattr(b, "z", None), vars(b), callable(b.scale), isinstance(b,
        Base), type(b).__name__, b.__class__ is Base, b.__dict__ == {"k": 2}


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
