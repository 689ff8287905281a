"""Texts made from tensors that may remain unused, such as the message of a check that succeeds.

A tensor's text needs its elements, so making it breaks the graph, but only where the text is used. Invariant: any use
breaks the graph where the text was made, before the tensor can have changed.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ..exc import Unsupported
from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Codegen, Tracer


class TensorTextVariable(VariableTracker):
    """A str that has not been read.

    Args:
        detail: description of the text's origin, for the break.
        visit: the visit number of the root frame's instruction that made the text.
    """

    def __init__(self, detail: str, visit: int) -> None:
        super().__init__()
        self.detail = detail
        self.visit = visit

    def _refuse(self) -> NoReturn:
        raise Unsupported("tensor_formatting", self.detail, visit=self.visit)

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return self.detail

    def constant(self) -> Any:
        self._refuse()

    def hash_key(self) -> Any:
        self._refuse()

    def same_object(self, other: VariableTracker) -> bool | None:
        return self is other

    def contains_tensor(self) -> bool:
        return True

    def as_argument(self, tx: Tracer) -> Any:
        self._refuse()

    def reconstruct(self, cg: Codegen) -> None:
        self._refuse()

    def truth(self, tx: Tracer) -> bool:
        self._refuse()

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        self._refuse()

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        self._refuse()

    def length(self, tx: Tracer) -> VariableTracker:
        self._refuse()

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        self._refuse()

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        self._refuse()

    def iterator(self, tx: Tracer) -> VariableTracker:
        self._refuse()

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        self._refuse()

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        self._refuse()

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        self._refuse()

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        self._refuse()
