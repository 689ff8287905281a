"""``torch.cond`` whose branches are graphs: a node that runs one of the two, chosen by a tensor's value.

Both branches are evaluated in place, and the nodes that each records become a graph of its own. Invariant: a branch has
no effect but its results, and the results of both differ in nothing but their elements. Other programs break the graph,
and plain Python chooses the branch.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...polyfills.higher_order import both_branches
from ...rules.table import handles
from ...runtime.graph_calls import BranchCall
from ..base import ObservedException, VariableTracker, unsupported
from ..tensors.tensor import TensorVariable, record
from .subgraphs import NodeVariable, Part, alive, as_graph, read_from_outside, remove
from .transforms import rebuilt, structure

if TYPE_CHECKING:
    from ..protocols import Tracer

_KIND = "unsupported_torch_call"


@handles(both_branches)
def _both_branches(
    tx: Tracer, pred: VariableTracker, true_fn: VariableTracker, false_fn: VariableTracker, operands: VariableTracker
) -> VariableTracker:
    assert isinstance(pred, TensorVariable)
    args = list(operands.iterate(tx))
    parts = [_Branch(tx, function, args) for function in (true_fn, false_fn)]
    _check_alike(*parts)
    inputs = list(dict.fromkeys(node for part in parts for node in read_from_outside(part.nodes, part.results())))
    graphs = [as_graph(part.nodes, inputs, part.results(), tx.output.fake_mode) for part in parts]
    for part in reversed(parts):
        remove(part.nodes)
    made = record(tx, "call_function", BranchCall(*graphs), [pred, *map(NodeVariable, inputs)], {})
    return rebuilt(tx, made, parts[0].spec)


class _Branch:
    """One branch after its evaluation."""

    def __init__(self, tx: Tracer, function: VariableTracker, args: list[VariableTracker]) -> None:
        self.tx = tx
        output = tx.output
        known = alive(tx)
        versions = [(t, t.fake._version) for t in output.tensors() if not t.fake.is_inference()]
        part = Part(output)
        try:
            with output.effects.watched() as touched:
                returned = structure(tx, tx.call(function, list(args), {}))
        except ObservedException as error:
            unsupported(_KIND, f"a branch of torch.cond raises {error.value.python_type().__qualname__}")
        self.nodes: list[fx.Node] = part.close()
        for tracker in touched:
            if tracker is None or tracker.source is not None or id(tracker) in known:
                what = "globals" if tracker is None else tracker.describe()
                unsupported(_KIND, f"a branch of torch.cond changes {what}")
        if any(n.meta["impure"] for n in self.nodes) or any(t.fake._version != v for t, v in versions):
            unsupported(_KIND, "a branch of torch.cond has effects, or draws random numbers")
        self.tensors, self.spec = pytree.tree_flatten(returned)
        if not self.tensors or not all(isinstance(t, torch.Tensor) for t in self.tensors):
            unsupported(_KIND, "a branch of torch.cond returns something that is no tensor")
        own = set(self.nodes)
        if any(node not in own for node in self.results()):
            unsupported(_KIND, "a branch of torch.cond returns a tensor that it has not made")

    def results(self) -> list[fx.Node]:
        """The nodes of the results."""
        nodes = []
        for fake in self.tensors:
            tensor = self.tx.output.tensor_of(fake)
            assert tensor is not None
            nodes.append(tensor.node)
        return nodes


def _check_alike(first: _Branch, second: _Branch) -> None:
    if first.spec != second.spec:
        unsupported(_KIND, "the branches of torch.cond return different structures")
    for a, b in zip(first.tensors, second.tensors):
        if (a.shape, a.dtype, a.device, a.stride()) != (b.shape, b.dtype, b.device, b.stride()):
            unsupported(_KIND, "the branches of torch.cond return tensors of different shapes, types or layouts")
        if a.requires_grad is not b.requires_grad:
            unsupported(_KIND, "one branch of torch.cond returns a tensor that requires grad, the other does not")
