"""Keys of dicts and members of sets whose class has a ``__hash__`` of the user's.

Invariant: a container with such keys exists only in the trace, since generated code that rebuilt it would run the
user's ``__hash__`` a second time, and at another point of the program.
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
    """A hash key with a ``__hash__`` of the user's; comparison calls ``__eq__``, as the dict or set would."""

    __slots__ = ("hash", "made_at", "met", "tx", "value")

    def __init__(self, tx: Tracer, value: VariableTracker, hash: int) -> None:
        self.tx = tx
        self.value = value
        self.hash = hash
        self.made_at = tx.output.effects.epoch
        self.met: Any = self  # the container's key to which it was last found equal

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
    """Breaks the graph for a container from outside whose keys are enum members or classes that define ``__hash__`` or
    ``__eq__`` in Python, as guards would call these methods, too."""
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
    """Breaks the graph where generated code would hash a key that has been changed since the program hashed it."""
    for key in keys:
        if isinstance(key, UserKey) and key.value.changed_at > key.made_at:
            unsupported("unsupported_value", f"a key of {key.value.describe()}, changed since it was hashed")


def check_rebuildable(keys: Iterable[Any], what: str) -> None:
    """Breaks the graph where generated code would have to fill a container with keys that define ``__hash__``."""
    for key in keys:
        if isinstance(key, UserKey):
            unsupported("unsupported_value", f"{what} with a key of {key.value.describe()}, which defines __hash__")
