"""Decisions of the scheduler that wrappers of graphs with symbolic sizes ask for at each call, for the call's sizes.

Invariant: a call with sizes that have occurred before imports nothing and computes nothing.
"""
from __future__ import annotations

from typing import Any

from dynamo_lite import log
from dynamo_lite.backends.inductor import target_info

_MOST = 4096
_known: dict[tuple[Any, ...], tuple[int, ...]] = {}


def share_windows(description: tuple[Any, ...]) -> tuple[int, ...]:
    """Decides how the work of a convolution is shared out to threads; see ``scheduler.late_sharing``."""
    found = _known.get(description)
    if found is None:
        # Imported when first needed, so that starting a kept graph does not import the scheduler.
        from dynamo_lite.backends.inductor.scheduler.late_sharing import decide

        if len(_known) >= _MOST:
            _known.clear()
        found = _known[description] = decide(description[2:], target_info.with_vectors(*description[:2]))
        log.artifact("targets").debug("a convolution %s: %s", description, found)
    return found


def forget() -> None:
    """Forgets all decisions."""
    _known.clear()
