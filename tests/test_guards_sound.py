"""Whatever a compiled function has read may change before its next call; the next call then equals eager.

A case gives a function, its arguments and a change. The function is compiled and called, the change is made, and both
are called again: a stale cache entry would give the old answer.
"""
from __future__ import annotations

import builtins
import collections
import dataclasses
import enum
import functools
import math
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import dynamo_lite

Case = tuple[Callable[..., Any], tuple[Any, ...], Callable[[], Any]]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    assert make.__name__ not in CASES
    CASES[make.__name__] = make
    return make


@dataclasses.dataclass
class Raised:
    cls: type


def _outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return Raised(type(error))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            and a.requires_grad == b.requires_grad and a.is_conj() == b.is_conj() and torch.equal(a, b)
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@pytest.fixture(autouse=True)
def _module_as_it_was():
    before = dict(globals())
    yield
    for name in set(globals()) - set(before):
        del globals()[name]
    globals().update(before)


X = torch.arange(6.0).reshape(2, 3)


class Plain:
    kind = 1

    def __init__(self, k: Any = 2) -> None:
        self.k = k

    def scale(self, x: Any) -> Any:
        return x * self.k


# ---------------------------------------------------------------- attributes and classes
@case
def attribute() -> Case:
    obj = Plain()
    return lambda x: x * obj.k, (X,), lambda: setattr(obj, "k", 5)


@case
def attribute_becomes_float() -> Case:
    obj = Plain(2)
    return lambda x: (x * 1, obj.k), (X,), lambda: setattr(obj, "k", 2.0)


@case
def attribute_becomes_true() -> Case:
    obj = Plain(1)
    return lambda x: (x * 1, obj.k), (X,), lambda: setattr(obj, "k", True)


@case
def attribute_negative_zero() -> Case:
    obj = Plain(0.0)
    return lambda x: (x * 1, math.copysign(1, obj.k)), (X,), lambda: setattr(obj, "k", -0.0)


@case
def attribute_deleted() -> Case:
    obj = Plain()
    return lambda x: x * getattr(obj, "k", 7), (X,), lambda: delattr(obj, "k")


@case
def attribute_added() -> Case:
    obj = Plain()
    return lambda x: x * getattr(obj, "more", 7), (X,), lambda: setattr(obj, "more", 3)


@case
def hasattr_changes() -> Case:
    obj = Plain()
    return lambda x: (x + 1, hasattr(obj, "more")), (X,), lambda: setattr(obj, "more", 3)


@case
def instance_dict_changes() -> Case:
    obj = Plain()
    return lambda x: (x + 1, sorted(obj.__dict__)), (X,), lambda: setattr(obj, "more", 3)


@case
def vars_get_changes() -> Case:
    obj = Plain()
    return lambda x: x * vars(obj).get("more", 2), (X,), lambda: setattr(obj, "more", 3)


@case
def class_attribute() -> Case:
    class A(Plain):
        kind = 2

    obj = A()
    return lambda x: x * obj.kind, (X,), lambda: setattr(A, "kind", 5)


@case
def class_attribute_of_base() -> Case:
    class A(Plain):
        pass

    class B(A):
        pass

    obj = B()
    return lambda x: x * obj.kind, (X,), lambda: setattr(A, "kind", 9)


@case
def class_attribute_shadowed_by_instance() -> Case:
    obj = Plain()
    return lambda x: x * obj.kind, (X,), lambda: setattr(obj, "kind", 9)


@case
def class_attribute_through_class() -> Case:
    class A:
        limits = [1, 2]

    return lambda x: x * A.limits[0], (X,), lambda: A.limits.__setitem__(0, 4)


@case
def method_replaced_on_class() -> Case:
    class A(Plain):
        def scale(self, x: Any) -> Any:
            return x * 3

    obj = A()
    return lambda x: obj.scale(x), (X,), lambda: setattr(A, "scale", lambda self, x: x * 11)


@case
def method_replaced_on_instance() -> Case:
    obj = Plain()
    return lambda x: obj.scale(x), (X,), lambda: setattr(obj, "scale", lambda x: x * 11)


@case
def method_code_replaced() -> Case:
    class A:
        def run(self, x: Any) -> Any:
            return x * 3

    obj = A()

    def change() -> None:
        A.run.__code__ = (lambda self, x: x * 13).__code__

    return lambda x: obj.run(x), (X,), change


@case
def method_defaults_replaced() -> Case:
    class A:
        def run(self, x: Any, k: int = 2) -> Any:
            return x * k

    obj = A()

    def change() -> None:
        A.run.__defaults__ = (17,)

    return lambda x: obj.run(x), (X,), change


@case
def property_replaced() -> Case:
    class A:
        @property
        def k(self) -> int:
            return 2

    obj = A()
    return lambda x: x * obj.k, (X,), lambda: setattr(A, "k", property(lambda self: 5))


