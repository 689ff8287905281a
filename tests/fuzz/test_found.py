"""Programs by which fuzzing found a fault, each beside its relatives: compiled, they do what plain Python does, in all
that can be seen. The bodies are those of a function of a fuzzed program's arguments. """
from __future__ import annotations

import textwrap

import pytest

from fuzz import harness
from fuzz.prelude import PRELUDE
from fuzz.refused_calls import REFUSED as REFUSED_CALLS

pytestmark = pytest.mark.by_turns(3)

ARGUMENTS = """
import dynamo_lite


def arguments(i):
    x = torch.arange(12.).reshape(3, 4) - 5 * i
    y = torch.linspace(-1, 2, 4) + i
    items = [torch.ones(3, 4), torch.ones(4) * (i + 1)]
    table, words = {"a": torch.ones(4)}, {"p": 1, "q": i}
    return [x, y, 1 + i, i % 2 == 0, items, table, Box(torch.ones(4) * i, 2), Rich(y, 1), Point(x, 1), words]


def f(x, y, n, flag, items, table, box, rich, point, words):
"""


def check(body: str, **options: object) -> None:
    source = PRELUDE + ARGUMENTS + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
    plain = harness.plainly(source, harness.Options(**options), harness.CALLS)
    assert plain is not None, "no program"
    found = harness.compare(source, harness.Options(**options))
    assert found is None, found.where


# __hash__ and __eq__ of the program run as often as CPython runs them.
USER_KEYS = [
    "w = {rich: 1, rich: 2}",
    "w = dict([(rich, 1), (rich, 2)])",
    "w = {rich, rich}",
    "w = set([rich, rich])",
    "w = hash(rich) + hash(rich)",
    "w = {(rich, 1): 1, (rich,1):2}",
    "w = {rich: 1}[rich]",
    "w = rich in {rich}",
    "w = {rich: 1}.get(rich)",
    "w = {rich: 1}; w[rich] = 2",
    "w = {rich: 1}; del w[rich]",
    "w = {rich: 1}.pop(rich)",
    "w = {**{rich: 1}, **{rich: 2}}",
    "w = {v: 1 for v in (rich, rich)}",
    "w = dict.fromkeys([rich, rich])",
    "w = {rich} | {rich}",
    "w = {rich}; w.add(rich); w.discard(rich)",
    "w = frozenset([rich, rich])",
    "w = {rich: 1} | {rich: 2}",
    "w = {}; w.setdefault(rich, 1); w.setdefault(rich, 2)",
    "w = {rich: 1, Rich(x, 1): 2}",
    "w = {rich: 1, Rich(x, 1): 2, rich: 3}; return w[Rich(y, 1)]",
    "w = {rich: 1}; w.update({rich: 2}); w.update([(rich, 3)])",
    "w = {Rich(y, 2): 3, Rich(y, 2): 4}; return list(w)",
]


@pytest.mark.parametrize("body", USER_KEYS)
def test_keys_with_a_hash_of_the_programs(body: str) -> None:
    check(body)


# A function under a cache has its effects where the program calls it, and once.
CACHED = [
    """
    w = CACHED(3)
    said.append(1)
    w = CACHED(3)
    """,
    """
    said.append(1)
    return CACHED(n) * x
    """,
    """
    for i in range(2):
        CACHED.cache_clear()
        CACHED(i)
        said.append(i)
    """,
    """
    @functools.lru_cache(maxsize=2)
    def h(k=2):
        said.append(('ran', k))
        return k + COUNT
    a = h(n)
    said.append(a)
    b = h(n)
    return h
    """,
    """
    @functools.lru_cache
    def h(k=2):
        nonlocal n
        n += k
        return n
    a = h(2)
    return a, h(2), h(3), n
    """,
    """
    @functools.lru_cache
    def h(k=2):
        return random.random() * k
    q = random.random()
    a = h(2)
    return a, h(2), h(3), q
    """,
    """
    @functools.cache
    def h(k=2):
        print('said', k)
        return k
    print(1)
    h(2); h(2)
    print(2)
    """,
    """
    @functools.cache
    def h(k=2):
        box.k += k
        return k
    a = box.k
    h(2); h(2)
    return a, box.k
    """,
]


