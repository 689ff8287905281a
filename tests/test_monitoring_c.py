"""The frame hook beside sys.monitoring: who sees the user's lines, and what goes on running compiled."""

import cProfile
import pstats
import sys
import threading

import pytest
from frame_hooks import Hook, entry, nothing_stays_active  # noqa: F401

from dynamo_lite import _eval_frame as E

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
monitoring = getattr(sys, "monitoring", None)
GUARDED = "def guarded(x, inputs): return 'guarded'"


def one(x):
    y = x
    return ("plain", y)


def two(x):
    return one(x)


class Tool:
    """A tool of sys.monitoring that notes (function, line or event) of this file, for as long as it is entered."""

    def __init__(self, tool_id, events=0, local=None):
        self.id, self.events, self.local, self.seen = tool_id, events, local or {}, []

    def __enter__(self):
        monitoring.use_tool_id(self.id, "test")
        for name, event in vars(monitoring.events).items():
            if event == 0:
                continue
            note = self.line if name == "LINE" else lambda code, *rest, name=name: self.note(code, name)
            monitoring.register_callback(self.id, event, note)
        monitoring.set_events(self.id, self.events)
        for code, events in self.local.items():
            monitoring.set_local_events(self.id, code, events)
        return self

    def __exit__(self, *exc):
        monitoring.set_events(self.id, 0)
        for code in self.local:
            monitoring.set_local_events(self.id, code, 0)
        monitoring.free_tool_id(self.id)
        monitoring.restart_events()

    def note(self, code, what):
        if code.co_filename == __file__ and code.co_name in ("one", "two") or code.co_name == "guarded":
            self.seen.append((code.co_name, what))

    def line(self, code, line):
        self.note(code, line - code.co_firstlineno)


def events(*names):
    return sum(getattr(monitoring.events, n) for n in names)


ONE_S_LINES = [("one", 1), ("one", 2)]


@pytest.mark.parametrize("by_hook", [False, True])
@pytest.mark.parametrize("tool_id", [0, 1, 2, 3, 4, 5])
def test_whoever_asks_for_lines_sees_the_users(tool_id, by_hook):
    h = Hook({"one": entry(GUARDED)})
    f = h.compile(two if by_hook else one)
    assert f(1) == "guarded"
    told = []
    E.tell_when_traced(lambda: told.append(1))
    with Tool(tool_id, events("LINE")) as tool:
        assert f(1) == ("plain", 1)
    assert [e for e in tool.seen if e[0] == "one"] == ONE_S_LINES
    assert told == [1] and f(1) == "guarded"
    assert h.asked == (["two"] if by_hook else []) + ["one"]


def test_coverage_asks_for_the_lines_of_functions_that_start():
    h = Hook({"one": entry(GUARDED)})
    f = h.compile(two)
    assert f(1) == "guarded"
    lines = []

    class Coverage(Tool):
        def note(self, code, what):
            if what == "PY_START" and code.co_filename == __file__:
                monitoring.set_local_events(self.id, code, monitoring.events.LINE)
                self.local[code] = 0
                return monitoring.DISABLE
            lines.append((code.co_name, what))

    with Coverage(1, events("PY_START")):
        assert f(1) == ("plain", 1) == f(1)
    assert lines.count(("one", 1)) == lines.count(("one", 2)) == 2
    assert f(1) == "guarded"


def test_a_breakpoint_in_one_function():
    h = Hook({"one": entry(GUARDED)})
    f, g = h.compile(two), h.compile(one)
    assert f(1) == g(1) == "guarded"
    with Tool(0, local={one.__code__: events("LINE")}) as tool:
        assert f(1) == g(1) == ("plain", 1)
    assert tool.seen == ONE_S_LINES * 2
    assert f(1) == g(1) == "guarded"


def test_a_profiler_sees_calls_of_what_runs_compiled():
    h = Hook({"one": entry(GUARDED)})
    f = h.compile(two)
    f(1)
    with Tool(2, events("PY_START", "PY_RETURN")) as tool:
        assert f(1) == "guarded"
    assert tool.seen == [("two", "PY_START"), ("guarded", "PY_START"), ("guarded", "PY_RETURN"), ("two", "PY_RETURN")]


def test_cprofile():
    h = Hook({"one": entry("def guarded(x, inputs): return 'guarded', len('x')")})
    f = h.compile(two)
    profile = cProfile.Profile()
    profile.enable()
    results = [f(1) for _ in range(3)]  # the first asks the hook meanwhile
    profile.disable()
    assert results == [("guarded", 1)] * 3
    calls = {place[2]: row[0] for place, row in pstats.Stats(profile).stats.items()}
    assert calls["two"] == calls["guarded"] == calls["<built-in method builtins.len>"] == 3


def test_what_another_thread_traces_does_not_matter():
    h = Hook({"one": entry(GUARDED)})
    f = h.compile(two)
    done, traced, lines = threading.Event(), threading.Event(), []

    def trace(frame, event, arg):
        if frame.f_code is one.__code__:
            lines.append(event)
        return trace

    def other():
        sys.settrace(trace)
        sys.setprofile(lambda *a: None)
        traced.set()
        done.wait(10)
        assert f(2) == ("plain", 2)

    thread = threading.Thread(target=other)
    thread.start()
    traced.wait(10)
    assert f(1) == "guarded"
    done.set()
    thread.join()
    assert lines == ["call", "line", "line", "return"] and f(1) == "guarded"


def test_a_tool_that_begins_inside():
    h = Hook()
    tool = Tool(0, events("LINE", "PY_RETURN"))

    def f():
        before = one(0)
        with tool:
            return before, one(1)

    for _ in range(2):
        tool.seen.clear()
        assert h.compile(f)() == (("plain", 0), ("plain", 1))
        assert tool.seen == [*ONE_S_LINES, ("one", "PY_RETURN")]


def test_exceptions_are_seen():
    h = Hook({"one": entry("def guarded(x, inputs): return 1 // 0")})
    f = h.compile(two)
    for _ in range(2):
        with Tool(2, events("RAISE", "PY_UNWIND")) as tool, pytest.raises(ZeroDivisionError):
            f(1)
        expected = [("guarded", "RAISE"), ("guarded", "PY_UNWIND"), ("two", "RAISE"), ("two", "PY_UNWIND")]
        assert tool.seen == expected
