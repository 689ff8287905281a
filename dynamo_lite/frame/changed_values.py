"""Functions that must no longer rely on tensors' elements, because a guard on these elements has failed.

Such a guard belongs to one cache entry, but after a graph break several frames read the elements: the function itself,
its resume functions, and the functions it called, which are then frames of their own. When the guard fails, this module
notes all of them, so that a program whose masks change with every call compiles once more, and not in each of these
places. Invariant: this affects speed only; an entry that is forgotten or kept too long never makes a result
wrong.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from types import CodeType

from ..bytecode.code_map import CodeMap
from ..variables.tensors.value_guards import ANY_NAME

_changed: CodeMap[frozenset[str]] = CodeMap()
# Reentrant: a signal handler or finalizer that interrupts the holder may take it again.
_lock = threading.RLock()
# A fork may happen while another thread, which the child does not have, holds it.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


def note(code: CodeType, name: str, readers: Iterable[CodeType]) -> None:
    """The elements at the path `name` of a function have changed; `readers` are functions called by it that read
    them."""
    with _lock:
        for reader, what in ((code, name), *((reader, ANY_NAME) for reader in readers)):
            _changed.set(reader, (_changed.get(reader) or frozenset()) | {what})


def changed_names(code: CodeType) -> frozenset[str]:
    """The paths in this function whose elements must not be relied on; ``ANY_NAME`` stands for all paths."""
    return _changed.get(code) or frozenset()


def reset() -> None:
    """Forgets all functions."""
    with _lock:
        _changed.clear()
