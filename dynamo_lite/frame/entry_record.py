"""The data that a cache entry keeps besides its guard program and code; and entries without code.

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
    """The data of a cache entry: its guards; the words for each step of its program; the files that the backend wrote
    for its graph (None: it has no graph); its changes outside of the function; for the next compile the paths of values
    that have changed; and for tensors guarded by their elements the functions that read them. It does not hold the
    graph itself, whose nodes hold tensors without data and the fake mode of the whole trace.
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
        # The guards' facts by path, computed on demand. `covered`: whether another entry fits all calls of this one.
        self.facts: GuardFacts | None = None
        self.covered = False
        # Whether the entry serves a single value of a number, between two comparisons.
        self.on_a_border = on_a_border


def plain_entry(
    guards: list[Guard], state: tuple[Any, ...] | None, hooked: bool = True, dynamic: frozenset[Any] = frozenset(),
    readers: Mapping[Any, frozenset[types.CodeType]] | None = None, sources: Sequence[str] | None = None,
) -> GuardedCode:
    """An entry without code: if its guards hold, the frame runs in plain Python.

    Args:
        state: torch's global state, which must be the same.
        hooked: whether its callees may have something to compile.
        sources: texts that describe the frame's graph, if it has one.
    """
    program, texts = build_program(guards, state, [])
    record = EntryRecord(guards, texts, sources, log.current_frame(), dynamic, readers=readers)
    return GuardedCode(program, None, hooked, extra=record)
