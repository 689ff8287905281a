"""A map from code objects to data about them, by identity and without keeping the code objects alive.

Code objects compare by value (and slowly), so an ordinary or weak-key dictionary would merge equal functions defined in
different places. Invariant: an entry lives exactly as long as its code object, so an id is never found for a dead one.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Generic, TypeVar

T = TypeVar("T")


class CodeMap(Generic[T]):
    """``dict``-like with ``get``, ``set``, ``pop`` and ``len``; safe against the death of a key at any moment."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[CodeType], T]] = {}

    def get(self, code: CodeType) -> T | None:
        entry = self._entries.get(id(code))
        return None if entry is None else entry[1]

    def set(self, code: CodeType, value: T) -> None:
        key, entries = id(code), self._entries

        def forget(ref: weakref.ref[CodeType]) -> None:
            entry = entries.get(key)
            if entry is not None and entry[0] is ref:
                del entries[key]

        entries[key] = (weakref.ref(code, forget), value)

    def pop(self, code: CodeType) -> None:
        self._entries.pop(id(code), None)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
