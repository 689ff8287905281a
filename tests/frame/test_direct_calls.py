"""Calls of a kernel without a frame for the code: they give what the code would, and a profiler sees what it did."""
import cProfile
import gc
import pstats
import sys
import threading
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite import _eval_frame as E
from dynamo_lite import _guards as G


def add(x, y):
    return x + y


def entry_of(fn):
    return E.entries(fn.__code__)[0]


def compiled(fn, *args):
    c = dynamo_lite.compile(fn)
    with torch.no_grad():
        c(*args)
    return c


@pytest.fixture(autouse=True)
def nothing_kept():
    dynamo_lite.reset()
    yield
    dynamo_lite.reset()


def test_a_small_kernel_is_called_directly():
    x, y = torch.randn(4), torch.randn(4)
    c = compiled(add, x, y)
    assert entry_of(add).direct is not None
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(c(x, y), x + y)
    assert entry_of(add).hits >= 3


def in_place(x, y):
    return x.add_(y)


def two_results(x, y):
    return x + y, x - y


def attribute_set(x, y):
    sys.left_by_a_test = 1
    return x + y


def drawn(x, y):
    return torch.rand(3) + x[0]


def itself(x, y):
    x + y
    return x


def broken(x, y):
    x = x + y
    print(end="")
    return x


@pytest.mark.parametrize("fn", [in_place, two_results, attribute_set, drawn, itself, broken], ids=lambda f: f.__name__)
def test_what_does_more_has_a_frame(fn):
    x, y = torch.randn(4), torch.randn(4)
    torch.manual_seed(0)
    want = fn(x.clone(), y)
    compiled(fn, x.clone(), y)
    c = dynamo_lite.compile(fn)
    assert all(e.direct is None for e in E.entries(fn.__code__))
    with torch.no_grad():
        torch.manual_seed(0)
        torch.testing.assert_close(c(x.clone(), y), want)


def test_a_kernel_that_lets_others_run_has_a_frame():
    x = torch.randn(2000, 2000)
    compiled(add, x, x)
    assert entry_of(add).direct is None


def test_a_profiler_sees_the_function():
    x, y = torch.randn(4), torch.randn(4)
    c = compiled(add, x, y)
    profile = cProfile.Profile()
    with torch.no_grad():
        profile.enable()
        c(x, y)
        profile.disable()
    assert any(name == "add" for _, _, name in pstats.Stats(profile).stats)


def test_a_tracer_sees_the_lines():
    x, y = torch.randn(4), torch.randn(4)
    c = compiled(add, x, y)
    names = []

    def trace(frame, event, arg):
        names.append(frame.f_code.co_name)

    with torch.no_grad():
        sys.settrace(trace)
        try:
            c(x, y)
        finally:
            sys.settrace(None)
    assert "add" in names


def program():
    return G.GuardProgram([("load_local", 0, 0), ("collect", 0, 0)], 1, 1)


def hooked(fn, direct, code):
    entry = E.GuardedCode(program(), code.__code__, False, direct=direct)
    hook = E.FrameHook(lambda c, *_: entry if c is fn.__code__ else E.SKIP)
    return E.CompiledFunction(fn, hook)


class Direct:
    def __init__(self, results):
        self.results = iter(results)

    def __call__(self, *inputs):
        result = next(self.results)
        if isinstance(result, Exception):
            raise result
        return result


def test_what_fails_is_left_to_the_code():
    def fn(x):
        return "plain"

    def code(x, inputs):
        return "code", inputs

    c = hooked(fn, Direct([(1, 2), ValueError("no"), None, (), [3], ("last",)]), code)
    assert [c(5) for _ in range(6)] == [1, ("code", (5,)), ("code", (5,)), ("code", (5,)), ("code", (5,)), "last"]


def test_an_entry_owns_what_it_calls():
    def fn(x):
        return "plain"

    def code(x, inputs):
        return "code"

    direct = Direct([(1,)] * 9)
    alive = weakref.ref(direct)
    c = hooked(fn, direct, code)
    direct.function = c  # a cycle
    assert c(5) == 1
    del direct, c, fn
    gc.collect()
    assert alive() is None


def test_threads_call_it_at_once():
    x, y = torch.randn(4), torch.randn(4)
    c, want, wrong = compiled(add, x, y), x + y, []

    def work():
        with torch.no_grad():
            for _ in range(300):
                if not torch.equal(c(x, y), want):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
