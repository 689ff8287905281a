"""``torch.equal`` and ``torch.allclose``: booleans that the graph computes as long as no branch depends on them.

Invariant: a branch on such a boolean is guarded by the elements of both tensors, as they were at the call, or breaks
the graph.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..rules.table import handles
from .base import VariableTracker, unsupported
from .constant import ConstantVariable
from .numbers.scalars import ScalarVariable, scalar_of
from .tensors.learned_elements import known_tensor, learn_or_refuse
from .tensors.tensor import TensorVariable

if TYPE_CHECKING:
    from .protocols import Tracer


class EqualityVariable(ScalarVariable):
    """A boolean that the graph computes from two tensors."""

    def compare_with(self, a: TensorVariable, b: TensorVariable, options: tuple[Any, ...]) -> EqualityVariable:
        """Stores the compared tensors and the options of the comparison; returns `self`."""
        self.operands = (a, b)
        self.options = options
        return self

    def truth(self, tx: Tracer) -> bool:
        written = tx.output.written_storages
        storages = [t.fake.untyped_storage()._cdata for t in self.operands]
        if any(storage in written for storage in storages):
            return super().truth(tx)
        learn_or_refuse(tx, "data_dependent_branch", "bool() of a comparison of two tensors", self.operands)
        known = [known_tensor(tx, t.fake) for t in self.operands]
        assert known[0] is not None and known[1] is not None
        assert callable(self.node.target)
        return bool(self.node.target(*known, *self.options))


def _compare(tx: Tracer, function: Any, a: VariableTracker, b: VariableTracker, options: list[VariableTracker]) -> (
        VariableTracker):
    name = f"torch.{function.__name__}"
    if not isinstance(a, TensorVariable) or not isinstance(b, TensorVariable) or tx.output.overrides.active() or (
            tx.output.examples):
        unsupported("tensor_to_python", name)
    plain = tuple(option.constant() for option in options)
    if function is torch.equal and a.fake.shape != b.fake.shape and a.fake.device == b.fake.device:
        return ConstantVariable(False)
    known = [known_tensor(tx, t.fake) for t in (a, b)]
    if known[0] is not None and known[1] is not None:
        return ConstantVariable(tx.run_python(function, *known, *plain))
    if a.fake.dtype is not b.fake.dtype or a.fake.device != b.fake.device:
        unsupported("tensor_to_python", f"{name} of tensors of different types")
    if function is torch.allclose:
        tx.output.run_fake(tx, "call_function", torch.isclose, (a.fake, b.fake, *plain), {})  # raises the same errors
    node = scalar_of(tx, "call_function", function, (a.node, b.node, *plain), bool).node
    return EqualityVariable(node, bool, node.meta["example_value"], None).compare_with(a, b, plain)


@handles(torch.equal, torch.Tensor.equal, of_tensor=True)
def _equal(tx: Tracer, input: VariableTracker, other: VariableTracker) -> VariableTracker:
    return _compare(tx, torch.equal, input, other, [])


@handles(torch.allclose, torch.Tensor.allclose, of_tensor=True)
def _allclose(
    tx: Tracer, input: VariableTracker, other: VariableTracker, rtol: VariableTracker | None = None,
    atol: VariableTracker | None = None, equal_nan: VariableTracker | None = None,
) -> VariableTracker:
    given = (rtol or ConstantVariable(1e-05), atol or ConstantVariable(1e-08), equal_nan or ConstantVariable(False))
    return _compare(tx, torch.allclose, input, other, list(given))
