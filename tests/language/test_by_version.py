"""Constructs whose bytecode, or whose meaning, is not the same in all versions of Python: inlined comprehensions, sums
of floats, closed generators, texts with suggestions, super(), type parameters, locals(), exception groups."""
import collections
import functools
import itertools
import sys
import textwrap

import pytest
import torch
from language_support import Programs, X, broken_at, broken_everywhere, outcome, same

import dynamo_lite
from dynamo_lite.bytecode.instructions import decode
from dynamo_lite.continuation.places import starts_unit

program = Programs()


# ---------------------------------------------------------------- comprehensions
@program
def comprehension_of_a_name_in_use(x):
    i = 10
    doubled = [i * 2 for i in range(3)]
    return x + i, doubled


@program
def comprehension_of_a_name_that_has_no_value(x):
    squares = [i * i for i in range(3)]
    try:
        i
    except NameError as error:
        return x + 1, squares, str(error)


@program
def comprehension_of_an_argument(x):
    return [x + 1 for x in (x, x * 2)], x


@program
def comprehension_hides_a_cell(x):
    i = 10

    def more():
        return x + i

    found = [i * 2 for i in range(3)]
    return more(), found, i


@program
def comprehension_with_a_cell_of_its_own(x):
    functions = [lambda: x * i for i in range(3)]
    return [f() for f in functions]


@program
def comprehension_with_a_cell_in_a_function_with_one(x):
    i = 5
    g = lambda: i
    functions = [lambda: x * i for i in range(3)]
    return [f() for f in functions], g(), i


@program
def nested_comprehensions_of_one_name(x):
    i = 7
    g = lambda: i
    rows = [[i + 1 for i in range(i)] for i in range(3)]
    return x + g(), rows, i


@program
def comprehension_in_a_function_that_reads_an_outer_name(x):
    i = 4

    def inner(values):
        before = i
        return [i * x for i in values], before, i

    return inner([1, 2])


@program
def dict_and_set_comprehensions(x):
    k = v = 3
    g = lambda: (k, v)
    return {k: v * x for k, v in {"a": 1, "b": 2}.items()}, len({k for k in "aab"}), g()


