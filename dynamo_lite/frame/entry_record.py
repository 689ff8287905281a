"""What a cache entry remembers beside its guard program and its code, and entries without code.

Invariant: a record holds no graph and no tensor without data.
"""
from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from .. import log
from .._eval_frame import GuardedCode
from ..guards import Guard, build_program
from ..guards.covering import GuardFacts


class EntryRecord:
    """What a cache entry remembers: its guards, the words for each step of its program, what the backend wrote for its
    graph (None: it has no graph), what it changes outside of the function, and for the next compile the paths of values
    that have changed, and for tensors guarded by their elements the functions that read them. Not the graph itself,
    whose nodes hold tensors without data and the mode of the whole trace.
    """

    def __init__(
        self, guards: list[Guard], texts: Sequence[str], sources: Sequence[str] | None, frame_id: str,
        dynamic: frozenset[Any] = frozenset(), changed: Sequence[str] = (),
        readers: Mapping[Any, frozenset[types.CodeType]] | None = None,
        on_a_border: bool = False,
    ) -> None:
        self.guards = guards
        self.texts = texts
        self.sources = sources
        self.frame_id = frame_id
        self.dynamic = dynamic
        self.changed = changed
        self.readers = readers or {}
        # What its guards say by path, once it has been asked for; and whether another entry fits all its calls.
        self.facts: GuardFacts | None = None
        self.covered = False
        # Whether it is for one value of a number that two comparisons have singled out.
        self.on_a_border = on_a_border


def plain_entry(
    guards: list[Guard], state: tuple[Any, ...] | None, hooked: bool = True, dynamic: frozenset[Any] = frozenset(),
    readers: Mapping[Any, frozenset[types.CodeType]] | None = None,
) -> GuardedCode:
    """An entry that says: where these guards hold, the frame runs as it is.

    Args:
        state: torch's global state, which is to be the same.
        hooked: whether there may be something to compile in what it calls.
    """
    program, texts = build_program(guards, state, [])
    record = EntryRecord(guards, texts, None, log.current_frame(), dynamic, readers=readers)
    return GuardedCode(program, None, hooked, extra=record)
