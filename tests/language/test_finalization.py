"""Objects whose end the program feels, let go of in every way there is: effects in eager's order, at every call."""
import array
import contextlib
import gc
import itertools
import struct
import threading
import types
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.variables import finalization

said = []


def numbers(name="left"):
    try:
        yield 1
        yield 2
        yield 3
    finally:
        said.append(name)


class Ends:
    def __init__(self, name="ended"):
        self.name = name

    def __del__(self):
        said.append(self.name)


class Manager:
    def __enter__(self):
        said.append("enter")
        return self

    def __exit__(self, *error):
        said.append("exit")
        return False


def in_with():
    with Manager():
        yield 1
        yield 2


class Holder:
    pass


def for_break(x):
    for n in numbers():
        x = x + n
        break
    said.append('after')
    return x


def for_break_second(x):
    for n in numbers():
        x = x + n
        if n == 2:
            break
    said.append('after')
    return x


def for_return(x):
    for n in numbers():
        x = x + n
        return x


def inner_return(x):

    def inner(x):
        for n in numbers():
            x = x + n
            return x
    y = inner(x)
    said.append('after')
    return y


def exception_leaves(x):
    try:
        for n in numbers():
            x = x + n
            raise ValueError
    except ValueError:
        said.append('handler')
    said.append('after')
    return x


def nested(x):
    for a in numbers('outer'):
        for b in numbers('inner'):
            x = x + a * b
            if b == 2:
                break
        said.append(('between', a))
        if a == 2:
            break
    said.append('after')
    return x


def nested_continue(x):
    for a in [1, 2]:
        for b in numbers('inner'):
            x = x + a * b
            break
        said.append(('between', a))
    said.append('after')
    return x


def in_local(x):
    g = numbers()
    x = x + next(g)
    said.append('a')
    g = None
    said.append('b')
    return x


def in_local_del(x):
    g = numbers()
    x = x + next(g)
    said.append('a')
    del g
    said.append('b')
    return x


def in_local_dead(x):
    g = numbers()
    x = x + next(g)
    said.append('a')
    dynamo_lite.graph_break()
    said.append('b')
    return x


def in_list(x):
    gs = [numbers(), numbers('two')]
    x = x + next(gs[0]) + next(gs[1])
    said.append('a')
    gs.pop()
    said.append('b')
    gs[0] = None
    said.append('c')
    return x


def in_list_dead(x):
    gs = [numbers()]
    x = x + next(gs[0])
    said.append('a')
    dynamo_lite.graph_break()
    said.append('b')
    return x


def in_dict_clear(x):
    d = {'g': numbers()}
    x = x + next(d['g'])
    said.append('a')
    d.clear()
    said.append('b')
    return x


def in_tuple(x):
    t = (numbers(), 1)
    x = x + next(t[0])
    said.append('a')
    t = None
    said.append('b')
    return x


def first(g):
    for n in g:
        return n


def first_local(g):
    h = g
    del g
    n = next(h)
    said.append('inside')
    return n


def callee(x):
    x = x + first(numbers())
    said.append('after')
    return x


def callee2(x):
    x = x + first_local(numbers())
    said.append('after')
    return x


def callee_held(x):
    g = numbers()
    x = x + first_local(g)
    said.append('after')
    g = 1
    said.append('then')
    return x


def next_of(x):
    x = x + next(numbers())
    said.append('after')
    return x


def zip_stops(x):
    for a, b in zip([10], numbers()):
        x = x + a * b
    said.append('after')
    return x


def zip_stops2(x):
    for a, b in zip(numbers(), [10]):
        x = x + a * b
    said.append('after')
    return x


def zip_break(x):
    for a, b in zip(numbers('one'), numbers('two')):
        x = x + a * b
        break
    said.append('after')
    return x


def enum_break(x):
    for i, b in enumerate(numbers()):
        x = x + i * b
        if i:
            break
    said.append('after')
    return x


def map_break(x):
    for b in map(lambda v: v * 2, numbers()):
        x = x + b
        break
    said.append('after')
    return x


def filter_break(x):
    for b in filter(None, numbers()):
        x = x + b
        break
    said.append('after')
    return x


def chain_break(x):
    for b in itertools.chain(numbers(), [1]):
        x = x + b
        break
    said.append('after')
    return x


def islice(x):
    for b in itertools.islice(numbers(), 2):
        x = x + b
    said.append('after')
    return x


def genexpr(x):
    for b in (v + 1 for v in numbers()):
        x = x + b
        break
    said.append('after')
    return x


def any_of(x):
    if any((v == 1 for v in numbers())):
        x = x + 1
    said.append('after')
    return x


def unpack(x):
    a, *_ = numbers()
    x = x + a
    said.append('after')
    return x


def unpack_too_many(x):
    try:
        a, = numbers()
    except ValueError:
        said.append('handler')
    said.append('after')
    return x


