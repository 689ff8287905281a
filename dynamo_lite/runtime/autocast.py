"""How deep the program stands in ``torch.autocast`` contexts, which decides when torch forgets its casts of weights.

Inside a context torch keeps each weight's cast; at the end of the outermost it drops them all, as the weights may
change after it. These functions stand in graphs, so that the depth and the casts are at every point of a call what they
are in eager. Invariant: a graph leaves the depth as it was; the guarded code brings what the frame has changed of it.
"""
from __future__ import annotations

from typing import Any

import torch


def enter() -> None:
    """One context deeper."""
    torch.autocast_increment_nesting()


def leave() -> None:
    """Out of one context, and if it was the outermost, the casts are forgotten."""
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


def depth() -> int:
    """How many contexts the thread is in."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def steps(change: int) -> list[tuple[Any, tuple[Any, ...]]]:
    """The calls that change the depth by so much."""
    return [(enter, ())] * change + [(leave, ())] * -change


def set_depth(wanted: int) -> None:
    """Brings back a depth that :func:`depth` gave."""
    for function, args in steps(wanted - depth()):
        function(*args)
