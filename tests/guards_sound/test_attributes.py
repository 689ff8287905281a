"""Changes between two calls are noticed: attributes, classes, descriptors, special methods."""
from __future__ import annotations

import functools
import math
import types
from typing import Any

import pytest
from guard_cases import Case, Cases, Plain, X

import dynamo_lite

case = Cases()


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


def of_a_metaclass() -> tuple[type, Any]:
    class Meta(type):
        k = 2

    class A(metaclass=Meta):
        pass

    return Meta, A


@case
def metaclass_attribute() -> Case:
    meta, cls = of_a_metaclass()
    return lambda x: x * cls.k, (X,), lambda: setattr(meta, "k", 5)


@case
def metaclass_gets_a_truth() -> Case:
    meta, cls = of_a_metaclass()
    return lambda x: x * (1 if cls else 2), (X,), lambda: setattr(meta, "__bool__", lambda cls: False)


@case
def metaclass_gets_an_equality() -> Case:
    meta, cls = of_a_metaclass()
    return lambda x: x * (1 if cls == 3 else 2), (X,), lambda: setattr(meta, "__eq__", lambda cls, other: True)


@case
def metaclass_shadowed() -> Case:
    _, cls = of_a_metaclass()
    return lambda x: x * cls.k, (X,), lambda: setattr(cls, "k", 5)


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


def functions_that_are_not_traced() -> list[Any]:
    def function(x: Any) -> Any:
        return x

    marks = [
        dynamo_lite.disable, dynamo_lite.disallow_in_graph, dynamo_lite.assume_constant_result, functools.lru_cache]
    return [mark(types.FunctionType(function.__code__, {}, function.__name__)) for mark in marks]


@case
def attributes_of_functions_that_are_not_traced() -> Case:
    functions = functions_that_are_not_traced()
    for function in functions:
        function.k = 2

    def change() -> None:
        for function in functions:
            function.k = 5

    return lambda x: [x * f.k for f in functions], (X,), change


@case
def attributes_that_functions_get() -> Case:
    functions = functions_that_are_not_traced()

    def change() -> None:
        for function in functions:
            function.k = 5

    return lambda x: [x * getattr(f, "k", 2) for f in functions], (X,), change


@pytest.mark.parametrize("name", case.all)
def test_a_change_is_noticed(name):
    case.check(name, globals())
