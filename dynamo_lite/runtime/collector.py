"""Pauses Python's cyclic garbage collector during imports and compiles.

Imports and compiles make many objects that stay alive. Their number triggers collections, which traverse all objects of
torch and the program: 0.05 to 0.1 s for a collection that finds nothing. Invariant: the collector is enabled afterwards
if it was enabled before.
"""
from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator

_paused_by: set[int] = set()  # identifiers of threads


def _after_fork() -> None:
    """Ends the pause of a thread that does not exist in the child process."""
    if _paused_by and threading.get_ident() not in _paused_by:
        _paused_by.clear()
        gc.enable()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def paused(look_after: bool = False) -> Iterator[None]:
    """A context without collections.

    Args:
        look_after: whether to collect the youngest generation at the end, which frees the program's objects that a
            compile held in cycles. All objects that the compile made are in it, and the next collection would traverse
            them anyway. From time to time older generations are collected as well.
    """
    enabled, me = gc.isenabled(), threading.get_ident()
    if enabled:
        _paused_by.add(me)
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _paused_by.discard(me)
            gc.enable()
            if look_after:
                gc.collect(_due())


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A context without collections in which modules may be imported. Their objects stay for good, so they are moved to
    the oldest generation at once, and the next collections of young objects need not traverse them. gc.freeze() and
    gc.unfreeze() do that without visiting any object; not if the program itself has frozen objects.
    """
    before, enabled = len(sys.modules), gc.isenabled()
    with paused():
        try:
            yield
        finally:
            # While the collector is still disabled: the next allocation would make it traverse all these objects.
            if enabled and len(sys.modules) > before and gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()


def _due() -> int:
    """The generation that the collector would collect by now. Collecting the youngest generation after each compile
    keeps the collector from ever reaching the older ones by itself, and the remains of compiled models would stay, as a
    graph is a reference cycle. A full collection is at least ten times as rare as the collector's own, because of its
    cost here.
    """
    (_, middle, old), (_, every_middle, every_old) = gc.get_count(), gc.get_threshold()
    if old > every_old * every_old > 0:
        return 2
    return 1 if middle > every_middle > 0 else 0
