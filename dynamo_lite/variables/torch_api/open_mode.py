"""The common part of torch's modes and contexts that a traced program has entered and not left yet.

Invariant: a graph never ends inside a mode; a program that would break the graph there breaks before it enters.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ...exc import Unsupported

if TYPE_CHECKING:
    from ..protocols import Codegen


class OpenMode:
    """A mode that the program has entered.

    Args:
        visit: the number of the root frame's instruction that has entered it.
    """

    def __init__(self, visit: int) -> None:
        self.visit = visit

    def describe(self) -> str:
        """The mode in words."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leaves the mode in torch, for modes that torch knows of."""

    def refuse_break(self) -> Unsupported:
        """The exception for a graph that would end inside the mode: the break moves to where the mode was entered."""
        error = Unsupported("unsupported_context_manager", f"a break inside {self.describe()}")
        error.visit = self.visit
        return error

    def reconstruct(self, cg: Codegen) -> NoReturn:
        """Breaks the graph: the object to rebuild after the graph would be a mode that is still active."""
        raise self.refuse_break()
