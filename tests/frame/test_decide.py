"""Decisions about frames: each has a reason, and is counted and said as its rule wants."""
import logging
import sys
import types

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dynamo_lite
from dynamo_lite import _eval_frame, config, log
from dynamo_lite.bytecode.code_map import CodeMap
from dynamo_lite.frame.decide import TRACE, decide
from dynamo_lite.frame.request import Frame, Settings


def f(x, n=1):
    return x + n


def sizes(x):
    return sys.getsizeof(x)


def decision(function, *args, roots=None, **settings):
    log.reset()
    made = Settings(lambda graph, inputs: graph, roots=roots, **settings)
    frame = Frame(made, None, function.__code__, function.__globals__, vars(__builtins__) if isinstance(
        __builtins__, types.ModuleType) else __builtins__, function.__closure__, args)
    return decide(made, frame, function)


def test_a_function_of_the_program_is_traced():
    assert decision(f, torch.ones(2), 1) is TRACE
    assert "skipped_frames" not in log.counters()


@pytest.mark.parametrize("module", ["dynamo_lite.backends.inductor.x", "torch._dynamo.x"])
def test_compilers_are_left_alone_with_all_that_they_call(module):
    other = types.FunctionType(f.__code__, {"__name__": module})
    assert decision(other, 1, 2).answer is _eval_frame.SKIP_RECURSIVE


def test_code_that_asks_the_interpreter():
    found = decision(sizes, 1)
    assert found.answer is _eval_frame.SKIP and "the size" in found.reason and found.said == logging.INFO
    assert decision(sizes, 1, fullgraph=True) is TRACE


def test_modes_of_torch_are_for_this_call_only():
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, fn, types, args=(), kwargs=None):
            return fn(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
            return fn(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Dispatch():
        found = decision(f, x, 1)
    assert found.answer is _eval_frame.RUN_ORIGINAL and "dispatch mode" in found.reason
    with Mode():
        assert decision(f, x, 1) is TRACE, "the trace asks function modes"
        with torch.device("cpu"):
            found = decision(f, x, 1)
    assert found.answer is _eval_frame.RUN_ORIGINAL and "default device" in found.reason
    assert decision(f, torch.ones(2), 1) is TRACE


def test_helpers_of_plain_values_get_an_entry_without_code():
    roots = CodeMap()
    roots.set(sizes.__code__, True)
    found = decision(f, 1, 2, roots=roots)
    assert isinstance(found.answer, _eval_frame.GuardedCode) and found.answer.code is None
    assert decision(f, torch.ones(2), 2, roots=roots) is TRACE
    roots.set(f.__code__, True)
    assert decision(f, 1, 2, roots=roots) is TRACE


def test_the_reason_is_said_once(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.skipped_frames")
    fn = dynamo_lite.compile(sizes, backend="eager")
    dynamo_lite.reset()
    fn(1), fn(1)
    assert [r.getMessage().split(":")[-1].split()[0] for r in caplog.records] == ["it"]
    assert log.counters()["skipped_frames"] == 1


def test_the_limit_keeps_what_there_is():
    dynamo_lite.reset()
    fn = dynamo_lite.compile(lambda x: x * 2, backend="eager", dynamic=False)
    with config.patch(recompile_limit=2):
        for n in range(1, 6):
            assert torch.equal(fn(torch.ones(n)), torch.full((n,), 2.0))
    assert log.counters()["graphs"] == 2 and log.counters()["recompile_limit"] == 1
