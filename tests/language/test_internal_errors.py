"""Objects of the standard library's making in programs: whatever is not captured breaks for a reason of its own, never
for a fault of the evaluator (``config.raise_internal_errors`` is set in tests, so that such a fault fails them)."""
from __future__ import annotations

import dataclasses
import enum
import functools
import typing

import pytest
import torch
import typing_extensions
from language_support import outcome, same

import dynamo_lite
from dynamo_lite import log

_SCALES = (2, 3)


class Movie(typing.TypedDict, total=False):
    name: str
    year: int


class Point(typing.NamedTuple):
    x: torch.Tensor
    y: int = 2


@dataclasses.dataclass(slots=True, kw_only=True)
class Options:
    names: list = dataclasses.field(default_factory=list)
    scale: int = 2


class HasScale(typing.Protocol):
    scale: int

    def scaled(self, x): ...


T = typing.TypeVar("T")


class Message(typing.TypedDict, typing.Generic[T], total=False):
    value: T


class Extended(Message[int]):
    more: int


class TypingExtensionsMessage(typing_extensions.TypedDict, typing.Generic[T], total=False):
    value: T


class WithScale(HasScale):
    def __init__(self, scale):
        self.scale = scale

    def scaled(self, x):
        return x * self.scale


class WithoutInit(HasScale):
    scale = 3

    def scaled(self, x):
        return x * self.scale


class GivenInit(HasScale, Exception):
    def scaled(self, x):
        return x * self.args[0]


class GenericProtocol(typing.Protocol[T]):
    def get(self) -> T: ...


class OfInt(GenericProtocol[int]):
    def get(self):
        return 4


class MadeByDict(type):
    __call__ = dict


class CalledAsDict(metaclass=MadeByDict):
    pass


class Box(typing.Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value


@functools.total_ordering
class Version:
    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number

    def __lt__(self, other):
        return self.number < other.number


class Model:
    def __init__(self, scale):
        self.scale = scale
        self.calls = 0

    @functools.cache
    def factor(self, n):
        return self.scale * n

    @functools.cached_property
    def twice(self):
        self.calls += 1
        return self.scale * 2


@functools.lru_cache
def total(scales):
    return sum(scales)


@functools.lru_cache
def called(function, n):
    return function(n)


@functools.lru_cache
def described(model):
    return [model.scale]


@functools.singledispatch
def shape_of(value):
    return 0


@shape_of.register
def _(value: int):
    return value


@shape_of.register(torch.Tensor)
def _(value):
    return value.dim()


MODEL = Model(3)
TIMES = functools.partial(int.__mul__, 3)
Color = enum.Enum("Color", "RED GREEN")

PROGRAMS = {
    "lru_cache_of_a_tuple_of_globals": lambda x: x * total(_SCALES) + total((*_SCALES, 4)),
    "lru_cache_with_a_partial": lambda x: x * called(TIMES, 2),
    "lru_cache_with_a_new_partial": lambda x: x * called(functools.partial(max, 3), 2),
    "lru_cache_with_an_object": lambda x: x * described(MODEL)[0],
    "typed_dict": lambda x: (Movie(name="a", year=3), x * Movie(year=3)["year"]),
    "typed_dict_of_a_dict": lambda x: Movie({"year": 1}, name="b"),
    "named_tuple_with_defaults": lambda x: (Point(x).y * x, Point(x, y=3), Point(x)._replace(y=5)),
    "named_tuple_without_an_argument": lambda x: Point(),
    "dataclass_with_slots": lambda x: (x * Options().scale, Options(scale=3).names, Options(names=[1]) == Options()),
    "dataclass_wrong_argument": lambda x: Options(3),
    "dataclass_replaced": lambda x: x * dataclasses.replace(Options(), scale=4).scale,
    "dataclass_as_dict": lambda x: dataclasses.asdict(Options(scale=5)),
    "protocol_is_abstract": lambda x: HasScale(),
    "typed_dict_generic": lambda x: (Message(value=1), Extended(value=1, more=2), Message[int](value=x)["value"] + 1),
    "typed_dict_of_extensions": lambda x: (TypingExtensionsMessage(value=1), TypingExtensionsMessage[int](value=x)),
    "typed_dict_asked_for": lambda x: isinstance({}, Message),
    "metaclass_called_as_a_class": lambda x: CalledAsDict(a=x)["a"] + 1,
    "protocol_with_init": lambda x: (WithScale(2).scaled(x), isinstance(WithScale(3), WithScale)),
    "protocol_without_init": lambda x: (WithoutInit().scaled(x), WithoutInit().scaled(x)),
    "protocol_beside_another_base": lambda x: GivenInit(5).scaled(x),
    "protocol_with_wrong_arguments": lambda x: WithoutInit(3),
    "protocol_generic": lambda x: OfInt().get() * x,
    "generic_instance": lambda x: Box[int](3).value * x,
    "generic_alias": lambda x: (Box[int] is Box, Box[int].__origin__ is Box, x + 1),
    "enum_of_the_functional_api": lambda x: (x * Color.RED.value, Color["GREEN"], Color(2).name, list(Color)),
    "enum_made": lambda x: enum.Enum("E", "A B").A.value * x,
    "cache_on_a_method": lambda x: x * MODEL.factor(2) + MODEL.factor(n=3),
    "cache_info": lambda x: (total.cache_info().maxsize, x + 1),
    "cached_property": lambda x: (Model(4).twice * x, MODEL.twice),
    "singledispatch": lambda x: (shape_of(x) * x, shape_of(3), shape_of("a"), shape_of.dispatch(int) is shape_of),
    "total_ordering": lambda x: (
        Version(1) <= Version(2), Version(3) >= Version(3), max(Version(1), Version(2)).number),
    "named_tuple_made": lambda x: typing.NamedTuple("P", [("a", int)])(3).a * x,
    "typed_dict_wrong": lambda x: Movie(3),
    "dataclass_made": lambda x: dataclasses.make_dataclass("D", ["a"])(3).a * x,
    "casts": lambda x: typing.cast(int, 3) * x,
    "get_type_hints": lambda x: sorted(typing.get_type_hints(Point)),
    "wraps": lambda x: functools.wraps(total)(lambda v: v + 1)(x),
    "cmp_to_key": lambda x: sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
    "partialmethod": lambda x: type("P", (), {"m": functools.partialmethod(lambda self, a, b: a + b, 3)})().m(4) * x,
    "reduce_of_a_cache": lambda x: functools.reduce(lambda a, b: a + total((b,)), [1, 2], x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_internal_error(name):
    program = PROGRAMS[name]
    want = outcome(program)
    compiled = dynamo_lite.compile(program, backend="eager")
    before = log.counters().get("internal_errors", 0)
    for _ in range(2):
        assert same(outcome(compiled), want)
    assert log.counters().get("internal_errors", 0) == before


def test_the_first_object_of_a_protocols_class():
    class Fresh(HasScale):
        def scaled(self, x):
            return x * 2

    class Derived(Fresh):
        scale = 4

    def f(x):
        return Derived().scaled(x) + Fresh().scaled(x)

    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    log.reset()
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert log.counters()["graphs"] == 1
    assert Fresh.__init__ is object.__init__ and Derived.__init__ is object.__init__
