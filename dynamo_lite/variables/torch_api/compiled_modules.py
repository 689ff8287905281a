"""Modules under ``dynamo_lite.compile`` that a trace meets.

Invariant: when such an object is called, read, written to or iterated over, it behaves as the module that it was made
from; when it is compared, returned or stored, it is itself, as in plain Python.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...guards.source import Source
from ..base import VariableTracker, unsupported

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class CompiledModuleVariable(VariableTracker):
    """A compiled module with an identity of its own.

    Args:
        compiled: the object.
        original: the module that it was made from.
        source: where the object lives.
        own: names of attributes that it does not take from the original.
    """

    has_identity = True

    def __init__(self, compiled: Any, original: VariableTracker, source: Source, own: frozenset[str]) -> None:
        super().__init__(source)
        self.value = compiled
        self.original = original
        self.own = own

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"compiled {self.original.describe()}"

    def reconstruct(self, cg: Codegen) -> None:
        assert self.source is not None
        cg.load_source(self.source)

    def truth(self, tx: Tracer) -> bool:
        return tx.truth(self.original)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "_orig_mod":
            return self.original
        if name == "__class__":
            return tx.values.from_result(type(self.value), "class")
        if name in self.own:
            unsupported("unsupported_attribute", f"{self.describe()}.{name}")
        return tx.getattr(self.original, name)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        self.original.setattr(tx, name, value)

    def delattr(self, tx: Tracer, name: str) -> None:
        self.original.delattr(tx, name)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.original, args, kwargs)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name == "__call__":
            return self.call(tx, args, kwargs)
        return tx.call(self.getattr(tx, name), args, kwargs)

    def length(self, tx: Tracer) -> VariableTracker:
        return self.original.length(tx)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        return self.original.getitem(tx, key)

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        return self.original.contains(tx, item)

    def iterate(self, tx: Tracer) -> Iterable[VariableTracker]:
        return self.original.iterate(tx)

    def iterator(self, tx: Tracer) -> VariableTracker:
        return self.original.iterator(tx)
