"""The nesting depth of ``torch.autocast`` contexts, which decides when torch drops its cached casts of weights.

Inside a context torch caches the cast of each weight; at the end of the outermost context it drops them all, as the
weights may change afterwards. Graphs call these functions, so that the depth and the cached casts are at every point of
a call as they are in eager mode. Invariant: a graph leaves the depth unchanged; guarded code applies the frame's own
change of it.
"""
from __future__ import annotations

from typing import Any

import torch


def enter() -> None:
    """Increases the nesting depth by one."""
    torch.autocast_increment_nesting()


def leave() -> None:
    """Decreases the nesting depth by one; leaving the outermost context drops the cached casts."""
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


def depth() -> int:
    """Number of contexts that the thread is in."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def steps(change: int) -> list[tuple[Any, tuple[Any, ...]]]:
    """The calls that change the depth by `change`, as (function, arguments)."""
    return [(enter, ())] * change + [(leave, ())] * -change


def set_depth(wanted: int) -> None:
    """Restores a depth that :func:`depth` returned."""
    for function, args in steps(wanted - depth()):
        function(*args)
