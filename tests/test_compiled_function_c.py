"""The entry of a compiled call: how arguments are bound, continuations, the face of the function."""

import copy
import functools
import inspect
import os
import pickle
import sys
import weakref

import pytest

from dynamo_lite import _eval_frame as E

sys.path.insert(0, os.path.dirname(__file__))

from frame_hooks import ANY, Hook, entry, nothing_stays_active  # noqa: F401


def one(x):
    return ("plain", x)


def two(x):
    return one(x)


# ---------------------------------------------------------------- arguments and callables
def outcome(fn, args, kwargs):
    try:
        return fn(*args, **kwargs)
    except TypeError as e:
        return str(e)


SIGNATURES = {
    "def f(a, b): return a, b": [((1, 2), {}), ((1,), {"b": 2}), ((), {"a": 1, "b": 2})],
    "def f(a, b=2, c=3): return a, b, c": [((1,), {}), ((1, 5), {}), ((1,), {"c": 7}), ((1, 5, 6), {}), ((), {"a": 1})],
    "def f(a, /, b=2, *, c, d=4): return a, b, c, d": [((1,), {"c": 3}), ((1, 2), {"d": 5, "c": 3})],
    "def f(*args): return args": [((), {}), ((1,), {}), ((1, 2, 3), {})],
    "def f(a, *args, k=1): return a, args, k": [((1,), {}), ((1, 2, 3), {"k": 5})],
    "def f(**kw): return kw": [((), {}), ((), {"b": 1, "a": 2})],
    "def f(a, /, **kw): return a, kw": [((1,), {"a": 5}), ((1,), {})],
    "def f(a, b=2, *args, k=3, **kw): return a, b, args, k, kw": [
        ((1,), {}),
        ((1, 2, 3), {"z": 1, "k": 9}),
        ((), {"a": 1, "q": 2}),
    ],
    "def f(): return ()": [((), {})],
    "def f(" + ", ".join(f"a{i}" for i in range(70)) + "): return a0, a69": [
        (tuple(range(70)), {}),
        (tuple(range(69)), {"a69": 5}),
    ],
    "def f(" + ", ".join(f"a{i}" for i in range(30)) + "): return a0, a29": [(tuple(range(30)), {})],
}


@pytest.mark.parametrize("source", SIGNATURES)
def test_arguments_are_bound_as_in_python(source):
    namespace = {}
    exec(source, namespace)
    f = namespace["f"]
    code = f.__code__
    names = code.co_varnames[
        : code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    ]
    h = Hook({"f": entry(f"def guarded({', '.join((*names, 'inputs'))}): {source.split(': ', 1)[1]}")})
    c = h.compile(f)
    for args, kwargs in SIGNATURES[source] * 2:
        assert c(*args, **kwargs) == f(*args, **kwargs)
    assert h.asked == ["f"] and E.entries(code)[0].hits == 2 * len(SIGNATURES[source]) - 1
    for args, kwargs in [((1,) * 99, {}), ((), {"nonsense": 1}), ((1,), {"a": 1}), ((), {})]:
        assert outcome(c, args, kwargs) == outcome(f, args, kwargs)


def test_keyword_names_that_are_not_interned():
    f = Hook({"one": entry("def guarded(x, inputs): return x")}).compile(one)
    assert f(1) == 1 and f(**{"".join(["x"]): 2}) == 2
    kw = Hook({"kw": entry("def guarded(kw, inputs): return kw")}).compile(lambda **kw: kw)
    assert kw(**{"".join(["a", "b"]): 2}) == {"ab": 2}


def test_methods():
    class C:
        def m(self, x):
            return ("plain", x)

        k = classmethod(lambda cls, x: ("class", x))

    h = Hook({"m": entry("def guarded(self, x, inputs): return 'guarded', x")})
    plain = C.m
    c = C()
    bound = h.compile(c.m)
    assert bound(1) == bound(1) == bound(x=1) == ("guarded", 1) and bound.__self__ is c
    assert h.compile(C.k)(2) == ("class", 2)
    C.m = h.compile(plain)
    assert c.m(3) == ("guarded", 3) and C.m(c, 4) == ("guarded", 4) and inspect.ismethod(c.m)
    assert C.m is C.__dict__["m"] and C.m.__get__(c)(5) == ("guarded", 5)
    assert h.asked == ["m", "<lambda>"]


def test_callables_that_are_no_functions():
    class C:
        def __call__(self, x):
            return two(x)

    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded'")})
    assert h.compile(C())(1) == h.compile(functools.partial(two, 1))() == "guarded"
    assert h.asked == ["__call__", "two", "one"]
    with pytest.raises(TypeError):
        E.CompiledFunction(5, h.hook)
    with pytest.raises(TypeError):
        E.CompiledFunction(one, 5)
    with pytest.raises(TypeError):
        E.FrameHook(5)


# ---------------------------------------------------------------- continuations
def count(n, i, log):
    return ("plain", i)


COUNT = """
def guarded(n, i, log, inputs):
    if i >= n:
        return "done", i
    log(i)
    return Continuation(count, n, i + 1, log)
"""


def depth_of_stack():
    frame, n = sys._getframe(), 0
    while frame:
        frame, n = frame.f_back, n + 1
    return n


@pytest.mark.parametrize("start", ["compiled", "hooked"])
def test_a_hundred_thousand_continuations(start, monkeypatch):
    monkeypatch.setitem(globals(), "Continuation", E.Continuation)
    h = Hook({"count": entry(COUNT, needs_hook=True)})
    depths = set()

    def log(i):
        if i % 10000 == 0 or i == 99999:
            depths.add(depth_of_stack())

    E.skip(log.__code__, None, True)
    f = h.compile(count) if start == "compiled" else h.compile(lambda *a: count(*a))
    assert f(100_000, 0, log) == ("done", 100_000)
    assert f(100_000, 0, log) == ("done", 100_000)
    if start == "compiled":  # the first call came through the frame of `count`
        assert len(depths) <= 2
    else:
        assert len(depths) == 1


