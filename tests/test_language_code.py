"""Classes, functions, generators, exceptions, context managers, pattern matching, side effects.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import abc
import contextlib
import functools
import inspect

import pytest
import torch
from language_support import Programs

program = Programs()


# ---------------------------------------------------------------- classes
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


@program.breaks("unsupported_builtin")
def number_and_text_subclasses(x):
    return x + 1, MyInt(3).double(), MyStr("a").shout(), MyInt(3) + 1, MyStr("b") + "c"


@program.breaks("class_definition")
def set_subclass(x):
    class S(set):
        def more(self):
            return len(self) + 1

    return x + 1


@program
def class_attribute_written(x):
    return x + 1, hasattr(Base, "nothing")


@program.breaks("side_effect_unsupported")
def class_attribute_assignment(x):
    Base.count += 1
    y = x * Base.count
    Base.count -= 1
    return y


@program.breaks("class_definition")
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


# ---------------------------------------------------------------- functions
@program
def closures(x):
    total = 0

    def add(n):
        nonlocal total
        total += n
        return total

    fs = [lambda v, i=i: v * i for i in range(3)]
    add(2)
    add(3)
    return x + total, [f(2) for f in fs]


@program
def late_binding(x):
    fs = [lambda: i for i in range(3)]
    return x + 1, [f() for f in fs]


@program
def counter_closure(x):
    def make():
        n = 0

        def step():
            nonlocal n
            n += 1
            return n

        return step

    a, b = make(), make()
    return x * a() + a() + b(), a


@program
def recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def depth(tree):
        return 1 + max(map(depth, tree), default=0) if isinstance(tree, list) else 0

    return x * fact(5), depth([1, [2, [3]]])


@program
def arguments(x):
    def f(a, /, b, c=3, *args, d, e=5, **kw):
        return a, b, c, args, d, e, sorted(kw)

    return x + 1, f(1, 2, d=4), f(1, 2, 3, 4, 5, d=6, z=7, e=8), f(*[1], **{"b": 2, "d": 3})


def parametrized(times):
    def deco(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            out = fn(*args, **kwargs)
            for _ in range(times - 1):
                out = fn(out, **kwargs)
            return out

        return inner

    return deco


@parametrized(3)
def doubled(v, add=0):
    return v * 2 + add


@program
def decorators(x):
    @parametrized(2)
    def local(v):
        return v + 1

    return doubled(x, add=1), local(x), local.__name__


@program
def function_attributes(x):
    def f(v):
        f.calls += 1
        return v * f.calls

    f.calls = 0
    f(x)
    return f(x), f.calls, f.__name__, f.__defaults__, hasattr(f, "nope")


@program
def returned_function(x):
    k = 3

    def g(v, m=2):
        return v * k + m

    return x + 1, g


@program
def signature_use(x):
    def f(a, b=2, *c, d=4):
        return a

    s = inspect.signature(doubled)
    return x + 1, list(s.parameters), "add" in s.parameters, s.parameters["add"].default


@program
def star_expressions(x):
    a = [1, 2]
    return x + 1, [*a, *"bc"], {*a, 3}, {**{"k": 1}, "j": 2}, (*a, *a), max(*a, 5)


@program
def walrus_and_conditionals(x):
    if (n := x.shape[0]) > 1 and not n == 3:
        y = x * n
    else:
        y = x
    return y, n, (m := 3) + m, [z for v in range(4) if (z := v * 2) > 2]


@program
def chained_comparison(x):
    return x + 1, 1 < x.shape[0] <= 2 < 3, not 1, 1 if x.dim() == 2 else 0, None or 5, 0 or [] or "a", 1 and 2


@program
def loops(x):
    out = []
    for i in range(10):
        if i == 2:
            continue
        if i == 5:
            break
        out.append(i)
    else:
        out.append("no")
    n = 0
    while True:
        n += 1
        if n > 3:
            break
    for j in []:
        pass
    else:
        out.append("else")
    while n > 0:
        n -= 2
    else:
        out.append("while-else")
    for k, (a, b) in enumerate([(1, 2), (3, 4)]):
        out.append(k + a + b)
    return x * n, out


# ---------------------------------------------------------------- generators
def counting(n):
    try:
        for i in range(n):
            got = yield i
            if got:
                yield got * 10
        return "done"
    finally:
        LOG.append("closed")


LOG: list = []


@program
def generator_protocol(x):
    LOG.clear()
    g = counting(3)
    a = next(g)
    b = g.send(5)
    c = next(g)
    g.close()
    h = counting(0)
    try:
        next(h)
    except StopIteration as e:
        d = e.value
    return x + 1, a, b, c, d, list(LOG)


@program
def generator_throw(x):
    def g():
        while True:
            try:
                yield 1
            except ValueError as e:
                yield str(e)
            finally:
                seen.append(1)

    seen = []
    it = g()
    next(it)
    result = it.throw(ValueError("bad")), next(it)
    it.close()
    return x + 1, result, seen


@program
def yield_from(x):
    def inner():
        got = yield 1
        yield got
        return "r"

    def outer():
        result = yield from inner()
        yield result
        yield from [7, 8]

    it = outer()
    return x + 1, next(it), it.send("s"), next(it), list(it)


@program
def yield_from_throw(x):
    def inner():
        try:
            yield 1
        except KeyError:
            yield "caught"

    def outer():
        yield from inner()
        yield "end"

    it = outer()
    next(it)
    return x + 1, it.throw(KeyError("k")), list(it)


@program
def generator_expressions(x):
    total = sum(i * i for i in range(4))
    pairs = dict((k, v) for k, v in zip("ab", (1, 2)))
    return x * total, pairs, any(i > 2 for i in range(5)), ",".join(str(i) for i in range(3)), tuple(x * i
        for i in range(2)), max((i for i in (3, 1)), default=0)


@program
def returned_generator(x):
    return x + 1, (i for i in range(3))


@program
def infinite_generator(x):
    def nat():
        n = 0
        while True:
            yield n
            n += 1

    return x + 1, [a for a, _ in zip(nat(), "abc")]


@program
def generator_pep479(x):
    def g():
        yield 1
        raise StopIteration

    try:
        list(g())
    except RuntimeError as e:
        return x + 1, str(e)


# ---------------------------------------------------------------- exceptions
class CustomError(Exception):
    def __init__(self, code, extra=None):
        super().__init__(f"code {code}")
        self.code = code
        self.extra = extra

    def __str__(self):
        return f"custom {self.code}"


class ChildError(CustomError):
    pass


@program
def try_except(x):
    out = []
    for action in (lambda: 1 / 0, lambda: [][1], lambda: {}["k"], lambda: int("q"), lambda: None.foo, lambda: "a" + 1):
        try:
            action()
        except ZeroDivisionError:
            out.append("zero")
        except (IndexError, KeyError) as e:
            out.append(type(e).__name__)
        except Exception as e:
            out.append(str(e))
        else:
            out.append("else")
        finally:
            out.append("f")
    return x + 1, out


@program
def custom_exceptions(x):
    try:
        raise ChildError(3, extra=x)
    except CustomError as e:
        return e.extra + e.code, str(e), e.args, isinstance(e, CustomError), repr(e.args)


@program
def reraise_and_chain(x):
    out = []
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            raise ValueError("b") from e
    except ValueError as e:
        out += [repr(e.__cause__), e.__suppress_context__]
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("c")
    except ValueError as e:
        out += [repr(e.__context__), e.__cause__]
    try:
        try:
            raise KeyError("z")
        except KeyError:
            raise
    except KeyError as e:
        out.append(e.args)
    try:
        raise ValueError("n") from None
    except ValueError as e:
        out.append(e.__suppress_context__)
    return x + 1, out


@program
def finally_order(x):
    out = []

    def f(kind):
        try:
            if kind == 0:
                return "try"
            if kind == 1:
                raise ValueError
        except ValueError:
            return "except"
        finally:
            out.append(kind)
        return "end"

    def override():
        try:
            return 1
        finally:
            return 2

    def loop():
        for i in range(3):
            try:
                if i == 1:
                    continue
                if i == 2:
                    break
            finally:
                out.append(("l", i))

    loop()
    return x + 1, f(0), f(1), f(2), override(), out


@program
def nested_try(x):
    def f():
        try:
            try:
                raise ValueError(1)
            finally:
                trace.append("inner")
        except ValueError as e:
            trace.append(e.args[0])
            try:
                raise TypeError(2)
            except TypeError:
                trace.append("type")
        return trace

    trace = []
    return x + 1, f()


@program
def exception_scope(x):
    e = 5
    try:
        raise ValueError
    except ValueError as e:
        pass
    try:
        return x, e
    except UnboundLocalError:
        return x + 1, "unbound"


@program
def assertions(x):
    assert x.shape[0] == 2, "rows"
    try:
        assert x.shape[0] == 3, "three"
    except AssertionError as e:
        return x + 1, str(e)


@program.breaks("python_exception_in_trace")
def uncaught(x):
    y = x + 1
    raise CustomError(4, extra=y.shape[0])


@program.breaks("python_exception_in_trace")
def uncaught_in_callee(x):
    def f(v):
        if v.dim() == 2:
            raise ValueError(f"bad {v.dim()}")
        return v

    return f(x * 2)


@program.breaks("fake_tensor_error")
def torch_error_caught(x):
    try:
        return x @ x
    except RuntimeError:
        return x + 1


@program
def suppressed(x):
    with contextlib.suppress(ZeroDivisionError):
        1 / 0
    return x + 1


# ---------------------------------------------------------------- context managers
@contextlib.contextmanager
def managed(log, swallow=False):
    log.append("enter")
    try:
        yield len(log)
    except ValueError:
        log.append("error")
        if not swallow:
            raise
    finally:
        log.append("exit")


@program
def context_managers(x):
    log = []
    with managed(log) as n:
        x = x + n
    with managed(log, swallow=True):
        raise ValueError
    try:
        with managed(log):
            raise ValueError("out")
    except ValueError as e:
        log.append(str(e))
    s = Shape(1)
    with s as t, contextlib.nullcontext(4) as four:
        inside = t.size
    with Shape(1):
        raise ValueError
    return x, log, inside, s.size, four


@program
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(managed(log))
        stack.callback(log.append, "cb")
        log.append("body")
    return x + 1, log


@managed([])
def decorated_by_manager(x):
    return x * 2


@program.breaks("recompiled, since a list grows")
def manager_as_decorator(x):
    return decorated_by_manager(x)


@program
def closing(x):
    class_like = Shape(2)
    with contextlib.redirect_stdout(None) if False else contextlib.nullcontext():
        y = x * class_like.size
    return y


# ---------------------------------------------------------------- pattern matching
class P:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


@program
def patterns(x):
    def kind(v):
        match v:
            case 0 | 1:
                return "small"
            case int(n) if n > 100:
                return f"big {n}"
            case [1, *rest]:
                return ("list", rest)
            case {"k": k, **others}:
                return ("map", k, others)
            case P(1, b=c):
                return ("P", c)
            case P(a, b):
                return a, b
            case (str() as s) | [s]:
                return s
            case None:
                return "none"
            case torch.Tensor():
                return "tensor"
            case _:
                return "other"

    return x + 1, [kind(v) for v in (0, 500, [1, 2, 3], {"k": 5, "z": 1}, P(1, 9), P(3, 4), "t", ["u"], None, 2.5,
        (1, 2))]


# ---------------------------------------------------------------- side effects
STATE = {"n": 0, "items": []}
counter = 0


@program
def global_writes(x):
    global counter
    counter = 1
    counter += 1
    STATE["n"] = counter
    return x * counter, STATE["n"]


@program
def global_delete(x):
    global temporary
    temporary = 3
    y = x * temporary
    del temporary
    return y, "temporary" in globals() if False else 1


@program
def aliases(x):
    a = [1]
    b = {"a": a}
    c = (a, b)
    c[0].append(2)
    b["a"] = b["a"] + [3]
    return x + 1, a, b, c[1] is b, c[0] is a


@program
def self_reference(x):
    a = [x + 1]
    a.append(a)
    return a[0], a[1] is a, len(a[1][1])


@program
def swaps(x):
    a, b = [1], [2]
    a, b = b, a
    a[0], b[0] = b[0], a[0]
    i, lst = 0, [0, 0]
    i, lst[i] = 1, 5
    return x + 1, a, b, lst


@program
def augmented(x):
    d = {"k": [1]}
    d["k"] += [2]
    d["k"][0] -= 5
    n = 3
    n **= 2
    n //= 2
    s = "a"
    s += "b"
    t = (1,)
    t += (2,)
    x += 1
    return x, d, n, s, t


@program
def delete_forms(x):
    a, d, o = [1, 2, 3], {"a": 1, "b": 2}, Base()
    del a[0], d["a"], o.k
    v = 1
    del v
    try:
        return x, v  # noqa: F821
    except UnboundLocalError:
        return x + 1, a, d, hasattr(o, "k")


@pytest.mark.parametrize("name", program.names())
def test_code(name):
    program.check(name)
