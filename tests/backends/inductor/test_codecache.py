"""The folder of compiled kernels: content addressed, whole or not at all, shared by processes."""
import logging
import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading

import pytest

from dynamo_lite import config, exc, log
from dynamo_lite.backends.inductor import _runtime, codecache, toolchain

SOURCE = """
extern "C" __attribute__((visibility("default"))) void run0(void **p, const __INT64_TYPE__ *s)
{ ((float *)p[0])[0] = 42 + NUMBER; }
"""


def source(number):
    return SOURCE.replace("NUMBER", str(number))


@pytest.fixture
def folder(tmp_path):
    with config.patch(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def compiler_runs(monkeypatch):
    runs = []
    real = toolchain.run
    monkeypatch.setattr(toolchain, "run", lambda *a: (runs.append(a), real(*a)))
    return runs


def value_of(path):
    import torch

    out = torch.zeros(1)
    _runtime.entry(_runtime.load(str(path)), "run0", 1, 0, (), False)(out)
    return out.item()


def test_built_once_and_found_again(folder, compiler_runs):
    path = codecache.shared_library(source(1))
    assert value_of(path) == 43
    assert codecache.shared_library(source(1)) == path and len(compiler_runs) == 1
    assert codecache.shared_library(source(2)) != path and len(compiler_runs) == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not [f for f in folder.rglob("*.tmp")]
    assert log.counters()["cache_hits"] >= 1


NEEDS_LIBRARIES = """
#include <math.h>
#include <omp.h>
#include <string.h>
extern "C" __attribute__((visibility("default"))) void run0(void **p, const __INT64_TYPE__ *s)
{
    const double x = omp_get_max_threads();
    double y[8];
    memset(y, 0, sizeof y + s[0]);
    ((double *)p[0])[0] = lgamma(x) + pow(x, x) + expf(x) + y[(int)x % 8];
    ((unsigned __int128 *)p[1])[0] /= (unsigned __int128)s[1];
}
"""


@pytest.mark.parametrize("name, alone", [("g++", True), ("{here}/x86-gnu-g++-12.2", True), ("{here}/clang++", False),
                                         ("{here}/own g++", False), ("g++ -DOWN", False), ("{here}/ccache g++", False)])
def test_gcc_links_what_kernels_use_and_no_more(folder, tmp_path, monkeypatch, compiler_runs, name, alone):
    program = shutil.which("g++")
    for other in ("x86-gnu-g++-12.2", "clang++", "own g++"):
        (tmp_path / other).write_text(f"#!/bin/sh\nexec {program} \"$@\"\n")
        (tmp_path / other).chmod(0o700)
    (tmp_path / "ccache").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "ccache").chmod(0o700)
    # The linker refuses a library that leaves a name open.
    monkeypatch.setattr(codecache, "build_flags", lambda simd: ("-O1", "-shared", "-fPIC", "-fopenmp", "-Wl,-z,defs"))
    with config.patch(cpp_compiler=name.format(here=tmp_path)):
        path = codecache.shared_library(NEEDS_LIBRARIES)
    _runtime.load(str(path))
    assert [("-nodefaultlibs" in command) for command, *_ in compiler_runs] == [alone]


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign", "flipped"])
def test_a_damaged_file_is_reported_and_rebuilt(folder, compiler_runs, caplog, damage):
    path = codecache.shared_library(source(3))
    data = path.read_bytes()
    new = {"truncated": data[: len(data) // 2], "empty": b"", "foreign": b"not a library",
           "flipped": data[:100] + bytes([data[100] ^ 1]) + data[101:]}[damage]
    path.unlink()
    path.write_bytes(new)
    with caplog.at_level(logging.WARNING):
        assert codecache.shared_library(source(3)) == path
    assert str(path) in caplog.text and len(compiler_runs) == 2
    assert value_of(path) == 45


def test_the_key_depends_on_all_that_decides_the_bytes():
    base = codecache.library_key("a", ["-O3"], "gcc 1")
    others = [codecache.library_key("b", ["-O3"], "gcc 1"), codecache.library_key("a", ["-O2"], "gcc 1"),
              codecache.library_key("a", ["-O3"], "gcc 2"), codecache.library_key("a", ["-O3", ""], "gcc 1")]
    assert len({base, *others}) == 5
    # A library of another compiler is found by the first part.
    assert [key.partition("-")[0] == base.partition("-")[0] for key in others] == [False, False, True, False]


def test_simd_changes_the_flags(folder):
    assert "-mavx2" in codecache.build_flags("avx2") and "-mavx2" not in codecache.build_flags("scalar")
    with config.patch(cpp_simd="scalar"):
        assert codecache.simd() == "scalar"


def test_a_missing_compiler_says_so(folder):
    with config.patch(cpp_compiler="no-such-compiler-here"), pytest.raises(exc.CompilerMissing, match="no-such-comp"):
        codecache.shared_library(source(4))


def test_a_compiler_that_rejects_the_source(folder):
    with pytest.raises(exc.CacheError, match="rejected"):
        codecache.shared_library("this is no C++")
    assert not list(folder.rglob("*.so")) and not list(folder.rglob("*.tmp"))


def test_threads_and_processes_build_one_file(folder):
    sources = [source(n) for n in range(10, 13)]
    found = [None] * 6

    def build(i):
        found[i] = codecache.shared_library(sources[i % 3])

    threads = [threading.Thread(target=build, args=(i,)) for i in range(6)]
    code = textwrap.dedent("""
        import sys
        from dynamo_lite.backends.inductor import codecache
        for s in sys.argv[1:]:
            print(codecache.shared_library(s))
    """)
    env = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(folder)}
    processes = [subprocess.Popen([sys.executable, "-c", code, *sources], env=env, stdout=subprocess.PIPE, text=True)
                 for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for p in processes:
        out, _ = p.communicate()
        assert p.returncode == 0 and out.split() == [str(path) for path in found[:3]]
    assert found[:3] == found[3:] and len(list(folder.rglob("*.so"))) == 3
    assert codecache.build_all(sources) == found[:3]


def test_a_found_library_starts_no_process(folder, monkeypatch):
    path = codecache.shared_library(source(20))
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("a process was started"))
    assert codecache.shared_library(source(20)) == path


def test_arguments_of_the_compiler_s_command_are_part_of_the_key():
    plain = codecache.shared_library('extern "C" int f() { return 1; }')
    with config.patch(cpp_compiler="g++ -DUNUSED"):
        assert codecache.shared_library('extern "C" int f() { return 1; }') != plain
