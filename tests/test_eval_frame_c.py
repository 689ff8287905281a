"""The frame hook: which frames are looked up, what decisions and errors do, what is active when."""

import asyncio
import inspect
import sys
import types
import weakref

import pytest
from extensions_alone import run_alone
from frame_hooks import ANY, Hook, code_of, entry, guard_on, nothing_stays_active  # noqa: F401

from dynamo_lite import _eval_frame as E
from dynamo_lite import _guards as G


def one(x):
    return ("plain", x)


def two(x):
    return one(x)


# ---------------------------------------------------------------- hits and misses
@pytest.mark.parametrize("by_hook", [False, True])
def test_miss_then_hit(by_hook):
    h = Hook(
        {
            "one": lambda code, g, b, closure, args, func: E.GuardedCode(
                guard_on(0, args[0]), code_of("def guarded(x, inputs): return 'guarded', x, inputs"), False
            )
        }
    )
    f = h.compile(two if by_hook else one)
    for x in (1, 1, 2, 1, 2, 2):
        assert f(x) == ("guarded", x, (x,))
    assert h.asked == (["two"] if by_hook else []) + ["one", "one"]
    assert [e.hits for e in E.entries(one.__code__)] == [2, 2]
    assert [e.program.steps[1][2] for e in E.entries(one.__code__, h.hook)] == [2, 1]
    assert two(1) == ("plain", 1)
    E.reset()
    assert E.entries(one.__code__) == []


def test_the_callback_sees_the_frame():
    seen = []

    def outer(free):
        def inner(a, b=2, /, c=3, *args, k=5, **kwargs):
            return free, a, b, c, args, k, kwargs

        return inner

    f = outer("free")
    h = Hook({"inner": lambda *a: seen.append(a) or E.RUN_ORIGINAL})
    assert h.compile(f)(1, c=4, z=6) == ("free", 1, 2, 4, (), 5, {"z": 6})
    assert h.compile(f)(1, 2, 3, 4, k=7) == ("free", 1, 2, 3, (4,), 7, {})
    code, globs, builtins, closure, args, func = seen[0]
    assert code is f.__code__ and globs is f.__globals__ and builtins is f.__builtins__ and closure is f.__closure__
    assert func is f and args == (1, 2, 4, 5, (), {"z": 6})
    assert seen[1][4] == (1, 2, 3, 7, (4,), {})


def test_closures():
    def make(n):
        def inner(x):
            return n + x

        return inner

    h = Hook({"inner": entry("def guarded(x, inputs): return 'guarded', n, x", free=("n",))})
    compiled = h.compile(lambda f, x: f(x))
    for n in (1, 2, 3, 2):
        assert compiled(make(n), 5) == ("guarded", n, 5)
        assert h.compile(make(n))(5) == ("guarded", n, 5)
    assert h.asked == ["<lambda>", "inner"]


def test_a_closure_is_not_kept_after_the_call():
    class Big:
        pass

    h = Hook({"inner": entry("def guarded(inputs): return n", free=("n",))})

    def run():
        n = Big()

        def inner():
            return n

        ref = weakref.ref(n)
        assert h.compile(inner)() is n and h.compile(inner)() is n
        return ref

    assert run()() is None


def test_guarded_code_that_is_active_twice_has_two_closures():
    def make(n, inner_call):
        def inner():
            return n, inner_call

        return inner

    source = """
        def guarded(inputs):
            before = n
            deeper = inner_call() if inner_call else None
            return before, n, deeper
    """
    h = Hook({"inner": entry(source, needs_hook=True, free=("inner_call", "n"))})
    f = h.compile(make(1, make(2, make(3, None))))
    for _ in range(3):
        assert f() == (1, 1, (2, 2, (3, 3, None)))


def test_globals_of_the_frame_are_used():
    source = "def f(): return where"
    here, there = {"where": "here"}, {"where": "there"}
    exec(source, here)
    f = here["f"]
    g = types.FunctionType(f.__code__, there)
    h = Hook({"f": entry("def guarded(inputs): return 'guarded', where")})
    for _ in range(2):
        assert h.compile(f)() == ("guarded", "here") and h.compile(g)() == ("guarded", "there")
    assert h.asked == ["f"]


