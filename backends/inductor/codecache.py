"""Compiled kernels, kept in a folder and addressed by content.

A library's name is the digest of everything that decides its bytes: the source, the flags, the processor, and behind
those the compiler (the file it is, not what it prints, so that no process is started). Without a compiler, a library
that another one made of the same source and flags is as good. A file ends with a seal (``private_files``), so that one
that is truncated, under another's name or not this user's is recognized, reported and built again. Files appear by
``os.replace``; builders of the same file wait for each other through a lock file, whatever process they are in. Which
folders: ``folders``.

Invariant: a path that ``shared_library`` returns holds exactly what a compiler made of that source, completely, for
this user.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import platform
import shutil
import tempfile
import threading
import time
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

T = TypeVar("T")

_VERSION = "2"  # part of every key: raise it when the meaning of a file changes
_MFD_EXEC = 0x10  # Linux 6.3 and later: the file may be executed even where none may by default

_lock = threading.RLock()
_workers: ThreadPoolExecutor | None = None


def _after_fork() -> None:
    """A child has neither the threads that its parent built with, nor who may have held the lock."""
    global _workers, _lock
    _workers, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------- the compiler
def build_flags(simd_kind: str | None = None) -> tuple[str, ...]:
    """The compiler's flags for a kernel file."""
    return prebuilt.flags_for(simd_kind or simd())


# ---------------------------------------------------------------- libraries
def library_key(source: str, flags: Sequence[str], compiler: str) -> str:
    """The name under which the library made of ``source`` is kept: a digest of the source and the flags, and one of the
    compiler.
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
    ready = prebuilt.find(source, flags) if not options else None  # otherwise with options of the user's own
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
    """A library of the same source and flags; the error if there is none."""
    wanted = key.partition("-")[0]
    for place in folders.readable():
        shard = os.path.join(place, key[:2])
        with contextlib.suppress(OSError):  # nothing has been kept there
            for name in sorted(os.listdir(shard)):
                path = Path(shard, name)
                if name.startswith(wanted) and name.endswith(".so") and _is_kept(path):
                    log.artifact("cache").info("%s is of another compiler, as this one is of no use: %s", path, error)
                    return path
    raise error


def build_all(sources: Sequence[str], simd_kind: str | None = None) -> list[Path]:
    """The libraries of several sources, compiled side by side."""
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
    """How many compilers may run at a time."""
    return config.num_compile_workers or os.cpu_count() or 1


def _is_kept(path: Path, again: bool = False) -> bool:
    """Whether there is a library, whole; ``again``: what is wrong with it has been said."""
    if path in _useless or content(path, again) is None:
        return False
    log.count("cache_hits")
    log.artifact("cache").info("%s: found", path)
    return True


# ---------------------------------------------------------------- building
def _built(command: tuple[str, ...], flags: Sequence[str], source: str, key: str) -> Path:
    """The library, built in the first folder that takes it."""
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
    """Compiles in a folder beside ``path``, in parts side by side if it is long, then moves the finished file there."""
    source_path = path.with_suffix(".cpp")
    private_files.write(str(source_path), source.encode("utf-8", "surrogatepass"))
    scratch = tempfile.mkdtemp(prefix="build", suffix=".tmp", dir=path.parent)
    try:
        os.chmod(scratch, 0o700)  # the umask may have taken rights
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
    """The parts of a source, compiled side by side into files in ``scratch``."""
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
    """While this process builds a file, others wait; not for longer than a compiler may take, so that one that is
    stopped in between holds up nobody.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        begun, limit = time.monotonic(), config.cpp_compiler_timeout or float("inf")
        for turn in itertools.count():
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - begun > limit:
                    log.artifact("cache").warning("another process holds %s; it isn't waited for any longer", path)
                    break
                time.sleep(min(0.05, 0.001 * 2**min(turn, 6)))
            except OSError as error:
                log.artifact("cache").info("%s can't be locked: %s", path, error)  # a file system without locks
                break
        yield
    finally:
        with contextlib.suppress(OSError):  # not locked
            fcntl.flock(handle, fcntl.LOCK_UN)  # before a child that was forked meanwhile closes it
        os.close(handle)


# ---------------------------------------------------------------- loading
class Unloadable(exc.CacheError):
    """A library that is whole can't be loaded here."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"the library {path} can't be loaded: {reason}")
        self.path = path
        self.reason = str(reason).replace(str(path), "a library")


def load(path: Path, open_library: Callable[[str], T]) -> T:
    """Opens a library; from memory where its folder may hold no programs (``noexec``).

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
    try:
        handle = os.memfd_create(name[:100], os.MFD_CLOEXEC | _MFD_EXEC)
    except OSError:
        handle = os.memfd_create(name[:100], os.MFD_CLOEXEC)  # a kernel that does not know the flag
    with open(handle, "wb", buffering=0) as file:
        while body:
            body = body[file.write(body):]
        # The loader takes a path that it has seen for the library that it knows by it, and descriptors' numbers come
        # again: so the path says the same in another way each time.
        turns = "".join("./" if digit == "1" else "/" for digit in f"{next(_loads):b}")
        return open_library(f"/proc/self/fd/{turns}{handle}")


_loads = itertools.count(1)
_useless: set[Path] = set()
_given_up: set[Path] = set()
_hopeless: set[str] = set()


def give_up(error: Unloadable) -> bool:
    """Puts a library that can't be loaded away, so that it is built anew; False if that has been tried, with this one
    or with another that can't be loaded for the same reason.
    """
    if error.path in _given_up:
        _hopeless.add(error.reason)
    if error.reason in _hopeless:
        return False
    _given_up.add(error.path)
    _useless.add(error.path)
    return True
