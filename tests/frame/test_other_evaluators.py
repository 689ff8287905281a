"""The frame hook beside another evaluation function, which a few lines of C stand for: installed before ours, after, or
within, and gone again in any order."""

import ctypes
import gc
import shutil
import subprocess
import sys
import sysconfig

import pytest
from extensions_alone import run_alone
from frame_hooks import Hook, entry, nothing_stays_active  # noqa: F401

from dynamo_lite import _eval_frame as E

SOURCE = """
#include <Python.h>
static _PyFrameEvalFunction below;
static _Thread_local long seen;

static PyObject *
other(PyThreadState *tstate, struct _PyInterpreterFrame *frame, int throwflag)
{
    seen++;
    return below(tstate, frame, throwflag);
}

void install(void)
{
    below = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), other);
}
void remove_again(void) { _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), below); }
void remove_all(void) { _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), _PyEval_EvalFrameDefault); }
int installed(void) { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == other; }
long frames_seen(void) { long n = seen; seen = 0; return n; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("other")
    (folder / "other.c").write_text(SOURCE)
    include = "-I" + sysconfig.get_path("include")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", include, "other.c", "-o", "other.so"], cwd=folder, check=True)
    return ctypes.PyDLL(str(folder / "other.so"))


@pytest.fixture
def other(library):
    # Finalizers of what other tests have left would be seen, too.
    gc.collect()
    gc.disable()
    yield library
    gc.enable()
    library.remove_all()
    library.frames_seen()


def one(x):
    return ("plain", x)


def two(x):
    return one(x), three(x)


def three(x):
    return x


def plain_frames(other):
    """How many frames the other function sees of two(1) in plain Python, and of nothing."""
    other.frames_seen()
    assert two(1) == (("plain", 1), 1)
    return other.frames_seen()


def test_one_that_was_installed_before(other):
    other.install()
    assert plain_frames(other) == 3
    h = Hook({"one": entry("def guarded(x, inputs): return three(x), leaf(x)", needs_hook=True)})
    one.__globals__["leaf"] = three
    f = h.compile(two)
    for _ in range(2):
        other.frames_seen()
        assert f(1) == ((1, 1), 1)
        # `two` and three times `three`: neither guarded code nor what the hook is asked in.
        assert other.frames_seen() == 4
        assert other.installed() and plain_frames(other) == 3


def test_guarded_code_that_runs_without_the_hook(other):
    other.install()
    h = Hook({"one": entry("def guarded(x, inputs): return three(x)")})
    f, g = h.compile(two), h.compile(one)
    for _ in range(2):
        other.frames_seen()
        assert f(1) == (1, 1) and g(1) == 1
        assert other.frames_seen() == 2  # `two`, and `three` that it calls; all in guarded code is ours
        assert other.installed()


def test_one_that_comes_and_goes_within(other):
    h = Hook()

    def f(x):
        other.install()
        inside = one(x)
        other.remove_again()
        return inside, one(x)

    for _ in range(2):
        assert h.compile(f)(1) == (("plain", 1), ("plain", 1))
        assert not other.installed()
    assert h.asked.count("f") == h.asked.count("one") == 1


def test_one_that_comes_within_and_stays(other):
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})

    def f(x):
        other.install()
        return one(x)

    assert h.compile(f)(1) == "guarded"
    other.frames_seen()
    assert h.compile(two)(1) == ("guarded", 1)
    other.remove_all()
    assert h.compile(two)(1) == ("guarded", 1)
    assert two(1) == (("plain", 1), 1)


def test_one_that_goes_within(other):
    other.install()
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})

    def f(x):
        other.remove_all()
        return one(x)

    assert h.compile(f)(1) in ("guarded", ("plain", 1))
    assert h.compile(two)(1) == ("guarded", 1)
    assert two(1) == (("plain", 1), 1)


def test_exceptions_generators_and_deep_recursion_through_both(other):
    other.install()
    h = Hook({"one": entry("def guarded(x, inputs): raise KeyError(x)")})

    def numbers(n):
        for i in range(n):
            try:
                yield one(i)
            except KeyError:
                yield i

    def f(n):
        g = numbers(n)
        return sum(g), down(n)

    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    for _ in range(200):
        assert h.compile(f)(5) == (10, 5)
    with pytest.raises(RecursionError):
        h.compile(f)(10**6)
    assert h.compile(f)(5) == (10, 5) and other.installed()


@pytest.mark.skipif(not hasattr(sys, "activate_stack_trampoline"), reason="the trampoline came with Python 3.12")
def test_the_interpreters_own_trampoline():
    """`python -X perf` evaluates frames by a function of its own."""
    p = run_alone("""
        import os
        def one(x): return three(x)
        def three(x): return x
        def guarded(x, inputs): return three(x), "guarded"
        sys.activate_stack_trampoline("perf")
        program = G.GuardProgram([], 0, 0)
        entry = E.GuardedCode(program, guarded.__code__, True)
        hook = E.FrameHook(lambda c, *a: entry if c.co_name == "one" else E.SKIP)
        def f(x): return one(x), three(x)
        for _ in range(1000):
            assert E.CompiledFunction(f, hook)(1) == ((1, "guarded"), 1)
            assert f(1) == (1, 1)
        assert sys.is_stack_trampoline_active()
        sys.deactivate_stack_trampoline()
        os.remove(f"/tmp/perf-{os.getpid()}.map")
        assert E.CompiledFunction(f, hook)(1) == ((1, "guarded"), 1)
        print("ok")
    """)
    assert p.stdout == "ok\n", p.stderr


def test_a_hook_left_active_beside_it(other):
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})
    previous = E.set_active(h.hook)
    other.install()
    assert two(1) == ("guarded", 1)
    assert E.set_active(previous) is h.hook
    assert two(1) == (("plain", 1), 1)
    other.remove_all()
    assert h.compile(two)(1) == ("guarded", 1)