@case
def property_getter_code() -> Case:
    class A:
        @property
        def k(self) -> int:
            return 2

    obj = A()

    def change() -> None:
        A.k.fget.__code__ = (lambda self: 6).__code__

    return lambda x: x * obj.k, (X,), change


@case
def staticmethod_code() -> Case:
    class A:
        @staticmethod
        def k() -> int:
            return 2

    def change() -> None:
        A.k.__code__ = (lambda: 6).__code__

    return lambda x: x * A.k(), (X,), change


@case
def classmethod_reads_class() -> Case:
    class A:
        factor = 2

        @classmethod
        def k(cls) -> int:
            return cls.factor

    return lambda x: x * A.k(), (X,), lambda: setattr(A, "factor", 5)


@case
def getattr_added() -> Case:
    class A:
        pass

    obj = A()
    return (lambda x: x * getattr(obj, "z", 2)), (X,), lambda: setattr(A, "__getattr__", lambda self, name: 6)


@case
def getattribute_added() -> Case:
    class A:
        z = 1

    obj = A()
    return (lambda x: x * obj.z), (X,), lambda: setattr(A, "__getattribute__", lambda self, name: 6)


@case
def setattr_added() -> Case:
    class A:
        pass

    obj = A()

    def fn(x: Any) -> Any:
        obj.z = 3
        return x * obj.z

    def change() -> None:
        A.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value + 1)

    return fn, (X,), change


@case
def class_of_instance_changes() -> Case:
    class A:
        def k(self) -> int:
            return 2

    class B(A):
        def k(self) -> int:
            return 3

    obj = A()
    return lambda x: x * obj.k(), (X,), lambda: setattr(obj, "__class__", B)


@case
def bases_change() -> Case:
    class P:
        k = 2

    class Q:
        k = 3

    class A(P):
        pass

    obj = A()
    return lambda x: x * obj.k, (X,), lambda: setattr(A, "__bases__", (Q,))


@case
def slot_changes() -> Case:
    class A:
        __slots__ = ("k",)

    obj = A()
    obj.k = 2
    return lambda x: x * obj.k, (X,), lambda: setattr(obj, "k", 5)


@case
def slot_deleted() -> Case:
    class A:
        __slots__ = ("k",)

    obj = A()
    obj.k = 2
    return lambda x: x * getattr(obj, "k", 8), (X,), lambda: delattr(obj, "k")


@case
def slot_filled() -> Case:
    class A:
        __slots__ = ("k",)

    obj = A()
    return lambda x: x * getattr(obj, "k", 8), (X,), lambda: setattr(obj, "k", 3)


@case
def metaclass_attribute() -> Case:
    class Meta(type):
        k = 2

    class A(metaclass=Meta):
        pass

    return lambda x: x * A.k, (X,), lambda: setattr(Meta, "k", 5)


@case
def metaclass_shadowed() -> Case:
    class Meta(type):
        k = 2

    class A(metaclass=Meta):
        pass

    return lambda x: x * A.k, (X,), lambda: setattr(A, "k", 5)


@case
def super_method_replaced() -> Case:
    class A:
        def k(self) -> int:
            return 2

    class B(A):
        def k(self) -> int:
            return super().k() + 1

    obj = B()
    return lambda x: x * obj.k(), (X,), lambda: setattr(A, "k", lambda self: 20)


@case
def super_method_inserted() -> Case:
    class A:
        def k(self) -> int:
            return 2

    class B(A):
        pass

    class C(B):
        def k(self) -> int:
            return super().k() + 1

    obj = C()
    return lambda x: x * obj.k(), (X,), lambda: setattr(B, "k", lambda self: 20)


@case
def super_attribute_missing_then_there() -> Case:
    class A:
        pass

    class B(A):
        def k(self) -> int:
            return getattr(super(), "base", 4)

    obj = B()
    return lambda x: x * obj.k(), (X,), lambda: setattr(A, "base", 20)


@case
def dunder_added() -> Case:
    class A:
        pass

    obj = A()
    return lambda x: (x + 1, bool(obj)), (X,), lambda: setattr(A, "__bool__", lambda self: False)


@case
def dunder_len_added() -> Case:
    class A:
        pass

    obj = A()
    return lambda x: (x + 1, 1 if obj else 2), (X,), lambda: setattr(A, "__len__", lambda self: 0)


@case
def dunder_eq_added() -> Case:
    class A:
        pass

    a, b = A(), A()
    return lambda x: (x + 1, a == b), (X,), lambda: setattr(A, "__eq__", lambda self, other: True)


@case
def callable_added() -> Case:
    class A:
        pass

    obj = A()
    return lambda x: (x + 1, callable(obj)), (X,), lambda: setattr(A, "__call__", lambda self: 1)


@case
def hash_added() -> Case:
    class A:
        pass

    a, b = A(), A()

    def change() -> None:
        A.__eq__ = lambda self, other: True
        A.__hash__ = lambda self: 1

    return lambda x: (x + 1, len({a: 1, b: 2})), (X,), change


