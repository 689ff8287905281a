"""``max(a, b)`` and ``min(a, b)`` of tensors by Python's builtins, which return one of the two objects, chosen by their
elements.

The graph computes ``torch.where(b > a, b, a)``, which is a new tensor. Invariant: the program cannot tell this tensor
from the object that it stands for. Both operands were made in the trace, differ in nothing but their elements, and
require no gradients (in eager, the operand that is not chosen has no gradient at all, where ``torch.where`` would give
it zeros). Where one of the operands is visible beside the result at the end of the trace, or is written to after the
choice, the trace starts again and breaks at the choice.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ..base import VariableTracker, unsupported
from ..tensors.learned_elements import known_tensor
from ..tensors.tensor import TensorVariable, call_in_graph

if TYPE_CHECKING:
    from ..protocols import OutputGraph, Tracer

_KIND = "data_dependent_branch"


class ChosenTensorVariable(TensorVariable):
    """A stand-in for one of several tensors of the trace. Only the running graph knows which one."""

    def hash_key(self) -> Any:
        unsupported(_KIND, "the identity of one of several tensors")

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if not hasattr(torch.Tensor, name):
            unsupported(_KIND, f"the attribute {name!r} of one of several tensors")
        return super().getattr(tx, name)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        unsupported(_KIND, f"setting {name!r} of one of several tensors")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A choice between tensors that the graph makes.

    Args:
        tensor: the result.
        visit: the number of the root frame's instruction that makes the choice.
    """

    tensor: ChosenTensorVariable
    visit: int

    def refuse(self, why: str) -> None:
        """Breaks the graph at the instruction that makes the choice."""
        unsupported(_KIND, f"bool() of a comparison of tensors, of which min() or max() gives one that {why}",
                    visit=self.visit)


class Choices:
    """The choices of one trace."""

    def __init__(self) -> None:
        self.made: list[Choice] = []

    def check(self, output: OutputGraph, leaving: Sequence[VariableTracker]) -> None:
        """Refuses the first choice whose result the program could tell from the object that it stands for.

        Args:
            leaving: the values that leave the graph.
        """
        if not self.made:
            return
        visible = [_storage(t) for t in leaving if isinstance(t, TensorVariable)]
        inputs = {_storage(t) for t in output.inputs if isinstance(t, TensorVariable)}
        for choice in self.made:
            own = _storage(choice.tensor)
            alternatives = {_storage(t) for t in choice.tensor.alternatives}
            others = [_storage(c.tensor) for c in self.made if c is not choice and _overlap(c.tensor, choice.tensor)]
            if any(output.effects.attributes_of(t) for t in choice.tensor.alternatives):
                choice.refuse("has attributes of its own")
            if own in visible and (visible.count(own) > 1 or not alternatives.isdisjoint((*visible, *inputs))
                                   or not set(others).isdisjoint(visible)):
                choice.refuse("is visible besides")
            if choice.tensor.node._erased or _written_after(output.graph, choice.tensor.node, {own, *alternatives}):
                choice.refuse("is written to")

    def forget(self) -> None:
        self.made.clear()


def choose(
    tx: Tracer, symbol: str, item: VariableTracker, best: VariableTracker
) -> VariableTracker | None:
    """``item if item symbol best else best`` as a node of the graph; None where the program could tell."""
    if not isinstance(item, TensorVariable) or not isinstance(best, TensorVariable) or item is best:
        return None
    output = tx.output
    if output.overrides.active() or output.examples or not _are_alike(item.fake, best.fake):
        return None
    if any(t.source is not None or t.cls is not torch.Tensor or t.fake.requires_grad or output.effects.attributes_of(t)
           for t in (item, best)):
        return None
    if all(known_tensor(tx, t.fake) is not None for t in (item, best)):
        return None  # Python decides, as the elements are known
    greater = tx.operators.compare(symbol, item, best)
    chosen = call_in_graph(tx, torch.where, [greater, item, best], {})
    assert isinstance(chosen, TensorVariable)
    made = ChosenTensorVariable(chosen.node, chosen.fake)
    made.alternatives = (item, best, *item.alternatives, *best.alternatives)
    output.register_tensor(made)
    output.choices.made.append(Choice(made, tx.root_visit()))
    return made


def _are_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether both have one element and the same layout, namely the layout of a new tensor."""
    return (a.numel() == 1 and a.shape == b.shape and a.dtype is b.dtype and not a.dtype.is_complex
            and a.device == b.device and a.stride() == b.stride() == torch.empty(a.shape, device="meta").stride())


def _storage(tensor: TensorVariable) -> int:
    return tensor.fake.untyped_storage()._cdata


def _overlap(a: TensorVariable, b: TensorVariable) -> bool:
    return not {id(t) for t in (a, *a.alternatives)}.isdisjoint(id(t) for t in (b, *b.alternatives))


def _written_after(graph: fx.Graph, node: fx.Node, storages: set[int]) -> bool:
    """Whether a node that comes after `node` may write to one of the storages."""
    behind = False
    for other in graph.nodes:
        if behind and other.meta.get("impure"):
            for argument in other.all_input_nodes:
                fake = argument.meta.get("example_value")
                if isinstance(fake, torch.Tensor) and fake.untyped_storage()._cdata in storages:
                    return True
        behind = behind or other is node
    return False
