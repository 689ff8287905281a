"""super objects that live across a break."""
import pytest
import torch

import dynamo_lite


class _Base:
    def __init__(self, factor):
        self.factor = factor

    def run(self, x):
        return x * self.factor


class _Derived(_Base):
    def __init__(self, factor):
        parent = super()
        dynamo_lite.graph_break()
        parent.__init__(factor)
        self.same = parent.__thisclass__ is _Derived

    def run(self, x):
        parent = super()
        x = x + 1
        dynamo_lite.graph_break()
        return parent.run(x) - 1


def test_a_super_object_across_a_break():
    def fn(x):
        made = _Derived(3)
        return made.run(x), made.same

    compiled, x = dynamo_lite.compile(fn, backend="eager"), torch.ones(3)
    for _ in range(2):
        got, want = compiled(x), fn(x)
        assert torch.equal(got[0], want[0]) and got[1] is want[1]


class _Named:
    def __get__(self, obj, cls):
        return cls.__name__


class _Plain:
    numbers = [1]
    size = property(len)
    named = _Named()


class _OfClass(_Plain):
    @classmethod
    def parts(cls):
        return super().numbers, super().size

    @classmethod
    def name(cls):
        return super().named


def of_a_class(x):
    numbers, size = _OfClass.parts()
    numbers.append(2)
    return numbers is _Plain.numbers, size is _Plain.size, len(_Plain.numbers), x + 1


def of_a_made_class(x):
    class Plain:
        numbers = [1]
        size = property(len)

    class OfClass(Plain):
        @classmethod
        def parts(cls):
            return super().numbers, super().size

    numbers, size = OfClass.parts()
    numbers.append(2)
    return numbers is Plain.numbers, size is Plain.size, len(Plain.numbers), x + 1


@pytest.mark.parametrize("fn", [of_a_class, of_a_made_class])
def test_what_a_class_finds_is_the_object_itself(fn):
    compiled, x = dynamo_lite.compile(fn, backend="eager"), torch.ones(3)
    for _ in range(2):
        _Plain.numbers[:] = [1]
        got = compiled(x)
        assert got[:3] == (True, True, 2) and torch.equal(got[3], x + 1)


def test_what_a_class_finds_is_asked_by_its_descriptor():
    compiled = dynamo_lite.compile(lambda x: (_OfClass.name(), x + 1), backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(3))[0] == "_OfClass"
