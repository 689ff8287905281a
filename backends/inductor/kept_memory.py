"""How much freed memory the process keeps between calls of graphs: settings, ``metrics()`` and ``reset()`` on the one
side, malloc's thresholds on the other (``kept_memory.c``, which says what they do).

Invariant: malloc is told nothing before a graph with large results is called, and nothing where the environment has
told it (MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES and the like) or where it isn't glibc's.
"""
from __future__ import annotations

import contextlib
import os

from dynamo_lite import config
from dynamo_lite.backends import metrics, registry
from dynamo_lite.backends.inductor import _runtime

_LEAST, _MOST = 64 << 20, 1024 << 20
_PART = 32


def bound_by_default(root: str = "/") -> int:
    """Bytes: a part of what the process may use, by the files below ``root``. No less than malloc keeps by itself."""
    memory = [_number(f"{root}/proc/meminfo", "MemTotal:") << 10, _number(f"{root}/sys/fs/cgroup/memory.max")]
    known = [n for n in memory if n > 0]
    return min(max(min(known) // _PART, _LEAST), _MOST) if known else _LEAST


def bound() -> int:
    """Bytes that are kept at most, by the settings."""
    return bound_by_default() if config.kept_memory < 0 else config.kept_memory << 20


def follow_settings() -> None:
    """Has malloc follow the settings from now on."""
    for name in ("kept_memory", "kept_memory_seconds"):
        config.watch(name, _tell)
    metrics.show_state("memory", state)
    registry.at_reset(_release)
    _tell()


def state() -> dict[str, int]:
    """As ``metrics()`` shows it.

    Returns:
        ``kept``: 1 while freed memory is kept, else 0; ``bound``: bytes; ``free``: bytes that malloc has and nobody
        uses, in all its arenas; ``free_at_end``: those of them that the bound is of.
    """
    kept, free, at_end = _runtime.memory_state()
    return {"kept": int(kept), "bound": bound(), "free": free, "free_at_end": at_end}


def _tell() -> None:
    _runtime.keep_memory(bound(), float(config.kept_memory_seconds))


def _release() -> None:
    _runtime.release_memory()


def _number(path: str, name: str = "") -> int:
    """The number behind ``name`` in a file; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError), open(os.path.normpath(path), encoding="ascii") as lines:
        for line in lines:
            if line.startswith(name):
                return int(line.removeprefix(name).split()[0])
    return 0
