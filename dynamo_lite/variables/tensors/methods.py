"""Methods of tensors that have been read but not called yet.

Invariant: calling such an object is the same as calling the method on its tensor.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..base import VariableTracker
from ..constant import ConstantVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, TensorVariable, Tracer


class TensorMethodVariable(VariableTracker):
    """A bound method of a tensor."""

    def __init__(self, tensor: TensorVariable, method: str) -> None:
        super().__init__()
        self.tensor = tensor
        self.method = method

    def python_type(self) -> type:
        return type(getattr(torch.empty(0), self.method))

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return self.tensor.call_method(tx, self.method, args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "__self__":
            return self.tensor
        if name == "__name__":
            return ConstantVariable(self.method)
        return super().getattr(tx, name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        cg.push(self.tensor)
        cg.emit.load_attr(self.method)