def test_names_in_tracebacks_are_the_functions():
    h = Hook({"one": entry("def guarded(x, inputs): raise ValueError(x)")})
    with pytest.raises(ValueError) as e:
        h.compile(one)(3)
    assert e.value.args == (3,) and len(e.traceback) == 2
    h = Hook({"one": entry("def guarded(x, inputs):\n import sys\n return sys._getframe()")})
    frame = h.compile(one)(3)
    assert frame.f_globals is one.__globals__ and frame.f_locals["x"] == 3


def test_the_order_of_entries_is_by_last_hit():
    h = Hook(
        {
            "one": lambda code, g, b, c, args, f: E.GuardedCode(
                guard_on(0, args[0]), code_of("def guarded(x, inputs): return inputs"), False
            )
        }
    )
    f = h.compile(one)
    values = lambda: [e.program.steps[1][2] for e in E.entries(one.__code__)]
    for i in range(4):
        f(i)
    assert values() == [3, 2, 1, 0]
    f(1)
    assert values() == [1, 3, 2, 0]
    assert E.entries(one.__code__)[0].program.evaluations > 0


def test_narrow_entries_are_tried_first_until_they_have_been_passed_over_too_often():
    entries = iter([
        E.GuardedCode(guard_on(0, 0), code_of("def guarded(x, inputs): return 'narrow'"), False, breadth=0),
        E.GuardedCode(G.GuardProgram([], 0, 0), code_of("def guarded(x, inputs): return 'wide'"), False),
    ])
    h = Hook({"one": lambda code, g, b, c, args, f: next(entries)})
    f = h.compile(one)
    order = lambda: [e.breadth for e in E.entries(one.__code__)]
    assert [f(0), f(1), f(0), f(1)] == ["narrow", "wide", "narrow", "wide"] and order() == [0, 1]
    for _ in range(30):
        assert f(1) == "wide"
    assert order() == [0, 1] and f(0) == "narrow"
    for _ in range(40):
        assert f(1) == "wide"
    assert order() == [1, 0] and f(0) == "wide"


# ---------------------------------------------------------------- decisions
def test_run_original_asks_again():
    h = Hook({"two": E.RUN_ORIGINAL, "one": E.SKIP})
    f = h.compile(two)
    assert f(1) == f(1) == ("plain", 1)
    assert h.asked == ["two", "one", "two"]
    assert not E.is_skipped(two.__code__, h.hook) and E.is_skipped(one.__code__, h.hook)


def test_skip_and_skip_recursive():
    for decision, asked in [(E.SKIP, ["two", "one"]), (E.SKIP_RECURSIVE, ["two"])]:
        h = Hook({"two": decision})
        f = h.compile(two)
        assert f(1) == f(1) == ("plain", 1) and h.asked == asked
        assert E.is_skipped(two.__code__, h.hook) and not E.is_skipped(two.__code__, Hook().hook)
    E.unskip(two.__code__, h.hook)
    f(1)
    assert h.asked == ["two", "two"]


def test_skip_from_outside():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})
    f = h.compile(two)
    assert f(1) == "guarded"
    E.skip(one.__code__, None, False)
    assert f(1) == ("plain", 1) and h.compile(one)(1) == ("plain", 1)
    E.reset()
    assert E.is_skipped(one.__code__, h.hook) and f(1) == ("plain", 1)
    E.unskip(one.__code__, None)
    assert f(1) == "guarded"
    E.skip(two.__code__, h.hook, True)
    assert f(1) == ("plain", 1)
    E.reset_code(two.__code__)
    assert f(1) == "guarded"


def test_no_more_entries():
    h = Hook(
        {
            "one": lambda code, g, b, c, args, f: (
                E.KEEP_ENTRIES
                if args[0] > 1
                else E.GuardedCode(guard_on(0, args[0]), code_of("def guarded(x, inputs): return 'guarded'"), False)
            )
        }
    )
    f = h.compile(one)
    assert [f(0), f(1), f(2), f(3)] == ["guarded", "guarded", ("plain", 2), ("plain", 3)]
    assert f(0) == "guarded" and len(h.asked) == 3
    E.set_closed(one.__code__, h.hook, False)
    f(3)
    assert len(h.asked) == 4


