"""Logs: the grammar of the settings, where records go, counters, phases."""
import io
import logging
import os
import sys
import threading

import new_process
import pytest
import torch

import dynamo_lite
from dynamo_lite import log


@pytest.fixture(autouse=True)
def _quiet():
    levels = {name: log.artifact(name).level for name in log.ARTIFACTS}
    log.reset()
    yield
    log.reset()
    for name, level in levels.items():
        log.artifact(name).setLevel(level)


def test_grammar():
    levels, unknown = log.parse_settings("graph_breaks, +bytecode,-guards,,nonsense,+more")
    assert levels == {"graph_breaks": logging.INFO, "bytecode": logging.DEBUG, "guards": logging.ERROR}
    assert unknown == ["nonsense", "more"]
    levels, unknown = log.parse_settings("all,-guards")
    assert not unknown and set(levels) == set(log.ARTIFACTS)
    assert levels["guards"] == logging.ERROR and levels["ir"] == logging.INFO


def test_set_logs():
    log.set_logs("graph_breaks,+bytecode")
    assert log.enabled("graph_breaks") and not log.enabled("graph_breaks", logging.DEBUG)
    assert log.enabled("bytecode", logging.DEBUG) and not log.enabled("guards")
    log.set_logs(guards=True, cache="+", ir=logging.DEBUG)
    assert log.enabled("guards") and log.enabled("cache", logging.DEBUG) and not log.enabled("graph_breaks")
    log.set_logs(all=True, guards=False)
    assert log.enabled("ir") and not log.enabled("guards")
    log.set_logs()
    assert not any(log.enabled(name) for name in log.ARTIFACTS)
    assert log.enabled("guards", logging.WARNING)


@pytest.mark.parametrize("wrong", [{"nonsense": True}, "nonsense"])
def test_set_logs_rejects_unknown_names(wrong):
    log.set_logs("guards")
    with pytest.raises(log.UnknownArtifact, match="nonsense.*graph_breaks"):
        log.set_logs(**wrong) if isinstance(wrong, dict) else log.set_logs(wrong)
    assert log.enabled("guards")


def run(code, **env):
    return new_process.run(code, env=dict(os.environ, **env))


SAY = """
from dynamo_lite import log
for name in ("graph_breaks", "ir"):
    log.artifact(name).info("hello")
    log.artifact(name).debug("details")
"""


def test_environment_variables():
    p = run(SAY, DYNAMO_LITE_LOGS="graph_breaks")
    assert p.stderr.strip() == "[dynamo_lite graph_breaks] hello" and not p.stdout
    # A name of torch's alone is no error of ours, and our own variable wins.
    p = run(SAY, TORCH_LOGS="graph_breaks,fusion", DYNAMO_LITE_LOGS="+graph_breaks")
    assert p.stderr.splitlines() == ["[dynamo_lite graph_breaks] hello", "[dynamo_lite graph_breaks] details"]
    p = run(SAY, DYNAMO_LITE_LOGS="nonsense,ir")
    assert p.returncode == 0 and "nonsense" in p.stderr and "graph_breaks" in p.stderr
    assert "[dynamo_lite ir] hello" in p.stderr
    assert run(SAY).stderr == ""


def test_records_carry_the_frame_and_can_be_routed(caplog, capsys):
    log.set_logs("guards")
    with log.frame("3/1"):
        log.artifact("guards").info("inside")
        with log.frame("4/0"):
            assert log.current_frame() == "4/0"
    log.artifact("guards").info("outside")
    assert [(r.name, r.frame_id, r.message) for r in caplog.records] == [
        ("dynamo_lite.guards", "3/1", "inside"), ("dynamo_lite.guards", "", "outside")]
    # pytest's handler took the records, so ours said nothing.
    assert capsys.readouterr().err == ""


def test_own_handler_says_the_frame(monkeypatch):
    root = logging.getLogger("dynamo_lite")
    monkeypatch.setattr(root, "propagate", False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with log.frame("3/1"):
        log.artifact("cache").warning("rebuilt %s", "x.so")
    assert sys.stderr.getvalue() == "[dynamo_lite cache 3/1 warning] rebuilt x.so\n"


@pytest.mark.parametrize("error", [ValueError("closed"), OSError("full"), ZeroDivisionError()])
def test_a_stream_that_fails_does_not_stop_the_program(monkeypatch, error):
    class Broken(io.StringIO):
        def write(self, text):
            raise error

    seen = []
    monkeypatch.setattr(logging.Handler, "handleError", lambda self, record: seen.append(sys.exc_info()[1]))
    monkeypatch.setattr(sys, "stderr", Broken())
    monkeypatch.setattr(logging.getLogger("dynamo_lite"), "propagate", False)  # no handler of the test runner's
    log.artifact("cache").warning("said")
    assert seen == [error]


def test_first_time():
    assert log.first_time("graph_breaks", ("f.py", 3)) and not log.first_time("graph_breaks", ("f.py", 3))
    assert log.first_time("recompiles", ("f.py", 3))
    log.reset()
    assert log.first_time("graph_breaks", ("f.py", 3))


def test_counters():
    log.count("kernels", 2)
    log.count("kernels")
    assert log.counters() == {"kernels": 3}
    log.counters()["kernels"] = 0
    assert log.counters() == {"kernels": 3}


class Clock:
    """Stands for the module ``time`` of the one that is under test: its time passes when the test says so."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(log, "Clock", Clock())
    return log.Clock


def test_phases_are_exclusive(clock):
    with log.collect_phases() as mine:
        with log.phase("outer"):
            clock.seconds += 1
            with log.phase("inner"):
                clock.seconds += 5
        with pytest.raises(ValueError), log.phase("outer"):
            clock.seconds += 2
            raise ValueError
    assert log.phase_times() == mine == {"inner": 5, "outer": 3}
    with log.phase("outer"):
        clock.seconds += 4
    assert mine["outer"] == 3 and log.phase_times()["outer"] == 7
    log.reset_phase_times()
    assert log.phase_times() == {}


def test_phases_of_threads_do_not_nest(clock):
    go = threading.Event()

    def work():
        with log.phase("b"):
            go.set()
            clock.seconds += 3

    with log.collect_phases() as mine, log.phase("a"):
        t = threading.Thread(target=work)
        t.start()
        go.wait()
        t.join()
    assert mine == {"a": 3} and log.phase_times() == {"a": 3, "b": 3}


def test_loops_before_scheduling(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.ir")

    def fn(x, i, state):
        state.add_(1)
        return torch.softmax(x, -1).sort(i)[0]

    dynamo_lite.compile(fn)(torch.randn(3, 40), 1, torch.zeros(2))
    (text,) = [r.getMessage() for r in caplog.records if r.name == "dynamo_lite.ir"]
    assert "for i0<3, i1*<40:" in text and "max(" in text and "torch.softmax(x, -1).sort(i)[0]" in text
    assert "aten.sort.default" in text and "state[...] = " in text and "float32 [3, 1]" in text


def test_more_of_a_log(caplog):
    for name in ("guards", "graph_code", "bytecode"):
        caplog.set_level(logging.DEBUG, f"dynamo_lite.{name}")
    dynamo_lite.compile(lambda x: x.add_(1) * 2, backend="eager")(torch.randn(3, 4))
    text = caplog.text
    assert "guard program of" in text and "('tensor', " in text
    assert "torch.float32 [3, 4], strides [4, 1]" in text and "has effects" in text
    assert "BEFORE" in text and "AFTER" in text and "test_log.py" in text