@pytest.mark.parametrize("body", CACHED)
def test_cached_functions_with_effects(body: str) -> None:
    check(body)


# An iterator that is left by a break stands where it stood, though its container has changed.
ITERATORS = [
    """
    for key in table:
        class Made(Box): pass
        del table["a"]
    """,
    """
    for key, value in table.items():
        dynamo_lite.graph_break()
        table.popitem()
    """,
    """
    turns = iter(table)
    next(turns)
    table["b"] = 1
    dynamo_lite.graph_break()
    return next(turns, 3)
    """,
    """
    turns = iter(table)
    del table["a"]
    dynamo_lite.graph_break()
    return list(turns)
    """,
    """
    turns = iter(table.values())
    next(turns), table.clear()
    return turns
    """,
    """
    keys = set(words)
    turns = iter(keys)
    next(turns), next(turns), keys.clear()
    dynamo_lite.graph_break()
    return next(turns, 3)
    """,
]


@pytest.mark.parametrize("body", ITERATORS)
def test_iterators_over_what_has_changed(body: str) -> None:
    check(body)


# Operations that refuse some elements refuse them though the trace knows the elements, and the result is not used.
REFUSED = [
    """
    try:
        F.one_hot(torch.tensor([1, -n]))
        said.append(1)
    except RuntimeError:
        said.append(2)
    return x + 1
    """,
    "t = F.one_hot(torch.tensor([1, -n]), 3)\nreturn x + 1",
    "return F.one_hot(torch.tensor([1, n])), x + 1",
    "t = F.one_hot(torch.tensor([1, 1 - n])).sum()\nreturn x + t",
    "ids = torch.tensor([0, 2 - n])\nreturn F.one_hot(ids)[0] * 2, x[F.one_hot(ids).shape[1]]",
    "t = torch.bincount(torch.tensor([1, 1 - n]))\nreturn x + 1",
    "t = torch.repeat_interleave(x, torch.tensor([1, 1 - n, 1]), 0)\nreturn x + 1",
    "t = x[torch.tensor([n, 2 * n])]\nreturn x + 1",
]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("body", REFUSED)
def test_operations_that_refuse_known_elements(body: str, backend: str) -> None:
    check(body, backend=backend)


def test_whether_a_tensor_is_a_view() -> None:
    check("return y._is_view(), y.T._is_view(), x[0]._is_view(), (x * 1)._is_view()", grad=True)


# Arrays go over a break as they were: their type, how they lie in memory, whose memory it is.
ARRAYS = [
    """
    a = numpy.array(0)
    a.dtype.name
    return a.dtype
    """,
    """
    a = numpy.ones((3, 4))
    b = a.T
    dynamo_lite.graph_break()
    return a, b, b.strides
    """,
    """
    a = numpy.ones((3, 4))
    return a[0], a[..., 1:], a
    """,
    """
    a = numpy.ones((3, 4))
    b = a[0]
    dynamo_lite.graph_break()
    b[0] = 5
    return a, b
    """,
    """
    a = numpy.arange(6).reshape(2, 3)
    b = a.ravel()
    dynamo_lite.graph_break()
    b += 1
    return a
    """,
    """
    a = numpy.asfortranarray(numpy.ones((3, 4)))
    dynamo_lite.graph_break()
    return a + 1, a.copy(), a
    """,
    """
    return numpy.float32(n), numpy.dtype('int8'), numpy.ones(2).dtype.type, numpy.int64(3).dtype
    """,
    """
    a = numpy.ones(3)
    b = numpy.asarray(a)
    dynamo_lite.graph_break()
    return a is b, a
    """,
    """
    a = numpy.ones(3)
    b = numpy.asarray(a)
    c = a.astype(numpy.float64, copy=False)
    return a is b, a is c
    """,
    """
    a = numpy.ones(3); b = a
    b += 1
    return a
    """,
    """
    a, b = numpy.split(numpy.arange(4.), 2)
    dynamo_lite.graph_break()
    return a, b
    """,
    """
    a = [v for v in numpy.ones((2, 2))]
    dynamo_lite.graph_break()
    return a
    """,
    """
    a = numpy.arange(6).reshape(2, 3)
    dynamo_lite.graph_break()
    a += 1
    return a, a.T, a[0]
    """,
    """
    a = numpy.arange(12.).reshape(3, 4)
    b, c, d = a[::-1, 1:], a.T[1], a[..., None]
    dynamo_lite.graph_break()
    a += 1
    return b, c, d, b.strides
    """,
    """
    a = numpy.arange(4)
    b, c = numpy.asarray(a), numpy.reshape(a, (2, 2))
    dynamo_lite.graph_break()
    c[0] = 7
    return b is a, a, c
    """,
    """
    a = numpy.ones((0, 3))
    return a.T, a[:, 0]
    """,
    """
    a = numpy.ones((3, 4)).T
    b = a[1]
    dynamo_lite.graph_break()
    b += 1
    return a, b
    """,
]


