"""When objects end, which of them are one, and what outlives a graph break: as in eager, at every call."""

from __future__ import annotations

import builtins
import collections
import functools
import gc
import weakref

import pytest
import torch

import dynamo_lite


class Thing:
    pass


class Ends:
    """Counts the living."""

    alive = 0

    def __init__(self):
        type(self).alive += 1

    def __del__(self):
        type(self).alive -= 1


def let_go(x):
    thing = Thing()
    thing.x = x
    ref = weakref.ref(thing)
    dynamo_lite.graph_break()
    del thing
    dynamo_lite.graph_break()
    return ref() is None


def bound_anew(x):
    thing = Thing()
    ref = weakref.ref(thing)
    dynamo_lite.graph_break()
    thing = 5
    dynamo_lite.graph_break()
    return ref() is None, thing


def cycle(x):
    thing = Thing()
    ref = weakref.ref(thing)
    items = [thing, 1]
    thing.rest = iter(items)
    del thing, items
    gc.collect()
    return ref() is None


def finalizer(x):
    counts = [Ends.alive]
    end = Ends()
    counts.append(Ends.alive)
    del end
    counts.append(Ends.alive)
    return counts


def weak_to_slots(x):
    class Bare:
        __slots__ = ()

    try:
        weakref.ref(Bare())
    except TypeError as error:
        return str(error)


def one_tuple(x):
    both = (x + 1, 2)
    return [both, both, slice(1, both)]


def equal_texts(x):
    a = "xyzpdq"
    b = a[:3] + a[3:]
    dynamo_lite.graph_break()
    return a is b, a == b


def exhausted_iterators(x):
    items = [1, 2]
    at_end, calls = iter(items), iter(iter([1, 2, 3, 4]).__next__, 2)
    first = list(at_end), list(calls)
    items.append(3)
    dynamo_lite.graph_break()
    return first, list(at_end), list(calls)


class Names(dict):
    pass


def views_of_subclasses(x):
    names = Names(a=1)
    keys, mapping = names.keys(), names.items().mapping
    dynamo_lite.graph_break()
    names["b"] = 2
    return list(keys), dict(mapping), type(names)


def made_per_call(x):
    Pair = collections.namedtuple("Pair", "left right", defaults=[3])
    pair = Pair(x + 1)
    return Pair.__module__, type(pair) is Pair, pair.right, pair._replace(right=4).right, repr(Pair(1))


def nested_deeply(x):
    value = []
    for _ in range(2000):
        value = [value]
    dynamo_lite.graph_break()
    depth = 0
    while value:
        value, depth = value[0], depth + 1
    return depth


class Called:
    """A function written in C is no method."""

    double = staticmethod(functools.partial(lambda x: x * 2))  # a partial alone is a method from 3.14 on
    largest = max


def no_methods(x):
    called = Called()
    return called.largest(1, 2), called.double(x)


def left_in_try(x):
    log = []

    def steps():
        try:
            yield 1
            yield 2
        finally:
            log.append("end")

    first = next(steps())
    for second in steps():
        break
    any(v == 1 for v in steps())
    log.append("after")
    return first, second, log


def left_in_no_grad(x):
    def steps():
        with torch.no_grad():
            yield 1

    it = steps()
    next(it)
    inside = torch.is_grad_enabled()
    del it
    return inside, torch.is_grad_enabled()


def held_to_the_end(x):
    log = []

    def steps():
        try:
            yield 1
        finally:
            log.append("end")

    it = iter(zip(steps(), [1, 2]))
    next(it)
    log.append("after")
    dynamo_lite.graph_break()
    return log


def thrown_into_a_delegate(x):
    log = []

    def inner():
        try:
            yield 1
        except KeyError:
            yield "caught"
        except ValueError:
            return "returned"
        finally:
            log.append("inner")

    def outer():
        try:
            log.append((yield from inner()))
            yield "after"
        except IndexError:
            yield "outer"
        finally:
            log.append("outer")

    found = []
    for error in (KeyError, ValueError, IndexError):
        it = outer()
        next(it)
        found += [it.throw(error()), list(it)]
    it = outer()
    next(it)
    it.close()
    return found, log