@program
def exception_in_a_comprehension(x):
    i = 3
    g = lambda: i
    try:
        [1 // i for i in (1, 0)]
    except ZeroDivisionError as error:
        return x + i, g(), str(error)


@program
def exception_in_an_inner_comprehension(x):
    i = 3
    g = lambda: i
    try:
        [[1 // i for i in (1, i)] for i in (1, 0)]
    except ZeroDivisionError:
        return x + i, g()


@program
def condition_and_walrus(x):
    last = None
    found = [last := i for i in range(5) if i % 2]
    return x + last, found


# ---------------------------------------------------------------- the same with breaks everywhere
def _captured_names():
    seen = []

    def f(x):
        i = 10
        g = lambda: i
        found = [(seen.append(i), x * i)[1] for i in (1, 2)]
        found += [[i + j for i in (j, 5)] for j in (1, 2)]
        try:
            [1 // i for i in (2, 0)]
        except ZeroDivisionError:
            i += 1
        return found, g(), i, x + i

    return f


def _free_names():
    i = 10

    def f(x):
        before = x + i
        found = [x * i for i in (1, 2)]
        return found, before, i, [[i for i in range(i)] for i in (1, 2)], i

    return f


def _unbound_names():
    def f(x):
        g = lambda: i
        found = [x * i for i in ()], [x * i for i in (1,)]
        try:
            g()
        except NameError:
            pass
        i = 3
        return found, g(), [i for i in range(i)], g()

    return f


def _own_cells():
    def f(x):
        i = 3
        g = lambda: i
        made = [lambda: x * i for i in (1, 2)]
        mixed = [[(lambda: i)() + k for k in [i for i in (4, i)]] for i in (1, 2)]
        return [h() for h in made], g(), mixed, i

    return f


def _own_cells_of_a_free_name():
    i = 10

    def f(x):
        before = i
        made = [lambda: x * i for i in (1, 2)]
        mixed = [[(lambda: i)() + k for k in [i for i in (4, i)]] for i in (1, 2)]
        return [h() for h in made], before, mixed, i

    return f


def _own_cells_inside_plain_names():
    def f(x):
        i = 10
        g = lambda: i
        made = [[lambda: x * i for i in (i, 5)] for i in (1, 2)]
        other = [([lambda: i for i in (7,)][0](), i, g()) for i in (1, 2)]
        return [h() for row in made for h in row], other, g()

    return f


def _sees_its_locals():
    def f(x):
        i = 3
        g = lambda: i
        found = [i for i in (1, 2)]
        return sorted(locals()), found, g(), x + i

    return f


def _own_cells_and_breaks():
    def f(x):
        i = 10
        g = lambda: i
        made = [(lambda: x * i, g(), dynamo_lite.graph_break()) for i in (1, 2, 3)]
        i += 1
        nested = [[(lambda: x + i, dynamo_lite.graph_break()) for i in range(i)] for i in (1, 2)]
        dynamo_lite.graph_break()
        i += 1
        called = [(h(), seen) for h, seen, _ in made], [h() for row in nested for h, _ in row]
        return called, g(), i

    return f


def _own_cells_left_by_an_exception():
    def f(x):
        i, made = 10, []
        g = lambda: i
        try:
            [(made.append(lambda: x * i), dynamo_lite.graph_break(), 1 // (2 - i)) for i in (1, 2, 3)]
        except ZeroDivisionError:
            i += 1
            dynamo_lite.graph_break()
            i += 1
        return [h() for h in made], g(), i

    return f


_BROKEN = pytest.mark.parametrize("make", [
    _captured_names, _free_names, _unbound_names, _own_cells, _own_cells_of_a_free_name, _own_cells_inside_plain_names,
    _sees_its_locals, _own_cells_and_breaks, _own_cells_left_by_an_exception,
], ids=lambda make: make.__name__)


@_BROKEN
def test_breaks_in_comprehensions(make):
    want = outcome(make())
    broken = broken_everywhere(make())
    for _ in range(2):
        assert same(outcome(broken), want)


@_BROKEN
def test_one_break_in_front_of_or_in_comprehensions(make):
    # Behind it a trace goes over what makes cells in a resume function, where these are free variables.
    fn = make()
    want = outcome(fn)
    instructions = decode(fn.__code__).instructions
    for index in range(len(instructions)):
        if not starts_unit(instructions, index):
            continue  # in front of it there is no break
        dynamo_lite.reset()
        broken = broken_at(make(), index)
        for _ in range(2):
            assert same(outcome(broken), want), index


def test_behind_a_break_in_a_comprehension_that_hides_a_cell_the_frame_is_captured():
    def f(x):
        i = 10
        g = lambda: i
        found = []
        [(found.append(x * i), dynamo_lite.graph_break()) for i in (1, 2)]
        return x + g(), found

    graphs = []
    compiled = dynamo_lite.compile(f, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    got, want = compiled(X.clone()), f(X.clone())
    assert same(got, want)
    assert [len([n for n in g.graph.nodes if n.op == "call_function"]) for g in graphs] == [1, 1, 1]


# ---------------------------------------------------------------- functions of the interpreter
@program
def sums_of_floats(x):
    return x + 1, sum([0.1] * 10), sum([1e100, 1.0, -1e100]), sum([1, 0.5, 2]), sum([0.1, 0.2], 0.3), sum([2.5, True])


@program
def what_close_returns(x):
    def g():
        try:
            yield 1
        except GeneratorExit:
            return 5

    it = g()
    next(it)
    return x + 1, it.close(), it.close()


@program
def a_generator_closed_before_it_began(x):
    def g():
        yield 1

    it = g()
    closed = it.close()
    return x + 1, closed, list(it)


@program
def a_generator_that_is_sent_something_before_it_began(x):
    def g():
        got = yield 1
        yield got

    it = g()
    try:
        it.send(3)
    except TypeError as error:
        return x + 1, str(error), next(it), it.send(5)


def test_a_closed_generator_leaves_the_trace_closed():
    def f(x):
        def g():
            yield 1

        it = g()
        it.close()
        return x + 1, it

    value, it = dynamo_lite.compile(f, backend="eager")(X)
    assert torch.equal(value, X + 1) and list(it) == []


def test_a_begun_generator_is_made_in_the_interpreter():
    def f(x):
        def g():
            got = yield
            while True:
                got = yield got

        y = x * 2
        it = g()
        next(it)
        z = y + 1
        return lambda: it.send(z)

    graphs = []
    compiled = dynamo_lite.compile(f, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    assert torch.equal(compiled(X)(), X * 2 + 1) and len(graphs) == 2


@program
def slices_as_keys(x):
    try:
        found = {slice(1, 2): 3, (slice, 1, 2, None): 4}
        return x + found[slice(1, 2)], len(found), slice(1, 3) in found
    except TypeError as error:
        return x + 1, str(error)


@program
def slices_of_a_list_that_grows(x):
    c = [1, 2, 3]
    said = []

    def growing():
        for v in (7, 8):
            c.append(v)
            yield v

    c[1:] = growing()
    try:
        c[::2] = growing()
    except ValueError as error:
        said.append(str(error))
    try:
        c[1:2] = 5
    except TypeError as error:
        said.append(str(error))
    return x + 1, c, said


@program
def an_ordered_dict_cleared_while_it_is_iterated(x):
    said = []
    for change in ("clear", "popitem"):
        d = collections.OrderedDict(a=1, b=2, c=3)
        it = iter(d)
        next(it)
        getattr(d, change)()
        for _ in range(2):
            try:
                said.append(next(it, None))
            except RuntimeError as error:
                said.append(str(error))
    return x + 1, said


@program
def batches(x):
    if not hasattr(itertools, "batched"):
        return x + 1
    found = [sum(batch) * x for batch in itertools.batched([1, 2, 3, 4, 5], 2)]
    it = itertools.batched(iter(range(5)), n=3)
    said = [next(it)]
    for wrong in (([1], 0), (5, 1), ([1], "a")):
        try:
            itertools.batched(*wrong)
        except Exception as error:
            said.append((type(error).__name__, str(error)))
    return found, said, list(it)


@program
def what_wraps_copies(x):
    @functools.wraps(batches)
    def wrapped():
        return x

    named = wrapped.__name__, wrapped.__qualname__, getattr(wrapped, "__type_params__", None)
    return wrapped() + 1, named, getattr(batches, "__type_params__", None), getattr(lambda: 1, "__type_params__", None)


@program.breaks("unsupported_attribute")
def attributes_that_functions_have_from_their_class(x):
    f = lambda: x
    return x + 1, [hasattr(f, name) for name in ("__hash__", "__reduce__", "__sizeof__")], hasattr(batches, "__repr__")


@program.breaks("a break, with nothing to capture before it")
def attributes_of_a_super_object_itself(x):
    asked = super(_Derived, _Derived)
    return x + 1, asked.__thisclass__ is _Derived, asked.__self_class__ is _Derived


@program
def docstrings(x):
    def documented():
        """What it says."""

    def silent():
        return "text"

    return x + 1, documented.__doc__, silent.__doc__, property(documented).__doc__


# ---------------------------------------------------------------- texts
@program
def suggestions(x):
    class C:
        colour = 1

    said = []
    try:
        C().color
    except AttributeError as error:
        said.append(str(error))
    try:
        colours
    except NameError as error:
        said.append(str(error))

    def f(*, colour=1):
        return colour

    try:
        f(color=2)
    except TypeError as error:
        said.append(str(error))
    return x + 1, said


@program.breaks("unsupported_builtin")
def suggestions_of_builtins(x):
    try:
        sorted([1], revers=True)
    except TypeError as error:
        return x + 1, str(error)


@program
def max_of_nothing(x):
    said = []
    for function in (max, min):
        try:
            function([])
        except ValueError as error:
            said.append(str(error))
    return x + 1, said


# ---------------------------------------------------------------- super
class _Base:
    factor = 3
    kind = "base"
    late = functools.cached_property(lambda self: "base's")
    fixed = staticmethod(lambda x: x)

    def scaled(self, x):
        return x * 2

    @classmethod
    def made(cls, x):
        return cls, x + 1

    @property
    def size(self):
        return 4


class _Derived(_Base):
    factor = 5
    kind = "derived"
    late = functools.cached_property(lambda self: "derived's")
    fixed = staticmethod(lambda x: x + 1)

    def scaled(self, x):
        assert super().kind == "base" and super().late == "base's" and super().fixed(x) is x
        return super().scaled(x) + super().factor + super().size + super(_Derived, self).factor

    @classmethod
    def made(cls, x):
        return super().made(x)

    def wrong(self, x):
        return super(_Derived, 5).scaled(x)

    def absent(self):
        return super().nothing


@program
def super_attributes(x):
    cls, made = _Derived.made(x)
    return _Derived().scaled(x), made, cls is _Derived


@program
def super_of_a_wrong_object(x):
    try:
        _Derived().wrong(x)
    except TypeError as error:
        return x + 1, str(error)


@program
def super_without_the_attribute(x):
    try:
        _Derived().absent()
    except AttributeError as error:
        return x + 1, str(error)


def test_a_super_of_the_program():
    source = """
class D(Base):
    def f(self, x):
        return super().f(x), super(D, self).f(x)
"""
    class Mine:
        def __init__(self, *args):
            self.args = args

        def f(self, x):
            return x + len(self.args)

    space = {"Base": object, "super": Mine}
    exec(source, space)
    d = space["D"]()
    assert same(dynamo_lite.compile(d.f, backend="eager")(X), d.f(X))


# ---------------------------------------------------------------- newer syntax
_SOURCES = {
    "type_parameters": (12, """
def fn(x):
    def first[T](items: list[T]) -> T:
        return items[0]
    return first([x, 1]) + 1, first.__type_params__[0].__name__, first.__name__
"""),
    "generic_class": (12, """
class Box[T]:
    def __init__(self, value: T):
        self.value = value
    def get(self) -> T:
        return self.value
def fn(x):
    return Box(x).get() + 1, Box[int](2).get(), Box.__type_params__[0].__name__
"""),
    "generic_class_in_a_function": (12, """
def fn(x):
    class Box[T: (int, str), *Ts, **P]:
        def get(self, value: T):
            return value
    return Box().get(x) + 1, [p.__name__ for p in Box.__type_params__]
"""),
    "type_alias": (12, """
type Pair[T] = tuple[T, T]
def fn(x):
    type Local = list[int]
    return x + 1, Pair.__name__, Local.__name__, Local.__value__ == list[int]
"""),
    "what_type_parameters_compute_when_they_are_read": (12, """
def fn(x):
    n = 0
    def counted():
        nonlocal n
        n += 1
        return int
    def first[T: counted()](items):
        return items[0]
    type Late = counted()
    def chosen[T: (counted(), str)](): pass
    before = n
    bound = first.__type_params__[0].__bound__
    between = n
    value = Late.__value__
    behind = n
    constraints = chosen.__type_params__[0].__constraints__
    return first([x]) + 1, before, bound, between, value, behind, constraints, n
"""),
    "default_of_a_type_parameter": (13, """
def fn(x):
    def first[T = int](items):
        return items[0]
    return first([x]) + 1, first.__type_params__[0].__default__ is int
"""),
    "generic_function_with_defaults_and_cells": (12, """
def fn(x):
    y = x * 2
    def scaled[T](n: T = 3, *, m: T = 4):
        return y * n + m
    return scaled(), scaled(2, m=1)
"""),
    "exception_groups": (11, """
def fn(x):
    said = []
    try:
        raise ExceptionGroup("g", [ValueError("a"), TypeError("b"), KeyError("c")])
    except* ValueError as group:
        said.append((group.message, [str(e) for e in group.exceptions]))
        x = x + 1
    except* (TypeError, KeyError) as group:
        said.append(len(group.exceptions))
        x = x * 2
    try:
        raise ValueError("naked")
    except* ValueError as group:
        said.append(type(group).__name__)
    return x, said
"""),
    "unhandled_part_of_a_group": (11, """
def fn(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
        except* ValueError:
            x = x + 1
    except ExceptionGroup as rest:
        return x * 2, [str(e) for e in rest.exceptions]
"""),
    "class_that_reads_its_namespace": (11, """
k = 7
def fn(x):
    k = 3
    class C:
        a = k
        k = a + 1
        b = [k for _ in (1, 2)]
        c = k
    return x + C.a, C.b, C.c
"""),
    "nested_f_strings": (12, """
def fn(x):
    names = {"a": 1}
    return x + 1, f"{names["a"]:>{3}} {f"{'b'!r:5}"}", f"{x.shape[0]=}"
"""),
}


@pytest.mark.parametrize("name", _SOURCES)
def test_newer_syntax(name):
    minor, source = _SOURCES[name]
    if sys.version_info < (3, minor):
        pytest.skip(f"came with Python 3.{minor}")
    space = {"__name__": __name__}
    exec(compile(source, f"<{name}>", "exec", dont_inherit=True), space)
    compiled = dynamo_lite.compile(space["fn"], backend="eager")
    want = outcome(space["fn"])
    for _ in range(2):
        got = outcome(compiled)
        assert same(got, want), f"{got} instead of {want}"


# ---------------------------------------------------------------- bound methods
@program
def bound_method_bound_again(x):
    class A:
        def method(self):
            return self

    a, b = A(), A()
    b.again = a.method.__get__(b, A)
    return x + 1, b.again() is a, a.method.__get__(b)() is a, A.method.__get__(b)() is b


# ---------------------------------------------------------------- functions that more than one instruction makes
@pytest.mark.parametrize("between", range(8))
def test_breaks_moved_back_to_the_making_of_a_function(between):
    # A generator that runs can't be left, so the break moves back, by more instructions each time.
    space = {"groupby": itertools.groupby}
    exec(textwrap.dedent(f"""
        def fn(x):
            y = x + 1
            class Key:
                def __init__(self, v, *, other=y):
                    self.other = other
                def __eq__(self, other):
                    nonlocal i
                    i += 1
                    if i == 1:
                        next(g, None)
                    return True
            def counted(a: int = 2, *, b=y):
                return i, a, b, g is not None
            i = 0
            {"; ".join(["a = 1"] * between) or "pass"}
            g = next(groupby(range(10), Key))[1]
            for j in range(2):
                next(g, None)
            return x + i, counted()
        """), space)
    want = space["fn"](X)
    compiled = dynamo_lite.compile(space["fn"], backend="eager")
    for _ in range(2):
        assert same(compiled(X), want)


# ---------------------------------------------------------------- locals()
@program.breaks("a break, or a frame that is left to Python as one")
def locals_are_a_copy_or_not(x):
    a = 1
    first = dict(locals())
    b = 2
    locals()["a"] = 5
    return x + a, sorted(first), sorted(locals()), locals()["a"]


def test_locals_in_a_comprehension():
    def f(x):
        a = 1
        return x + a, [sorted(n for n in locals() if len(n) == 1) for b in (1,)], [len(locals()) > 0 for a in (1, 2)]

    assert same(dynamo_lite.compile(f, backend="eager")(X), f(X))


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
