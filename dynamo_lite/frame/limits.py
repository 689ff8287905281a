"""Number of a function's cache entries that count against config.recompile_limit.

An entry does not count if another entry's guards cover all its calls (it was compiled for one size before that size
became symbolic); it is kept, since it may be faster. An entry for the border between two others does not count either:
a program has as many of these as comparisons.

Invariant: a function has at most twice as many entries as the limit.
"""
from __future__ import annotations

from .._eval_frame import GuardedCode
from ..guards.covering import GuardFacts, covers
from ..rules.torch_marks import setting
from .request import Frame


def counted_entries(frame: Frame) -> int:
    """Number of entries that count against the limit."""
    entries, limit = frame.known, setting("recompile_limit")
    if len(entries) <= limit // 2:  # too few for the count to matter
        return len(entries)
    for entry in entries:
        if not entry.extra.covered:
            entry.extra.covered = any(
                other is not entry and not other.extra.covered and covers(_facts(other), _facts(entry))
                for other in entries)
    counted = sum(not (entry.extra.covered or entry.extra.on_a_border) for entry in entries)
    return int(max(counted, len(entries) - limit))


def _facts(entry: GuardedCode) -> GuardFacts:
    record = entry.extra
    if record.facts is None:
        state = next((step[1:] for step in entry.program.steps if step[0] == "global_state"), None)
        record.facts = GuardFacts(record.guards, state)
    found: GuardFacts = record.facts
    return found
