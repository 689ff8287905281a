"""Python's cyclic garbage collector, held off.

Imports and compiles make many objects that stay, which has the collector walk all that torch and the program hold: 0.05
to 0.1 s for a collection that finds nothing. Invariant: it is on afterwards if it was on before.
"""
from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused(look_after: bool = False) -> Iterator[None]:
    """No collection inside.

    Args:
        look_after: collect the youngest generation at the end, for what a compile held of the program's. All that it
            made is young, and would be looked at by the next collection anyway.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
            if look_after:
                gc.collect(0)