@case
def descriptor_replaced() -> Case:
    class D:
        def __get__(self, obj: Any, cls: Any) -> int:
            return 2

    class A:
        k = D()

    obj = A()
    return lambda x: x * obj.k, (X,), lambda: setattr(D, "__get__", lambda self, obj, cls: 5)


@case
def descriptor_becomes_data() -> Case:
    class D:
        def __get__(self, obj: Any, cls: Any) -> int:
            return 2

    class A:
        k = D()

    obj = A()
    obj.__dict__["k"] = 9
    return lambda x: x * obj.k, (X,), lambda: setattr(D, "__set__", lambda self, obj, value: None)


@case
def value_becomes_descriptor() -> Case:
    class D:
        pass

    class A:
        k = D()

    obj = A()
    return (lambda x: (x + 1, isinstance(obj.k, D))), (X,), lambda: setattr(D, "__get__", lambda self, obj, cls: 5)


@case
def isinstance_class_changes() -> Case:
    class P:
        pass

    class A:
        pass

    obj = A()
    return lambda x: (x + 1, isinstance(obj, P)), (X,), lambda: setattr(obj, "__class__", type("B", (P, A), {}))


@case
def isinstance_bases_change() -> Case:
    class P:
        pass

    class Q:
        pass

    class A(P):
        pass

    obj = A()
    return lambda x: (x + 1, isinstance(obj, P)), (X,), lambda: setattr(A, "__bases__", (Q,))


@case
def abstract_register() -> Case:
    class A:
        pass

    import abc

    class Base(abc.ABC):
        pass

    obj = A()
    return lambda x: (x + 1, isinstance(obj, Base)), (X,), lambda: Base.register(A)


@case
def instancecheck_state() -> Case:
    class Meta(type):
        yes = False

        def __instancecheck__(cls, obj: Any) -> bool:
            return cls.yes

    class A(metaclass=Meta):
        pass

    obj = Plain()
    return lambda x: (x + 1, isinstance(obj, A)), (X,), lambda: setattr(Meta, "yes", True)


@case
def class_name_changes() -> Case:
    class A:
        pass

    obj = A()
    return lambda x: (x + 1, type(obj).__name__), (X,), lambda: setattr(A, "__name__", "B")


@case
def class_dict_membership() -> Case:
    class A:
        pass

    return lambda x: (x + 1, hasattr(A, "z")), (X,), lambda: setattr(A, "z", 1)


# ---------------------------------------------------------------- names
k_global = 2
l_global = [1, 2]


@case
def global_value() -> Case:
    return lambda x: x * k_global, (X,), lambda: globals().update(k_global=5)


@case
def global_list() -> Case:
    return lambda x: x * len(l_global), (X,), lambda: globals().update(l_global=[1])


@case
def builtin_shadowed() -> Case:
    return lambda x: x * len([1, 2]), (X,), lambda: globals().update(len=lambda x: 9)


@case
def builtin_replaced() -> Case:
    old = builtins.abs

    def fn(x: Any, k: int) -> Any:
        return x * abs(k)

    class Restore:
        def __call__(self) -> None:
            builtins.abs = lambda v: 50

    change = Restore()
    change.undo = lambda: setattr(builtins, "abs", old)
    return fn, (X, -2), change


def helper(x: Any) -> Any:
    return x * k_global + 1


@case
def global_of_callee() -> Case:
    return lambda x: helper(x), (X,), lambda: globals().update(k_global=5)


@case
def callee_replaced() -> Case:
    return lambda x: helper(x), (X,), lambda: globals().update(helper=lambda x: x - 1)


@case
def callee_code_replaced() -> Case:
    def inner(x: Any) -> Any:
        return x * 2

    def change() -> None:
        inner.__code__ = (lambda x: x * 7).__code__

    return lambda x: inner(x), (X,), change


@case
def closure_value() -> Case:
    k = 2

    def change() -> None:
        nonlocal k
        k = 5

    return lambda x: x * k, (X,), change


@case
def closure_of_callee() -> Case:
    k = 2

    def inner(x: Any) -> Any:
        return x * k

    def change() -> None:
        nonlocal k
        k = 5

    return lambda x: inner(x), (X,), change


@case
def closure_function_swapped_for_twin() -> Case:
    def make(k: int) -> Callable[[Any], Any]:
        return lambda x: x * k

    box = [make(2)]
    return lambda x: box[0](x), (X,), lambda: box.__setitem__(0, make(5))


@case
def defaults() -> Case:
    def inner(x: Any, k: int = 2, *, j: int = 3) -> Any:
        return x * k + j

    def change() -> None:
        inner.__defaults__ = (9,)

    return lambda x: inner(x), (X,), change


