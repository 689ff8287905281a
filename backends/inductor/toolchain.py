"""The C++ compiler: it is located without being run, and each run of it ends with a file or one of two errors.

Invariant: a compiler that hangs, crashes, is missing or can't be started costs no more than
``config.cpp_compiler_timeout`` seconds, and leaves no process behind.
"""
from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from dynamo_lite import config, exc
from dynamo_lite.clock import Clock
from dynamo_lite.runtime import signal_handlers

_SHOWN = 1 << 16  # bytes that are read of a compiler's messages
# Messages of a broken compiler.
_FAILING = ("cannot execute", "cannot find 'ld'", "Killed", "out of memory", "Cannot allocate memory")
_GCC = re.compile(r"(.*-)?g\+\+(-[0-9.]+)?")  # the names of GCC's driver, such as x86_64-linux-gnu-g++-12

_worked: set[str] = set()
_hanging: set[tuple[str, int | None]] = set()
"""Compilers that have timed out on the first file that they were given, with the limit: others need not wait again."""


@functools.lru_cache(maxsize=16)
def words(command: str) -> tuple[str, ...]:
    """The words of a compiler's command, which is either a path (maybe with spaces) or a shell-like command line.

    Raises:
        exc.CompilerMissing: it is neither.
    """
    if os.path.isfile(command) and os.access(command, os.X_OK):
        return (command,)
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise exc.CompilerMissing(command, f"its command can't be read: {error}") from error
    if not found:
        raise exc.CompilerMissing(command, "no command given")
    return tuple(found)


@functools.lru_cache(maxsize=16)
def _find(command: str, search_path: str) -> tuple[tuple[str, ...], str]:
    name, *options = words(command)
    found = shutil.which(name, path=search_path)
    if found is None:
        raise exc.CompilerMissing(command, "not found")
    # Behind a launcher such as ccache, the compiler is another file of the command.
    files = [found, *filter(None, (shutil.which(word, path=search_path) for word in options))]
    return (os.path.abspath(found), *options), " ".join(map(_identity, files))


def _identity(path: str) -> str:
    real = os.path.realpath(path)
    status = os.stat(real)
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def find() -> tuple[tuple[str, ...], str]:
    """The compiler's command line, and a string that identifies the compiler; nothing is run.

    Raises:
        exc.CompilerMissing: there is no compiler of that name.
    """
    try:
        return _find(config.cpp_compiler, _search_path())
    except OSError as error:
        raise exc.CompilerMissing(config.cpp_compiler, str(error)) from error


def _search_path() -> str:
    return os.environ.get("PATH", os.defpath)


