"""disable, allow_in_graph and the other marks on functions, by dynamo_lite's names and by torch's."""
import functools
import random
import zlib

import new_process
import pytest
import torch
from torch import nn

import dynamo_lite


@pytest.fixture(autouse=True)
def _modules_as_they_were():
    """torch's decorators mark and patch nn.Module.__init__ where a class of modules has none of its own."""
    init = torch.nn.Module.__init__
    marks = dict(vars(init))
    yield
    torch.nn.Module.__init__ = init
    vars(init).clear()
    vars(init).update(marks)


class Counter:
    def __init__(self):
        self.graphs = []

    def __call__(self, gm, inputs):
        self.graphs.append(gm)
        return gm.forward

    @property
    def ops(self):
        return [str(getattr(n.target, "__name__", n.target)) for g in self.graphs for n in g.graph.nodes
                if n.op.startswith("call")]


@pytest.fixture(autouse=True)
def _fresh():
    dynamo_lite.reset()
    yield
    dynamo_lite.reset()


BOTH = pytest.mark.parametrize("disable", [torch.compiler.disable, dynamo_lite.disable], ids=["torch", "own"])


def check(make, value, ops, calls=2):
    """`make(backend)` gives a function of one tensor; its graphs hold these operations, and only one compile each."""
    counter = Counter()
    fn = make(counter)
    for _ in range(calls):
        assert fn(torch.ones(3)).tolist() == [value] * 3
    assert counter.ops == ops
    return counter


def halve(x):
    return x / 2


# ---------------------------------------------------------------- disable
@BOTH
def test_a_disabled_function_and_what_it_calls_run_in_plain_python(disable):
    seen = []

    @disable
    def quiet(x):
        seen.append(dynamo_lite.is_compiling() or torch.compiler.is_compiling())
        return halve(x) * 3

    check(lambda c: dynamo_lite.compile(lambda x: quiet(x + 1) - 1, backend=c), 2.0, ["add", "sub"])
    assert seen == [False, False]


@BOTH
def test_without_recursion_what_it_calls_is_compiled(disable):
    @disable(recursive=False)
    def quiet(x):
        return halve(x) * 3

    other = disable(lambda x: halve(x) * 5, recursive=False)
    check(lambda c: dynamo_lite.compile(lambda x: quiet(x + 1) - 1, backend=c), 2.0, ["add", "truediv", "sub"])
    check(lambda c: dynamo_lite.compile(lambda x: other(x + 1) - 1, backend=c), 4.0, ["add", "truediv", "sub"])


@BOTH
def test_disabled_methods(disable):
    class Layer(nn.Module):
        @disable
        def forward(self, x):
            return halve(x) * 3

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def forward(self, x):
            return self.layer(x + 1) - 1

    check(lambda c: dynamo_lite.compile(Model(), backend=c), 2.0, ["add", "sub"])
    check(lambda c: dynamo_lite.compile(Layer(), backend=c), 1.5, [])

    class Plain:
        @staticmethod
        @disable
        def static(x):
            return halve(x) * 3

        @classmethod
        @disable
        def of_class(cls, x):
            return halve(x) * 3

        @property
        @disable
        def value(self):
            return torch.ones(3) * 3

    plain = Plain()
    bound = disable(plain.of_class)
    for fn in (Plain.static, Plain.of_class, plain.static, plain.of_class, bound):
        check(lambda c: dynamo_lite.compile(lambda x: fn(x + 1) - 1, backend=c), 2.0, ["add", "sub"])
    check(lambda c: dynamo_lite.compile(lambda x: x + plain.value - 1, backend=c), 3.0, ["add", "sub"])


def test_own_disable_goes_around_staticmethod_and_classmethod():
    class Plain:
        @dynamo_lite.disable
        @staticmethod
        def static(x):
            return halve(x) * 3

        @dynamo_lite.disable(reason="no")
        @classmethod
        def of_class(cls, x):
            return halve(x) * 3

    check(lambda c: dynamo_lite.compile(lambda x: Plain.static(x + 1) - 1, backend=c), 2.0, ["add", "sub"])
    check(lambda c: dynamo_lite.compile(lambda x: Plain().of_class(x + 1) - 1, backend=c), 2.0, ["add", "sub"])


