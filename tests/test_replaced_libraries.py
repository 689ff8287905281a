"""Programs that put functions of their own into Python's modules, as tests with mocks do, get eager's results, whole
graphs and kernels: the compiler neither hangs, nor uses up what a mock has prepared, nor fails with it."""
import os

import new_process
import pytest

HEAD = """
import builtins, os, sys, time, faulthandler
from unittest import mock
faulthandler.dump_traceback_later(100, exit=True)
import torch, dynamo_lite

def f(x, w):
    return torch.softmax(torch.relu(x @ w), -1) * 2

def check(rows=8, function=f):
    x, w = torch.randn(rows, 16), torch.randn(16, 8)
    torch.testing.assert_close(dynamo_lite.compile(function)(x, w), function(x, w))
    return dynamo_lite.metrics()

def check_kernels():
    found = check()
    assert found["graphs"] == 1 and found["kernels"] and not found["fallbacks"], found
    assert not found.get("internal_errors")
"""


def run(program, tmp_path):
    env = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "kept"), "DYNAMO_LITE_CACHE_GRAPHS": "1"}
    p = new_process.run(HEAD + program + "\nprint('done', flush=True)\n", env=env, timeout=110)
    assert p.returncode == 0 and p.stdout.endswith("done\n"), p.stdout[-2000:] + p.stderr[-4000:]
    return p


CLOCKS = {"stands": "lambda: 0", "goes back": "lambda numbers=iter(range(10**6, 0, -1)): next(numbers)",
          "gives nothing": "lambda: None"}


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_clock(tmp_path, clock):
    run(f"""
clock = {CLOCKS[clock]}
for name in ("monotonic", "perf_counter", "time", "thread_time_ns", "process_time", "perf_counter_ns", "monotonic_ns"):
    setattr(time, name, clock)
check_kernels()
""", tmp_path)


def test_prepared_numbers_are_the_programs(tmp_path):
    run("""
def timed(x, w):
    begun = time.perf_counter()
    result = f(x, w)
    return result + (time.perf_counter() - begun)

x, w = torch.randn(8, 16), torch.randn(16, 8)
compiled = dynamo_lite.compile(timed)
for _ in range(2):
    with mock.patch("time.perf_counter", side_effect=[1.0, 4.0]), mock.patch("time.sleep", side_effect=ValueError):
        torch.testing.assert_close(compiled(x, w), f(x, w) + 3.0)
""", tmp_path)


@pytest.mark.parametrize("target", ["mock.mock_open(read_data='1')", "mock.Mock(side_effect=RuntimeError)"])
def test_open(tmp_path, target):
    run(f"""
with mock.patch("builtins.open", {target}):
    check_kernels()
""", tmp_path)


def test_an_environment_without_a_search_path(tmp_path):
    run("""
with mock.patch.dict(os.environ, {}, clear=True):
    check_kernels()
""", tmp_path)


def test_files_that_are_not_seen(tmp_path):
    p = run("""
dynamo_lite.set_logs("cache")
with mock.patch("os.scandir", side_effect=FileNotFoundError(2, "No such file")):
    check_kernels()
""", tmp_path)
    assert "a graph is not kept: the package's own files can't be seen" in p.stderr


@pytest.mark.parametrize("stream", ["open(os.devnull)", "closed", "None",
                                    "mock.Mock(write=mock.Mock(side_effect=RuntimeError))"])
def test_a_standard_error_that_takes_nothing(tmp_path, stream):
    run(f"""
closed = open(os.devnull, "w")
closed.close()
dynamo_lite.set_logs("all,-cache")
before, sys.stderr = sys.stderr, {stream}
try:
    check_kernels()
finally:
    sys.stderr = before
""", tmp_path)
