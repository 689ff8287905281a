"""Values of the user's own kinds: subclasses of numbers and texts, special methods, generic classes, signatures.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import abc
import bisect
import collections
import enum
import heapq
import inspect
import math
import operator
import types
import typing

import pytest
from language_support import Programs

program = Programs()


@program
def texts_of_kinds_of_dicts(x):
    ordered = collections.OrderedDict(a=1)
    counts = collections.defaultdict(int, b=2)
    texts = ["%s" % ordered, "%s %s" % (ordered, 1), "{}".format(ordered), f"{ordered!r}", repr([ordered])]
    return x + 1, texts, str(counts), repr(collections.defaultdict(None)), str(types.MappingProxyType({"c": 3}))


@program
def texts_of_bounded_deques(x):
    return x + 1, str(collections.deque([1, 2, 3], maxlen=2)), f"{collections.deque('ab')}"


@program
def texts_of_frozen_sets(x):
    return x + 1, str(frozenset({1})), "%s" % frozenset({int}), repr([frozenset()])


@program.breaks("unsupported_operator")
def text_of_a_missing_key(x):
    counts = collections.defaultdict(int)
    return x + 1, "%(a)s" % counts, "{b}".format_map(counts), dict(counts)


class Meters(float):
    def half(self):
        return self / 2


class Count(int):
    def __add__(self, other):
        return Count(int(self) + other + 100)

    def doubled(self):
        return self * 2


class Name(str):
    def shout(self):
        return self.upper() + "!"


LENGTH, SIZE, LABEL = Meters(3.0), Count(5), Name("q")


@program
def numbers_and_texts_made_inside(x):
    count, name, length = Count(3), Name("ab"), Meters(4.0)
    plain = count - 1
    return (
        x * count, count + 1, type(count + 1).__name__, count.doubled(), type(plain), [1, 2, 3, 4][count],
        name.shout(), name + "c", f"{name}-{name:>4}", {name: 1}["ab"], type(name + ""), x * length, length.half(),
        str(count), repr(name), count == 3, hash(count) == hash(3), list(name), "a" in name, bool(Count(0)),
    )


@program
def numbers_and_texts_from_outside(x):
    return x * SIZE, SIZE.doubled(), LABEL.shout(), x + LENGTH, LENGTH.half(), x.reshape(-1)[SIZE], int(SIZE) + 1


@program
def they_leave_the_trace_as_they_are(x):
    return [type(v).__name__ for v in (Count(3), Name("ab"))], Count(3), Name("ab"), SIZE


class Amount:
    def __init__(self, v):
        self.v = v

    def __round__(self, digits=None):
        return "round", digits

    def __divmod__(self, other):
        return "divmod", other

    def __rdivmod__(self, other):
        return "rdivmod", other

    def __pow__(self, other, mod=None):
        return "pow", other, mod

    def __floor__(self):
        return 11

    def __ceil__(self):
        return 12

    def __trunc__(self):
        return 13


@program
def special_methods_behind_functions(x):
    a = Amount(1)
    return x + 1, round(a), round(a, 2), divmod(a, 3), divmod(3, a), pow(a, 2, 3), a**2, math.floor(a), math.ceil(
        a), math.trunc(a), operator.call(lambda k: k + 1, 3)


class Counted(type):
    def __iter__(cls):
        return iter([1, 2])

    def __len__(cls):
        return 7

    def __contains__(cls, key):
        return key == 1


class Numbered(metaclass=Counted):
    pass


@program
def classes_as_containers(x):
    return x + 1, list(Numbered), len(Numbered), 1 in Numbered, 2 in Numbered


T = typing.TypeVar("T")


class Held(typing.Generic[T]):
    def __init__(self, v):
        self.v = v


@program
def generic_classes(x):
    held = Held[int](4)
    return x * held.v, held.__orig_class__ is Held[int], typing.OrderedDict(a=1), typing.Counter("aab")["a"]


class Colour(enum.Flag):
    RED = 1
    BLUE = 2


@program
def members_of_a_flag(x):
    return x + 1, [c.name for c in Colour.RED | Colour.BLUE]


@program
def hashes(x):
    Point = collections.namedtuple("Point", "a b")
    return x + 1, hash((1, "a")) == hash((1, "a")), hash(Point(1, 2)) == hash((1, 2)), {Point(1, 2): 3}[(1, 2)]


@program
def namespaces_compared(x):
    a, b = types.SimpleNamespace(k=1), types.SimpleNamespace(k=1)
    same = a == b
    b.k = 2
    return x + 1, same, a == b, a != b


@program
def bisection(x):
    items = [1, 3, 5]
    bisect.insort(items, 4)
    bisect.insort_left(items, 0, key=lambda v: v)
    return x + 1, items, bisect.bisect_left(items, 3), bisect.bisect(items, 3), list(heapq.merge([1, 3], [2]))


@program
def signature_of_an_inner_function(x):
    def inner(a, b=2, *args, c, d=4, **more):
        return a + x

    signature = inspect.signature(inner)
    bound = inspect.signature(lambda a, b=2: a).bind(1)
    bound.apply_defaults()
    return (x + 1, list(signature.parameters), signature.parameters["b"].default, signature.parameters["c"].kind.name,
            bound.arguments["b"])


@program
def notes(x):
    try:
        error = ValueError("v")
        error.add_note("one")
        error.add_note("two")
        raise error
    except ValueError as caught:
        return x + 1, caught.__notes__


@program
def what_exceptions_hold(x):
    found = []
    for make in (lambda: SystemExit("foo"), lambda: OSError(2, "text", "file"), lambda: KeyError("k"),
                 lambda: StopIteration(3), lambda: ValueError("a", 1)):
        try:
            raise make()
        except BaseException as error:
            found += [str(error), repr(error), error.args, getattr(error, "code", None),
                      getattr(error, "filename", None), getattr(error, "value", None)]
    return x + 1, found


class Abstract(abc.ABC):
    @abc.abstractmethod
    def first(self):
        pass

    @abc.abstractmethod
    def second(self):
        pass


class Bare:
    pass


def message(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing raised"


def three(a, b, /, c, *, d):
    pass


def two(a, b=1):
    pass


@program
def words_of_calls_that_do_not_fit(x):
    return (
        x + 1, message(three), message(three, 1), message(three, 1, 2, 3), message(three, 1, 2, 3, 4, d=1),
        message(three, 1, 2, c=1, d=2, e=3), message(three, 1, 2, 3, c=4, d=1), message(three, 1, b=2, c=1, d=1),
        message(two, 1, 2, 3), message(two), message(two, 1, z=1), message(lambda: 1, 2),
    )


def unpacked(value):
    a, b = value


@program
def words_of_operators(x):
    return (
        x + 1, message(Abstract), message(lambda: Bare()[0]), message(operator.getitem, [1], "a"),
        message(operator.getitem, (1,), "a"),
        message(unpacked, 3), message(unpacked, [1]), message(lambda: -Bare()), message(lambda: len(Bare())),
        message(lambda: Bare()(1)), message(lambda: Bare() < Bare()), message(lambda: [1].pop("a")),
        message(lambda: operator.setitem(Bare(), 0, 1)), message(lambda: round(Bare())),
    )


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