@case
def keyword_defaults() -> Case:
    def inner(x: Any, k: int = 2, *, j: int = 3) -> Any:
        return x * k + j

    def change() -> None:
        inner.__kwdefaults__ = {"j": 9}

    return lambda x: inner(x), (X,), change


@case
def keyword_defaults_removed() -> Case:
    def inner(x: Any, *, j: int = 3) -> Any:
        return x + j

    def change() -> None:
        inner.__kwdefaults__ = None

    return lambda x: inner(x), (X,), change


@case
def keyword_defaults_added() -> Case:
    def inner(x: Any, *, j: int) -> Any:
        return x + j

    def outer(x: Any) -> Any:
        try:
            return inner(x)
        except TypeError:
            return x

    def change() -> None:
        inner.__kwdefaults__ = {"j": 4}

    return outer, (X,), change


@case
def defaults_removed() -> Case:
    def inner(x: Any, k: int = 2) -> Any:
        return x * k

    def change() -> None:
        inner.__defaults__ = None

    return lambda x: inner(x), (X,), change


@case
def defaults_added() -> Case:
    def inner(x: Any, k: int) -> Any:
        return x * k

    def outer(x: Any) -> Any:
        try:
            return inner(x)
        except TypeError:
            return x

    def change() -> None:
        inner.__defaults__ = (4,)

    return outer, (X,), change


@case
def mutable_default() -> Case:
    def inner(x: Any, k: list[int] = [1]) -> Any:
        return x * k[0]

    return lambda x: inner(x), (X,), lambda: inner.__defaults__[0].__setitem__(0, 7)


@case
def function_attribute() -> Case:
    def inner(x: Any) -> Any:
        return x * inner.k

    inner.k = 2
    return lambda x: inner(x), (X,), lambda: setattr(inner, "k", 5)


@case
def function_attribute_added() -> Case:
    def inner(x: Any) -> Any:
        return x * getattr(inner, "k", 3)

    return lambda x: inner(x), (X,), lambda: setattr(inner, "k", 5)


@case
def function_name() -> Case:
    def inner(x: Any) -> Any:
        return x

    return lambda x: (x + 1, inner.__name__, inner.__doc__), (X,), lambda: setattr(inner, "__name__", "other")


@case
def function_doc() -> Case:
    def inner(x: Any) -> Any:
        """One."""

    return lambda x: (x + 1, inner.__doc__), (X,), lambda: setattr(inner, "__doc__", "Two.")


@case
def functions_compared() -> Case:
    def make() -> Callable[[], int]:
        return lambda: 1

    f = make()
    box = [f]
    return lambda x: (x + 1, box[0] is f, box[0] == f), (X,), lambda: box.__setitem__(0, make())


@case
def function_as_key() -> Case:
    def make() -> Callable[[], int]:
        return lambda: 1

    f, g = make(), make()
    box = [f]
    table = {f: 2, g: 3}
    return lambda x: x * table[box[0]], (X,), lambda: box.__setitem__(0, g)


@case
def method_compared() -> Case:
    a, b = Plain(), Plain()
    box = [a.scale]
    return lambda x: (x + 1, box[0] == a.scale), (X,), lambda: box.__setitem__(0, b.scale)


@case
def bound_method_in_list() -> Case:
    a, b = Plain(2), Plain(3)
    box = [a.scale]
    return lambda x: box[0](x), (X,), lambda: box.__setitem__(0, b.scale)


@case
def id_of_function() -> Case:
    def make() -> Callable[[], int]:
        return lambda: 1

    box = [make()]
    return lambda x: (x + 1, id(box[0])), (X,), lambda: box.__setitem__(0, make())


@case
def wrapped_function() -> Case:
    def deco(f: Any) -> Any:
        @functools.wraps(f)
        def inner(*a: Any) -> Any:
            return f(*a) * 2

        return inner

    @deco
    def run(x: Any) -> Any:
        return x + 1

    def change() -> None:
        run.__wrapped__.__code__ = (lambda x: x + 5).__code__

    return lambda x: run(x), (X,), change


@case
def partial_args() -> Case:
    def inner(k: int, x: Any) -> Any:
        return x * k

    box = [functools.partial(inner, 2)]
    return lambda x: box[0](x), (X,), lambda: box.__setitem__(0, functools.partial(inner, 5))


@case
def partial_keywords() -> Case:
    def inner(x: Any, k: int = 1) -> Any:
        return x * k

    p = functools.partial(inner, k=2)
    return lambda x: p(x), (X,), lambda: p.keywords.update(k=5)


@case
def python_module_function() -> Case:
    module = types.ModuleType("some_module")
    module.scale = lambda x: x * 2
    return lambda x: module.scale(x), (X,), lambda: setattr(module, "scale", lambda x: x * 9)


@case
def torch_function_monkeypatched() -> Case:
    module = types.ModuleType("fake_torch")
    module.relu = torch.relu
    return lambda x: module.relu(x - 2), (X,), lambda: setattr(module, "relu", torch.abs)


