"""Keys of dicts and members of sets whose class has a ``__hash__`` of the user's.

Invariant: a container with such keys lives in the trace alone; building it for real would run the user's code a second
time, and at another point of the program.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .base import VariableTracker, unsupported
from .constant import is_constant_value


class UserKey:
    """A key with a ``__hash__`` of the user's; equality asks ``__eq__``, as the dict or set would."""

    __slots__ = ("hash", "tx", "value")

    def __init__(self, tx: Any, value: VariableTracker, hash: int) -> None:
        self.tx = tx
        self.value = value
        self.hash = hash

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UserKey):
            return self.tx.same_or_equal(self.value, other.value)
        if is_constant_value(other):
            return self.tx.same_or_equal(self.value, self.tx.from_result(other, "key"))
        return False


def check_rebuildable(keys: Iterable[Any], what: str) -> None:
    """Breaks the capture before a container with such keys that generated code would have to fill."""
    for key in keys:
        if isinstance(key, UserKey):
            unsupported("unsupported_value", f"{what} with a key of {key.value.describe()}, which defines __hash__")
