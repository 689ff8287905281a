"""Pauses of Python's cyclic garbage collector while something is imported or compiled.

Imports and compiles make many objects that stay, which has the collector walk all that torch and the program hold: 0.05
to 0.1 s for a collection that finds nothing. Invariant: it is on afterwards if it was on before.
"""
from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator

_paused_by: set[int] = set()  # threads


def _after_fork() -> None:
    """A pause of a thread that the child does not have is over."""
    if _paused_by and threading.get_ident() not in _paused_by:
        _paused_by.clear()
        gc.enable()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def paused(look_after: bool = False) -> Iterator[None]:
    """No collection inside.

    Args:
        look_after: collect the youngest generation at the end, for what a compile held of the program's. All that it
            made is young, and would be looked at by the next collection anyway. Now and then older ones, too.
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
    """No collection inside, where modules may be imported. What they hold stays for good, so it counts as old at once:
    the next collections of young objects needn't walk it. gc.freeze() and gc.unfreeze() do that without looking at any
    object; not where the program itself has frozen some.
    """
    before, enabled = len(sys.modules), gc.isenabled()
    with paused():
        try:
            yield
        finally:
            # While it is off: what is allocated next would have the collector walk all of it.
            if enabled and len(sys.modules) > before and gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()


def _due() -> int:
    """The generation that the collector would take up by now. Collecting the youngest anew after each compile keeps it
    from ever doing so itself, and what compiled models leave would stay: a graph is a cycle. All objects are looked at
    ten times as rarely as it would at least, because of what that costs here.
    """
    (_, middle, old), (_, every_middle, every_old) = gc.get_count(), gc.get_threshold()
    if old > every_old * every_old > 0:
        return 2
    return 1 if middle > every_middle > 0 else 0
