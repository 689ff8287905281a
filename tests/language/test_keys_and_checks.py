"""What libraries make keys of caches from, metaclasses that decide about instances, numbers of elements."""
import abc
import pickle

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


class Cache:
    """Results by the name, the arguments and the pickled keywords."""

    def __init__(self):
        self.kept = {}

    def call(self, name, x, **kwargs):
        key = name, pickle.dumps(kwargs)
        if key not in self.kept:
            self.kept[key] = x * kwargs.get("factor", 2)
        return self.kept[key]


def calls(x, cache):
    one, two = cache.call("a", x), cache.call("a", x, factor=3)
    return one + two + cache.call("a", x, mode="b", factor=1.5) + cache.call("a", x, factor=3)


@pytest.mark.parametrize("filled_before", [False, True])
def test_pickled_keywords(filled_before):
    dynamo_lite.reset()
    caches = Cache(), Cache()
    if filled_before:
        for cache in caches:
            calls(torch.ones(2), cache)
    x = torch.full((2,), 2.0)
    compiled = dynamo_lite.compile(calls, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x, caches[0]), calls(x, caches[1]))
    assert list(caches[0].kept) == list(caches[1].kept)


VALUES = {
    "empty": lambda x: {}, "list": lambda x: [1, 2.0, None, True, "a", b"c"], "tuple": lambda x: (1, "a"),
    "equal_texts": lambda x: ["ab", "".join(["a", "b"])], "one_text": lambda x: ["ab"] * 2,
    "nested": lambda x: [[1], {}],
    "one_list": lambda x: [[1]] * 2, "size": lambda x: {"x": x.shape[0]}, "big": lambda x: [2**80, -0.0, float("inf")],
}


@pytest.mark.parametrize("protocol", [(), (2,), (5,)])
@pytest.mark.parametrize("name", VALUES)
def test_bytes(name, protocol):
    def f(x):
        return pickle.dumps(VALUES[name](x), *protocol), x + 1

    got, want = dynamo_lite.compile(f, backend="eager")(torch.ones(1)), f(torch.ones(1))
    assert got == want


class Meta(abc.ABCMeta):
    def __instancecheck__(cls, value):
        return super().__instancecheck__(value) or type(value) is list

    def __subclasscheck__(cls, sub):
        return sub is dict or super().__subclasscheck__(sub)


class Checked(abc.ABCMeta):
    def __instancecheck__(cls, value):
        return type(value) is list or super().__instancecheck__(value)


class First(metaclass=Meta):
    pass


class Second(metaclass=Checked):
    pass


class SecondOfSecond(Second):
    pass


class Registered:
    pass


def checks(x):
    values = [1], {}, x, 3, Registered(), SecondOfSecond()
    return [isinstance(v, c) for v in values for c in (First, Second, SecondOfSecond)], [
        issubclass(type(v), Second) for v in values], x + 1


def test_metaclasses_that_check_instances():
    dynamo_lite.reset()
    log.reset()
    compiled = dynamo_lite.compile(checks, backend="eager")
    assert compiled(torch.ones(1)) == checks(torch.ones(1))
    Second.register(Registered)  # noticed
    want = checks(torch.ones(1))
    assert want[0][4 * 3 + 1] and compiled(torch.ones(1)) == want
    assert "internal_errors" not in log.counters()


def test_one_graph():
    dynamo_lite.reset()

    def f(x, values):
        return x + sum(isinstance(v, Second) for v in values)

    values = [[1], SecondOfSecond(), 3, None]
    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(1), values), f(torch.ones(1), values))


class Holder:
    size = torch.Size([3, 4])

    def __init__(self):
        self.own = torch.Size([2, 5])


def test_numel_of_a_size_from_outside():
    def f(x, holder):
        return x * holder.own.numel() + holder.size.numel()

    holder = Holder()
    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1), holder).item() == 22
    holder.own = torch.Size([2, 6])
    assert compiled(torch.ones(1), holder).item() == 24