def test_guards_without_code_run_the_frame():
    for needs_hook in (True, False):
        two_entry = lambda *a, needs_hook=needs_hook: E.GuardedCode(ANY, None, needs_hook)
        h = Hook({"two": two_entry, "one": entry("def guarded(x, inputs): return 'guarded'")})
        f = h.compile(two)
        result = "guarded" if needs_hook else ("plain", 1)
        assert f(1) == f(1) == result and h.asked == ["two", "one"][: 1 + needs_hook]
        known = E.entries(two.__code__, h.hook)
        assert known[0].hits >= 1 and known[0].code is None


def test_invalidate():
    h = Hook(
        {
            "one": lambda code, g, b, c, args, f: E.GuardedCode(
                guard_on(0, args[0]), code_of("def guarded(x, inputs): return inputs"), False
            )
        }
    )
    f = h.compile(one)
    f(0), f(1), f(2)
    first = E.entries(one.__code__)[1]
    assert E.invalidate(first) and not E.invalidate(first) and len(E.entries(one.__code__)) == 2
    f(0), f(2)
    assert len(h.asked) == 3
    f(1)
    assert len(h.asked) == 4
    for e in E.entries(one.__code__):
        assert E.invalidate(e)
    assert E.entries(one.__code__) == []
    with pytest.raises(TypeError):
        E.invalidate(5)


# ---------------------------------------------------------------- errors
def test_exceptions_of_the_compiler_come_out():
    def broken(*a):
        raise ZeroDivisionError("compiler")

    h = Hook({"one": broken})
    for f in (one, two):
        with pytest.raises(ZeroDivisionError, match="compiler"):
            h.compile(f)(1)
    assert E.active_hook() is None and not E.in_compile()
    h.table["one"] = entry("def guarded(x, inputs): return 'guarded'")
    assert h.compile(two)(1) == "guarded"


def test_exceptions_of_guards_come_out():
    class Bad:
        @property
        def x(self):
            raise ZeroDivisionError

    p = G.GuardProgram([("load_local", 0, 0), ("load_attr", 1, 0, "x")], 0, 2)
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'", p)})
    good = types.SimpleNamespace(x=1)
    for f in (h.compile(one), h.compile(two)):
        assert f(good) == "guarded"
        with pytest.raises(ZeroDivisionError):
            f(Bad())
        assert f(good) == "guarded"


def test_guards_that_fail_at_once_are_a_loud_error():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'", guard_on(0, "never"))})
    with pytest.raises(RuntimeError, match=r"one.*step 1.*'const', 0, 'never'"):
        h.compile(two)(1)
    assert E.entries(one.__code__) == []


@pytest.mark.parametrize(
    "source",
    [
        "def guarded(x): return x",
        "def guarded(x, *inputs): return x",
        "def guarded(x, *, inputs): return x",
        "def guarded(x, inputs): yield x",
        "def guarded(x, inputs, **k): return x",
    ],
)
def test_code_of_the_wrong_shape_is_refused(source):
    h = Hook({"one": entry(source)})
    with pytest.raises(RuntimeError, match="wrong guarded code for one"):
        h.compile(one)(1)


def test_other_wrong_answers():
    h = Hook({"one": entry("def guarded(x, inputs): return free", free=("free",))})
    with pytest.raises(RuntimeError, match="free variables"):
        h.compile(one)(1)
    with pytest.raises(TypeError, match="neither a GuardedCode"):
        Hook({"one": 5}).compile(one)(1)
    used = entry("def guarded(x, inputs): return 'guarded'")()
    h = Hook({"one": used, "two": used})
    h.compile(one)(1)
    with pytest.raises(RuntimeError, match="in use already"):
        h.compile(two)(1)
    with pytest.raises(TypeError):
        E.GuardedCode(ANY, 5, False)
    with pytest.raises(TypeError):
        E.GuardedCode(None, None, False)
    with pytest.raises(TypeError):
        E.set_active(5)


# ---------------------------------------------------------------- what is active when
def test_set_active_hooks_all_calls_of_the_thread():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})
    assert E.set_active(h.hook) is None
    try:
        assert E.active_hook() is h.hook
        assert two(1) == "guarded"
    finally:
        assert E.set_active(None) is h.hook
    assert two(1) == ("plain", 1)


def test_needs_hook():
    h = Hook({"one": entry("def guarded(x, inputs): return 'inner'")})
    for needs, want, asked in [(False, ("plain", 1), ["two"]), (True, "inner", ["two", "one"])]:
        E.reset()
        h.asked.clear()
        h.table["two"] = entry("def guarded(x, inputs): return one(x)", needs_hook=needs)
        f = h.compile(two)
        assert f(1) == f(1) == want and h.asked == asked
        with h.active():
            assert two(1) == want and E.active_hook() is h.hook