@case
def module_getattr() -> Case:
    module = types.ModuleType("lazy_module")
    values = {"k": 2}
    module.__getattr__ = lambda name: values[name]
    return lambda x: x * module.k, (X,), lambda: values.update(k=3)


@case
def module_hasattr() -> Case:
    module = types.ModuleType("some_module")
    return lambda x: x * getattr(module, "k", 2), (X,), lambda: setattr(module, "k", 5)


# ---------------------------------------------------------------- containers
@case
def list_item() -> Case:
    box = [1, 2]
    return lambda x: x * box[1], (X,), lambda: box.__setitem__(1, 7)


@case
def list_longer() -> Case:
    box = [1, 2]
    return lambda x: x * sum(box), (X,), lambda: box.append(7)


@case
def list_order() -> Case:
    box = [1, 2]
    return lambda x: x * box[0], (X,), lambda: box.reverse()


@case
def list_type() -> Case:
    class L(list):
        def __len__(self) -> int:
            return 9

    box = [[1, 2]]
    return lambda x: x * len(box[0]), (X,), lambda: box.__setitem__(0, L([1, 2]))


@case
def list_subclass_contents() -> Case:
    class L(list):
        pass

    box = L([1, 2])
    return lambda x: x * sum(box), (X,), lambda: box.append(3)


@case
def dict_value() -> Case:
    box = {"a": 1}
    return lambda x: x * box["a"], (X,), lambda: box.update(a=4)


@case
def dict_key_added() -> Case:
    box = {"a": 1}
    return lambda x: x * box.get("b", 3), (X,), lambda: box.update(b=4)


@case
def dict_key_removed() -> Case:
    box = {"a": 1, "b": 2}
    return lambda x: x * box.get("b", 3), (X,), lambda: box.pop("b")


@case
def dict_contains() -> Case:
    box = {"a": 1}
    return lambda x: (x + 1, "b" in box, "a" in box), (X,), lambda: box.update(b=4)


@case
def dict_contains_removed() -> Case:
    box = {"a": 1}
    return lambda x: (x + 1, "a" in box), (X,), lambda: box.pop("a")


@case
def dict_length() -> Case:
    box = {"a": 1}
    return lambda x: x * len(box), (X,), lambda: box.update(b=4)


@case
def dict_truth() -> Case:
    box: dict[str, int] = {}
    return lambda x: x * (2 if box else 3), (X,), lambda: box.update(b=4)


@case
def dict_order() -> Case:
    box = {"a": 1, "b": 2}

    def change() -> None:
        box["a"] = box.pop("a")

    return lambda x: x * next(iter(box.values())), (X,), change


@case
def dict_key_type() -> Case:
    box: dict[Any, int] = {1: 1}

    def change() -> None:
        del box[1]
        box[True] = 1

    return lambda x: (x + 1, list(box)), (X,), change


@case
def dict_key_type_by_lookup() -> Case:
    box: dict[Any, int] = {1: 1}
    return lambda x: (x + 1, box.get(1.0), True in box), (X,), lambda: box.pop(1)


@case
def dict_object_key() -> Case:
    a, b = Plain(), Plain()
    box = {a: 2}
    return lambda x: (x + 1, box.get(b, 5)), (X,), lambda: box.update({b: 3})


@case
def dict_object_key_lookup_in_simple() -> Case:
    a = Plain()
    box: dict[Any, int] = {"k": 2}
    return lambda x: (x + 1, box.get(a, 5)), (X,), lambda: box.update({a: 3})


@case
def dict_class_key() -> Case:
    box: dict[Any, int] = {"k": 2}
    return lambda x: (x + 1, box.get(Plain, 5)), (X,), lambda: box.update({Plain: 3})


@case
def defaultdict_factory() -> Case:
    box = collections.defaultdict(int)

    def fn(x: Any) -> Any:
        value = box["q"]
        del box["q"]
        return x + 1, value

    def change() -> None:
        box.default_factory = list

    return fn, (X,), change


@case
def ordered_dict_order() -> Case:
    box = collections.OrderedDict(a=1, b=2)
    return lambda x: (x + 1, list(box)), (X,), lambda: box.move_to_end("a")


@case
def dict_subclass_missing() -> Case:
    class D(dict):
        def __missing__(self, key: Any) -> int:
            return 4

    box = D()
    return lambda x: x * box["q"], (X,), lambda: setattr(D, "__missing__", lambda self, key: 8)


@case
def set_member() -> Case:
    box = {1, 2}
    return lambda x: (x + 1, 3 in box), (X,), lambda: box.add(3)


@case
def set_types() -> Case:
    box: set[Any] = {1}

    def change() -> None:
        box.clear()
        box.add(True)

    return lambda x: (x + 1, list(box)), (X,), change


@case
def tuple_in_list() -> Case:
    box = [(1, 2)]
    return lambda x: x * box[0][1], (X,), lambda: box.__setitem__(0, (1, 3))


