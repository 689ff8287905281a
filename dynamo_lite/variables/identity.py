"""``id(x)`` as a value.

Invariant: an id is only compared and used as a key; its number never decides anything.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import VariableTracker, unsupported
from .constant import ConstantVariable, is_constant_value

if TYPE_CHECKING:
    from ..codegen import Codegen


class IdentityVariable(VariableTracker):
    """The number that ``id(owner)`` gives: unique among the objects of the trace, otherwise unknown."""

    def __init__(self, owner: VariableTracker) -> None:
        super().__init__()
        self.owner = owner

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"id of {self.owner.describe()}"

    def hash_key(self) -> Any:
        return _Identity(self.owner)

    def guard_hash(self, tx: Any) -> None:
        source, real = self.owner.source, getattr(self.owner, "real", None)
        if source is None or (self.owner.is_constant() and real is None):
            return
        # A tuple has a tracker for each place where it was met.
        first = tx.output.effects.tracker_of(real) if real is not None else None
        if first is not None and first.source is not None and first.source != source:
            tx.guard(source, "tensor_same", first.source)
            source = first.source
        tx.output.guards.distinct([source])

    def truth(self, tx: Any) -> bool:
        return True

    def same_object(self, other: VariableTracker) -> bool | None:
        return self is other or None

    def compare(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if op not in ("==", "!="):
            unsupported("unsupported_operator", f"the order of ids, {self.describe()}")
        if isinstance(other, IdentityVariable):
            return ConstantVariable(tx.is_same(self.owner, other.owner) == (op == "=="))
        return None

    def binary(self, tx: Any, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        unsupported("unsupported_operator", f"arithmetic on the {self.describe()}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_constant(id, lambda: cg.push(self.owner))


class _Identity:
    """A dict key that stands for an object by identity."""

    __slots__ = ("owner",)

    def __init__(self, owner: VariableTracker) -> None:
        self.owner = owner

    def _key(self) -> tuple[Any, ...]:
        owner = self.owner
        real = getattr(owner, "real", None)
        if real is not None and owner.source is not None:
            return ("real", id(real))
        if owner.is_constant() and is_constant_value(owner.constant()):
            return (type(owner.constant()), owner.constant())
        return (id(owner),)

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._key() == other._key()