PROGRAMS = [
    left_in_try,
    left_in_no_grad,
    held_to_the_end,
    thrown_into_a_delegate,
    let_go,
    bound_anew,
    cycle,
    finalizer,
    weak_to_slots,
    one_tuple,
    equal_texts,
    exhausted_iterators,
    views_of_subclasses,
    made_per_call,
    nested_deeply,
    no_methods,
]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b if not isinstance(a, slice) else same((a.start, a.stop), (b.start, b.stop))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(program):
    x = torch.ones(2)
    want = program(x)
    compiled = dynamo_lite.compile(program, backend="eager")
    for _ in range(3):
        assert same(compiled(x), want)


def test_one_object_stays_one():
    both = dynamo_lite.compile(one_tuple, backend="eager", fullgraph=True)(torch.ones(2))
    assert both[0] is both[1] and both[2].stop is both[0]


def test_texts_and_numbers_from_outside_are_the_ones_that_were_passed():
    compiled = dynamo_lite.compile(lambda x, a, b: (x + 1, a, b, a is b), backend="eager", fullgraph=True)
    texts = ["".join(["a ", "text"]) for _ in range(2)]
    for a in texts:
        for b in texts:
            result = compiled(torch.ones(1), a, b)
            assert result[1] is a and result[2] is b and result[3] == (a is b)


def test_a_class_made_per_call_is_another_one_each_time():
    def program(x):
        Pair = collections.namedtuple("Pair", "left right")
        return Pair(x + 1, 2), Pair

    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    (first, cls), (second, other) = compiled(torch.ones(1)), compiled(torch.ones(1))
    assert type(first) is cls and type(second) is other and cls is not other


def test_a_compile_near_the_end_of_the_stack():
    def deep(n, x):
        return deep(n - 1, x) if n else compiled(x)

    compiled = dynamo_lite.compile(lambda x: [x + 1 for _ in range(2)], backend="eager", fullgraph=True)
    assert len(deep(850, torch.ones(1))) == 2


def test_a_fault_of_the_compiler_does_not_pass_by_the_users_handlers(monkeypatch):
    real = builtins.len

    def program(x):
        try:
            builtins.len = functools.lru_cache(real)  # the compiler calls it with what can't be hashed
            return [len("ab"), len((1,))]
        finally:
            builtins.len = real

    try:
        assert dynamo_lite.compile(program, backend="eager")(torch.ones(1)) == [2, 1]
        assert len is real and builtins.len is real
    finally:
        builtins.len = real


@dynamo_lite.disable
def fails():
    raise ValueError


def caught(x):
    try:
        fails()
    except ValueError:
        x = x + 1
    return x


def caught_by_name(x):
    try:
        fails()
    except ValueError as error:
        dynamo_lite.graph_break()
        x = x + len(error.args)
    return x


@pytest.mark.parametrize("program", [caught, caught_by_name])
def test_exceptions_that_are_caught_hold_no_frame(program):
    compiled = dynamo_lite.compile(program, backend="eager")

    def calls(function):
        thing = Thing()
        function(torch.ones(2))
        return weakref.ref(thing)

    for _ in range(2):
        calls(compiled)
    gc.collect()
    gc.disable()
    try:
        assert calls(program)() is None
        assert calls(compiled)() is None
    finally:
        gc.enable()


ITSELF = globals()  # a module's names that hold themselves


def test_a_function_made_inside_a_module_that_holds_its_own_names():
    def program(x):
        def scaled(y):
            return y * len(ITSELF["__name__"])

        y = scaled(x)
        dynamo_lite.graph_break()
        held = [scaled]
        dynamo_lite.graph_break()
        return y + held[0](x)

    compiled = dynamo_lite.compile(program, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), program(torch.ones(2)))


def test_what_a_weak_reference_at_a_break_points_to_stays():
    class Own:
        pass

    def f(x):
        y = x + 1
        made = Own()
        reference = weakref.ref(made)
        said = repr(reference)  # breaks, and `made` is not read any more
        return y, "dead" in said

    compiled = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1] is f(torch.ones(2))[1] is False
