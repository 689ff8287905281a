"""What polynomials are made of: the class from which symbols and quotients derive, and those of other modules."""
from __future__ import annotations

from typing import Any


class Atom:
    """What an index is a polynomial of. Equal by ``key``."""

    __slots__ = ("key", "_hash")

    def __init__(self, key: tuple[Any, ...]):
        self.key = key
        self._hash = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self._hash == other._hash and self.key == other.key)

    def __repr__(self) -> str:
        return str(self)

    def bounds(self) -> tuple[Any, Any] | None:
        """Smallest and largest value, which are indices, or None if unknown."""
        return None

    def least(self) -> int | None:
        """A number that it is never below, or None if none is known."""
        return None
