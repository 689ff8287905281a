"""Faults of folders, files and compilers: the program runs, gives eager's results, and is told once what is amiss.

Each test breaks one thing and looks at three: the result, whether kernels or library calls made it, and the messages.
"""
import contextlib
import errno
import functools
import itertools
import json
import os
import pathlib
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import new_process
import pytest
import torch

import dynamo_lite
from dynamo_lite import config, exc, log
from dynamo_lite.backends.inductor import codecache, folders, private_files, toolchain

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes the part of other users")
pytestmark = pytest.mark.timeout(120)
_numbers = itertools.count(1000)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A cache folder and a folder for temporary files of the test's own; nothing else can be written to."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(folders, "_TEMPORARY", ())
    monkeypatch.setattr(folders, "_of_this_process", {})
    monkeypatch.setattr(folders, "_without_file", [])
    with config.patch(cache_graphs=True, cache_dir=str(tmp_path / "cache"), cache_secret=str(tmp_path / "secret")):
        yield tmp_path


class Program:
    """A function that no other test compiles."""

    def __init__(self):
        self.fn = eval(f"lambda x: (x * {float(next(_numbers))}).sin()")
        self.x = torch.randn(64)

    def run(self):
        """How a new process would get its results: kernels "built" or "found", or by "library" calls."""
        dynamo_lite.reset()
        torch.testing.assert_close(dynamo_lite.compile(self.fn)(self.x), self.fn(self.x))
        counts = log.counters()
        if any(name.startswith("fallback") for name in counts):
            return "library"
        assert counts["kernels"] == 1
        return "found" if counts.get("graph_cache_hits") and not counts.get("cache_misses") else "built"


@pytest.fixture
def program():
    return Program()


def warnings(caplog):
    found = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    caplog.clear()
    return found


def kept(folder, end):
    return [p for p in folder.rglob("*" + end) if p.parent != folder]


def test_nothing_amiss(here, program, caplog):
    assert [program.run(), program.run()] == ["built", "found"] and not warnings(caplog)
    assert sorted(os.listdir(here / "temporary")) == [] and len((here / "secret").read_bytes()) == 32
    assert not kept(here / "cache", ".tmp")


# ---------------------------------------------------------------- files that are not what was kept
def overwrite(path, data):
    path.unlink()
    path.write_bytes(data)
    path.chmod(0o600)


def replaced_by(make):
    def damage(path):
        path.unlink()
        make(path)
    return damage


DAMAGES = {
    "truncated": lambda path: overwrite(path, path.read_bytes()[:-200]),
    "empty": lambda path: overwrite(path, b""),
    "first half": lambda path: overwrite(path, path.read_bytes()[:500]),
    "flipped": lambda path: overwrite(path, path.read_bytes().replace(b"sin", b"cos", 1)),
    "pickle": lambda path: overwrite(path, b"cos\nsystem\n(S'false'\ntR."),
    "fifo": replaced_by(os.mkfifo),
    "folder": replaced_by(os.mkdir),
    "link": replaced_by(lambda path: os.symlink("/dev/zero", path)),
    "loop": replaced_by(lambda path: os.symlink(path, path)),
    "writable by others": lambda path: path.chmod(0o666),
    "huge": lambda path: os.truncate(path, 1 << 36),
    "of another user": lambda path: os.chown(path, 12345, 12345),
}