@pytest.mark.parametrize("body", ARRAYS)
def test_arrays(body: str) -> None:
    check(body)


STRIPES = 6


@pytest.mark.parametrize("stripe", range(STRIPES))
def test_calls_that_eager_refuses_though_nobody_uses_the_result(stripe: int) -> None:
    lines = []
    for call in REFUSED_CALLS[stripe::STRIPES]:
        lines += ["try:", f"    {call}", "    said.append('passed')", "except Exception as e:",
                  "    said.append((type(e).__name__, str(e)))"]
    check("\n".join([*lines, "return x + 1"]))


# Where such a call stands: in a function, a loop, a comprehension, a block, behind a write.
PLACES = [
    """
    t = x.as_strided((9, 9), (9, 9))
    """,
    """
    t = x.as_strided((9, 9), (9, 9))
    return t
    """,
    """
    t = x[1].as_strided((3, 4), (4, 1), 0)
    return t
    """,
    """
    t = x[1].as_strided((3, 4), (4, 1), 1)
    return t
    """,
    """
    t = (x + 1)[1].as_strided((3, 4), (4, 1), 0)
    return t
    """,
    """
    t = (x + 1)[1].as_strided((3, 4), (4, 1), 1)
    return t
    """,
    """
    t = items[0].as_strided((3, 4), (0, 1), 8)
    return t
    """,
    """
    t = items[0].as_strided((3, 4), (0, 1), 9)
    return t
    """,
    """
    try:
        t = x.softmax(5)
        said.append(1)
    except IndexError as e:
        said.append(str(e))
    return x + 1
    """,
    """
    def inner(a):
        a.int() ** -1
        return a
    try:
        y = inner(x)
    except RuntimeError:
        said.append(5)
    said.append(6)
    return y
    """,
    """
    for i in range(3):
        t = x.softmax(i)
    return x + 1
    """,
    """
    with Swallow(IndexError):
        said.append(1)
        t = x.softmax(5)
        said.append(2)
    return x + 1
    """,
    """
    t = [x.softmax(5) for _ in range(2)]
    return x * 2
    """,
    """
    said.append(1)
    x.add_(1)
    t = x.softmax(5)
    said.append(2)
    return x + 1
    """,
]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("body", PLACES)
def test_places_of_refused_calls(body: str, backend: str) -> None:
    check(body, backend=backend)


# A view of a leaf is not written to under autograd, whichever of the leaf's views requires gradients.
VIEWS_OF_LEAVES = [
    "w = x.view_as(x)",
    "w = x.t()[1:]",
    "x = x.t().detach(); x.requires_grad_(); w = x.view_as(x)",
    "x = x[1:]; x.requires_grad_(); w = x.view_as(x)",
    "v = x.detach()[1:]; v.requires_grad_(); w = v[0]",
]


@pytest.mark.parametrize("make", VIEWS_OF_LEAVES)
def test_a_write_to_a_view_of_a_leaf(make: str) -> None:
    check(f"""
    x = (x * 1).detach()
    {make}
    if not w.requires_grad:
        w = x.requires_grad_()[1:]
    dynamo_lite.graph_break()
    table["a"] *= 2
    for write in (w.mul_, lambda k: w.__setitem__(0, k), lambda k: torch.neg(y, out=w), w.detach().mul_):
        try:
            write(2)
        except RuntimeError as error:
            said.append(str(error))
    return w
    """, backend="inductor_lite")


def test_an_input_that_is_first_met_in_inference_mode() -> None:
    check("""
    with torch.inference_mode():
        t = x + y
    said.append((torch.is_inference(x), torch.is_inference(y), y.is_inference(), t.is_inference()))
    return x * 2
    """)