@BOTH
def test_disabled_modules(disable):
    class Layer(nn.Module):
        def forward(self, x):
            return halve(x) * 3

    layer = disable(Layer())
    check(lambda c: dynamo_lite.compile(lambda x: layer(x + 1) - 1, backend=c), 2.0, ["add", "sub"])
    check(lambda c: dynamo_lite.compile(nn.Sequential(layer), backend=c), 1.5, [])
    if disable is torch.compiler.disable:  # leaves the module as it was
        check(lambda c: dynamo_lite.compile(layer, backend=c), 1.5, ["truediv", "mul"])


@BOTH
def test_disabled_classes(disable):
    @disable
    class Layer(nn.Module):
        def forward(self, x):
            return halve(x) * 3

    layer = Layer()
    assert isinstance(layer, Layer)
    check(lambda c: dynamo_lite.compile(lambda x: layer(x + 1) - 1, backend=c), 2.0, ["add", "sub"])

    @disable
    class Plain:
        def __init__(self, x):
            self.x = x * 3

        def __call__(self, y):
            return y * 4

        def half(self):
            return self.x / 2

    check(lambda c: dynamo_lite.compile(lambda x: Plain(x + 1).half() - 1, backend=c), 2.0, ["add", "truediv", "sub"])
    plain = Plain(torch.ones(3))
    check(lambda c: dynamo_lite.compile(lambda x: plain(x + 1) - 1, backend=c), 7.0, ["add", "sub"])


def test_own_disable_leaves_classes_as_they_are_made():
    @dynamo_lite.disable
    class Pair:
        def __new__(cls, x, y):
            made = super().__new__(cls)
            made.sum = x + y
            return made

    assert Pair(1, y=2).sum == 3 and "__init__" not in vars(Pair) and "__call__" not in vars(Pair)

    @dynamo_lite.disable(recursive=False)
    class Layer(nn.Module):
        def forward(self, x):
            return halve(x) * 3

    layer = Layer()
    check(lambda c: dynamo_lite.compile(lambda x: layer(x + 1) - 1, backend=c), 2.0, ["add", "truediv", "sub"])


@BOTH
def test_of_several_decorators_the_outermost_counts(disable):
    check(lambda c: dynamo_lite.compile(disable(lambda x: x * 3), backend=c), 3.0, ["mul"])
    check(lambda c: dynamo_lite.compile(disable(lambda x: x * 4, recursive=False), backend=c), 4.0, ["mul"])
    check(lambda c: disable(dynamo_lite.compile(lambda x: x * 3, backend=c)), 3.0, ["mul"] if
          disable is torch.compiler.disable else [])


@BOTH
def test_a_disabled_function_calls_a_compiled_one(disable):
    def make(backend):
        inner = dynamo_lite.compile(lambda x: x * 5, backend=backend)
        outer = disable(lambda x: inner(x) * 3)
        return dynamo_lite.compile(lambda x: outer(x + 1) - 1, backend=backend)

    check(make, 29.0, ["add", "mul", "sub"])


@BOTH
def test_a_decorator_around_a_disabled_function_is_not_disabled_itself(disable):
    def around(fn):
        @functools.wraps(fn)  # copies the attributes by which torch knows disabled functions
        def wrapper(x):
            return fn(x * 7) / 9

        return wrapper

    wrapped = around(disable(lambda x: x * 3))
    check(lambda c: dynamo_lite.compile(lambda x: wrapped(x + 1) - 1, backend=c), (torch.tensor(42.0) / 9 - 1).item(),
          ["add", "mul", "truediv", "sub"])


@BOTH
def test_disabled_functions_called_by_others(disable):
    quiet = disable(lambda x: halve(x) * 3)
    for fn in (lambda x: functools.partial(quiet, x + 1)() - 1, lambda x: [*map(quiet, [x + 1])][0] - 1,
               lambda x: (lambda f: f(x + 1))(quiet) - 1):
        check(lambda c: dynamo_lite.compile(fn, backend=c), 2.0, ["add", "sub"])
    # From outside, and behind a function that is called in plain Python.
    check(lambda c: (lambda f: lambda x: quiet(f(x)))(dynamo_lite.compile(lambda x: x + 1, backend=c)), 3.0, ["add"])

    def printed(x):
        print(end="")
        return quiet(x)

    check(lambda c: dynamo_lite.compile(lambda x: printed(x + 1) - 1, backend=c), 2.0, ["add", "sub"])


