"""How much freed memory the process keeps between calls of graphs: connects the settings, ``metrics()`` and ``reset()``
with malloc's thresholds (``kept_memory.c``, which describes their effect).

Invariant: malloc's thresholds are not set before a graph with large results is called. They are never set if the
environment sets them (MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES and the like), or if malloc is not glibc's.
"""
from __future__ import annotations

import contextlib
import io
import os

from dynamo_lite import config
from dynamo_lite.backends import metrics, registry
from dynamo_lite.backends.inductor import _runtime

_LEAST, _MOST = 64 << 20, 1024 << 20
_PART = 32


def bound_by_default(root: str = "/") -> int:
    """The default bound in bytes: a fraction of the memory that the process may use, as files below ``root`` report it;
    at least as much as malloc keeps by itself."""
    memory = [_number(f"{root}/proc/meminfo", "MemTotal:") << 10, _number(f"{root}/sys/fs/cgroup/memory.max")]
    known = [n for n in memory if n > 0]
    return min(max(min(known) // _PART, _LEAST), _MOST) if known else _LEAST


def bound() -> int:
    """The largest number of bytes of freed memory to keep, by the settings."""
    return bound_by_default() if config.kept_memory < 0 else config.kept_memory << 20


def follow_settings() -> None:
    """Applies the settings to malloc, now and whenever they change."""
    for name in ("kept_memory", "kept_memory_seconds"):
        config.watch(name, _tell)
    metrics.show_state("memory", state)
    registry.at_reset(_release)
    _tell()


def state() -> dict[str, int]:
    """The state that ``metrics()`` shows.

    Returns:
        ``kept``: 1 while freed memory is kept, else 0; ``bound``: the bound in bytes; ``free``: bytes that malloc holds
        and nobody uses, in all its arenas; ``free_at_end``: those of them at the heap's end, which the bound limits.
    """
    kept, free, at_end = _runtime.memory_state()
    return {"kept": int(kept), "bound": bound(), "free": free, "free_at_end": at_end}


def _tell() -> None:
    _runtime.keep_memory(bound(), float(config.kept_memory_seconds))


def _release() -> None:
    _runtime.release_memory()


def _number(path: str, name: str = "") -> int:
    """The number that follows ``name`` in a file; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError), io.open(os.path.normpath(path), encoding="ascii") as lines:
        for line in lines:
            if line.startswith(name):
                return int(line.removeprefix(name).split()[0])
    return 0
