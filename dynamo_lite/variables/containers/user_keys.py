"""Keys of dicts and members of sets whose class has a ``__hash__`` of the user's.

Invariant: a container with such keys lives in the trace alone; building it for real would run the user's code a second
time, and at another point of the program.
"""
from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..base import VariableTracker, unsupported
from ..constant import is_constant_value

if TYPE_CHECKING:
    from ..protocols import Tracer


class UserKey:
    """A key with a ``__hash__`` of the user's; equality asks ``__eq__``, as the dict or set would."""

    __slots__ = ("hash", "made_at", "met", "tx", "value")

    def __init__(self, tx: Tracer, value: VariableTracker, hash: int) -> None:
        self.tx = tx
        self.value = value
        self.hash = hash
        self.made_at = tx.output.effects.epoch
        self.met: Any = self  # the key of a container that it has been found to equal last

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UserKey):
            if not self.tx.operators.same_or_equal(self.value, other.value):
                return False
            other.met = self
            return True
        if (is_constant_value(other) or isinstance(other, type)) and self.tx.operators.same_or_equal(
            self.value, self.tx.values.from_result(other, "key")
        ):
            self.met = other
            return True
        return False


def check_given(tx: Tracer, keys: Iterable[Any], what: str) -> None:
    """Refuses a container from outside with members of enums, or classes, as keys that are hashed or compared in
    Python: guards would do so as well."""
    seen: dict[int, Any] = {}
    for key in keys:
        if isinstance(key, tuple):
            check_given(tx, key, what)
        elif isinstance(key, (enum.Enum, type)) and type(key) is not type:
            seen.setdefault(id(type(key)), key)
    for key in seen.values():
        if tx.values.from_result(key, "key").asks_own(tx, "__hash__", "__eq__"):
            unsupported("unsupported_value", f"{what} with a key of {type(key).__qualname__}, which compares in Python")


def check_unchanged(keys: Iterable[Any]) -> None:
    """Breaks the capture where generated code would hash a key that has been changed since the program hashed it."""
    for key in keys:
        if isinstance(key, UserKey) and key.value.changed_at > key.made_at:
            unsupported("unsupported_value", f"a key of {key.value.describe()}, changed since it was hashed")


def check_rebuildable(keys: Iterable[Any], what: str) -> None:
    """Breaks the capture before a container with such keys that generated code would have to fill."""
    for key in keys:
        if isinstance(key, UserKey):
            unsupported("unsupported_value", f"{what} with a key of {key.value.describe()}, which defines __hash__")