def contains(x):
    if 2 in numbers():
        x = x + 2
    said.append('after')
    return x


def with_inside(x):
    for n in in_with():
        x = x + n
        said.append('body')
        break
    said.append('after')
    return x


def yield_from(x):

    def outer():
        yield from numbers()
    for n in outer():
        x = x + n
        break
    said.append('after')
    return x


def ends_local(x):
    e = Ends()
    x = x + 1
    said.append('a')
    e = None
    said.append('b')
    return x


def ends_temp(x):
    Ends()
    said.append('a')
    return x + 1


def ends_temp_attr(x):
    x = x + len(Ends('abc').name)
    said.append('a')
    return x


def ends_dead(x):
    e = Ends()
    said.append('a')
    x = x + 1
    dynamo_lite.graph_break()
    said.append('b')
    return x * 2


def ends_list(x):
    e = [Ends('1'), Ends('2')]
    said.append('a')
    x = x + 1
    e.pop()
    said.append('b')
    del e[0]
    said.append('c')
    return x * 2


def ends_callee(x):

    def f(e, x):
        said.append('in')
        return x + 1
    x = f(Ends(), x)
    said.append('after')
    return x


def ends_attr(x):

    class C:
        pass
    c = C()
    c.e = Ends()
    said.append('a')
    c.e = 1
    said.append('b')
    return x + 1


def ends_swap(x):
    a, b = (Ends('a'), Ends('b'))
    a, b = (b, a)
    said.append('swapped')
    a = None
    said.append('one')
    return x + 1


def ends_loop(x):
    for i in range(3):
        e = Ends(i)
        x = x + 1
        said.append(('body', i))
    said.append('after')
    return x


def finalize(x):

    class C:
        pass
    c = C()
    weakref.finalize(c, said.append, 'fin')
    said.append('a')
    c = None
    said.append('b')
    return x + 1


def weak_callback(x):

    class C:
        pass
    c = C()
    r = weakref.ref(c, lambda _: said.append('cb'))
    said.append('a')
    del c
    said.append('b')
    return x + 1


@contextlib.contextmanager
def cm():
    said.append('cm enter')
    try:
        yield 5
    finally:
        said.append('cm exit')


def cm_left(x):
    m = cm()
    x = x + m.__enter__()
    said.append('a')
    m = None
    said.append('b')
    return x


def cm_in_loop(x):
    for i in range(3):
        with cm() as v:
            x = x + v
            if i == 1:
                break
        said.append('turn')
    said.append('after')
    return x


def while_next(x):
    g = iter(numbers())
    while True:
        n = next(g, None)
        x = x + n
        if n == 2:
            break
    said.append('a')
    g = 5
    said.append('b')
    return x


def else_loop(x):
    for n in numbers():
        x = x + n
    else:
        said.append('else')
    said.append('after')
    return x


def raise_out(x):
    for n in numbers():
        x = x + n
        if n == 2:
            said.append('raising')
            raise KeyError('q')
    return x


def tensor_break(x):
    for n in numbers():
        x = x + n
        if x.sum() > 8:
            break
    said.append('after')
    return x


def break_in_try(x):
    for n in numbers():
        try:
            x = x + n
            break
        finally:
            said.append('fin')
    said.append('after')
    return x


def walrus(x):
    if (g := numbers()) and next(g) == 1:
        x = x + 1
    said.append('a')
    g = 0
    said.append('b')
    return x


def closure_cell(x):
    g = numbers()

    def f():
        return next(g)
    x = x + f()
    said.append('a')
    g = None
    said.append('b')
    return x


def closure_held(x):
    g = numbers()
    f = lambda: next(g)
    x = x + f()
    said.append('a')
    f = None
    said.append('b')
    return x


def outside_attribute(x):
    Holder.steps = numbers()
    next(Holder.steps)
    said.append('a')
    Holder.steps = None
    said.append('b')
    return x + 1


holder = Holder()


def outside_instance_attribute(x):
    holder.steps = numbers()
    next(holder.steps)
    dynamo_lite.graph_break()
    said.append('a')
    holder.steps = None
    said.append('b')
    return x + 1


table = {}


def outside_dict_entry(x):
    table['steps'] = numbers()
    next(table['steps'])
    dynamo_lite.graph_break()
    said.append('a')
    table['steps'] = 1
    said.append('b')
    table.clear()
    return x + 1


PROGRAMS = [
    for_break, for_break_second, for_return, inner_return, exception_leaves, nested, nested_continue, in_local,
    in_local_del, in_local_dead, in_list, in_list_dead, in_dict_clear, in_tuple, callee, callee2, callee_held,
    next_of, zip_stops, zip_stops2, zip_break, enum_break, map_break, filter_break, chain_break, islice,
    genexpr, any_of, unpack, unpack_too_many, contains, with_inside, yield_from, ends_local, ends_temp,
    ends_temp_attr, ends_dead, ends_list, ends_callee, ends_attr, ends_swap, ends_loop, finalize,
    weak_callback, cm_left, cm_in_loop, while_next, else_loop, raise_out, tensor_break, break_in_try, walrus,
    closure_cell, closure_held, outside_attribute, outside_instance_attribute, outside_dict_entry,
]


