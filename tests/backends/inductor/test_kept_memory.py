"""Memory that stays with the process between calls. malloc's thresholds are the process's, so that each test that looks
at them has one of its own."""
import os
import subprocess
import sys
import textwrap

import new_process
import pytest
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor import _runtime, kept_memory

HEAD = """
import os, resource, threading, time
import torch
import dynamo_lite
from dynamo_lite import config

def kept():
    return dynamo_lite.metrics()["memory"]

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

@dynamo_lite.compile
def step(x, y):
    z = torch.sin(x * y) + 0.5
    return z, z - 0.25, z * x

x, y = torch.randn(1000, 1000), torch.randn(1000, 1000)
"""


def run(program, **environment):
    """What a process prints that runs the program behind HEAD."""
    environment = {"DYNAMO_LITE_KEPT_MEMORY": "256", **environment}
    done = new_process.run(HEAD + textwrap.dedent(program), env={**os.environ, **environment}, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


pytestmark = pytest.mark.skipif(not _runtime.keep_memory(0, 1.0), reason="malloc can't be told, or was told already")


@pytest.fixture(autouse=True, scope="module")
def _settings_again():
    yield
    kept_memory._tell()


# ---------------------------------------------------------------- while calls go on
def test_calls_take_no_page_faults_in_any_thread():
    # Each result of 4 MB has 1024 pages.
    taken = run("""
        step(torch.randn(4), torch.randn(4))
        assert kept()["kept"] == 0  # small results change nothing

        def chain():
            z = x
            for _ in range(6):
                z, a, b = step(z, y)
            return z, a, b

        def count():
            for _ in range(20):
                chain()
            before = faults()
            for _ in range(10):
                chain()
            print((faults() - before) / 10)

        count()
        assert kept()["kept"] == 1
        thread = threading.Thread(target=count)
        thread.start()
        thread.join()
    """)
    assert [float(n) < 200 for n in taken] == [True, True], taken


# ---------------------------------------------------------------- given back
def test_after_idle_time_all_is_given_back_and_the_next_call_keeps_again():
    program = """
        held = [step(x, y) for _ in range(10)]
        del held
        end = time.monotonic() + 4
        while time.monotonic() < end:
            step(x, y)
            assert kept()["kept"] == 1
            time.sleep(0.1)
        assert kept()["free"] > 100 << 20
        full = resident()
        wait_until(lambda: kept()["kept"] == 0)
        time.sleep(0.5)
        assert resident() < full - (90 << 20), (resident(), full)
        threads = len(os.listdir("/proc/self/task"))
        want = step(x, y)[0]
        assert kept()["kept"] == 1 and torch.allclose(want, torch.sin(x * y) + 0.5, atol=1e-5)
        # The thread that looks after it had ended, and is there again.
        assert len(os.listdir("/proc/self/task")) == threads + 1
        child = os.fork()
        if child == 0:
            ok = kept()["kept"] == 0 and torch.equal(step(x, y)[0], want) and kept()["kept"] == 1
            os._exit(0 if ok else 1)
        print(os.waitpid(child, 0)[1], kept()["kept"])
    """
    assert run(program, DYNAMO_LITE_KEPT_MEMORY_SECONDS="3", OMP_NUM_THREADS="1") == ["0", "1"]


def test_by_reset_beyond_the_bound_and_when_the_setting_changes():
    run("""
        def fill(n):
            held = [step(x, y) for _ in range(n)]

        fill(10)
        full = resident()
        dynamo_lite.reset()
        assert resident() < full - (90 << 20), (resident(), full)
        config.kept_memory = 64
        fill(20)
        assert kept()["free_at_end"] <= kept()["bound"] == 64 << 20, kept()
        config.kept_memory = 0
        wait_until(lambda: kept()["kept"] == 0)
        step(x, y)
        assert kept() == {**kept(), "kept": 0, "bound": 0}
        config.kept_memory = 128
        step(x, y)
        assert kept() == {**kept(), "kept": 1, "bound": 128 << 20}
    """)


@pytest.mark.parametrize("variable, value", [
    ("MALLOC_TRIM_THRESHOLD_", "131072"), ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("GLIBC_TUNABLES", "glibc.rtld.nns=2:glibc.malloc.trim_threshold=131072")])
def test_what_the_environment_tells_malloc_stands(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    assert not _runtime.keep_memory(64 << 20, 10.0)


# ---------------------------------------------------------------- what is read
def machine(tmp_path, total, available, most="max", current=0, cached=0):
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/meminfo").write_text(f"MemTotal:       {total} kB\nMemAvailable:    {available} kB\n")
    group = {"memory.max": most, "memory.current": current, "memory.stat": f"anon 5\ninactive_file {cached}"}
    for name, value in group.items():
        (tmp_path / "sys/fs/cgroup" / name).write_text(f"{value}\n")
    return str(tmp_path)


@pytest.mark.parametrize("numbers, short", [
    ((1600, 101), False), ((1600, 99), True), ((1600, 800, 1600, 1400), False), ((1600, 800, 1600, 1501), True),
    ((1600, 800, 1600, 1501, 200), False)])
def test_when_memory_is_short(tmp_path, numbers, short):
    assert _runtime.memory_short(machine(tmp_path, *numbers)) is short


def test_where_nothing_tells_memory_is_not_short(tmp_path):
    assert not _runtime.memory_short(str(tmp_path))


def test_under_pressure_memory_is_given_back_and_no_more_is_kept(tmp_path):
    root = machine(tmp_path, 1600, 800)
    run(f"""
        from dynamo_lite.backends.inductor import _runtime
        step(x, y)
        assert _runtime.keep_memory(256 << 20, 60.0, {root!r})
        held = [step(x, y) for _ in range(10)]
        del held
        full = resident()
        with open({root!r} + "/proc/meminfo", "w") as file:
            file.write("MemTotal: 1600 kB\\nMemAvailable: 50 kB\\n")
        wait_until(lambda: resident() < full - (90 << 20))
        held = [step(x, y) for _ in range(10)]
        del held
        wait_until(lambda: resident() < full - (90 << 20))
        with open({root!r} + "/proc/meminfo", "w") as file:
            file.write("MemTotal: 1600 kB\\nMemAvailable: 900 kB\\n")
        def keeps():
            held = [step(x, y) for _ in range(10)]
            del held
            return kept()["free"] > 100 << 20
        wait_until(keeps)
    """)


@pytest.mark.parametrize("total_gib, most, bound_mib", [
    (1, "max", 64), (24, "max", 768), (500, "max", 1024), (24, 8 << 30, 256), (24, 1 << 28, 64)])
def test_the_bound_follows_from_the_memory(tmp_path, total_gib, most, bound_mib):
    assert kept_memory.bound_by_default(machine(tmp_path, total_gib << 20, 5, most)) == bound_mib << 20


def test_bounds_by_the_setting(tmp_path):
    with config.patch(kept_memory=3):
        assert kept_memory.bound() == 3 << 20
    with config.patch(kept_memory=0):
        assert kept_memory.bound() == 0
    assert kept_memory.bound_by_default(str(tmp_path)) == 64 << 20


# ---------------------------------------------------------------- results are tensors as any others
def test_results_can_be_resized_shared_and_set():
    x = torch.randn(300, 301)
    a, b = dynamo_lite.compile(lambda x: (x + 1, x * 2))(x)
    assert a.data_ptr() % 64 == 0 and a.untyped_storage().resizable()
    b.resize_(700, 301)
    assert torch.equal(b[:300], x * 2)
    view = a.view(-1)[5:]
    a.share_memory_()
    assert a.is_shared() and torch.equal(a, x + 1) and torch.equal(view, (x + 1).view(-1)[5:])
    c = torch.empty(0).set_(a.untyped_storage(), 0, (300, 301), (301, 1))
    assert torch.equal(c, x + 1)


_OLDER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
int mallopt(int what, int value) {
    int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "mallopt");
    if (what == M_MMAP_THRESHOLD && value > 32 << 20) return 0;
    if (what == M_MMAP_THRESHOLD) fprintf(stderr, "mapped from %d\\n", value);
    return next(what, value);
}
"""


def test_a_threshold_that_older_versions_of_glibc_refuse(tmp_path):
    """They take 32 MiB at most: refused, it would stay at what malloc has come to, and every large block be mapped."""
    source, library = tmp_path / "older.c", tmp_path / "older.so"
    source.write_text(_OLDER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-c", HEAD + "step(x, y)"], capture_output=True, text=True, timeout=300,
        env={**os.environ, "DYNAMO_LITE_KEPT_MEMORY": "256", "LD_PRELOAD": str(library)})
    assert done.returncode == 0, done.stderr
    assert f"mapped from {32 << 20}" in done.stderr
