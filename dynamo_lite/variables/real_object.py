"""The common part of trackers that hold a real object as it is: classes, modules, functions that are not traced.

Invariant: the object is known while tracing and is guarded by its identity, so that it is a constant of the trace.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..source import Source
from .base import VariableTracker

if TYPE_CHECKING:
    from ..codegen import Codegen


class RealObjectVariable(VariableTracker):
    """A real object, itself a constant: `is` and hashing go by the object, and generated code holds it.

    Args:
        value: the object.
        source: where it lives, if it came in from outside.
    """

    has_identity = True

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def hash_key(self) -> Any:
        return self.value

    def same_object(self, other: VariableTracker) -> bool | None:
        return other.is_constant() and other.constant() is self.value

    def truth(self, tx: Any) -> bool:
        return True

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        return tx.from_result(  # type: ignore[no-any-return]
            tx.run_python(getattr, self.value, name), f"{self.describe()}.{name}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit.load_const(self.value)