# A value that a returned function holds and that is returned beside it is one object.
HELD_BY_FUNCTIONS = [
    "return h, h.calls",
    "return h.calls, h",
    "return [h, [h.calls]]",
    "return {'h': h, 'c': h.calls}",
    "box.held = [h, h.calls]; return h.calls",
    "g = lambda: (h, h.calls); return g, h.calls, h",
    "table['a'] = h; said.append(h.calls); return h.calls",
]


@pytest.mark.parametrize("empty, way_out", [
    *(("[]", way_out) for way_out in HELD_BY_FUNCTIONS),
    ("{}", "return h, h.calls"), ("Box(x, [])", "return h, h.calls"),
])
def test_what_a_function_holds_is_one_object(empty: str, way_out: str) -> None:
    grow = {"[]": "calls.append(a)", "{}": "calls[len(calls)] = a"}.get(empty, "calls.k.append(a)")
    check(f"""
    def counted(fn):
        calls = {empty}
        def inner(*a):
            {grow}
            return fn(*a)
        inner.calls = calls
        return inner

    @counted
    def h(a):
        return a * n

    h(x)
    {way_out}
    """)


# What super() finds is the upper class's, where the instance's class has another one of the name.
UNDER_SUPER = [
    ("v = 1", "v = 5", "super().v"), ("v = [1]", "v = [2]", "(super().v, super().v is self.v)"),
    ("v = functools.lru_cache(lambda self: 1)", "v = functools.lru_cache(lambda self: 2)", "(super().v(), self.v())"),
    ("v = functools.partialmethod(lambda self, k: k, 1)", "v = functools.partialmethod(lambda self, k: -k, 2)",
     "(super().v(), self.v())"),
    ("v = staticmethod(lambda: 1)", "v = staticmethod(lambda: 2)", "(super().v(), self.v())"),
    ("v = classmethod(lambda cls: cls)", "v = classmethod(lambda cls: 1)", "(super().v().__name__, self.v())"),
    ("v = functools.cached_property(lambda self: 1)", "v = property(lambda self: 2)", "(super().v, self.v)"),
    ("v = Box(1, 2)", "v = Box(3, 4)", "(super().v.k, self.v.k)"),
    ("v = lambda self: 1", "v = lambda self: 2", "(super().v(), self.v(), super(A, self).__init__())"),
]


@pytest.mark.parametrize("above, below, reads", UNDER_SUPER)
def test_what_super_finds(above: str, below: str, reads: str) -> None:
    check(f"""
    class A:
        {above}
    class B(A):
        {below}
        def reads(self):
            return {reads}
    class C(B):
        w = 1
    dynamo_lite.graph_break()
    return B().reads(), C().reads(), x + 1
    """)


CACHED = [
    "o = Counts(); return o.m(1), o.m(1), o.c",
    "o = Counts(); a = o.m(1); o.c = 7; return a, o.m(1), o.c",
    "o = Counts(); o.c = 3; return o.m(1), Counts().m(1), o.reads(), o.c",
    "o = Counts(); a = o.reads(); o.c += 1; return a, o.reads()",
    "table['o'] = o = Counts(); a = o.reads(); o.c += 1; dynamo_lite.graph_break(); return a, o.reads()",
]


@pytest.mark.parametrize("body", CACHED)
def test_a_cache_keeps_what_it_gave_for_an_object(body: str) -> None:
    check("""
    class Counts:
        c = 0
        @functools.lru_cache
        def m(self, a):
            self.c += 1
            return a + self.c
        @functools.lru_cache
        def reads(self):
            return self.c
    dynamo_lite.graph_break()
    """ + body)


def test_an_expanded_tensor_is_put_back_when_a_graph_raises() -> None:
    check("""
    y = y.expand(3, 4)
    dynamo_lite.graph_break()
    try:
        y[0].add_(1)
        torch.linalg.cholesky(-torch.eye(2))
    except RuntimeError:
        return y
    """)


def test_an_int_whose_expression_doubles_at_each_turn() -> None:
    body = """
    for _ in range(40):
        n = x.shape[-1] // (n + 1) + n
    return x * n
    """
    check(body, dynamic=True)
