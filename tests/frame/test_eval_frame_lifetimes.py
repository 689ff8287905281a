"""The frame hook over time: threads, changes while it runs, and that nothing leaks."""

import contextlib
import gc
import os
import subprocess
import sys
import threading
import tracemalloc
import weakref

import extensions_alone
import pytest
import thorough
from frame_hooks import ANY, Hook, code_of, entry, guard_on, nothing_stays_active  # noqa: F401

from dynamo_lite import _eval_frame as E
from dynamo_lite import _guards as G


def one(x):
    return ("plain", x)


def two(x):
    return one(x)


# ---------------------------------------------------------------- threads
def test_hooks_are_of_one_thread():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})
    results = {}

    def run(name):
        results[name] = two(1)

    with h.active():
        t = threading.Thread(target=run, args=("other",))
        # Thread.start() itself runs hooked Python frames; they are all skipped.
        t.start()
        t.join()
        run("this")
    assert results == {"other": ("plain", 1), "this": "guarded"}


def test_a_thread_that_ends_with_an_active_hook():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})
    ref = weakref.ref(h.hook)
    seen = []

    def run(hook):
        E.set_active(hook)
        seen.append(two(1))

    t = threading.Thread(target=run, args=(h.hook,))
    t.start()
    t.join()
    assert seen == ["guarded"]
    del h, t
    gc.collect()
    assert ref() is None


def test_threads_compile_and_call_at_once():
    def answer(code, g, b, c, args, f):
        for _ in range(20):
            threading.Event().wait(0.0001)  # others run
        return E.GuardedCode(
            guard_on(0, args[0]), code_of("def guarded(x, inputs): return 'guarded', x, inputs"), False
        )

    h = Hook()
    hook = E.FrameHook(lambda code, *a: answer(code, *a) if code is one.__code__ else E.SKIP)
    f = E.CompiledFunction(two, hook)
    errors = []

    def run(k):
        try:
            for i in range(300):
                x = (i + k) % 5
                assert f(x) == ("guarded", x, (x,))
                if i % 100 == 50:
                    E.reset()
        except BaseException as e:
            errors.append(e)

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(old)
    assert not errors and h.asked == []


def test_entries_that_change_while_guards_run():
    """Guards can run code that resets, invalidates and compiles."""
    actions = [
        E.reset,
        lambda: E.reset_code(one.__code__),
        lambda: [E.invalidate(e) for e in E.entries(one.__code__)],
        gc.collect,
        lambda: E.skip(one.__code__, h.hook, False),
    ]
    for action in actions:

        class Obj:
            @property
            def x(self):
                return act()

        act = lambda: None
        h = Hook(
            {
                "one": lambda code, g, b, c, args, f: E.GuardedCode(
                    G.GuardProgram([("load_local", 0, 0), ("load_attr", 1, 0, "x"), ("is", 0, args[0])], 0, 2),
                    code_of("def guarded(x, inputs): return 'guarded'"),
                    False,
                )
            }
        )
        f = h.compile(one)
        objects = [Obj() for _ in range(4)]
        for o in objects:
            assert f(o) == "guarded"
        act = action
        for o in objects:
            assert f(o) in ("guarded", ("plain", o))
        E.reset()


# ---------------------------------------------------------------- nothing leaks
def cycle(big):
    """One round of what a program does: compile, call, break, fail, reset."""
    h = Hook(
        {
            "local": lambda code, g, b, c, args, f: E.GuardedCode(
                G.GuardProgram(
                    [("load_local", 0, 0), ("is", 0, args[0]), ("load_const", 1, (f, args, h)), ("collect", 0, 0)], 1, 2
                ),
                code_of("def guarded(x, inputs): return kept, x, inputs", free=("kept",)),
                False,
                extra=(f, h),
            ),
            "fails": lambda *a: 1 / 0,
        }
    )
    kept = [big]

    def local(x):
        return kept, x

    def fails(x):
        return x

    f = h.compile(local)
    kept.append(f)
    f.itself = f
    assert f(big) == f(big) == (kept, big, (big,))
    for _ in range(2):
        with contextlib.suppress(ZeroDivisionError):
            h.compile(fails)(big)
    with h.active():
        local(big)
    return weakref.ref(h.hook), weakref.ref(f), weakref.ref(local)


class Big:
    pass


def test_everything_is_collected_without_reset():
    gc.collect()
    big = Big()
    refs = cycle(big)
    gc.collect()
    assert [r() for r in refs] == [None] * 3
    ref = weakref.ref(big)
    del big
    gc.collect()
    assert ref() is None


def test_constants_of_guarded_code_can_refer_back():
    h = Hook()

    def answer(code, g, b, c, args, f):
        guarded = code_of("def guarded(x, inputs): return 'const'")
        consts = tuple((*back, f, c) if value == "const" else value for value in guarded.co_consts)
        return E.GuardedCode(ANY, guarded.replace(co_consts=consts), True)

    back = [h, h.hook]
    h.table["one"] = answer
    f = h.compile(one)
    assert f(1)[1] is h.hook and f(1)[0] is h
    held = E.entries(one.__code__)[0].code  # while someone else holds the code, nothing may be taken from it
    refs = [weakref.ref(h.hook), weakref.ref(f)]
    del h, f, answer
    back.clear()
    gc.collect()
    constant = next(value for value in held.co_consts if isinstance(value, tuple))
    assert constant[0].hook is refs[0]()
    del constant
    del held
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_entries_die_with_the_code():
    h = Hook(default=entry("def guarded(inputs): return 'guarded'"))
    namespace = {}
    exec("def f(): return 1", namespace)
    f = namespace.pop("f")
    assert h.compile(f)() == "guarded"
    ref = weakref.ref(E.entries(f.__code__)[0].code)
    del f
    gc.collect()
    assert ref() is None
    E.reset()


