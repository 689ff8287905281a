"""``tensor.grad_fn`` of a tensor that autograd follows, as far as programs ask whether there is one.

Invariant: which node of autograd's it is stays unknown, as the node of a compiled graph has another class than eager's;
any other question breaks the graph.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ..base import VariableTracker, unsupported

if TYPE_CHECKING:
    from ..protocols import Codegen, TensorVariable, Tracer


class GradFnVariable(VariableTracker):
    """The node of autograd's that has computed a tensor."""

    def __init__(self, tensor: TensorVariable) -> None:
        super().__init__()
        self.tensor = tensor

    def describe(self) -> str:
        return f"grad_fn of {self.tensor.describe()}"

    def python_type(self) -> type:
        self._refuse()

    def truth(self, tx: Tracer) -> bool:
        return True

    def same_object(self, other: VariableTracker) -> bool | None:
        return False if other.is_none() else None

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        self._refuse()

    def reconstruct(self, cg: Codegen) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        unsupported("unsupported_attribute", f"the {self.describe()}")
