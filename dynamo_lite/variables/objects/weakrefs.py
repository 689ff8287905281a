"""Weak references.

Invariant: a weak reference is tracked together with its referent; a dead one breaks the graph.
"""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ...guards.source import Source, WeakrefSource
from ..base import VariableTracker, realized, unsupported, wraps_type

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class WeakrefVariable(VariableTracker):
    """``weakref.ref(referent)``."""

    has_identity = True

    def __init__(self, referent: VariableTracker, source: Source | None = None) -> None:
        super().__init__(source)
        self.referent = referent

    def python_type(self) -> type:
        return weakref.ReferenceType

    def same_object(self, other: VariableTracker) -> bool | None:
        if isinstance(other, WeakrefVariable) and other is not self and self.referent is other.referent:
            return None  # one object unless they have callbacks
        return super().same_object(other)

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_key(self) -> Any:
        return ("weakref", self.referent.hash_key())

    def guard_hash(self, tx: Tracer) -> None:
        self.referent.guard_hash(tx)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if args or kwargs:
            tx.raise_error(TypeError, "__call__() takes no arguments")
        real = self.referent.value
        if real is not None and tx.output.effects.watch.may_have_ended(tx, real):
            unsupported("end_of_life", f"a weak reference to a {type(real).__qualname__} that was let go of")
        if self.referent.source is None and not tx.operators.is_held(self.referent):
            unsupported("end_of_life", f"a weak reference to a {self.referent.describe()} that was let go of")
        return self.referent

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op in ("==", "!=") and isinstance(other, WeakrefVariable):
            return tx.operators.compare(op, self.referent, other.referent)
        return None

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: cg.call_constant(weakref.ref, lambda: cg.push(self.referent)), lambda: None)


@wraps_type(weakref.ReferenceType)
def _wrap_weakref(tx: Tracer, value: weakref.ReferenceType[Any], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", weakref.ReferenceType)
    referent = value()
    if referent is None:
        unsupported("unsupported_value", f"{source.name}, a dead weak reference")
    return WeakrefVariable(realized(tx, tx.values.wrap_at(referent, WeakrefSource(source))), source)
