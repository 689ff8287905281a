"""A map from code objects to data about them, by identity and without keeping the code objects alive.

Code objects compare by value (and slowly), so an ordinary or weak-key dictionary would merge equal functions defined in
different places. Invariant: data found for a code object was set for that object, not for an earlier object with the
same id. An entry dies with its code object. If the weak reference's callback can't run (the stack is exhausted, a
signal handler raises in it), the entry stays until its id is looked up again.
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
        if entry is None:
            return None
        if entry[0]() is not code:
            self._entries.pop(id(code), None)
            return None
        return entry[1]

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
