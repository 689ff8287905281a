"""What the modes and contexts of torch that a traced program has entered, and not left yet, have in common.

Invariant: a graph never ends inside one; a program that would break there breaks before it enters.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ...exc import Unsupported

if TYPE_CHECKING:
    from ..protocols import Codegen


class OpenMode:
    """A mode that is on.

    Args:
        visit: the root's instruction that has entered it.
    """

    def __init__(self, visit: int) -> None:
        self.visit = visit

    def describe(self) -> str:
        """The mode in words."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leaves the mode for real, where torch knows of it."""

    def refuse_break(self) -> Unsupported:
        """The break of a graph that would end inside the mode: it ends where the mode was entered."""
        error = Unsupported("unsupported_context_manager", f"a break inside {self.describe()}")
        error.visit = self.visit
        return error

    def reconstruct(self, cg: Codegen) -> NoReturn:
        """Refused: what is rebuilt behind the graph would be the mode, still on."""
        raise self.refuse_break()