@case
def nested_tuple_type() -> Case:
    box: list[Any] = [(1, (2, 3))]
    return lambda x: (x * 1, box[0]), (X,), lambda: box.__setitem__(0, (1, (2, 3.0)))


class Point(NamedTuple):
    a: int
    b: int


@case
def named_tuple_field() -> Case:
    box = [Point(1, 2)]
    return lambda x: x * box[0].b, (X,), lambda: box.__setitem__(0, Point(1, 5))


@case
def range_changes() -> Case:
    box = [range(3)]
    return lambda x: x * sum(box[0]), (X,), lambda: box.__setitem__(0, range(4))


@case
def slice_changes() -> Case:
    box = [slice(0, 1)]
    return lambda x: x[box[0]] + 1, (X,), lambda: box.__setitem__(0, slice(0, 2))


@dataclasses.dataclass
class Data:
    a: int = 1
    b: list[int] = dataclasses.field(default_factory=lambda: [1])


@case
def dataclass_field() -> Case:
    box = Data()
    return lambda x: x * box.a, (X,), lambda: setattr(box, "a", 5)


@case
def dataclass_default() -> Case:
    @dataclasses.dataclass
    class D:
        a: int = 1

    def change() -> None:
        D.__init__.__defaults__ = (7,)

    return lambda x: x * D().a, (X,), change


@case
def simple_namespace() -> Case:
    box = types.SimpleNamespace(a=1)
    return lambda x: x * box.a, (X,), lambda: setattr(box, "a", 5)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@case
def enum_member() -> Case:
    box = [Colour.RED]
    return lambda x: x * box[0].value, (X,), lambda: box.__setitem__(0, Colour.BLUE)


@case
def enum_attribute() -> Case:
    class E(enum.Enum):
        A = 1

        @property
        def doubled(self) -> int:
            return self.value * 2

    return lambda x: x * E.A.doubled, (X,), lambda: setattr(E, "doubled", property(lambda self: 9))


@case
def string_value() -> Case:
    box = ["relu"]
    return lambda x: torch.relu(x - 2) if box[0] == "relu" else x, (X,), lambda: box.__setitem__(0, "none")


@case
def nan_value() -> Case:
    box = [1.5]
    return lambda x: (x + 1, box[0] != box[0]), (X,), lambda: box.__setitem__(0, math.nan)


@case
def same_object_becomes_two() -> Case:
    a = [1, 2]
    pair = [a, a]

    def fn(x: Any) -> Any:
        pair[0].append(3)
        result = x * len(pair[1]), pair[0] is pair[1]
        pair[0].pop()
        return result

    return fn, (X,), lambda: pair.__setitem__(1, [1, 2])


@case
def two_objects_become_one() -> Case:
    a, b = [1, 2], [1, 2]
    pair = [a, b]

    def fn(x: Any) -> Any:
        pair[0].append(3)
        result = x * len(pair[1])
        pair[0].pop()
        return result

    return fn, (X,), lambda: pair.__setitem__(1, a)


@case
def two_tensors_become_one() -> Case:
    a, b = X.clone(), X.clone()
    pair = [a, b]

    def fn(x: Any) -> Any:
        pair[0].add_(1)
        result = pair[1] * 2
        pair[0].sub_(1)
        return result

    return fn, (X,), lambda: pair.__setitem__(1, a)


@case
def tensors_overlap() -> Case:
    base = torch.zeros(4)
    pair = [base[:2], torch.zeros(2)]

    def fn(x: Any) -> Any:
        pair[0].add_(1)
        result = pair[1] * 2
        pair[0].sub_(1)
        return result

    return fn, (X,), lambda: pair.__setitem__(1, base[1:3])


@case
def tensor_is_tensor() -> Case:
    a, b = X.clone(), X.clone()
    pair = [a, b]
    return lambda x: (pair[0] + pair[1], pair[0] is pair[1]), (X,), lambda: pair.__setitem__(1, a)


@case
def objects_compared_by_identity() -> Case:
    a, b = Plain(), Plain()
    pair = [a, b]
    return lambda x: (x + 1, pair[0] is pair[1]), (X,), lambda: pair.__setitem__(1, a)


@case
def none_becomes_value() -> Case:
    box: list[Any] = [None]
    return lambda x: x if box[0] is None else x * box[0], (X,), lambda: box.__setitem__(0, 4)


# ---------------------------------------------------------------- modules
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.0)
        self.register_buffer("scale", torch.ones(3))
        self.layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        self.flag = True

    def forward(self, x: Any) -> Any:
        x = self.linear(x) * self.scale
        for layer in self.layers:
            x = layer(x)
        return x if self.flag else -x


def _module_case(change: Callable[[Net], Any]) -> Case:
    torch.manual_seed(0)
    net = Net()
    return net.forward, (X,), lambda: change(net)