def link_options(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options before and after the sources for linking a library.

    Kernels do not use the C++ library, and reading it takes a third of GCC's time for linking one. Other compilers, and
    commands with options or launchers of the user's own, link their default libraries.
    """
    if len(command) == 1 and _GCC.fullmatch(os.path.basename(os.path.realpath(command[0]))):
        return ["-nodefaultlibs"], ["-lgomp", "-lm", "-lgcc", "-lc"]
    return [], []


def run(command: list[str], source: Path, scratch: str) -> None:
    """Runs the compiler.

    Args:
        command: the command line.
        source: path of the source, for messages.
        scratch: a folder of this user's for the compiler's temporary files.

    Raises:
        exc.CompilerMissing: it can't be started, crashes, or takes too long.
        exc.CacheError: it rejects the source.
        OSError: there is no room for the output.
    """
    run_all([command], source, scratch)


def run_all(commands: Sequence[list[str]], source: Path, scratch: str) -> None:
    """Runs commands of one compiler in parallel; arguments and errors are those of ``run``. The first that fails ends
    the rest."""
    limit = config.cpp_compiler_timeout or None
    compiler = commands[0][0]
    if (compiler, limit) in _hanging:
        raise _too_slow(compiler, limit)
    until = Clock.now() + (limit or 0)
    compilers = _Compilers(commands, scratch)
    try:
        compilers.start()
        for at, (command, process) in enumerate(zip(commands, compilers.running)):
            code = _end_of(process, None if limit is None else max(0.0, until - Clock.now()))
            if code != 0:
                with io.open(_messages_of(at, scratch), encoding="utf-8", errors="replace") as messages:
                    raise _failure(command, source, code, messages.read(_SHOWN))
            _worked.add(compiler)
    except subprocess.TimeoutExpired:
        if compiler not in _worked:
            _hanging.add((compiler, limit))
        raise _too_slow(compiler, limit) from None
    finally:
        compilers.end()


def _end_of(process: subprocess.Popen[bytes], limit: float | None) -> int:
    """Waits for a process; returns its exit code. Popen.wait() with a limit asks again and again, with a sleep of up to
    0.05 s in between, by a function that the program may have replaced.

    Raises:
        subprocess.TimeoutExpired: it still runs after ``limit`` seconds.
    """
    if limit is None:
        return process.wait()
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # the system has no such call, or nobody has to wait for its children
        return process.wait(limit)
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        ended.poll(1000 * limit)
    finally:
        os.close(handle)
    return process.wait(0)


class _Compilers:
    """Compilers that run in parallel.

    They are started outside of the main thread. There a signal handler, such as that of SIGINT, may raise between the
    start of a process and the assignment of its number, so that nobody could end the process.
    """

    def __init__(self, commands: Sequence[list[str]], scratch: str) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self._commands, self._scratch = commands, scratch
        self._lock = threading.Lock()  # held while a process starts
        self._ended = False
        self._error: Exception | None = None

    def start(self) -> None:
        """Starts all. Raises what the start of one of them raises."""
        if threading.current_thread() is threading.main_thread():
            starter = threading.Thread(target=self._start_all, daemon=True)
            try:
                starter.start()
            except RuntimeError:  # no further thread may start, as while the interpreter shuts down
                self._start_all()
            else:
                starter.join()
        else:
            self._start_all()
        if self._error is not None:
            raise self._error

    def _start_all(self) -> None:
        try:
            for at, command in enumerate(self._commands):
                with self._lock:
                    if self._ended:
                        break
                    self.running.append(_started(command, _messages_of(at, self._scratch), self._scratch))
        except Exception as error:  # the thread that waits raises it
            self._error = error

    def end(self) -> None:
        """Ends those that still run, with their children."""
        with self._lock:
            self._ended = True
        for process in self.running:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _messages_of(at: int, scratch: str) -> str:
    """Where a compiler's messages are written."""
    return os.path.join(scratch, f"messages{at}")


def _started(command: list[str], said: str, scratch: str) -> subprocess.Popen[bytes]:
    """Starts a compiler in a session of its own, so that it can be killed with all its children."""
    # LC_ALL: messages in a known language, because they are parsed. PATH: GCC finds its linker in no other way. umask:
    # no other user may read the files.
    environment = {**os.environ, "LC_ALL": "C", "PATH": _search_path(), "TMPDIR": scratch}
    with io.open(said, "wb") as messages:
        try:
            # Messages go to a file: reading a pipe would wait for every process that holds its other end.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages, env=environment,
                umask=0o077, start_new_session=True)
        except (OSError, subprocess.SubprocessError) as error:
            signal_handlers.pass_on(error)
            raise exc.CompilerMissing(command[0], str(error)) from error


def _failure(command: list[str], source: Path, code: int, text: str) -> Exception:
    """The exception for a compiler that has failed, from its exit code and messages."""
    # Of the linker's failure the driver says no more than that there is one.
    errors = (line for line in text.splitlines() if "error" in line and not line.startswith("collect2: error: ld "))
    first = exc.one_line(next(errors, text.strip()[:300]))
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        if os.strerror(number) in text:
            return OSError(number, first)
    if code < 0:
        return exc.CompilerMissing(command[0], f"it was ended by signal {-code}")
    if code in (126, 127) or any(sign in first for sign in _FAILING):
        return exc.CompilerMissing(command[0], first)
    return exc.CacheError(f"the C++ compiler rejected generated code ({source}): {first}\n"
                          f"  command: {shlex.join(command)}")


def _too_slow(compiler: str, limit: int | None) -> exc.CompilerMissing:
    return exc.CompilerMissing(
        compiler, f"it has not finished a file in {limit} seconds, config.cpp_compiler_timeout")
