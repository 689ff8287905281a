"""The cache of compiled kernels: a folder whose files are addressed by content.

A library's name is a digest of everything that decides its bytes: the source, the flags, the processor, and after
these the compiler (identified by its file, not by its output, so that no process is started). Without a compiler, a
library that another compiler made of the same source and flags is accepted. A file ends with a seal
(``private_files``), so that a file that is truncated, renamed or not this user's is recognized, reported and built
again. Files appear by ``os.replace``; builders of the same file wait for each other through a lock file, across
processes. ``folders`` says which folders are used.

Invariant: a path that ``shared_library`` returns holds exactly and completely the output of a compiler for that source,
made for this user.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import itertools
import os
import platform
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dynamo_lite import config, exc, log
from dynamo_lite.backends.inductor import folders, prebuilt, private_files, toolchain
from dynamo_lite.backends.inductor.kept_files import content
from dynamo_lite.backends.inductor.processor import cpu_features as cpu_features
from dynamo_lite.backends.inductor.processor import simd as simd
from dynamo_lite.backends.inductor.source_parts import parts_of
from dynamo_lite.clock import Clock

T = TypeVar("T")

_VERSION = "2"  # part of every key: increment it when the meaning of a file changes
_MFD_EXEC = 0x10  # Linux 6.3 and later: the file may be executed even where memfds are not executable by default

_lock = threading.RLock()
_workers: ThreadPoolExecutor | None = None


def _after_fork() -> None:
    """A forked child has neither its parent's build threads nor the thread that may have held the lock."""
    global _workers, _lock
    _workers, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------- the compiler
def build_flags(simd_kind: str | None = None) -> tuple[str, ...]:
    """The compiler's flags for kernel sources."""
    return prebuilt.flags_for(simd_kind or simd())


# ---------------------------------------------------------------- libraries
def library_key(source: str, flags: Sequence[str], compiler: str) -> str:
    """The name under which the library made of ``source`` is kept: a digest of the source and the flags, then a digest
    of the compiler.
    """
    return f"{_digest(_VERSION, platform.machine(), *flags, source)}-{_digest(compiler)[:16]}"


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def shared_library(source: str, simd_kind: str | None = None) -> Path:
    """The shared library compiled from C++ ``source``: installed with the package, from the cache, or built now.

    Raises:
        exc.CompilerMissing: it has to be built and there is no compiler.
        exc.CacheError: no folder can be used, or the compiler rejects the source.
    """
    flags = build_flags(simd_kind)
    try:
        options = toolchain.words(config.cpp_compiler)[1:]
    except exc.CompilerMissing:
        options = ()
    ready = prebuilt.find(source, flags) if not options else None  # the user's own options need a build of their own
    if ready is not None and ready not in _useless:
        log.count("cache_hits")
        return ready
    try:
        command, identity = toolchain.find()
    except exc.CompilerMissing as missing:
        return _by_another_compiler(library_key(source, (*options, *flags), ""), missing)
    key = library_key(source, (*options, *flags), identity)
    for place in folders.readable():
        path = Path(place, key[:2], key + ".so")
        if _is_kept(path):
            return path
    try:
        return _built(command, flags, source, key)
    except (exc.CompilerMissing, exc.CacheError) as error:
        return _by_another_compiler(key, error)


def _by_another_compiler(key: str, error: Exception) -> Path:
    """A library that another compiler made of the same source and flags; raises the error if there is none."""
    wanted = key.partition("-")[0]
    for place in folders.readable():
        shard = os.path.join(place, key[:2])
        with contextlib.suppress(OSError):  # nothing has been kept there yet
            for name in sorted(os.listdir(shard)):
                path = Path(shard, name)
                if name.startswith(wanted) and name.endswith(".so") and _is_kept(path):
                    log.artifact("cache").info("%s is of another compiler, as this one is of no use: %s", path, error)
                    return path
    raise error


def build_all(sources: Sequence[str], simd_kind: str | None = None) -> list[Path]:
    """The libraries of several sources, compiled in parallel."""
    if len(sources) > 1:
        try:
            return list(_pool().map(lambda source: shared_library(source, simd_kind), sources))
        except RuntimeError as error:
            if isinstance(error, exc.DynamoLiteError):
                raise
            log.artifact("cache").info("libraries are built one after the other: %s", error)  # no thread can be started
    return [shared_library(source, simd_kind) for source in sources]


def _pool() -> ThreadPoolExecutor:
    global _workers
    with _lock:
        if _workers is None:
            _workers = ThreadPoolExecutor(_side_by_side(), thread_name_prefix="dynamo_lite_build")
        return _workers


def _side_by_side() -> int:
    """The number of compilers that may run at a time."""
    return config.num_compile_workers or os.cpu_count() or 1


def _is_kept(path: Path, again: bool = False) -> bool:
    """Whether the library is there and intact. ``again``: a fault of the file has already been reported."""
    if path in _useless or content(path, again) is None:
        return False
    log.count("cache_hits")
    log.artifact("cache").info("%s: found", path)
    return True


