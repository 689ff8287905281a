"""Tensors on the meta device: parameters of a module that serves only as a structure, as with ``torch.func``.

They have no data, so no graph uses them. The program passes them around, asks for their class and replaces them by
other tensors. Invariant: only their class and identity are known.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ...guards.source import Source
from ..base import VariableTracker, unsupported

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class MetaTensorVariable(VariableTracker):
    """A tensor without data that comes from outside."""

    has_identity = True

    def __init__(self, value: torch.Tensor, source: Source) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"tensor {_name(self)!r} on meta"

    def hash_key(self) -> Any:
        return ("tensor", id(self))

    def guard_hash(self, tx: Tracer) -> None:
        if self.source is not None:
            tx.output.guards.distinct([self.source])

    def same_object(self, other: VariableTracker) -> bool | None:
        return self is other

    def as_argument(self, tx: Tracer) -> Any:
        self._refuse()

    def truth(self, tx: Tracer) -> bool:
        self._refuse()

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        self._refuse()

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        self._refuse()

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        self._refuse()

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        self._refuse()

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        self._refuse()

    def _refuse(self) -> NoReturn:
        unsupported("unsupported_value", f"use of the {self.describe()}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_source(self.source)


def _name(tensor: VariableTracker) -> str:
    return tensor.source.name if tensor.source is not None else "?"
