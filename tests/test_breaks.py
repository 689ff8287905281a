"""Graph breaks as the user meets them: in the log, as errors of fullgraph, when a graph raises, in shared memory."""
from __future__ import annotations

import logging
import re
import zlib

import pytest
import torch

import dynamo_lite
from dynamo_lite import config, exc, graph_break, log
from dynamo_lite.break_kinds import BREAK_KINDS
from dynamo_lite.interpreter.registry import HANDLERS

pytestmark = pytest.mark.usefixtures("guards_alone")


def compiled(f, **options):
    return dynamo_lite.compile(f, backend="eager", **options)


def texts(caplog, name):
    return [r.getMessage() for r in caplog.records if r.name == f"dynamo_lite.{name}"]


# ---------------------------------------------------------------- fullgraph
def branch(x):
    if x.sum() > 0:
        return x
    return -x


def prints(x):
    print("hello")
    return x


def item(x):
    return x * x.sum().item()


def formats(x):
    return f"{x}"


def to_numpy(x):
    return x.numpy().tobytes()


def dynamic(x):
    return torch.nonzero(x)


def regular(x):
    return re.sub("a", lambda match: "b", "abc"), x


def counts(x):
    return zlib.crc32(b"abc"), x


def opens(x):
    with open(__file__) as file:
        return x, file.name


def seeds(x):
    torch.manual_seed(3)
    return torch.rand(2)


def breaks(x):
    graph_break()
    return x


def inner(x):
    return branch(x + 1)


def outer(x):
    return inner(x.sin())


KINDS = [
    (branch, "data_dependent_branch"), (prints, "print_or_log"), (item, "tensor_to_python"),
    (formats, "tensor_formatting"), (to_numpy, "numpy_conversion"), (dynamic, "dynamic_output_shape"),
    (counts, "call_skipped"), (breaks, "explicit_break"),
    (lambda x: torch.save(x, "/nowhere"), "input_output"),
    (dynamo_lite.disable(lambda x: x), None),
]


@pytest.mark.parametrize("f, kind", [k for k in KINDS if k[1]], ids=[str(k[1]) for k in KINDS if k[1]])
def test_fullgraph_says_what_where_why_and_what_to_do(f, kind):
    with pytest.raises(exc.Unsupported) as caught:
        compiled(f, fullgraph=True)(torch.ones(3))
    error = caught.value
    text = str(error)
    assert error.kind == kind and f"[{kind}]" in text
    assert f"{__file__}:" in text and f"in {f.__name__}" in text
    assert BREAK_KINDS[kind].why in text and f"hint: {error.hint}" in text
    assert "dynamo_lite/" not in re.sub(re.escape(__file__), "", text).replace("tests/", "")


def test_fullgraph_shows_the_chain_of_calls():
    with pytest.raises(exc.Unsupported) as caught:
        compiled(outer, fullgraph=True)(torch.ones(3))
    assert [f.name for f in caught.value.user_stack] == ["outer", "inner", "branch"]
    text = str(caught.value)
    assert "called from" in text and "return inner(x.sin())" in text and "if x.sum() > 0:" in text


def test_fullgraph_leaves_exceptions_of_the_program_alone():
    def f(x):
        y = x + 1
        raise KeyError(y.shape[0])

    with pytest.raises(KeyError, match="3"):
        compiled(f, fullgraph=True)(torch.ones(3))