def test_a_nested_compiled_function_has_its_own_hook():
    inner_hook = Hook({"one": entry("def guarded(x, inputs): return 'inner'")})
    inner = inner_hook.compile(one)

    def outer(x):
        return inner(x), one(x)

    outer_hook = Hook({"one": entry("def guarded(x, inputs): return 'outer'")})
    f = outer_hook.compile(outer)
    assert f(1) == f(1) == ("inner", "outer")
    assert inner_hook.asked == ["one"] and outer_hook.asked == ["outer", "one"]


def test_calls_inside_the_compiler_run_plainly():
    results = []

    def compiler(*a):
        results.append((f(5), two(5), E.in_compile()))
        return E.SKIP

    h = Hook({"one": compiler})
    f = h.compile(one)
    assert f(1) == ("plain", 1)
    assert results == [(("plain", 5), ("plain", 5), True)] and h.asked == ["one"]


def test_frames_run_by_guards_are_not_looked_up():
    h = Hook()

    class Obj:
        @property
        def x(self):
            return two(1)

    p = G.GuardProgram([("load_local", 0, 0), ("load_attr", 1, 0, "x"), ("collect", 1, 0)], 1, 2)
    h.table["one"] = entry("def guarded(x, inputs): return inputs", p)
    h.table["<lambda>"] = E.SKIP
    assert h.compile(lambda o: one(o))(Obj()) == (("plain", 1),)
    assert h.asked == ["<lambda>", "one"]


def test_no_hook_runs_the_function():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})
    f = E.CompiledFunction(one, None)
    assert f(1) == ("plain", 1) and f.hook is None
    f.hook = h.hook
    assert f(1) == "guarded" and f.hook is h.hook
    f.hook = None
    assert f(1) == ("plain", 1)
    with pytest.raises(TypeError):
        f.hook = 5


def test_class_bodies_and_modules_run_plainly_their_calls_are_hooked():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})

    def make():
        class C:
            y = one(1)

        namespace = {"one": one}
        exec("z = one(2)", namespace)
        return C.y, namespace["z"], eval("one(3)")

    assert h.compile(make)() == ("guarded",) * 3
    assert h.asked == ["make", "one"]


# ---------------------------------------------------------------- frames that are left alone
def test_generators():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})

    def generate(n):
        try:
            for i in range(n):
                got = yield one(i)
                if got:
                    yield got
        except KeyError:
            yield "caught"
        finally:
            log.append("closed")

    def use():
        g = generate(3)
        first = next(g)
        sent = g.send("sent")
        thrown = g.throw(KeyError())
        g.close()
        return first, sent, thrown, list(generate(2)), sum(1 for _ in generate(3))

    log = []
    assert h.compile(use)() == ("guarded", "sent", "caught", ["guarded"] * 2, 3)
    assert log == ["closed"] * 3 and "generate" not in h.asked and "<genexpr>" not in h.asked
    g = h.compile(generate)(2)
    assert inspect.isgenerator(g) and list(g) == [("plain", 0), ("plain", 1)]


def test_coroutines():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})

    async def numbers():
        for i in range(2):
            await asyncio.sleep(0)
            yield one(i)

    async def main():
        return [x async for x in numbers()] + [one(5)]

    def use():
        return asyncio.run(main())

    assert h.compile(use)() == ["guarded"] * 3
    assert not {"main", "numbers"} & set(h.asked)
    assert asyncio.run(h.compile(main)()) == [("plain", 0), ("plain", 1), ("plain", 5)]


