"""The base class of the indivisible parts of polynomials: of symbols, of quotients, and of other modules' atoms."""
from __future__ import annotations

from typing import Any


class Atom:
    """A factor of a polynomial's monomials that polynomial arithmetic does not take apart. Equality is that of
    ``key``."""

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
        """Lower and upper bound of the value, both of them indices, or None if unknown."""
        return None

    def least(self) -> int | None:
        """An int that is a lower bound of the value, or None if none is known."""
        return None
