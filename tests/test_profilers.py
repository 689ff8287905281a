"""Compiled code under cProfile, torch.profiler and trace functions: what runs, and what they show."""
import cProfile
import pstats
import sys
import threading

import pytest
import torch

import dynamo_lite


def whole(x, w):
    y = (x * 2).sin()
    return torch.softmax(y @ w, -1)


def broken(x):
    y = x * 2
    print(end="")
    return y.sin() + 1


class Graphs:
    def __init__(self):
        self.calls = 0

    def __call__(self, graph, inputs):
        def run(*args):
            self.calls += 1
            return graph(*args)

        return run


def test_compiled_code_runs_under_cprofile():
    graphs = Graphs()
    f, g = dynamo_lite.compile(whole, backend=graphs), dynamo_lite.compile(broken, backend=graphs)
    x = torch.randn(4, 4)
    f(x, x), g(x)
    graphs.calls = 0
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(3):
        results = f(x, x), g(x)
    profile.disable()
    assert graphs.calls == 9
    assert torch.equal(results[0], whole(x, x)) and torch.equal(results[1], broken(x))
    calls = {place[2]: row[0] for place, row in pstats.Stats(profile).stats.items() if place[0] == __file__}
    assert calls["whole"] == 3 and calls["broken"] >= 3 and calls["run"] == 9


def test_the_first_call_may_be_profiled():
    graphs = Graphs()
    f = dynamo_lite.compile(broken, backend=graphs)
    events = []
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        result = f(torch.ones(3))
    finally:
        sys.setprofile(None)
    assert torch.equal(result, broken(torch.ones(3))) and graphs.calls == 2
    assert "call" in events


@pytest.mark.parametrize("with_stack", [False, True])
def test_torch_profiler_shows_compiled_calls_and_runs_of_kernels(with_stack):
    f, g = dynamo_lite.compile(whole), dynamo_lite.compile(broken)
    x = torch.randn(8, 8)
    f(x, x), g(x)
    with torch.profiler.profile(with_stack=with_stack) as profile:
        for _ in range(3):
            f(x, x), g(x)
    counts = {event.key: event.count for event in profile.key_averages()}
    regions = {key: n for key, n in counts.items() if key.startswith("dynamo_lite: ")}
    assert regions == {"dynamo_lite: whole 0/0": 3, "dynamo_lite: broken 1/0": 3, "dynamo_lite: broken 2/0": 3}
    runs = [key for key, n in counts.items() if key.startswith("dynamo_lite run") and n == 3]
    assert any("mul, sin" in key for key in runs) and any("_softmax" in key for key in runs)
    assert not [key for key in counts if key == "aten::sin"]
    with torch.profiler.profile():
        pass
    f(x, x)


def test_regions_end_with_an_exception():
    f = dynamo_lite.compile(lambda x, i: x[i] + 1, backend="eager")
    f(torch.ones(3), torch.tensor(1))
    with torch.profiler.profile() as profile:
        with pytest.raises(IndexError):
            f(torch.ones(3), torch.tensor(7))
        torch.ones(3).cos()
    names = [event.name for event in profile.events()]
    (region,) = [event for event in profile.events() if event.name.startswith("dynamo_lite: ")]
    (after,) = [event for event in profile.events() if event.name == "aten::cos"]
    assert after.time_range.start >= region.time_range.end and after.cpu_parent is None, names


def test_trace_functions_see_the_users_lines_and_it_is_said_once(caplog):
    graphs = Graphs()
    f = dynamo_lite.compile(broken, backend=graphs)
    f(torch.ones(3))
    graphs.calls, lines = 0, []

    def trace(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            lines.append((frame.f_code.co_name, event, frame.f_lineno - frame.f_code.co_firstlineno))
        else:
            lines.append((frame.f_globals.get("__name__"), event, 0))
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        results = [f(torch.ones(3)) for _ in range(2)]
    finally:
        sys.settrace(old)
    assert graphs.calls == 0 and all(torch.equal(r, broken(torch.ones(3))) for r in results)
    seen = [(event, line) for name, event, line in lines if name == "broken"]
    assert seen[:4] == [("call", 0), ("line", 1), ("line", 2), ("line", 3)]
    assert not [name for name, _, _ in lines if str(name).startswith(("dynamo_lite", "logging"))]
    assert caplog.text.count("sys.settrace") == 1
    f(torch.ones(3))
    assert graphs.calls == 2  # compiled again as soon as it is gone


def test_another_threads_trace_function_does_not_matter():
    graphs = Graphs()
    f = dynamo_lite.compile(whole, backend=graphs)
    x = torch.randn(2, 2)
    old = sys.gettrace()
    thread = threading.Thread(target=lambda: f(x, x))
    sys.settrace(lambda *a: None)
    try:
        thread.start()
        thread.join()
    finally:
        sys.settrace(old)
    assert graphs.calls == 1
