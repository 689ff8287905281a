"""What a compile makes goes with the code object that it was made for: no reset, and no loop of compiles that grows."""
import gc
import linecache
import weakref

import pytest
import torch
import torch.nn as nn

import dynamo_lite
from dynamo_lite import _eval_frame

pytestmark = pytest.mark.by_turns(3)

SOURCE = """
def f(x, n=2):
    y = x * 2
    print(end="")
    return y + 1 if n == 0 else f(y, n - 1)
"""


def executed(source, **names):
    """The function `f` of a program that nobody else holds: code and globals end with it."""
    exec(source, names)
    return names["f"]


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        print(end="")
        return y.relu() + 1


def a_model(backend):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    dynamo_lite.compile(model, backend=backend)(torch.ones(1, 4))


def a_model_with_a_break(backend):
    dynamo_lite.compile(Broken(), backend=backend)(torch.ones(1, 4))


def a_backward_pass(backend):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    dynamo_lite.compile(model, backend=backend)(torch.ones(1, 4)).sum().backward()


def a_training_step(backend):
    model = Broken()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()

    dynamo_lite.compile(step, backend=backend)(torch.ones(1, 4))


def a_local_function(backend):
    def f(x, n):
        return x if n == 0 else f(x * 2, n - 1)

    dynamo_lite.compile(f, backend=backend)(torch.ones(4), 3)


def a_function_with_a_break(backend):
    dynamo_lite.compile(executed(SOURCE), backend=backend)(torch.ones(4))


def a_decorated_function(backend):
    source = "@compile(backend=backend)\ndef f(x): return x * 2 + 1"
    executed(source, compile=dynamo_lite.compile, backend=backend)(torch.ones(3))


def a_local_class(backend):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.w

    dynamo_lite.compile(Scale(), backend=backend)(torch.ones(3))


def a_backend_of_its_own(backend):
    dynamo_lite.compile(lambda x: x * 2, backend=lambda graph, inputs: graph.forward)(torch.ones(3))


def a_graph_that_raises(backend):
    f = executed("def f(x, i): return x[i] + 1")
    with pytest.raises(IndexError):
        dynamo_lite.compile(f, backend=backend)(torch.ones(4), torch.tensor(7))


def a_refusal(backend):
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(executed(SOURCE), backend=backend, fullgraph=True)(torch.ones(4))


def many_sizes(backend):
    f = dynamo_lite.compile(executed("def f(x): return x * 2"), backend=backend)
    for n in range(2, 12):
        f(torch.ones(n))


def a_reset(backend):
    f = dynamo_lite.compile(executed(SOURCE), backend=backend)
    for _ in range(2):
        f(torch.ones(4))
        dynamo_lite.reset()


def an_explanation(backend):
    dynamo_lite.explain(executed(SOURCE))(torch.ones(4))


def an_export(backend):
    dynamo_lite.export(executed("def f(x): return x * 2 + 1"))(torch.ones(4))


PROGRAMS = [a_model, a_model_with_a_break, a_backward_pass, a_training_step, a_local_function, a_function_with_a_break,
            a_decorated_function, a_local_class, a_backend_of_its_own, a_graph_that_raises, a_refusal, many_sizes,
            a_reset, an_explanation, an_export]


def objects_left():
    """How many there are, and sources for tracebacks. What one collection frees may own the next garbage."""
    for _ in range(5):
        gc.collect()
    return len(gc.get_objects()), len(linecache.cache)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_loop_of_compiles_leaves_no_objects(program, backend):
    def rounds(n):
        for _ in range(n):
            program(backend)
        return objects_left()

    rounds(3)
    objects, sources = rounds(10)
    more_objects, more_sources = rounds(20)
    # A model takes 200 to 500 objects. What is left of some is torch's, which remembers sixteen weak references.
    assert more_objects - objects < 40 and more_sources - sources <= 1


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_entries_and_code_go_with_the_last_function(backend):
    f = executed(SOURCE)
    compiled = dynamo_lite.compile(f, backend=backend)
    compiled(torch.ones(4))
    entries = _eval_frame.entries(f.__code__)
    resumes = [c for e in entries for c in e.code.co_consts if hasattr(c, "co_code")]
    assert entries and resumes
    held = [f.__code__, entries[0].code, *resumes]
    refs = [weakref.ref(code) for code in held]
    del f, compiled, entries, resumes, held
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


def test_guarded_functions_hold_no_globals_between_calls():
    f = executed("def f(x): return x + 1")
    compiled = dynamo_lite.compile(f, backend="eager")
    compiled(torch.ones(2))
    (entry,) = _eval_frame.entries(f.__code__)
    functions = [o for o in gc.get_referents(entry) if hasattr(o, "__globals__")]
    assert len(functions) == 1 and functions[0].__globals__ == {}
    assert compiled(torch.ones(2)).tolist() == [2, 2]


def test_a_frame_that_is_kept_keeps_its_globals():
    f = executed("import sys\ndef f(x):\n    y = x + 1\n    g(sys._getframe())\n    return y", g=(kept := []).append)
    assert dynamo_lite.compile(f, backend="eager")(torch.ones(2)).tolist() == [2, 2]
    del f
    gc.collect()
    assert kept[0].f_globals["g"] == kept.append or kept[0].f_globals["g"].__self__ is kept


def test_older_garbage_is_collected_in_a_loop_that_does_nothing_but_compile():
    gc.collect()
    for _ in range(30):
        a_model("eager")
    before = len(gc.get_objects())
    for _ in range(60):
        a_model("eager")
    assert len(gc.get_objects()) - before < 30 * 200  # at 200 objects each, less than half of the models