@BOTH
def test_the_reason_is_shown(disable):
    quiet = disable(lambda x: x * 3, reason="it reads a clock")
    f = dynamo_lite.compile(lambda x: quiet(x + 1), backend="eager", fullgraph=True)
    with pytest.raises(dynamo_lite.exc.Unsupported, match="it reads a clock"):
        f(torch.ones(3))


def test_torchs_skip():
    import torch._dynamo

    @torch._dynamo.decorators.skip
    def quiet(x):
        return halve(x) * 3

    check(lambda c: dynamo_lite.compile(lambda x: quiet(x + 1) - 1, backend=c), 2.0, ["add", "truediv", "sub"])


def test_what_torch_disables_of_its_own_is_captured():
    """torch.compile, once it has run, disables parts of torch for itself."""
    code = """
import torch, dynamo_lite
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
p = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([p], lr=0.5)
p.grad = torch.ones(3)
out = dynamo_lite.explain(lambda: opt.step())()
print(p.tolist(), out.graph_break_count)
"""
    run = new_process.run(code, timeout=120, modules=new_process.TORCH_COMPILE)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[0.5, 0.5, 0.5]")


# ---------------------------------------------------------------- questions and breaks
def test_is_compiling_by_every_name():
    import torch._dynamo

    questions = (dynamo_lite.is_compiling, torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
                 torch._dynamo.is_compiling, torch._dynamo.external_utils.is_compiling, torch._utils.is_compiling)
    for ask in questions:
        assert not ask()
        f = dynamo_lite.compile(lambda x: x + 1 if ask() else x + 2, backend="eager", fullgraph=True)
        assert f(torch.zeros(3)).tolist() == [1.0] * 3
    assert not torch.compiler.is_exporting()


def test_torchs_graph_break():
    import torch._dynamo

    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    counter = check(lambda c: dynamo_lite.compile(f, backend=c), 4.0, ["add", "mul"])
    assert len(counter.graphs) == 2
    with pytest.raises(dynamo_lite.exc.Unsupported, match="explicit_break"):
        dynamo_lite.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
    given = dynamo_lite.compile(lambda x: (x + 1, torch._dynamo.graph_break), backend="eager", fullgraph=True)
    assert given(torch.ones(3))[1] is torch._dynamo.graph_break


# ---------------------------------------------------------------- what stands in the graph
def test_torchs_allow_in_graph():
    def opaque(x):
        return x * 2 if random.random() < 2 else x

    assert torch.compiler.allow_in_graph(opaque) is opaque
    check(lambda c: dynamo_lite.compile(lambda x: opaque(x + 1), backend=c, fullgraph=True), 4.0, ["add", "opaque"])


def test_torchs_disallow_in_graph_and_forbid():
    import torch._dynamo

    def banned(x):
        return x * 3

    torch._dynamo.forbid_in_graph(banned)
    f = dynamo_lite.compile(lambda x: banned(x + 1), backend="eager", fullgraph=True)
    with pytest.raises(dynamo_lite.exc.Unsupported, match="forbid_in_graph"):
        f(torch.ones(3))
    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        fn = lambda x: torch.sub(x + 1, 1) + 1
        counter = check(lambda c: dynamo_lite.compile(fn, backend=c), 2.0, ["add", "add"])
        assert len(counter.graphs) == 2
    finally:
        torch._dynamo.allow_in_graph(torch.sub)


def test_torchs_substitute_in_graph():
    def opaque(x):
        return eval("x - 1")

    @torch.compiler.substitute_in_graph(opaque)
    def traced(x):
        return x * 5

    f = dynamo_lite.compile(lambda x: (opaque(x), traced(x), opaque), backend="eager", fullgraph=True)
    first, second, same = f(torch.ones(3))
    assert first.tolist() == second.tolist() == [5.0] * 3 and same is opaque
    assert traced(torch.ones(3)).tolist() == [0.0] * 3  # in plain Python the function itself

    # A callable written in C that no other test asks for: torch takes no substitution back.
    @torch.compiler.substitute_in_graph(zlib.adler32)
    def adler32(data, value=1, /):
        return 7

    f = dynamo_lite.compile(lambda x: (x + zlib.adler32(b"a"), zlib.adler32), backend="eager", fullgraph=True)
    out, same = f(torch.ones(3))
    assert out.tolist() == [8.0] * 3 and same is zlib.adler32


