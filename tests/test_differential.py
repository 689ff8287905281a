"""Generated small programs, compiled and in plain Python: results, layouts, exceptions and changed inputs are the same.

A program is made as source text (`programs.py`), so that a failing one can be read, and pasted into a test of its own.
`DYNAMO_LITE_FUZZ=N` tries N random programs per test, instead of the fixed set of every other run.
"""
import linecache
import math
import os

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from programs import OBJECTS, programs

import dynamo_lite
from dynamo_lite import config

FUZZ = int(os.environ.get("DYNAMO_LITE_FUZZ", "0"))


def bounded(examples):
    return settings(max_examples=FUZZ or examples, derandomize=not FUZZ, deadline=None, database=None,
                    suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink))


# ---------------------------------------------------------------- running and comparing
def load(source):
    """A program's function and its globals."""
    name = f"<program {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {}
    exec(OBJECTS, scope)
    exec(compile(source, name, "exec"), scope)
    return scope["f"], scope


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 4, generator=g)
    y = torch.randn(4, 3, generator=g).t() if seed % 2 else torch.randn(4, generator=g)
    # An input that needs a gradient, and is no leaf, so that it may be changed in place.
    return [x, y if seed < 2 else y.requires_grad_().clone(), 2 + seed, seed % 2 == 0]


def outcome(f, scope, seed):
    """All that can be seen of one call: the result or the exception, then inputs, globals, random state."""
    said, state = scope["said"], scope["STATE"]
    said.clear()
    state.clear()
    state["count"] = 0
    args = inputs(seed)
    torch.manual_seed(seed)
    try:
        result = seen(f(*args), args)
    except Exception as e:
        result = ("raised", type(e).__name__)
    random = seen(torch.rand(1), args)
    return result, seen(args[:2], args), list(said), seen(state, args), random, torch.is_grad_enabled()


def seen(value, args):
    """A value as plain data; a tensor with its layout, its data, and which input it is or shares memory with."""
    if isinstance(value, torch.Tensor):
        same = [value is a for a in args[:2]]
        shares = [value.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for a in args[:2]]
        return ("tensor", type(value), value.dtype, tuple(value.shape), value.stride(), value.requires_grad, same,
                shares, value.detach().clone())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [seen(v, args) for v in value])
    if isinstance(value, dict):
        return (type(value).__name__, [(k, seen(v, args)) for k, v in value.items()])
    if type(value).__name__ == "Box":
        return ("Box", seen(vars(value), args))
    return (type(value).__name__, value)


def same(a, b, tolerance):
    if isinstance(a, torch.Tensor) and not a.is_floating_point():
        return torch.equal(a, b)
    if isinstance(a, torch.Tensor):
        return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if isinstance(a, float) and isinstance(b, float):
        near = math.isclose(a, b, rel_tol=tolerance * 10, abs_tol=tolerance * 10)
        return near or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(p, q, tolerance) for p, q in zip(a, b))
    return a == b


def compare(source, tolerance=0.0, **options):
    f, scope = load(source)
    with torch.random.fork_rng(devices=[]):
        wanted = {seed: outcome(f, scope, seed) for seed in (0, 1, 2)}
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(f, **options)
        # Twice with the same arguments: what is compiled, and what is found again. The others need other guards.
        for seed in (0, 0, 1, 1, 0, 2):
            got = outcome(compiled, scope, seed)
            if not same(got, wanted[seed], tolerance):
                raise AssertionError(
                    f"inputs({seed}), {options}\n{source}\neager:    {wanted[seed]}\ncompiled: {got}")


@bounded(60)
@given(programs())
def test_programs_in_one_graph_or_more(source):
    note(source)
    compare(source, backend="eager")


@bounded(40)
@given(programs(breaks=True))
def test_programs_with_breaks(source):
    note(source)
    compare(source, backend="eager")


@bounded(12)
@given(programs())
def test_programs_through_the_default_backend(source):
    note(source)
    compare(source, tolerance=1e-4)


@bounded(40)
@given(programs(breaks=True))
def test_programs_that_keep_numbers_in_the_graph(source):
    with config.patch(capture_scalar_outputs=True):
        compare(source, backend="eager")


def test_the_maker_itself():
    """Programs run in plain Python, mostly without an exception, and the comparison sees a difference."""
    outcomes = []

    @bounded(80)
    @given(programs(breaks=True))
    def collect(source):
        f, scope = load(source)
        outcomes.append(outcome(f, scope, 0)[0][0])
        assert same(outcome(f, scope, 0), outcome(f, scope, 0), 0.0)

    collect()
    assert outcomes.count("raised") < len(outcomes) / 2 and outcomes.count("raised") > 0
    f, scope = load("def f(x, y, n, flag):\n    x[0] = 0\n    return x\n")
    g, _ = load("def f(x, y, n, flag):\n    x = x.clone()\n    x[0] = 0\n    return x\n")
    assert not same(outcome(f, scope, 0), outcome(g, scope, 0), 1e-3)
    with pytest.raises(AssertionError, match="eager"):
        compare("def f(x, y, n, flag):\n    return x + 1, dynamo_lite.is_compiling()\n", backend="eager")
