"""Python modules as values: what their class decides, their own ``__getattr__``, changed inside the traced program."""
from __future__ import annotations

import sys
import types

import pytest
import torch

import dynamo_lite


class Doubling(types.ModuleType):
    def __setattr__(self, name, value):
        super().__setattr__(name, value * 2 if isinstance(value, int) else value)


class WithProperty(types.ModuleType):
    @property
    def w(self):
        return self.__dict__.get("_w", 0)

    @w.setter
    def w(self, value):
        self.__dict__["_w"] = value + 100


def other_class(x, m):
    m.__class__ = type("M", (types.ModuleType,), {"v": property(lambda self: 9)})
    return m.f(x)


def own_getattr(x, m):
    m.__getattr__ = lambda name: 21
    return x + getattr(m, "late", 5), x + m.q, hasattr(m, "zz")


def own_getattr_raises(x, m):
    def missing(name):
        raise AttributeError(name)
    m.__getattr__ = missing
    return x + getattr(m, "late", 5), hasattr(m, "zz")


def own_getattr_ends(x, m):
    m.__getattr__ = lambda name: 21
    y = x + m.k
    del m.__getattr__
    return y, hasattr(m, "k")


def own_getattr_in_the_dict(x, m):
    m.__dict__["__getattr__"] = lambda name: 3
    return x + m.k


def class_that_sets(x, m):
    m.__class__ = Doubling
    m.q = 4
    return x + m.q


def property_of_the_class(x, m):
    m.w = 4
    m.q = 3
    return x + m.q + m.w, type(m)


def special_names(x, m):
    m.__getattribute__ = lambda name: 1
    m.__setattr__ = 3
    m.z = 5
    return x + m.z


@pytest.mark.parametrize("cls", [types.ModuleType, Doubling, WithProperty])
@pytest.mark.parametrize("fn", [
    other_class, own_getattr, own_getattr_raises, own_getattr_ends, own_getattr_in_the_dict, class_that_sets,
    property_of_the_class, special_names,
])
def test_what_a_modules_class_decides(fn, cls):
    if fn is other_class and sys.version_info >= (3, 14):
        pytest.skip("the instruction that 3.14 specializes for modules does not look at properties of a module's class")

    def outcome(call):
        module = types.ModuleType("some")
        module.v, module.f = 1, lambda x: x + module.v
        module.__class__ = cls
        found = []
        for _ in range(3):
            try:
                found.append(str(call(torch.ones(2), module)))
            except Exception as error:
                found.append((type(error), str(error)))
        return found, sorted(name for name in vars(module) if name[0] != "_"), type(module).__name__

    assert outcome(dynamo_lite.compile(fn, backend="eager")) == outcome(fn)
