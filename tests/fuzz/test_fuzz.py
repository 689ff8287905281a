"""The fuzzer finds what is wrong, and nothing where all is right; a minute of its programs finds nothing."""
from __future__ import annotations

import subprocess
import sys
import time

import pytest
import thorough
import torch

from fuzz import harness, programs, run
from fuzz.minimize import minimize
from fuzz.watch import Watch

MANY, SOME = (32, 8) if thorough.ALL else (6, 4)
COUNT = {"programs": MANY, "environments": MANY, "shapes": SOME, "numbers": SOME, "values": SOME, "networks": SOME,
         "memory": SOME}
STRIPES = 4


def wrong(source, wrap, options=harness.Options()):
    plain = list(harness.outcomes(source, lambda f: f, options, harness.CALLS))
    other = list(harness.outcomes(source, wrap, options, harness.CALLS))
    return not all(map(lambda a, b: harness.same(a, b, 0.0), plain, other))


def once(f):
    """What a stale entry does: the first answer for good."""
    kept = []

    def stale(*args):
        if not kept:
            kept.append(f(*args))
        return kept[0]

    return stale


HEAD = """
import torch
SEEN = ("said",)
said = []
def arguments(i):
    return [torch.ones(3, 4) + i, torch.ones(4)]
"""


@pytest.mark.parametrize("body, other", [
    ("return x + 1", "return x + 2"),
    ("x[0] = 0\n    return x", "x = x.clone()\n    x[0] = 0\n    return x"),
    ("return [x, x]", "return [x, x.clone()]"),
    ("return x.t()", "return x.t().contiguous()"),
    ("return lambda: x", "x = x * 2\n    return lambda: x"),
    ("said.append(1)\n    return x", "return x"),
    ("return (v for v in (1, 2))", "return (v for v in (1, 3))"),
    ("raise ValueError('a')", "raise ValueError('b')"),
    ("x.zero_()\n    return y.view(4)", "x.zero_()\n    return y"),
])
def test_the_harness_sees_a_difference(body, other):
    source = f"{HEAD}def f(x, y):\n    {body}\ndef g(x, y):\n    {other}\n"
    assert not wrong(source, lambda f: f)
    assert wrong(source, lambda f: f.__globals__["g"])


def test_lines_and_gradients_are_seen():
    source = f"{HEAD}def f(x, y):\n    return y * 2\ndef g(x, y):\n    return y.detach() * 2\n"
    assert wrong(source, lambda f: f.__globals__["g"], harness.Options(grad=True))
    source = f"{HEAD}def f(x, y):\n    raise ValueError\ndef g(x, y):\n    pass\n    raise ValueError\n"
    assert wrong(source, lambda f: f.__globals__["g"])


def test_most_changes_of_surroundings_matter():
    """A compiler that never looked at its guards would be found out by nearly all programs."""
    sources = [run.plan("environments", seed)[0] for seed in range(20)]
    assert sum(wrong(source, once) for source in sources) >= 15


def test_a_seed_names_one_program_and_most_run_to_their_end():
    ends = []
    for seed in range(20):
        source = programs.program(seed, breaks=seed % 2 == 1, grad=False)
        torch.rand(1)
        assert source == programs.program(seed, breaks=seed % 2 == 1, grad=False)
        ends += [seen[0][0] for seen in harness.plainly(source, harness.Options(), (0,)) or ()]
    assert ends.count("returned") > ends.count("raised") > 0


SLOW_IMPORT = """
import time
begin = time.process_time()
while time.process_time() - begin < {seconds}:
    pass
whole = True
"""


def test_an_import_is_not_cut_short(tmp_path, monkeypatch):
    """A program may take no longer than a few seconds, but a module is imported whole: the next program uses it."""
    monkeypatch.setattr(harness, "SECONDS", 0.2)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_to_import.py").write_text(SLOW_IMPORT.format(seconds=0.5))
    source = f"{HEAD}def f(x, y):\n    import slow_to_import\n    return x + slow_to_import.whole\n"
    harness.plainly(source, harness.Options(), (0,))
    assert harness.plainly(source, harness.Options(), (0,)) is not None


def test_the_minimizer():
    source = "def f(x):\n    a = 1\n    for i in range(3):\n        if a:\n            x = bad(x, 3)\n    return x\n"
    assert minimize(source, lambda text: "bad(" in text).count("\n") <= 2


@pytest.mark.parametrize("code, hangs", [
    ("while True: pass", True), ("import time; time.sleep(60)", True), ("", False)])
def test_processes_that_hang_are_told_by_the_processors_time(code, hangs):
    process = subprocess.Popen([sys.executable, "-S", "-c", code])
    try:
        watch = Watch(process.pid, 1.5)
        while not watch.hangs() and process.poll() is None:
            time.sleep(0.1)
        assert (process.poll() is None) == hangs
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_stopped_with_its_watcher_does_not_hang(monkeypatch):
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        watch = Watch(process.pid, 100.0)
        before = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: before + 1000.0)
        assert not watch.hangs()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("stripe", range(STRIPES))
@pytest.mark.parametrize("kind", run.KINDS)
def test_programs_differ_in_nothing(kind, stripe):
    ran = 0
    for seed in range(stripe, COUNT[kind], STRIPES):
        is_program, found = run.try_seed(kind, seed, smaller=False)
        assert found is None, found
        ran += is_program
    assert ran > 0, "plain Python runs none of these programs"