def test_entries_die_with_the_hook():
    a, b = (
        Hook({"one": entry("def guarded(x, inputs): return 'a'")}),
        Hook({"one": entry("def guarded(x, inputs): return 'b'")}),
    )
    assert a.compile(one)(1) == "a" and b.compile(one)(1) == "b" and a.compile(one)(1) == "a"
    assert len(E.entries(one.__code__)) == 2 and len(E.entries(one.__code__, a.hook)) == 1
    del a
    gc.collect()
    assert len(E.entries(one.__code__)) == 1 and b.compile(one)(1) == "b"


@pytest.mark.parametrize("with_reset", [False, True])
def test_memory_stays_flat(with_reset):
    def rounds(n):
        for _ in range(n):
            cycle(Big())
            if with_reset:
                E.reset()
        gc.collect()

    rounds(20)
    tracemalloc.start()
    try:
        rounds(20)
        before, _ = tracemalloc.get_traced_memory()
        objects = len(gc.get_objects())
        rounds(100)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(gc.get_objects()) - objects < 20
    assert after - before < 20_000


def test_calls_leave_reference_counts_as_they_were(monkeypatch):
    monkeypatch.setitem(globals(), "Continuation", E.Continuation)
    monkeypatch.setitem(globals(), "resume", lambda x: 1 / 0)

    def answer(code, g, b, c, args, f):
        if args[0] is skipped:
            return E.RUN_ORIGINAL
        p = G.GuardProgram([("load_local", 0, 0), ("is", 0, args[0]), ("collect", 0, 0)], 1, 1)
        return E.GuardedCode(p, code_of("def guarded(x, inputs): return Continuation(resume, x)"), True)

    h = Hook({"one": answer, "<lambda>": entry("def guarded(x, inputs): return x")})
    f, g = h.compile(one), h.compile(two)
    values, skipped = [Big(), Big()], Big()
    watched = [*values, skipped, one, two, one.__code__, h.hook, one.__globals__]

    def run():
        for _ in range(20):
            for x in values:
                assert f(x) is x and g(x) is x and f(x=x) is x
            assert f(skipped)[1] is skipped and g(skipped)[1] is skipped
            for call in (lambda: f(), lambda: f(1, 2), lambda: f(y=skipped)):
                with contextlib.suppress(TypeError):
                    call()
        h.asked.clear()

    run()
    before = [sys.getrefcount(w) for w in watched]
    run()
    assert [sys.getrefcount(w) for w in watched] == before


# ---------------------------------------------------------------- a whole process
@pytest.mark.slow
@pytest.mark.parametrize("turn, how", enumerate(["skip", "guards", "copy"]))
def test_pythons_own_tests_pass_with_every_frame_hooked(turn, how):
    # Debian's Python comes with libregrtest and without the tests.
    pytest.importorskip("test.test_with", reason="this Python comes without its tests")
    names = "generators coroutines exceptions with contextlib weakref call functools asyncgen raise super enum".split()
    # Most goes through the hook's own call in the last way.
    modules = thorough.share(names, turn, 2 if how == "copy" else 4)
    script = os.path.join(os.path.dirname(extensions_alone.__file__), "hooked_cpython.py")
    command = [sys.executable, script, how, *("test_" + m for m in modules)]
    p = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert p.returncode == 0 and "Result: SUCCESS" in p.stdout, p.stdout[-4000:] + p.stderr[-2000:]
    assert int(p.stdout.split("frames asked for:")[1]) > 1000


def test_the_evaluation_function_is_installed_only_while_needed():
    """Specialized calls of Python functions take no C stack; with an evaluation function installed they do."""
    code = """
        import ctypes
        api = ctypes.pythonapi
        api.PyInterpreterState_Get.restype = api._PyInterpreterState_GetEvalFrameFunc.restype = ctypes.c_void_p
        api._PyInterpreterState_GetEvalFrameFunc.argtypes = [ctypes.c_void_p]
        def current():
            return api._PyInterpreterState_GetEvalFrameFunc(api.PyInterpreterState_Get())
        plain = current()
        seen = []
        hook = E.FrameHook(lambda *a: seen.append(current()) or E.SKIP)
        def f():
            return current()
        assert E.CompiledFunction(f, hook)() != plain and current() == plain and set(seen) == {plain}
        E.set_active(hook)
        assert current() != plain
        E.set_active(hook)
        E.set_active(None)
        assert current() == plain
        print("ok")
    """
    p = extensions_alone.run_alone(code, timeout=60)
    assert p.stdout == "ok\n", p.stderr


def test_ending_the_process_with_a_hook_active():
    code = """
        class Hook:
            def __call__(self, *a): return E.SKIP
            def __del__(self): print("gone")
        E.set_active(E.FrameHook(Hook()))
        def f(): sys.exit(3)
        E.CompiledFunction(f, E.FrameHook(Hook()))()
    """
    p = extensions_alone.run_alone(code, timeout=60)
    assert p.returncode == 3 and not p.stderr, p.stderr