# ---------------------------------------------------------------- the log
def test_a_break_is_logged_once_for_its_place(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.graph_breaks")

    def f(x):
        for i in range(3):
            if x.sum() > i:
                x = x + 1
        graph_break()
        return x

    g = compiled(f)
    g(torch.ones(2))
    g(torch.ones(3))
    first, second = texts(caplog, "graph_breaks")
    assert first.startswith(f"Graph break at {__file__}:") and "in f: data-dependent" in first
    assert "if x.sum() > i:" in first and "hint:" in first and "[explicit_break]" in second
    assert all(re.fullmatch(r"\d+/\d+", r.frame_id) for r in caplog.records if r.name.endswith("graph_breaks"))


def test_skipped_frames_have_a_reason(caplog):
    caplog.set_level(logging.DEBUG, "dynamo_lite.skipped_frames")
    compiled(regular)(torch.ones(2))
    assert any("standard library" in t or "regular expressions" in t for t in texts(caplog, "skipped_frames"))
    assert log.counters()["skipped_frames"] >= 1


def test_guards_are_a_tree(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.guards")
    compiled(lambda x, d: x * d["k"][1])(torch.ones(2), {"k": [1, 2]})
    (text,) = texts(caplog, "guards")
    lines = text.splitlines()
    assert "d: is of type dict" in text and "  d['k']: is of type list" in text and "    d['k'][1]: == 2" in lines


# ---------------------------------------------------------------- graphs that raise
STATE = {"count": 0}


def late_error(x, y):
    STATE["count"] += 1
    x = x * 2
    try:
        z = torch.linalg.cholesky(y)[0]  # not positive definite, which only the kernel says
    except torch.linalg.LinAlgError as error:
        return x, type(error).__name__, STATE["count"]
    STATE["count"] += 10
    return x + z


def random_then_error(x, y):
    a = torch.rand(2)
    with torch.no_grad():
        return a, torch.linalg.cholesky(y)


def test_a_kernel_that_raises_is_the_programs_own_error(caplog):
    x, y = torch.ones(3), torch.zeros(3, 3)
    STATE["count"] = 0
    wanted = late_error(x, y)
    STATE["count"] = 0
    got = compiled(late_error)(x, y)
    assert repr(got) == repr(wanted) and STATE["count"] == 1
    assert any("runs again in plain Python" in t for t in texts(caplog, "fallbacks"))
    torch.manual_seed(1)
    with pytest.raises(torch.linalg.LinAlgError) as caught:
        random_then_error(x, y)
    after = torch.rand(1)
    torch.manual_seed(1)
    with pytest.raises(torch.linalg.LinAlgError) as again:
        compiled(random_then_error)(x, y)
    assert torch.equal(torch.rand(1), after) and torch.is_grad_enabled()
    assert caught.traceback[-1].lineno == again.traceback[-1].lineno or str(caught.value) == str(again.value)


# ---------------------------------------------------------------- shared memory
def changes(x, y):
    x.add_(1)
    return y * 2


def test_inputs_that_share_memory_get_graphs_of_their_own():
    def pair(start):
        base = torch.arange(12.0)
        return base[:4], base[start : start + 4]

    def one_tensor():
        t = torch.ones(4)
        return t, t

    makers = [lambda: (torch.ones(4), torch.ones(4)), lambda: pair(2), lambda: pair(3), lambda: pair(5), one_tensor]
    g = compiled(changes)
    for make in [*makers, *makers]:
        a, b = make(), make()
        assert torch.equal(changes(*a), g(*b)) and torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
    assert log.counters()["graphs"] == 4


# ---------------------------------------------------------------- loops
@pytest.mark.parametrize("n", [10_000])
def test_a_long_loop_of_breaks_compiles_a_few_frames(n):
    def f(x):
        k = 0
        while k < n:
            x = x + 1
            graph_break()
            k += 1
        return x, k

    x, k = compiled(f)(torch.zeros(2))
    assert x[0] == n and k == n and log.counters()["graphs"] <= 4


# ---------------------------------------------------------------- faults of our own
def test_a_fault_of_ours_breaks_the_graph_and_says_so(monkeypatch, caplog):
    def fails(tx, instruction):
        raise IndexError("a fault")

    def f(x):
        y = x + 1
        pair = (y, y)
        return pair[0] * 2

    monkeypatch.setitem(HANDLERS, "BUILD_TUPLE", fails)
    with pytest.raises(IndexError):
        compiled(f)(torch.ones(2))
    dynamo_lite.reset()
    with config.patch(raise_internal_errors=False):
        assert torch.equal(compiled(f)(torch.ones(2)), torch.full((2,), 4.0))
        assert log.counters()["graphs"] == 2 and log.counters()["internal_errors"] == 1
        (text,) = texts(caplog, "fallbacks")
        assert "pair = (y, y)" in text and "IndexError: a fault" in text
        with pytest.raises(exc.Unsupported, match="internal_error"):
            compiled(f, fullgraph=True)(torch.ones(2))


# ---------------------------------------------------------------- whole graphs
def without_tensors(d):
    return {k: sorted(v) for k, v in d.items()}


def test_a_whole_graph_of_nothing_runs_plainly_with_all_that_it_calls():
    compiled = dynamo_lite.compile(without_tensors, backend="eager", fullgraph=True)
    assert compiled({"a": [2, 1]}) == compiled({"a": [2, 1]}) == {"a": [1, 2]}


def generator(x):
    yield x + 1


async def coroutine(x):
    return x + 1


@pytest.mark.parametrize("fn", [generator, coroutine])
def test_what_suspends_is_no_whole_graph(fn):
    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert compiled.__name__ == fn.__name__
    with pytest.raises(exc.Unsupported) as error:
        compiled(torch.ones(1))
    assert error.value.kind == "generator_frame" and "test_breaks.py" in str(error.value)


def test_a_generator_that_is_compiled_is_said_to_be_skipped(caplog):
    caplog.set_level("INFO", "dynamo_lite.skipped_frames")
    compiled = dynamo_lite.compile(generator, backend="eager")
    assert [t.item() for t in compiled(torch.ones(1))] == [2]
    assert "a generator or coroutine" in caplog.text and "generator (" in caplog.text