# ---------------------------------------------------------------- building
def _built(command: tuple[str, ...], flags: Sequence[str], source: str, key: str) -> Path:
    """The path of the library, built in the first folder that can be written to."""
    for place in folders.writable():
        path = Path(place, key[:2], key + ".so")
        try:
            private_files.folder(str(path.parent), create=True)
            with _locked(path.with_suffix(".lock")):
                if _is_kept(path, again=True):
                    return path  # another process was faster
                log.count("cache_misses")
                _build(command, flags, source, path)
        except (OSError, private_files.Untrusted) as error:
            folders.passed_over(place, error)
            continue
        _useless.discard(path)
        log.artifact("cache").info("%s: built", path)
        return path
    raise exc.CacheError("there is no folder that compiled kernels can be written to; set DYNAMO_LITE_CACHE_DIR")


def _build(command: tuple[str, ...], flags: Sequence[str], source: str, path: Path) -> None:
    """Compiles in a scratch folder beside ``path`` (a long source in parts, in parallel), then moves the finished file
    into place."""
    source_path = path.with_suffix(".cpp")
    private_files.write(str(source_path), source.encode("utf-8", "surrogatepass"))
    scratch = tempfile.mkdtemp(prefix="build", suffix=".tmp", dir=path.parent)
    try:
        os.chmod(scratch, 0o700)  # the umask may have removed permissions
        made = os.path.join(scratch, "library.so")
        with log.phase("cpp_compile"):
            parts = parts_of(source, _side_by_side())
            objects = _objects(command, flags, parts, source_path, scratch) if len(parts) > 1 else (str(source_path),)
            before, behind = toolchain.link_options(command)
            toolchain.run([*command, *before, *flags, "-o", made, *objects, *behind], source_path, scratch)
        try:
            body = private_files.read(made)
        except FileNotFoundError:
            body = b""
        if not body:
            raise exc.CompilerMissing(command[0], "it has made nothing of a source, and reported nothing")
        private_files.write(str(path), body + private_files.seal(path.name, body, folders.secret()), 0o700)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _objects(
    command: tuple[str, ...], flags: Sequence[str], parts: Sequence[str], source_path: Path, scratch: str
) -> list[str]:
    """Compiles the parts of a source in parallel; returns the paths of the object files, which are in ``scratch``."""
    commands, made = [], []
    for at, part in enumerate(parts):
        path = os.path.join(scratch, f"part{at}.cpp")
        private_files.write(path, part.encode("utf-8", "surrogatepass"))
        made.append(os.path.join(scratch, f"part{at}.o"))
        commands.append([*command, *flags, "-c", "-o", made[-1], path])
    toolchain.run_all(commands, source_path, scratch)
    return made


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock file while this process builds a file. Others wait, but no longer than a compiler may take, so
    that a builder that was stopped doesn't block anybody for good.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        begun, limit = Clock.now(), config.cpp_compiler_timeout or float("inf")
        for turn in itertools.count():
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if Clock.now() - begun > limit:
                    log.artifact("cache").warning("another process holds %s; it isn't waited for any longer", path)
                    break
                Clock.sleep(min(0.05, 0.001 * 2**min(turn, 6)))
            except OSError as error:
                log.artifact("cache").info("%s can't be locked: %s", path, error)  # the file system has no locks
                break
        yield
    finally:
        with contextlib.suppress(OSError):  # not locked
            fcntl.flock(handle, fcntl.LOCK_UN)  # explicitly: a child forked meanwhile would keep the lock by its handle
        os.close(handle)


# ---------------------------------------------------------------- loading
class Unloadable(exc.CacheError):
    """An intact library can't be loaded on this machine."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"the library {path} can't be loaded: {reason}")
        self.path = path
        self.reason = str(reason).replace(str(path), "a library")


def load(path: Path, open_library: Callable[[str], T]) -> T:
    """Opens a library; from memory if its folder is mounted ``noexec``.

    Raises:
        Unloadable: neither works.
    """
    try:
        return open_library(str(path))
    except OSError as error:
        body = content(path)
        if body is not None and hasattr(os, "memfd_create"):
            try:
                return _from_memory(path.name, body, open_library)
            except OSError:
                log.artifact("cache").info("%s can't be loaded from memory either", path)
        raise Unloadable(path, error) from error


def _from_memory(name: str, body: bytes | memoryview, open_library: Callable[[str], T]) -> T:
    """Opens a library from a memfd, which needs no executable folder."""
    try:
        handle = os.memfd_create(name[:100], os.MFD_CLOEXEC | _MFD_EXEC)
    except OSError:
        handle = os.memfd_create(name[:100], os.MFD_CLOEXEC)  # the kernel does not know the flag
    with io.open(handle, "wb", buffering=0) as file:
        while body:
            body = body[file.write(body):]
        # The loader identifies a library by its path and returns a known one for a known path, while numbers of
        # descriptors are reused. So the path is spelled in a new way each time.
        turns = "".join("./" if digit == "1" else "/" for digit in f"{next(_loads):b}")
        return open_library(f"/proc/self/fd/{turns}{handle}")


_loads = itertools.count(1)
_useless: set[Path] = set()
_given_up: set[Path] = set()
_hopeless: set[str] = set()


def give_up(error: Unloadable) -> bool:
    """Marks a library that can't be loaded, so that it is built anew. Returns False if that has been tried before, with
    this library or with another one that failed for the same reason.
    """
    if error.path in _given_up:
        _hopeless.add(error.reason)
    if error.reason in _hopeless:
        return False
    _given_up.add(error.path)
    _useless.add(error.path)
    return True
