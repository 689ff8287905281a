"""Counts of events in backends since the last reset: for ``dynamo_lite.metrics()``, reports and tests.

Built on the counters and phase times of ``log``.

Invariant: these are counts only; no decision depends on them.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynamo_lite import log

_LIBRARY = "library_call "
_FALLBACK = "fallback "
_states: dict[str, Callable[[], Any]] = {}


def metrics() -> dict[str, Any]:
    """The counts so far.

    Returns:
        ``graphs``: graphs compiled; ``kernels``: kernels generated; ``library_calls``: calls in generated wrappers, by
        operation; ``fallbacks``: graphs left to eager, by reason; ``bytes``: bytes that the kernels of the compiled
        graphs read and write in one call; ``compile_seconds``: by phase; every other counter by its name; and the
        states of ``show_state``, such as ``memory`` once the default backend has been used.
    """
    counters = log.counters()
    result: dict[str, Any] = {"graphs": 0, "kernels": 0, "bytes": 0}
    result["library_calls"] = {k.removeprefix(_LIBRARY): n for k, n in counters.items() if k.startswith(_LIBRARY)}
    result["fallbacks"] = {k.removeprefix(_FALLBACK): n for k, n in counters.items() if k.startswith(_FALLBACK)}
    result.update((k, n) for k, n in counters.items() if not k.startswith((_LIBRARY, _FALLBACK)))
    result["compile_seconds"] = log.phase_times()
    result.update((name, read()) for name, read in _states.items())
    return result


def reset_metrics() -> None:
    """Start counting anew."""
    log.reset_counters()
    log.reset_phase_times()


def count_kernels(n: int, moved_bytes: int) -> None:
    """Counts generated kernels, and the bytes that they read and write in one call."""
    log.count("kernels", n)
    log.count("bytes", moved_bytes)


def count_library_call(operation: str) -> None:
    """Counts a call of the library in a generated wrapper."""
    log.count(_LIBRARY + operation)


def count_fallback(reason: str) -> None:
    """Counts a graph that is left to eager."""
    log.count(_FALLBACK + reason)


def show_state(name: str, read: Callable[[], Any]) -> None:
    """Adds an entry to ``metrics()``, whose value is the result of ``read`` at that time."""
    _states[name] = read