def test_torchs_assume_constant_result():
    calls = []

    @torch.compiler.assume_constant_result
    def width():
        calls.append(1)
        return 3

    check(lambda c: dynamo_lite.compile(lambda x: x * width(), backend=c, fullgraph=True), 3.0, ["mul"])
    assert len(calls) == 1


# ---------------------------------------------------------------- sizes
def graphs_for(marked, sizes, fn=lambda x: x * x.shape[0]):
    """The graphs compiled for calls with tensors of (n, 3), the first of which is marked."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    dynamo_lite.reset()
    f = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for i, n in enumerate(sizes):
        x = torch.ones(n, 3)
        if i == 0:
            marked(x)
        assert torch.equal(f(x), fn(x))
    return len(graphs)


def test_marks_on_sizes():
    assert graphs_for(lambda x: dynamo_lite.mark_dynamic(x, 0), (2, 3, 7)) == 1
    assert graphs_for(lambda x: dynamo_lite.mark_dynamic(x, (-1, 0)), (2, 3, 7)) == 1
    assert graphs_for(lambda x: dynamo_lite.maybe_mark_dynamic(x, [0, 1]), (2, 3, 7)) == 1
    with dynamo_lite.config.patch(automatic_dynamic_sizes=False):
        assert graphs_for(lambda x: dynamo_lite.mark_static(x), (2, 3, 7)) == 3


def test_bounds_of_sizes():
    def fn(x):
        return x + 1 if x.shape[0] < 10 else x - 1

    bounded = lambda x: dynamo_lite.mark_dynamic(x, 0, min=4, max=8)
    assert graphs_for(bounded, (5, 4, 8), fn) == 1
    assert graphs_for(bounded, (5, 3), fn) == 2
    assert graphs_for(bounded, (5, 9), fn) == 2
    assert graphs_for(bounded, (5, 3), lambda x: x + x.shape[0]) == 2


def test_marks_that_are_refused():
    x = torch.ones(2, 3)
    for mark in (dynamo_lite.mark_dynamic, dynamo_lite.mark_static, dynamo_lite.maybe_mark_dynamic):
        with pytest.raises(IndexError, match="dimension 2 of a tensor with 2"):
            mark(x, 2)
        with pytest.raises(IndexError):
            mark(x, [0, -3])
        with pytest.raises(TypeError, match="a dimension is an int"):
            mark(x, ["0"])
        with pytest.raises(TypeError, match="sizes of tensors"):
            mark([1], 0)
    with pytest.raises(ValueError, match="size 3, which is not within 4 to None"):
        dynamo_lite.mark_dynamic(x, 1, min=4)
    with pytest.raises(ValueError, match="not within None to 1"):
        dynamo_lite.mark_dynamic(x, 0, max=1)


def test_torchs_marks_on_sizes():
    import torch._dynamo

    mark = torch._dynamo.mark_dynamic
    assert graphs_for(lambda x: mark(x, 0), (2, 3, 7)) == 1
    assert graphs_for(lambda x: mark(x, 0, min=2, max=6), (2, 3, 7)) == 2
    assert graphs_for(lambda x: torch._dynamo.maybe_mark_dynamic(x, 0), (2, 3, 7)) == 1
    with dynamo_lite.config.patch(automatic_dynamic_sizes=False):
        assert graphs_for(lambda x: torch._dynamo.mark_static(x, 0), (2, 3, 7)) == 3
    x = torch.ones(2, 3)
    torch._dynamo.mark_static_address(x)
    assert dynamo_lite.compile(lambda x: x + 1, backend="eager", fullgraph=True)(x).sum() == 12


@BOTH
def test_functions_disabled_anew_at_each_call(disable):
    def inner_function(x):
        @disable
        def inner(y):
            return halve(y) * 3

        return inner(x + 1) - 1

    def in_place(x):
        return disable(lambda y: halve(y) * 3)(x + 1) - 1

    for fn in (inner_function, in_place):
        counter = check(lambda c: dynamo_lite.compile(fn, backend=c), 2.0, ["add", "sub"], calls=12)
        assert len(counter.graphs) == 2
    quiet, other = disable(lambda y: y * 3), disable(lambda y: y * 5)
    counter = Counter()
    f = dynamo_lite.compile(lambda x, q: (q(x + 1), q is quiet), backend=counter)
    for _ in range(2):
        assert [f(torch.ones(1), q)[0].item() for q in (quiet, other)] == [6.0, 10.0]
        assert [f(torch.ones(1), q)[1] for q in (quiet, other)] == [True, False]


class _Awaited:
    """What a coroutine waits for once."""

    def __await__(self):
        yield


def _drive(coroutine):
    try:
        while True:
            coroutine.send(None)
    except StopIteration as end:
        return end.value


@BOTH
@pytest.mark.parametrize("how", ["for", "next", "send", "throw", "from", "expression", "method", "coroutine", "async",
                                 "outer"])
def test_the_generator_of_a_disabled_function_runs_in_plain_python_with_all_that_it_calls(disable, how):
    seen = []

    def halved(x):
        seen.append(torch.compiler.is_compiling() or dynamo_lite._eval_frame.active_hook() is not None)
        return halve(x) * 3

    def values(x):
        for _ in range(3):
            try:
                yield halved(x)
            except KeyError:
                yield halved(x) + halved(x)

    class Source:
        @disable
        def values(self, x):
            yield from values(x)

    async def waits(x):
        first = halved(x)
        await _Awaited()
        return first + halved(x) + halved(x)

    async def gives(x):
        for v in values(x):
            await _Awaited()
            yield v

    gen, coroutine, gives = disable(values), disable(waits), disable(gives)
    expression = disable(lambda x: (halved(x) for _ in range(3)))

    async def gathers(x):
        total = 0
        async for v in gives(x):
            total = total + v
        return total

    def by_next(x):
        it = gen(x)
        return next(it) + next(it) + next(it)

    def by_send(x):
        it = gen(x)
        return it.send(None) + it.send(None) + it.send(None)

    def by_throw(x):
        it = gen(x)
        return next(it) + it.throw(KeyError())

    def by_from(x):
        def delegates():
            yield from gen(x)
        return sum(delegates())

    outside = []
    f = {"for": lambda x: sum(v for v in gen(x)), "next": by_next, "send": by_send, "throw": by_throw, "from": by_from,
         "expression": lambda x: sum(expression(x)), "method": lambda x: sum(Source().values(x)),
         "coroutine": lambda x: _drive(coroutine(x)), "async": lambda x: _drive(gathers(x)),
         "outer": lambda x: sum(outside.pop())}[how]
    compiled = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        outside.append(gen(torch.ones(3)) if disable is dynamo_lite.disable else values(torch.ones(3)))
        assert compiled(torch.ones(3)).tolist() == [4.5] * 3
    if how == "outer" and disable is not dynamo_lite.disable:
        return  # torch's wrapper ran where nothing of ours looks on
    assert seen and not any(seen)


def test_a_generator_ends_as_before_when_its_function_is_disabled():
    ends = []

    @dynamo_lite.disable
    def values(x):
        try:
            yield halve(x)
            yield x
        finally:
            ends.append(1)

    def f(x):
        it = values(x)
        y = next(it)
        del it
        return y + len(ends)

    compiled = dynamo_lite.compile(f, backend="eager")
    assert [compiled(torch.ones(2)).tolist() for _ in range(3)] == [[k + 0.5] * 2 for k in (1, 2, 3)]
    many = [values(torch.ones(1)) for _ in range(100)]
    assert [next(g).item() for g in many] == [0.5] * 100
    del many
    assert len(ends) == 103


def test_a_generator_that_ended_where_the_stack_was_used_up_leaves_nothing_to_others():
    """At the limit of recursion a weak reference's callback can't run."""
    @dynamo_lite.disable
    def disabled():
        yield 1

    def hooked():
        yield dynamo_lite._eval_frame.active_hook() is not None

    held = [disabled()]
    next(held[0])
    place = id(held[0])

    def deeper():
        try:
            deeper()
        except RecursionError:
            held.clear()

    deeper()
    others = [hooked() for _ in range(1000)]

    def turns(x, generator):
        dynamo_lite.graph_break()
        return next(generator), x + 1

    compiled = dynamo_lite.compile(turns, backend="eager")
    want = compiled(torch.ones(2), hooked())[0]
    for generator in others:
        if id(generator) == place:
            assert compiled(torch.ones(2), generator)[0] == want