def _forward_doubled(module: nn.Module, args: Any, output: Any) -> Any:
    return output * 2


MODULE_CHANGES: dict[str, Callable[[Net], Any]] = {
    "parameter_replaced": lambda net: setattr(net.linear, "weight", nn.Parameter(torch.ones(3, 3))),
    "parameter_data_changed": lambda net: net.linear.weight.data.fill_(2),
    "bias_removed": lambda net: setattr(net.linear, "bias", None),
    "requires_grad_off": lambda net: net.requires_grad_(False),
    "buffer_replaced": lambda net: setattr(net, "scale", torch.full((3,), 2.0)),
    "buffer_dtype": lambda net: setattr(net, "scale", torch.full((3,), 2.0, dtype=torch.float64)),
    "submodule_replaced": lambda net: setattr(net, "linear", nn.Linear(3, 4)),
    "submodule_same_class": lambda net: setattr(net, "linear", nn.Linear(3, 3)),
    "submodule_deleted": lambda net: delattr(net, "linear"),
    "layer_appended": lambda net: net.layers.append(nn.Sigmoid()),
    "layer_replaced": lambda net: net.layers.__setitem__(0, nn.Sigmoid()),
    "flag": lambda net: setattr(net, "flag", False),
    "forward_hook": lambda net: net.linear.register_forward_hook(_forward_doubled),
    "forward_pre_hook": lambda net: net.linear.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "forward_on_instance": lambda net: setattr(net.linear, "forward", lambda x: x * 7),
    "training": lambda net: (net.train(), setattr(net.drop, "p", 1.0)),
    "double": lambda net: net.double(),
    "parameter_shadowed": lambda net: net.__dict__.__setitem__("linear", lambda x: x * 3),
}
for _name, _change in MODULE_CHANGES.items():
    CASES[f"module_{_name}"] = functools.partial(_module_case, _change)


@case
def module_hook_added_to_called() -> Case:
    torch.manual_seed(0)
    net = Net()
    return lambda x: net(x), (X,), lambda: net.register_forward_hook(_forward_doubled)


@case
def module_global_hook() -> Case:
    torch.manual_seed(0)
    net = Net()
    handles: list[Any] = []

    class Change:
        def __call__(self) -> None:
            handles.append(nn.modules.module.register_module_forward_hook(_forward_doubled))

        def undo(self) -> None:
            handles.pop().remove()

    return lambda x: net(x), (X,), Change()


@case
def module_backward_hook() -> Case:
    torch.manual_seed(0)
    net = Net()
    seen: list[int] = []

    def fn(x: Any) -> Any:
        net(x).sum().backward()
        return x + 1

    def run(x: Any) -> Any:
        seen.clear()
        net.zero_grad()
        net(x).sum().backward()
        return len(seen)

    return run, (X,), lambda: net.linear.register_full_backward_hook(lambda m, a, b: seen.append(1))


@case
def module_train_dropout() -> Case:
    net = nn.Dropout(1.0).eval()
    return lambda x: net(x), (X,), lambda: net.train()


@case
def module_batch_norm_stats() -> Case:
    net = nn.BatchNorm1d(3).eval()
    return lambda x: net(x), (X,), lambda: net.running_mean.add_(2)


@case
def module_call_overridden() -> Case:
    class M(nn.Linear):
        pass

    torch.manual_seed(0)
    net = M(3, 3)
    return lambda x: net(x), (X,), lambda: setattr(M, "__call__", lambda self, x: x * 5)