@pytest.mark.parametrize("end", [".so", ".graph"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_planted_file(here, program, caplog, damage, end):
    if damage == "of another user" and os.geteuid():
        pytest.skip("gives files to other users")
    program.run()
    (path,) = kept(here / "cache", end)
    DAMAGES[damage](path)
    assert program.run() == "built"
    (said,) = warnings(caplog)[:1]
    assert str(path) in said
    # It has been replaced, unless a folder is in the way: then it is kept elsewhere.
    assert program.run() == "found"


@pytest.mark.parametrize("end", [".so", ".graph"])
def test_files_that_are_swapped(here, caplog, end):
    programs = Program(), Program()
    for program in programs:
        program.run()
    one, other = kept(here / "cache", end)
    data = one.read_bytes(), other.read_bytes()
    overwrite(one, data[1])
    overwrite(other, data[0])
    assert [program.run() for program in programs] == ["built", "built"]
    assert all("truncated or not from here" in said for said in warnings(caplog))
    assert [program.run() for program in programs] == ["found", "found"]


@pytest.mark.parametrize("end", [".so", ".graph"])
def test_a_file_that_was_sealed_with_another_secret(here, program, caplog, end):
    """What who can write to the folder, and knows the format, would plant."""
    program.run()
    (path,) = kept(here / "cache", end)
    body = path.read_bytes()[:-private_files.FOOTER]
    overwrite(path, body + private_files.seal(path.name, body, b"x" * 32))
    assert program.run() == "built" and "another user, or with a secret that is gone" in warnings(caplog)[0]
    assert program.run() == "found" and not warnings(caplog)


def test_a_library_that_was_planted_is_not_loaded(here, program, caplog):
    (here / "evil.cpp").write_text(f"""#include <stdio.h>
        __attribute__((constructor)) void run() {{ fclose(fopen("{here}/pwned", "w")); }}""")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", here / "evil.so", here / "evil.cpp"], check=True)
    program.run()
    (path,) = kept(here / "cache", ".so")
    evil = (here / "evil.so").read_bytes()
    for data in (evil, evil + path.read_bytes()[-private_files.FOOTER:],
                 evil + private_files.seal(path.name, evil, b"0" * 32)):
        overwrite(path, data)
        assert program.run() == "built" and warnings(caplog)
        assert not (here / "pwned").exists()


def test_a_planted_source_is_not_compiled(here, program):
    program.run()
    (path,) = kept(here / "cache", ".cpp")
    overwrite(path, b"#error planted")
    (library,) = kept(here / "cache", ".so")
    library.unlink()
    assert program.run() == "built"


@pytest.mark.parametrize("change", ["gone", "other", "short", "readable", "folder"])
def test_the_secret_changes(here, program, caplog, monkeypatch, change):
    monkeypatch.setattr(folders, "_users_folder", lambda: str(here / "home"))
    secret = here / "home" / "secret"
    with config.patch(cache_secret=""):
        program.run()
        content = secret.read_bytes()
        secret.unlink()
        if change == "folder":
            secret.mkdir()
        elif change != "gone":
            secret.write_bytes({"other": b"x" * 32, "short": b"x" * 31, "readable": content}[change])
            secret.chmod(0o644 if change == "readable" else 0o600)
        assert program.run() == "built" and "secret" in " ".join(warnings(caplog))
        assert program.run() == "found" and not warnings(caplog)


def test_a_secret_of_the_users_choice_is_not_overwritten(here, program, caplog):
    (here / "precious").write_text("no secret of dynamo_lite's")
    (here / "precious").chmod(0o600)
    with config.patch(cache_secret=str(here / "precious")):
        assert [program.run(), program.run()] == ["built", "found"]  # by this process's own
    assert (here / "precious").read_text() == "no secret of dynamo_lite's"
    assert any("no folder to keep a secret in" in said for said in warnings(caplog))


# ---------------------------------------------------------------- folders
def stands_in(here):
    return here / "temporary" / f"dynamo_lite-{os.geteuid()}"


def test_a_folder_that_is_deleted_meanwhile(here, program, caplog):
    program.run()
    shutil.rmtree(here / "cache")
    assert [program.run(), program.run()] == ["built", "found"] and not warnings(caplog)
    assert kept(here / "cache", ".graph") and not stands_in(here).exists()


def unwritable(path):
    path.mkdir()
    path.chmod(0o500)


FOLDERS = {
    "a file": lambda path: path.write_text(""),
    "writable by its group": lambda path: (path.mkdir(), path.chmod(0o770)),
    "writable by all": lambda path: (path.mkdir(), path.chmod(0o777)),
    "sticky": lambda path: (path.mkdir(), path.chmod(0o1777)),
    "dangling": lambda path: path.symlink_to("/nowhere/at/all/" if os.geteuid() else "/proc/nowhere/at/all"),
    "loop": lambda path: path.symlink_to(path),
    "of another user": lambda path: (path.mkdir(), os.chown(path, 12345, 12345)),
    "link of another user": lambda path: (
        path.symlink_to(path.parent / "other"), os.chown(path, 12345, 12345, follow_symlinks=False)),
    "in no file system of files": lambda path: path.symlink_to("/proc/self"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_is_of_no_use(here, program, caplog, kind):
    if "another user" in kind and os.geteuid():
        pytest.skip("gives files to other users")
    FOLDERS[kind](here / "cache")
    assert program.run() == "built"
    (said,) = warnings(caplog)
    assert f"the cache folder {here}/cache is not used" in said and "DYNAMO_LITE_CACHE_DIR" in said
    assert kept(stands_in(here), ".graph") and program.run() == "found"
    assert len(warnings(caplog)) <= 1 and not kept(here / "cache", ".so")


def test_a_folder_below_one_that_all_can_write(here, program, caplog):
    with config.patch(cache_dir=str(here / "open" / "cache")):
        (here / "open" / "cache").mkdir(parents=True)
        (here / "open").chmod(0o777)
        assert program.run() == "built" and f"other users can write {here}/open" in warnings(caplog)[0]
        assert not os.listdir(here / "open" / "cache")
        (here / "open").chmod(0o1777)
        assert program.run() == "found" and not warnings(caplog)  # where it has been kept meanwhile


def test_no_folder_at_all(here, program, caplog):
    """What is compiled lives as long as the process."""
    (here / "cache").write_text("")
    stands_in(here).write_text("")
    assert program.run() == "built"
    said = warnings(caplog)
    assert sum("is not used" in s for s in said) == 2 and sum("nothing can be kept" in s for s in said) == 1
    assert program.run() == "found"  # by this process
    assert "until this process ends" not in " ".join(warnings(caplog))


def test_nothing_can_be_written_anywhere(here, program, caplog, monkeypatch):
    (here / "cache").write_text("")
    monkeypatch.setenv("TMPDIR", str(here / "nowhere"))
    assert program.run() == "library"
    said = [s for s in warnings(caplog) if "kernels can't be built" in s]
    assert len(said) == 1 and "no folder that compiled kernels can be written to" in said[0]


@pytest.mark.parametrize("program_too", [False, True])
def test_a_full_disk(here, program, caplog, monkeypatch, program_too):
    """Where the cache folder is; ``program_too``: where the others are too."""
    real = private_files.write

    def full(path, *args, **kwargs):
        if path.startswith(str(here / "cache")) or program_too and not path.endswith("secret"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        real(path, *args, **kwargs)

    monkeypatch.setattr(private_files, "write", full)
    assert program.run() == ("library" if program_too else "built")
    said = warnings(caplog)
    assert "No space left on device" in said[0] and sum(str(here / "cache") in s for s in said) == 1
    monkeypatch.undo()
    if not program_too:
        with config.patch(cache_dir=str(here / "cache"), cache_graphs=True):
            monkeypatch.setenv("TMPDIR", str(here / "temporary"))
            monkeypatch.setattr(folders, "_TEMPORARY", ())
            assert program.run() == "found"
    assert not kept(here, ".tmp")


def test_a_disk_that_is_full_while_a_file_is_written(here, monkeypatch):
    real = os.fchmod
    monkeypatch.setattr(os, "fchmod", lambda *a: (real(*a), (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))))
    with pytest.raises(OSError, match="full"):
        private_files.write(str(here / "file"), b"x")
    assert sorted(os.listdir(here)) == ["temporary"]


def test_the_program_changes_its_folder(here, program, monkeypatch):
    (here / "a").mkdir()
    monkeypatch.chdir(here / "a")
    with config.patch(cache_dir="relative"):
        assert config.cache_dir == str(here / "a" / "relative") and program.run() == "built"
        monkeypatch.chdir("/")
        assert program.run() == "found"
        (here / "b").mkdir()
        monkeypatch.chdir(here / "b")
        (here / "b").rmdir()
        try:
            json.no_such_attribute
        except AttributeError:
            pass
        except SystemError:  # 3.13.0, where sys.path begins with "", as in a worker of xdist's
            pytest.skip("this Python can't ask modules for attributes where the working folder is gone")
        assert program.run() == "found" and Program().run() == "built"
        with pytest.raises(ValueError, match="relative to a folder that is gone"):
            config.cache_dir = "other"
    assert kept(here / "a" / "relative", ".graph")


@pytest.mark.parametrize("name", ["with space", "näme ☃", "new\nline", "\udcff", "-o", "'q\"", "%s$(x)`y`;#&"])
def test_folders_of_any_name(here, program, caplog, name):
    with config.patch(cache_dir=str(here / name)):
        assert [program.run(), program.run()] == ["built", "found"] and not warnings(caplog)
    assert kept(here / name, ".so")


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_any_umask(here, program, caplog, umask):
    before = os.umask(umask)
    try:
        with config.patch(cache_dir=str(here / "deep" / "cache")):
            assert [program.run(), program.run()] == ["built", "found"] and not warnings(caplog)
    finally:
        os.umask(before)
    for path in (here / "deep").rglob("*"):
        assert path.stat().st_mode & 0o777 in (0o600, 0o700)


def test_clocks_that_differ(here, program):
    program.run()
    for path in (here / "cache").rglob("*"):
        os.utime(path, (2**33, 2**33) if path.suffix == ".so" else (0, 0))
    assert program.run() == "found"


# ---------------------------------------------------------------- compilers
def compiler(here, text, name="compiler"):
    path = here / name
    path.write_text("#!/bin/sh\n" + textwrap.dedent(text))
    path.chmod(0o700)
    return config.patch(cpp_compiler=str(path))


COMPILERS = {
    "gone": ("exec /no/such/file", "can't be run"),
    "hangs": ("sleep 1000 & sleep 1000", "has not finished"),
    "hangs and ignores": ("trap '' TERM INT; while :; do sleep 1; done", "has not finished"),
    "crashes": ("kill -SEGV $$", "was ended by signal 11"),
    "rejects": ("echo 'x.cpp:1: error: no' >&2; exit 1", "rejected generated code"),
    "says nothing": ("exit 1", "rejected generated code"),
    "out of memory": ("echo 'cc1plus: out of memory allocating 65536 bytes' >&2; exit 1", "out of memory"),
    "no cc1plus": ("echo \"g++: fatal error: cannot execute 'cc1plus'\" >&2; exit 1", "can't be run"),
    "makes nothing": ("exit 0", "has made nothing"),
    "makes an empty file": ('while [ "$1" != -o ]; do shift; done; : > "$2"', "has made nothing"),
    "makes garbage": ('while [ "$1" != -o ]; do shift; done; echo garbage > "$2"', "can't be loaded"),
    "makes a folder": ('while [ "$1" != -o ]; do shift; done; mkdir "$2"', None),
    "makes another library": ('while [ "$1" != -o ]; do shift; done; echo "int x;" | g++ -shared -o "$2" -x c++ -',
                              "can't be loaded"),
    "bytes of no encoding": (r"printf 'error: \377\376\n' >&2; exit 1", "rejected generated code"),
}


@pytest.mark.parametrize("kind", COMPILERS)
def test_a_compiler_that_does_not_compile(here, program, caplog, kind):
    text, message = COMPILERS[kind]
    with compiler(here, text), config.patch(cpp_compiler_timeout=1):
        begun = time.monotonic()
        assert program.run() == "library"
        assert time.monotonic() - begun < 20
    said = [s for s in warnings(caplog) if "kernels can't be built" in s]
    assert len(said) == 1 and (message or "") in said[0]
    assert not kept(here / "cache", ".tmp") and program.run() == "built"


@pytest.mark.parametrize("kind", ["gone", "hangs", "crashes", "no cc1plus", "out of memory", "makes nothing",
                                  "makes garbage"])
def test_one_message_for_many_graphs(here, caplog, kind):
    with compiler(here, COMPILERS[kind][0]), config.patch(cpp_compiler_timeout=1):
        begun = time.monotonic()
        assert once([Program() for _ in range(6)]) == ["library"] * 6
        assert time.monotonic() - begun < 5 + 10  # one that hangs is waited for once
    assert len(warnings(caplog)) == 1


def test_a_compiler_that_has_worked_may_take_long_once(here):
    slow = f'if grep -q slow "$@" 2>/dev/null && [ -e {here}/slow ]; then sleep 1000; fi; exec g++ "$@"'
    slow = 'for last; do :; done; if grep -q slow "$last"; then sleep 1000; fi; exec g++ "$@"'
    with compiler(here, slow), config.patch(cpp_compiler_timeout=3):
        sources = [f'extern "C" int f{next(_numbers)}() {{ return 1; }}{end}' for end in ("", "// slow\n", "")]
        codecache.shared_library(sources[0])
        with pytest.raises(exc.CompilerMissing, match="in 3 seconds"):
            codecache.shared_library(sources[1])
        codecache.shared_library(sources[2])


def test_a_compiler_that_hangs_leaves_no_process(here, program):
    with compiler(here, f"echo $$ > {here}/pid; sleep 1000"), config.patch(cpp_compiler_timeout=1):
        assert program.run() == "library"
    assert not running_in_group(int((here / "pid").read_text()))


def running_in_group(group):
    """Processes of the group, once those that were killed have had time to end."""
    for _ in range(100):
        if not (found := _running_in_group(group)):
            break
        time.sleep(0.05)
    return found


def _running_in_group(group):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                state, _, its_group = f.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it has ended
        if int(its_group) == group and state not in "ZX":
            found.append(name)
    return found


def test_a_compiler_that_chatters_and_reads(here, program):
    """Warnings, much output on both streams, a read of standard input, and a child that outlives it."""
    text = """
        i=0; while [ $i -lt 20000 ]; do echo "warning: error: chatter"; echo "error: chatter" >&2; i=$((i+1)); done
        cat; sleep 30 &
        exec g++ "$@"
    """
    with compiler(here, text):
        begun = time.monotonic()
        assert program.run() == "built" and time.monotonic() - begun < 25


@pytest.mark.parametrize("command", [
    "'{link}' -O1", "{quoted}", "{link}", "env g++", "g++ -DX='a b'", "{here}/./with\\ space/g++"])
def test_commands_of_several_words(here, program, caplog, command):
    (here / "with space").mkdir()
    link = here / "with space" / "g++"
    link.symlink_to(shutil.which("g++"))
    with config.patch(cpp_compiler=command.format(link=link, quoted=shlex.quote(str(link)), here=here)):
        assert [program.run(), program.run()] == ["built", "found"] and not warnings(caplog)


@pytest.mark.parametrize("command", ["", " ", "'open", "no-such-compiler", "/", "/etc/passwd", "\0"])
def test_commands_that_are_none(here, program, caplog, command):
    with config.patch(cpp_compiler=command):
        assert program.run() == "library"
        said = [s for s in warnings(caplog) if "kernels can't be built" in s]
        assert len(said) == 1 and "config.cpp_compiler" in said[0]


@pytest.mark.parametrize("command", ["no-such-compiler", "'open"])
def test_what_is_kept_needs_no_compiler(here, program, caplog, command):
    program.run()
    with config.patch(cpp_compiler=command, cache_graphs=False):
        program_by_kernels = Program()
        assert program_by_kernels.run() == "library"
    caplog.clear()
    with config.patch(cpp_compiler=command):
        assert program.run() == "found" and not warnings(caplog)
    # Its library is as good where the graph has been lowered anew.
    with config.patch(cpp_compiler=command, cache_graphs=False):
        dynamo_lite.reset()
        torch.testing.assert_close(dynamo_lite.compile(program.fn)(program.x), program.fn(program.x))
        assert log.counters()["kernels"] == 1 and not warnings(caplog)


def test_without_a_compiler_products_use_what_was_installed(here):
    x, y = torch.randn(24, 32), torch.randn(32, 40)
    with config.patch(cpp_compiler="g++"):
        dynamo_lite.compile(lambda x, y: (x @ y).relu())(x, y)
    with config.patch(cpp_compiler="no-such-compiler"):
        dynamo_lite.reset()
        torch.testing.assert_close(dynamo_lite.compile(lambda x, y: (x @ y).relu())(x, y), (x @ y).relu())
        assert log.counters()["kernels"] == 1


def test_another_compiler_builds_its_own(here, program):
    program.run()
    with compiler(here, 'exec g++ "$@"', "g++-99"):
        assert [program.run(), program.run()] == ["built", "found"]
    assert program.run() == "found" and len(kept(here / "cache", ".so")) == 2
    for path in kept(here / "cache", ".graph"):
        path.unlink()
    with compiler(here, "exit 1", "g++-100"):
        assert program.run() == "built"  # lowered anew, with another's library
        assert log.counters()["kernels"] == 1


def test_no_process_and_no_thread_can_be_started(here, program, caplog, monkeypatch):
    def refused(*args, **kwargs):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def no_thread(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(toolchain.subprocess, "Popen", refused)
    assert program.run() == "library" and "Resource temporarily unavailable" in " ".join(warnings(caplog))
    monkeypatch.undo()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    monkeypatch.setattr(codecache, "_workers", None)
    sources = [f'extern "C" int f() {{ return {next(_numbers)}; }}' for _ in range(2)]
    with config.patch(cache_dir=str(here / "cache")):
        assert len(set(codecache.build_all(sources))) == 2


def test_children_that_nobody_waits_for(here, program):
    """The system then forgets how a compiler has ended."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert program.run() == "built"
        with compiler(here, "exit 1"):
            assert Program().run() == "library"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_no_more_files_can_be_opened(here, caplog):
    programs = Program(), Program()
    programs[0].run()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, before[1]))
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        assert [program.run() for program in programs] == ["library", "library"]
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "Too many open files" in " ".join(warnings(caplog))
    assert [program.run() for program in programs] == ["found", "built"]


def test_files_of_limited_size(here, program, caplog):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        assert program.run() == "library"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not kept(here, ".tmp") and program.run() == "built"


# ---------------------------------------------------------------- libraries that do not load
def test_a_folder_that_may_hold_no_programs(here, caplog, monkeypatch):
    """As on a file system that is mounted ``noexec``."""
    real = codecache._from_memory
    opened = []

    def load(path, open_library):
        def refused(name):
            opened.append(name)
            if name.startswith(str(here)):
                raise OSError(f"{name}: failed to map segment from shared object: Operation not permitted")
            return open_library(name)
        return original(path, refused)

    original = codecache.load
    monkeypatch.setattr(codecache, "load", load)
    programs = [Program() for _ in range(5)]
    assert [p.run() for p in programs] == ["built"] * 5
    assert [p.run() for p in programs] == ["found"] * 5 and not warnings(caplog)
    names = [name for name in opened if name.startswith("/proc")]
    assert len(set(names)) == len(names) == 10 and real is codecache._from_memory


def test_a_library_that_loads_nowhere(here, program, caplog, monkeypatch):
    program.run()
    real = codecache.load
    monkeypatch.setattr(codecache, "load", lambda path, _: real(path, lambda name: (_ for _ in ()).throw(
        OSError("libgomp.so.1: cannot open shared object file"))))
    builds = []
    real_build = codecache._build
    monkeypatch.setattr(codecache, "_build", lambda *a: (builds.append(a), real_build(*a)))
    programs = [program, *(Program() for _ in range(3))]
    assert once(programs) == ["library"] * 4
    (said,) = [s for s in warnings(caplog) if "kernels can't be built" in s]
    # One is built again in vain, and the others built as they are new.
    assert "libgomp.so.1" in said and len(builds) == 4


def once(programs):
    """Runs some as one program does: messages are not repeated."""
    dynamo_lite.reset()
    before, kinds = 0, []
    for program in programs:
        torch.testing.assert_close(dynamo_lite.compile(program.fn)(program.x), program.fn(program.x))
        count = sum(n for name, n in log.counters().items() if name.startswith("fallback"))
        kinds.append("library" if count > before else "kernels")
        before = count
    return kinds


def test_an_installed_library_that_does_not_load(here, monkeypatch, caplog):
    from dynamo_lite.backends.inductor import prebuilt

    source = f'extern "C" __attribute__((visibility("default"))) int f() {{ return {next(_numbers)}; }}'
    monkeypatch.setattr(prebuilt, "FOLDER", here / "prebuilt")
    prebuilt._present.cache_clear()
    path = prebuilt.build(source, codecache.build_flags(), ["g++"], here / "prebuilt")
    overwrite(path, path.read_bytes()[:300])
    try:
        with config.patch(cpp_compiler="g++"):
            assert codecache.shared_library(source) == path
            with pytest.raises(codecache.Unloadable) as caught:
                codecache.load(path, codecache_open)
            assert codecache.give_up(caught.value)
            built = codecache.shared_library(source)
            assert built != path and codecache.load(built, codecache_open)
    finally:
        prebuilt._present.cache_clear()


def codecache_open(name):
    import ctypes

    return ctypes.CDLL(name)


# ---------------------------------------------------------------- several at once
def test_a_lock_that_is_held_for_ever(here, program, caplog):
    program.run()
    (library,) = kept(here / "cache", ".so")
    (graph,) = kept(here / "cache", ".graph")
    library.unlink()
    graph.unlink()
    code = "import fcntl, os, sys, time\n" \
        "h = os.open(sys.argv[1], os.O_RDWR)\nfcntl.flock(h, fcntl.LOCK_EX)\nprint(1, flush=True)\ntime.sleep(1000)"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, library.with_suffix(".lock")], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "1\n"
        with config.patch(cpp_compiler_timeout=2):
            assert program.run() == "built"
        assert "isn't waited for" in " ".join(warnings(caplog))
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("end", [".lock", ".cpp"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/nowhere/x", path)])
def test_something_in_the_way_of_a_build(here, program, end, make):
    program.run()
    (path,) = kept(here / "cache", end)
    path.unlink()
    make(path)
    for file in kept(here / "cache", ".so"):
        file.unlink()
    assert [program.run(), program.run()] == ["built", "found"]


PROCESS = """
    import os, sys, torch, dynamo_lite
    from dynamo_lite import config, exc, log
    number = float(sys.argv[1])
    f = lambda x: (x * number).sin()
    x = torch.randn(64)
    torch.testing.assert_close(dynamo_lite.compile(f)(x), f(x))
    found = log.counters()
    library = any(name.startswith("fallback") for name in found)
    print("library" if library else "found" if found.get("graph_cache_hits") else "built", config.cache_dir)
"""


_WHERE = ("HOME", "XDG_CACHE_HOME", "DYNAMO_LITE_CACHE_DIR", "DYNAMO_LITE_CACHE_SECRET")


def process(here, number, *, command=(), user=None, **environment):
    program = textwrap.dedent(PROCESS)
    keep = {k: v for k, v in os.environ.items() if k not in _WHERE}
    environment = {**keep, "DYNAMO_LITE_CACHE_GRAPHS": "1", **environment}
    if command:
        done = subprocess.run([*command, sys.executable, "-c", program, str(number)], capture_output=True, text=True,
                              check=False, timeout=100, env=environment)
    else:
        done = new_process.run(program, number, env=environment, timeout=100, user=user)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(maxsplit=1)[0], done.stderr.count("dynamo_lite cache warning"), done.stdout, done.stderr


@functools.cache
def may_be_run_by_others():
    return new_process.run("import dynamo_lite", user=12345, cwd="/").returncode == 0


@as_root
@pytest.mark.parametrize("home", [None, "/nonexistent", "/root", ""])
def test_a_user_without_a_name_and_a_home(home):
    if not may_be_run_by_others():
        pytest.skip("other users can't run this Python")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own can't be reached by others
        here = pathlib.Path(folder)
        here.chmod(0o755)
        (here / "temporary").mkdir()
        (here / "temporary").chmod(0o1777)
        environment = {"TMPDIR": str(here / "temporary"), **({} if home is None else {"HOME": home})}
        if home is None:
            environment["DYNAMO_LITE_CACHE_DIR"] = str(here / "temporary" / "kept")
        runs = [process(here, 3.5, user=12345, **environment) for _ in range(2)]
    assert [run[0] for run in runs] == ["built", "found"] and all(run[1] <= 1 for run in runs), runs


@pytest.mark.parametrize("environment", [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "tr_TR.ISO-8859-9", "PYTHONUTF8": "0"}])
def test_a_locale_without_unicode(here, environment):
    folder = here / "näme"
    runs = [process(here, 4.5, HOME=str(folder), **environment)[:2] for _ in range(2)]
    assert runs == [("built", 0), ("found", 0)]


def test_little_memory_for_a_compiler(here):
    """Under ``ulimit -v`` the compiler, or its start, may fail; the program does not."""
    limit = 12 << 20  # KiB: what torch needs here, and more
    command = ("bash", "-c", f'ulimit -v {limit}; ulimit -u 4096; exec "$@"', "bash")
    kind, _, out, err = process(here, 5.5, command=command, HOME=str(here))
    assert kind in ("built", "library"), out + err


def test_processes_that_begin_together(here):
    program = f"""
import os, sys
begun = []
for k in range(3):
    pid = os.fork()
    if not pid:
        exec({textwrap.dedent(PROCESS)!r})
        sys.exit()
    begun.append(pid)
sys.exit(any([os.waitpid(pid, 0)[1] for pid in begun]))
"""
    keep = {**os.environ, "HOME": str(here), "DYNAMO_LITE_CACHE_GRAPHS": "1",
            "DYNAMO_LITE_CACHE_DIR": str(here / "new")}
    done = new_process.run(program, 6.5, env=keep, timeout=100)
    assert done.returncode == 0 and done.stdout.count(str(here / "new")) == 3, done
    assert "warning" not in done.stderr
    assert len(kept(here / "new", ".so")) == len(kept(here / "new", ".graph")) == 1


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, also where pytest is a shell's background job, which would ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_while_a_compiler_starts_ends_it(here, interruptible, monkeypatch):
    begin = toolchain._started

    def started(*args):
        process = begin(*args)
        while not (here / "pid").exists() or not (here / "pid").read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # in the main thread, the handler would run before the process is returned
        return process

    monkeypatch.setattr(toolchain, "_started", started)
    with compiler(here, f"echo $$ > {here}/pid; sleep 1000"), pytest.raises(KeyboardInterrupt):
        codecache.shared_library('extern "C" int interrupted_early() { return 1; }')
    assert not running_in_group(int((here / "pid").read_text())) and not kept(here / "cache", ".tmp")


def test_interrupting_a_compile_ends_the_compiler(here, interruptible):
    with compiler(here, f"echo $$ > {here}/pid; sleep 1000"):
        def interrupt():
            while not (here / "pid").exists() or not (here / "pid").read_text():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            codecache.shared_library('extern "C" int interrupted() { return 1; }')
        thread.join()
    assert not running_in_group(int((here / "pid").read_text())) and not kept(here / "cache", ".tmp")
