"""The marker for unbound locals among the arguments of resume functions.

Invariant: UNBOUND is never a value of the program: a resume function unbinds the local again before it goes on.
"""

from __future__ import annotations

import enum
import sys
from typing import Any


class _Unbound(enum.Enum):  # an enum, so that a trace knows it as a singleton
    """Stands for a local without a value among the arguments of a resume function."""

    UNBOUND = "unbound"

    def __repr__(self) -> str:
        return "<unbound>"


UNBOUND = _Unbound.UNBOUND


def peek_local(name: str) -> Any:
    """The caller's local of this name, or UNBOUND."""
    return sys._getframe(1).f_locals.get(name, UNBOUND)