@case
def module_forward_class_replaced() -> Case:
    class M(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    net = M()
    return lambda x: net(x), (X,), lambda: setattr(M, "forward", lambda self, x: x * 5)


@case
def module_parameters_loop() -> Case:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def fn(x: Any) -> Any:
        return x + sum(p.sum() for p in net.parameters())

    return fn, (X,), lambda: net.append(nn.Linear(3, 3))


@case
def module_parameters_loop_frozen() -> Case:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def fn(x: Any) -> Any:
        return x + sum(p.detach().sum() for p in net.parameters() if p.requires_grad)

    return fn, (X,), lambda: net[0].requires_grad_(False)


@case
def module_named_buffers() -> Case:
    net = Net()
    return lambda x: (x + 1, [n for n, _ in net.named_buffers()]), (X,), lambda: net.register_buffer("more", X)


@case
def module_children_names() -> Case:
    net = Net()
    return lambda x: (x + 1, [n for n, _ in net.named_children()]), (X,), lambda: net.add_module("more", nn.ReLU())


# ---------------------------------------------------------------- tensors and torch's state
def _tensor_case(name: str, old: Any, new: Any, fn: Callable[[Any], Any] = lambda x: x * 2) -> None:
    def make() -> Case:
        box = [old()]
        return lambda x: fn(box[0]), (X,), lambda: box.__setitem__(0, new())

    CASES[f"tensor_{name}"] = make


_tensor_case("dtype", lambda: X, lambda: X.double())
_tensor_case("shape", lambda: X, lambda: torch.ones(3, 3))
_tensor_case("rank", lambda: X, lambda: torch.ones(3))
_tensor_case("strides", lambda: X, lambda: X.t().contiguous().t())
_tensor_case("requires_grad", lambda: X, lambda: X.clone().requires_grad_())
_tensor_case("parameter", lambda: X, lambda: nn.Parameter(X.clone()), lambda t: (t * 2, isinstance(t, nn.Parameter)))
_tensor_case("conj", lambda: torch.ones(2, dtype=torch.cfloat), lambda: torch.ones(2, dtype=torch.cfloat).conj(),
             lambda t: t.is_conj())
_tensor_case("conj_value", lambda: torch.ones(2, dtype=torch.cfloat) * 1j,
             lambda: (torch.ones(2, dtype=torch.cfloat) * 1j).conj(), lambda t: t * 2)
_tensor_case("neg", lambda: torch.ones(2), lambda: torch._neg_view(torch.ones(2)), lambda t: (t * 2, t.is_neg()))
_tensor_case("attribute", lambda: X.clone(), lambda: setattr(t := X.clone(), "tag", 3) or t,
             lambda t: (t * 2, getattr(t, "tag", 0)))
_tensor_case("grad", lambda: nn.Parameter(torch.ones(2)),
             lambda: setattr(p := nn.Parameter(torch.ones(2)), "grad", torch.ones(2)) or p,
             lambda t: (t.detach() * 2, t.grad is None))
_tensor_case("leaf", lambda: nn.Parameter(torch.ones(2)).data.requires_grad_(),
             lambda: torch.ones(2).requires_grad_() * 1, lambda t: (t.detach() * 2, t.is_leaf))
_tensor_case("subclass", lambda: X, lambda: X.as_subclass(type("T", (torch.Tensor,), {})),
             lambda t: (t.dtype, type(t).__name__))
_tensor_case("sparse", lambda: X, lambda: X.to_sparse(), lambda t: (t.is_sparse,))
_tensor_case("becomes_none", lambda: X, lambda: None, lambda t: X if t is None else t * 2)
_tensor_case("becomes_number", lambda: X, lambda: 3)


def _state_case(name: str, fn: Callable[..., Any], enter: Callable[[], Any]) -> None:
    def make() -> Case:
        class Change:
            def __call__(self) -> None:
                self.manager = enter()
                self.manager.__enter__()

            def undo(self) -> None:
                self.manager.__exit__(None, None, None)

        return fn, (X,), Change()

    CASES[f"state_{name}"] = make


class _DefaultDtype:
    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *args: Any) -> None:
        torch.set_default_dtype(torch.float32)


class _Deterministic:
    def __enter__(self) -> None:
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *args: Any) -> None:
        torch.use_deterministic_algorithms(False)


P = torch.ones(3, requires_grad=True)
_state_case("no_grad", lambda x: x * P, torch.no_grad)
_state_case("no_grad_read", lambda x: (x * 2, torch.is_grad_enabled()), torch.no_grad)
_state_case("inference_mode", lambda x: (x * P, torch.is_inference_mode_enabled()), torch.inference_mode)
_state_case("autocast", lambda x: x @ x.t(), lambda: torch.autocast("cpu", dtype=torch.bfloat16))
_state_case("default_dtype", lambda x: x * 2 + torch.ones(3), _DefaultDtype)
_state_case("default_device", lambda x: torch.ones(2).device.type, lambda: torch.device("meta"))
_state_case("deterministic", lambda x: (x + 1, torch.are_deterministic_algorithms_enabled()), _Deterministic)


class _Threads:
    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        torch.set_num_threads(1 if self.before > 1 else 2)

    def __exit__(self, *args: Any) -> None:
        torch.set_num_threads(self.before)


_state_case("num_threads", lambda x: (x + 1, torch.get_num_threads()), _Threads)


class _Precision:
    def __enter__(self) -> None:
        torch.set_float32_matmul_precision("medium")

    def __exit__(self, *args: Any) -> None:
        torch.set_float32_matmul_precision("highest")


_state_case("matmul_precision", lambda x: (x + 1, torch.get_float32_matmul_precision()), _Precision)
_state_case("mkldnn_flags", lambda x: (x + 1, torch.backends.mkldnn.enabled),
    lambda: torch.backends.mkldnn.flags(enabled=False))


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_noticed(name: str) -> None:
    fn, args, change = CASES[name]()
    compiled = dynamo_lite.compile(fn, backend="eager")
    try:
        assert same(_outcome(compiled, args), _outcome(fn, args)), "first call"
        assert same(_outcome(compiled, args), _outcome(fn, args)), "second call"
        change()
        got, want = _outcome(compiled, args), _outcome(fn, args)
        assert same(got, want), f"stale: {got} instead of {want}"
    finally:
        getattr(change, "undo", lambda: None)()