def run(program, x):
    said.clear()
    try:
        result = program(x)
    except Exception as error:
        result = repr(error)
    gc.collect()
    return result, list(said)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_in_order(program):
    x = torch.ones(3)
    want, expected = run(program, x)
    compiled = dynamo_lite.compile(program, backend="eager")
    for _ in range(3):
        got, order = run(compiled, x)
        assert order == expected
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


def test_what_is_not_let_go_of_costs_no_break():
    def fn(x, ends):
        y = x + len(ends.name)
        said.append("a")
        return y * 2

    x, ends = torch.ones(3), Ends("kept")
    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, ends), fn(x, ends))


def test_an_argument_that_another_local_holds_may_be_let_go_of():
    def fn(x, ends):
        other = [ends]
        del ends
        said.append("a")
        return x + len(other[0].name)

    x, ends = torch.ones(3), Ends("kept")
    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, ends), fn(x, ends))


def test_the_break_says_why():
    def fn(x, ends):
        ends = None
        return x + 1

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    with pytest.raises(dynamo_lite.exc.Unsupported, match="Ends, which ends here"):
        compiled(torch.ones(3), Ends())


def test_what_is_held_is_not_looked_for_after_each_instruction(monkeypatch):
    def program(holder, x, n):
        table = {}
        for i in range(n):
            table[i] = i
            holder.count = i
        return x + len(table)

    def numbers():
        yield 1

    holder = Holder()
    holder.deep = [[[numbers()]]]
    searches = []
    find = finalization.Watch._way
    monkeypatch.setattr(finalization.Watch, "_way", staticmethod(lambda *args: searches.append(1) or find(*args)))
    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(holder, torch.ones(2), 200), torch.ones(2) + 200)
    assert holder.count == 199
    # Only a change of what holds it makes it be looked for again.
    assert len(searches) < 420

    def untouched(holder, x, n):
        table = {}
        for i in range(n):
            table[i] = i
        return x + len(table)

    searches.clear()
    compiled = dynamo_lite.compile(untouched, backend="eager", fullgraph=True)
    assert torch.equal(compiled(holder, torch.ones(2), 200), torch.ones(2) + 200)
    assert len(searches) <= 3


def test_large_containers_are_not_searched_whole():
    large = [(x for x in [1]), *map(str, range(100_000))]  # the collector goes through a list from its end
    assert not finalization.finalizables_in([large])  # behind more texts than are passed
    small = ["a", (x for x in [1])]
    assert [type(e.value).__name__ for e in finalization.finalizables_in([small])] == ["generator"]
    watch = finalization.Watch()
    watch.add(small)
    watch.add(small)
    assert len(watch._finalizables) == 1
    beside = finalization.Watch()
    beside.add(*([str(i)] * 50 for i in range(1_000)), (x for x in [1]), [x for x in "ab"], [(x for x in [1])])
    assert len(beside._finalizables) == 1  # the last of 1,003 is looked at, but not into the list behind 50,000 texts


@pytest.mark.parametrize("place", [0, 700, -1])
def test_the_end_of_one_of_many(place):
    """What a long list lets go of ends there, wherever in the list it stood."""
    def program(x, things, notes):
        notes.append("before")
        del things[place]
        notes.append("after")
        return x + len(notes)

    def ends(notes):
        try:
            yield
        finally:
            notes.append("end")

    outcomes = []
    for call in (program, dynamo_lite.compile(program, backend="eager")):
        notes = []
        things = [ends(notes) if i == place % 1000 else [str(i)] for i in range(1000)]
        next(things[place])
        outcomes.append((call(torch.ones(2), things, notes).tolist(), notes, len(things)))
    assert outcomes[0] == outcomes[1] and outcomes[0][1] == ["before", "end", "after"]


@pytest.mark.parametrize("make", [
    lambda: list[int], lambda: int | None, threading.Lock, lambda: types.SimpleNamespace(a=1),
    lambda: struct.Struct("i"), lambda: array.array("i", [1]),
])
def test_the_end_of_values_of_the_library_is_not_felt(make):
    """What is carried over a break and let go of behind it asks for no further break."""
    def f(x):
        held = made()
        dynamo_lite.graph_break()
        y = x + 1
        held = None
        return y * 2, held

    made = dynamo_lite.disable(make)
    log.reset()
    compiled = dynamo_lite.compile(f, backend="eager")
    assert torch.equal(compiled(torch.ones(2))[0], torch.full((2,), 4.0))
    assert log.counters()["graphs"] == 1