def test_traced_frames_run_plainly():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})
    f = h.compile(two)
    assert f(1) == "guarded"
    events = []

    def trace(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            events.append((frame.f_code.co_name, event))
        return trace

    old, told = sys.gettrace(), []
    E.tell_when_traced(lambda: told.append(1))
    sys.settrace(trace)
    try:
        traced = f(1), h.compile(one)(1)
    finally:
        sys.settrace(old)
    assert traced == (("plain", 1),) * 2 and told == [1]
    assert ("one", "call") in events and ("one", "return") in events
    assert not [name for name, _ in events if name == "<lambda>"]
    assert f(1) == "guarded"


def test_profiled_frames_run_compiled():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded', len('x')")})
    f = h.compile(two)
    events = []
    old = sys.getprofile()

    def profile(frame, event, arg):
        events.append((event, frame.f_code.co_name, getattr(arg, "__name__", None)))

    sys.setprofile(profile)
    try:
        results = [f(1) for _ in range(3)]
    finally:
        sys.setprofile(old)
    assert results == [("guarded", 1)] * 3
    assert events.count(("call", "two", None)) == events.count(("call", "guarded", None)) == 3
    assert events.count(("c_call", "guarded", "len")) == 3
    assert len([e for e in events if e[0] == "call"]) == len([e for e in events if e[0] == "return"])


def test_trace_that_starts_inside():
    h = Hook()
    lines = []

    def trace(frame, event, arg):
        lines.append((frame.f_code.co_name, event))
        return trace

    def f():
        old = sys.gettrace()
        sys.settrace(trace)
        try:
            return one(1)
        finally:
            sys.settrace(old)

    assert h.compile(f)() == ("plain", 1)
    assert [e for e in lines if e[0] == "one"] == [("one", "call"), ("one", "line"), ("one", "return")]
    assert h.asked == ["f"]


# ---------------------------------------------------------------- recursion
def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)


def test_recursion():
    for needs_hook in (False, True):
        h = Hook(
            {
                "factorial": entry(
                    "def guarded(n, inputs): return 1 if n == 0 else n * factorial(n - 1)", needs_hook=needs_hook
                )
            }
        )
        assert h.compile(factorial)(20) == factorial(20)
        assert h.asked == ["factorial"]
    with pytest.raises(RecursionError):
        h.compile(factorial)(5000)
    with pytest.raises(RecursionError):
        Hook().compile(factorial)(5000)
    assert h.compile(factorial)(20) == factorial(20)


def test_deep_recursion_does_not_end_the_stack():
    """Plain Python recurses without C stack; a hooked frame can't, and has to lose the hook in time."""
    code = """
        import threading
        sys.setrecursionlimit(10**6)
        def depth(n):
            return 0 if n == 0 else 1 + depth(n - 1)
        guarded = {}
        exec("def depth(n, inputs): return 0 if n == 0 else 1 + DEPTH(n - 1)", guarded)
        DEPTH = depth
        program = G.GuardProgram([], 0, 0)
        answers = [lambda *a: E.SKIP, lambda *a: E.GuardedCode(program, guarded["depth"].__code__, True)]
        def run():
            for answer in answers:
                print(E.CompiledFunction(depth, E.FrameHook(answer))(50000))
            def again(n):
                return 0 if n == 0 else 1 + f(n - 1)
            f = E.CompiledFunction(again, E.FrameHook(answers[0]))
            try:
                f(10**5)
            except RecursionError as e:
                print("RecursionError")
        run()
        t = threading.Thread(target=run); t.start(); t.join()
    """
    p = run_alone(code, timeout=120)
    assert p.returncode == 0, p.stderr[-2000:]
    assert p.stdout.split() == ["50000", "50000", "RecursionError"] * 2


def test_a_call_policy_chooses_the_hook():
    seen = []
    hook = E.FrameHook(lambda *args: seen.append(args[0].co_name) or E.RUN_ORIGINAL)
    other = E.FrameHook(lambda *args: seen.append("other") or E.RUN_ORIGINAL)

    def inner():
        return E.active_hook()

    def fn():
        return inner()

    made = E.CompiledFunction(fn, hook)
    choices = {"fn": hook, "other": other, "plain": None, "wrong": 3}
    try:
        for name, calls in (("fn", ["fn", "inner"]), ("other", ["other", "other"]), ("plain", [])):
            E.set_call_policy(lambda f, h: choices[name] if (f, h) == (fn, hook) else "wrong")
            seen.clear()
            assert made() is choices[name] and seen == calls
        E.set_call_policy(lambda f, h: choices["wrong"])
        with pytest.raises(TypeError, match="a call policy gave 3"):
            made()
        E.set_call_policy(lambda f, h: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            made()
        E.set_call_policy(plain=True)
        seen.clear()
        assert made() is None and seen == []
        previous = E.set_active(hook)
        assert fn() is None and seen == []
        E.set_active(previous)
    finally:
        E.set_call_policy()
    assert made() is hook and seen == ["fn", "inner"]
