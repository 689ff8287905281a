"""Compiled kernels, kept in a folder and addressed by content.

A library's name is the digest of everything that decides its bytes: the source, the compiler (the file it is, not
what it prints, so that no process is started), the flags, the processor. A file ends with a digest of itself, so that
a truncated or foreign one is recognized, reported and built again. Files appear by ``os.replace``; builders of the
same file wait for each other through a lock file, whatever process they are in.

Invariant: a path that ``shared_library`` returns holds exactly what the compiler made of that source, completely.
"""
from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock

from dynamo_lite import config, exc, log
from dynamo_lite.backends.inductor import prebuilt

_MAGIC = b"\ndynamo_lite library sha256 "
_FOOTER = len(_MAGIC) + 64
_VERSION = "1"  # part of every key: raise it when the meaning of a file changes

_lock = threading.Lock()
_workers: ThreadPoolExecutor | None = None


def _after_fork() -> None:
    """A child has neither the threads that its parent built with, nor who may have held the lock."""
    global _workers, _lock
    _workers, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------- the processor and the compiler
@functools.cache
def cpu_features() -> frozenset[str]:
    """What /proc/cpuinfo lists as the first processor's flags; empty where there is no such file."""
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith(("flags", "Features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        log.artifact("cache").debug("no /proc/cpuinfo: the processor's features are unknown")
    return frozenset()


def simd() -> str:
    """The vector instructions to generate for: "avx512", "avx2" or "scalar"; what ``config.cpp_simd`` says, if it can
    run.
    """
    features = cpu_features()
    best = "scalar"
    if {"avx2", "fma", "f16c"} <= features:
        best = "avx2"
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features:
            best = "avx512"
    wanted = config.cpp_simd
    order = ("scalar", "avx2", "avx512")
    if wanted == "auto":
        return best
    return wanted if order.index(wanted) <= order.index(best) else best


def build_flags(simd_kind: str | None = None) -> tuple[str, ...]:
    """The compiler's flags for a kernel file."""
    return prebuilt.flags_for(simd_kind or simd())


@functools.lru_cache(maxsize=16)
def _find_compiler(command: str, search_path: str) -> tuple[tuple[str, ...], str]:
    words = shlex.split(command)
    if not words:
        raise exc.CompilerMissing(command, "no command given")
    found = shutil.which(words[0], path=search_path)
    if found is None:
        raise exc.CompilerMissing(command, "not found")
    real = os.path.realpath(found)
    status = os.stat(real)
    return (found, *words[1:]), f"{real} {status.st_size} {status.st_mtime_ns}"


def find_compiler() -> tuple[tuple[str, ...], str]:
    """The compiler's command line and what identifies it, found without running it.

    Raises:
        exc.CompilerMissing: there is none of that name.
    """
    return _find_compiler(config.cpp_compiler, os.environ.get("PATH", os.defpath))


# ---------------------------------------------------------------- the folder
def cache_dir() -> Path:
    """The cache folder, made with mode 0700 if it is not there.

    Raises:
        exc.CacheError: it can't be made or written.
    """
    return _prepared(config.cache_dir)


@functools.lru_cache(maxsize=16)
def _prepared(folder: str) -> Path:
    path = Path(folder).expanduser()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as e:
        raise exc.CacheError(f"the cache folder {path} can't be made: {e}; set DYNAMO_LITE_CACHE_DIR") from e
    if not os.access(path, os.W_OK | os.X_OK):
        raise exc.CacheError(f"the cache folder {path} can't be written; set DYNAMO_LITE_CACHE_DIR")
    if hasattr(os, "getuid") and status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o002:
        # Libraries from there are run: whoever can write to it runs code as this user.
        raise exc.CacheError(f"the cache folder {path} belongs to, or can be written by, other users; set "
                             "DYNAMO_LITE_CACHE_DIR to a folder of your own")
    return path


def library_key(source: str, flags: Sequence[str], compiler: str) -> str:
    """The digest under which the library made of ``source`` is kept."""
    digest = hashlib.sha256()
    for part in (_VERSION, compiler, platform.machine(), *flags, source):
        data = part.encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


# ---------------------------------------------------------------- files
def shared_library(source: str, simd_kind: str | None = None) -> Path:
    """The shared library compiled from C++ ``source``: installed with the package, from the cache, or built now.

    Raises:
        exc.CompilerMissing: it has to be built and there is no compiler.
        exc.CacheError: the folder can't be used, or the compiler rejects the source.
    """
    flags = build_flags(simd_kind)
    command, identity = find_compiler()
    ready = prebuilt.find(source, flags) if len(command) == 1 else None  # otherwise with options of the user's own
    if ready is not None:
        log.count("cache_hits")
        return ready
    key = library_key(source, (*command[1:], *flags), identity)
    folder = cache_dir() / key[:2]
    path = folder / f"{key}.so"
    if _is_valid(path):
        log.count("cache_hits")
        log.artifact("cache").info("%s: found", path)
        return path
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with filelock.FileLock(folder / f"{key}.lock"):
            if _is_valid(path):
                # Another process was faster.
                log.count("cache_hits")
                return path
            if path.exists():
                log.artifact("cache").warning("%s is truncated or not from here; it is built again", path)
            log.count("cache_misses")
            _build(command, flags, source, path)
    except OSError as e:
        raise exc.CacheError(f"the cache folder {folder} can't be used: {e}") from e
    log.artifact("cache").info("%s: built", path)
    return path


def build_all(sources: Sequence[str], simd_kind: str | None = None) -> list[Path]:
    """The libraries of several sources, compiled side by side."""
    if len(sources) <= 1:
        return [shared_library(source, simd_kind) for source in sources]
    return list(_pool().map(lambda source: shared_library(source, simd_kind), sources))


def _pool() -> ThreadPoolExecutor:
    global _workers
    with _lock:
        if _workers is None:
            count = config.num_compile_workers or os.cpu_count() or 1
            _workers = ThreadPoolExecutor(count, thread_name_prefix="dynamo_lite_build")
        return _workers


def _is_valid(path: Path) -> bool:
    return _body(path) is not None


def _body(path: Path) -> bytes | None:
    """What stands before the digest with which a file ends; None if it is another's digest, or there is no file."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body, footer = data[:-_FOOTER], data[-_FOOTER:]
    return body if footer == _footer(body) else None


def _footer(body: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(body).hexdigest().encode()


def read_entry(key: str, suffix: str) -> bytes | None:
    """What ``write_entry`` has kept under a key; None if there is nothing whole.

    Raises:
        exc.CacheError: the folder can't be used.
    """
    path = cache_dir() / key[:2] / (key + suffix)
    body = _body(path)
    if body is None and path.exists():
        log.artifact("cache").warning("%s is truncated or not from here; it is made again", path)
    return body


def write_entry(key: str, suffix: str, body: bytes) -> None:
    """Keeps some bytes under a key.

    Raises:
        exc.CacheError, OSError: the folder can't be used.
    """
    folder = cache_dir() / key[:2]
    folder.mkdir(mode=0o700, exist_ok=True)
    _write_atomically(folder / (key + suffix), body + _footer(body))


def _build(command: tuple[str, ...], flags: Sequence[str], source: str, path: Path) -> None:
    """Compiles to a temporary name beside ``path``, then moves the finished file there."""
    source_path = path.with_suffix(".cpp")
    _write_atomically(source_path, source.encode())
    handle, temporary = tempfile.mkstemp(prefix=path.stem[:16], suffix=".tmp", dir=path.parent)
    os.close(handle)
    try:
        with log.phase("cpp_compile"):
            _run_compiler([*command, *flags, "-o", temporary, str(source_path)], source_path)
        body = Path(temporary).read_bytes()
        with open(temporary, "ab") as f:
            f.write(_footer(body))
        os.chmod(temporary, 0o700)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _run_compiler(command: list[str], source_path: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as e:
        raise exc.CompilerMissing(command[0], str(e)) from e
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:300])
        if "cc1plus" in first or "cannot execute" in first:
            raise exc.CompilerMissing(command[0], exc.one_line(first))
        raise exc.CacheError(f"the C++ compiler rejected generated code ({source_path}): {exc.one_line(first)}\n"
                             f"  command: {shlex.join(command)}")


def _write_atomically(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=path.stem[:16], suffix=".tmp", dir=path.parent)
    with os.fdopen(handle, "wb") as f:
        f.write(data)
    os.replace(temporary, path)