def resume(x):
    return ("resumed", x)


@pytest.mark.parametrize(
    "answer, want",
    [
        (E.SKIP, ("resumed", 1)),
        (E.SKIP_RECURSIVE, ("resumed", 1)),
        (E.RUN_ORIGINAL, ("resumed", 1)),
        (lambda *a: E.GuardedCode(ANY, None, True), ("resumed", 1)),
        (entry("def guarded(x, inputs): return 'guarded', x"), ("guarded", 1)),
        (entry("def guarded(x, inputs): return Continuation(last, x)", needs_hook=True), ("last", 1)),
    ],
)
def test_where_a_continuation_can_go(answer, want, monkeypatch):
    monkeypatch.setitem(globals(), "Continuation", E.Continuation)
    monkeypatch.setitem(globals(), "last", lambda x: ("last", x))
    h = Hook(
        {"one": entry("def guarded(x, inputs): return Continuation(resume, x)", needs_hook=True), "resume": answer}
    )
    for f in (h.compile(one), h.compile(two)):
        assert f(1) == f(1) == want


def test_continuations_to_other_callables(monkeypatch):
    monkeypatch.setitem(globals(), "Continuation", E.Continuation)
    for target, want in [
        (len, 3),
        (functools.partial(max, 1), "c"),
        (lambda *a: a, ("abc",)),
        (lambda a, b=2: (a, b), ("abc", 2)),
    ]:
        monkeypatch.setitem(globals(), "resume", target)
        if want == "c":
            monkeypatch.setitem(globals(), "resume", lambda s: max(s))
        h = Hook({"one": entry("def guarded(x, inputs): return Continuation(resume, x)", needs_hook=True)})
        assert h.compile(one)("abc") == h.compile(one)("abc") == want


def test_exceptions_through_continuations(monkeypatch):
    def boom(x):
        raise ValueError(x)

    monkeypatch.setitem(globals(), "Continuation", E.Continuation)
    monkeypatch.setitem(globals(), "resume", boom)
    h = Hook({"one": entry("def guarded(x, inputs): return Continuation(resume, x)", needs_hook=True)})
    for f in (one, two):
        for _ in range(2):
            with pytest.raises(ValueError):
                h.compile(f)(1)
    assert E.active_hook() is None


def test_a_continuation_reaches_only_the_caller_that_asked_for_it(monkeypatch):
    """A resume function that calls itself by name from plain code gets a value, never a Continuation."""
    monkeypatch.setitem(globals(), "Continuation", E.Continuation)
    h = Hook(
        {
            "one": entry("def guarded(x, inputs): return Continuation(resume, x)", needs_hook=True),
            "resume": entry(
                "def guarded(x, inputs):\n"
                "    if x > 0:\n"
                "        inner = resume(x - 1)\n"
                "        assert type(inner) is tuple, inner\n"
                "    return Continuation(last, x)",
                needs_hook=True,
            ),
        }
    )
    monkeypatch.setitem(globals(), "last", lambda x: ("last", x))
    for f in (h.compile(one), h.compile(two)):
        assert f(3) == f(3) == ("last", 3)


def test_continuation_object():
    c = E.Continuation(len, 1, 2)
    assert c.fn is len and c.args == (1, 2)
    for n in (0, 5, 40):
        many = [E.Continuation(len, *range(n)) for _ in range(30)]
        assert all(m.args == tuple(range(n)) for m in many)
        del many
    with pytest.raises(TypeError):
        E.Continuation()
    with pytest.raises(TypeError):
        E.Continuation(len, x=1)
    o = object()
    count = sys.getrefcount(o)
    for _ in range(100):
        E.Continuation(len, o, o)
    assert sys.getrefcount(o) == count


# ---------------------------------------------------------------- the face of a compiled function
def test_face_of_the_function():
    def f(a, b=2, *, c: int = 3):
        "what f does"
        return a, b, c

    f.mark = 5
    h = Hook()
    bare = h.compile(f)
    dressed = functools.update_wrapper(h.compile(f), f)
    for c in (bare, dressed):
        assert c.fn is f and c.hook is h.hook
        assert (c.__name__, c.__qualname__, c.__module__) == (f.__name__, f.__qualname__, f.__module__)
        assert c.__code__ is f.__code__ and c.__defaults__ == (2,) and c.mark == 5
        assert inspect.signature(c) == inspect.signature(f)
        assert "f" in repr(c) and callable(c)
        c.other = 1
        assert c.other == 1 and not hasattr(f, "other") and c.__dict__["other"] == 1
        assert weakref.ref(c)() is c
        assert copy.copy(c) is c and copy.deepcopy(c) is c and copy.deepcopy([c])[0] is c
        with pytest.raises(AttributeError):
            c.nothing
    assert dressed.__wrapped__ is f and dressed.__doc__ == bare.__doc__ == "what f does"
    h.hook.x = 1
    assert h.hook.x == 1 and weakref.ref(h.hook)() is h.hook


pickled = functools.update_wrapper(E.CompiledFunction(one, None), one)
pickled.__qualname__ = pickled.__name__ = "pickled"


def test_pickle_is_by_name():
    sys.modules.setdefault(__name__, sys.modules[one.__module__])
    assert pickle.loads(pickle.dumps(pickled)) is pickled


def test_a_subclass_can_be_called():
    class Mine(E.CompiledFunction):
        pass

    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded', x")})
    assert Mine(one, h.hook)(1) == ("guarded", 1) and Mine(one, h.hook)(x=1) == ("guarded", 1)
