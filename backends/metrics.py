"""Counts of what backends did since the last reset: for ``dynamo_lite.metrics()``, reports and tests.

Built on the counters and phase times of ``log``.
"""
from __future__ import annotations

from typing import Any, TypeVar

from dynamo_lite import log

N = TypeVar("N", int, float)
_LIBRARY = "library_call "
_FALLBACK = "fallback "
_start: tuple[dict[str, int], dict[str, float]] = ({}, {})


def metrics() -> dict[str, Any]:
    """The counts so far.

    Returns:
        ``graphs``: compiled; ``kernels``: generated; ``library_calls``: calls in generated wrappers, by operation;
        ``fallbacks``: graphs left to eager, by reason; ``bytes``: what kernels of the compiled graphs read and write in one
        call; ``compile_seconds``: by phase; and every other counter by its name.
    """
    counters = _since_start(log.counters(), _start[0])
    result: dict[str, Any] = {"graphs": 0, "kernels": 0, "bytes": 0}
    result["library_calls"] = {k.removeprefix(_LIBRARY): n for k, n in counters.items() if k.startswith(_LIBRARY)}
    result["fallbacks"] = {k.removeprefix(_FALLBACK): n for k, n in counters.items() if k.startswith(_FALLBACK)}
    result.update((k, n) for k, n in counters.items() if not k.startswith((_LIBRARY, _FALLBACK)))
    result["compile_seconds"] = _since_start(log.phase_times(), _start[1])
    return result


def _since_start(now: dict[str, N], then: dict[str, N]) -> dict[str, N]:
    # A count below that at the start: log was reset in between, and with it the start.
    before = then if all(now.get(k, 0) >= n for k, n in then.items()) else {}
    return {k: n - before.get(k, type(n)(0)) for k, n in now.items() if n != before.get(k)}


def reset_metrics() -> None:
    """Start counting anew; the counters that others read in ``log`` go on."""
    global _start
    _start = log.counters(), log.phase_times()


def count_kernels(n: int, moved_bytes: int) -> None:
    log.count("kernels", n)
    log.count("bytes", moved_bytes)


def count_library_call(operation: str) -> None:
    log.count(_LIBRARY + operation)


def count_fallback(reason: str) -> None:
    log.count(_FALLBACK + reason)
