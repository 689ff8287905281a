"""``torch.autograd.grad`` inside of a compiled function: a node of the graph, which autograd's engine runs on fake
tensors.

Within the graph, fake tensors have the same autograd history as the program's tensors. Invariant: no gradient that the
node computes depends on history beyond the graph's inputs. Where the engine might continue into a history from outside,
or run hooks from outside, the graph breaks. Guards check that inputs are leaves and have no hooks.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import Node

from ...guards.source import AttrSource
from ...rules.table import handles
from ...runtime.graph_calls import GraphCall
from ..base import VariableTracker, realized, unsupported
from ..constant import ConstantVariable
from ..tensors.subclasses import refuse_subclasses
from ..tensors.tensor import TensorVariable, record

if TYPE_CHECKING:
    from ..protocols import Tracer

_KIND = "autograd_in_graph"
_WHAT = "torch.autograd.grad()"
_FROM_OUTSIDE = "torch::autograd::Error"
"""Name of the autograd node that the fake tensor of an input has in place of the input's history
(``TraceFakeMode.from_tensor``)."""
_ACCUMULATES = "torch::autograd::AccumulateGrad"


@handles(torch.autograd.grad)
def _grad(
    tx: Tracer, outputs: VariableTracker, inputs: VariableTracker, grad_outputs: VariableTracker | None = None,
    retain_graph: VariableTracker | None = None, create_graph: VariableTracker | None = None,
    only_inputs: VariableTracker | None = None, allow_unused: VariableTracker | None = None,
    is_grads_batched: VariableTracker | None = None, materialize_grads: VariableTracker | None = None,
) -> VariableTracker:
    """torch/autograd/__init__.py, ``grad``."""
    if tx.output.overrides.active():
        unsupported(_KIND, f"{_WHAT} under a torch function mode")
    if tx.output.parts or torch._C._are_functorch_transforms_active():
        unsupported(_KIND, f"{_WHAT} in a function that torch calls by itself")
    flags = {name: _flag(tx, name, value) for name, value in (
        ("retain_graph", retain_graph), ("create_graph", create_graph), ("only_inputs", only_inputs),
        ("allow_unused", allow_unused), ("is_grads_batched", is_grads_batched),
        ("materialize_grads", materialize_grads)) if value is not None}
    if flags.pop("is_grads_batched", False) or not flags.pop("only_inputs", True):
        unsupported(_KIND, f"{_WHAT} of a batch of gradients, or with only_inputs=False")
    if any(call.hooks is not None for call in tx.output.effects.calls):
        unsupported(_KIND, f"{_WHAT} behind hooks of tensors")
    if any(isinstance(node.target, GraphCall) and node.target.checks() for node in tx.output.graph.nodes):
        # For a custom function: the program may change what is checked at the graph's start before the call runs.
        unsupported(_KIND, f"{_WHAT} behind a function whose backward pass reads what may change")
    ends, wanted = _tensors(tx, outputs, "outputs"), _tensors(tx, inputs, "inputs")
    refuse_subclasses([*ends, *wanted], _WHAT)
    _check_histories(tx, ends, wanted)
    named: dict[str, VariableTracker] = {name: ConstantVariable(value) for name, value in flags.items()}
    if grad_outputs is not None:
        named["grad_outputs"] = grad_outputs
    arguments: list[VariableTracker] = [tx.values.new_tuple(list(ends)), tx.values.new_tuple(list(wanted))]
    return record(tx, "call_function", torch.autograd.grad, arguments, named)


def _flag(tx: Tracer, name: str, value: VariableTracker) -> Any:
    value = realized(tx, value)
    if type(value) is not ConstantVariable or value.value not in (True, False, None):
        unsupported(_KIND, f"{_WHAT} with {name}={value.describe()}")
    return value.value


def _tensors(tx: Tracer, value: VariableTracker, name: str) -> list[TensorVariable]:
    """The tensors of an argument that is a tensor or an iterable of tensors."""
    items = _items(tx, value)
    if items and all(isinstance(item, TensorVariable) for item in items):
        return items  # type: ignore[return-value]
    unsupported(_KIND, f"{_WHAT} with {name}={realized(tx, value).describe()}")


def _items(tx: Tracer, value: VariableTracker) -> list[VariableTracker]:
    value = realized(tx, value)
    return [value] if isinstance(value, TensorVariable) else [realized(tx, item) for item in value.iterate(tx)]


def _check_histories(tx: Tracer, ends: list[TensorVariable], wanted: list[TensorVariable]) -> None:
    """Breaks the graph where the engine's work may depend on more than the graph."""
    from_outside = [t for t in wanted if t.source is not None]
    if not from_outside:
        return  # no history from outside leads to tensors that the graph has made
    for tensor in from_outside:
        _guard_without_hooks(tx, tensor)
    # The engine stops at a single wanted tensor, so that tensor's own history does not matter.
    stop = {t.fake.grad_fn for t in from_outside if len(from_outside) == 1}
    leaves = []
    for node in _reached([t.fake.grad_fn for t in ends], stop):
        if node.name() == _FROM_OUTSIDE and node not in stop:
            unsupported(_KIND, f"{_WHAT} where the history of a tensor from outside of the graph may lead to an input")
        if node.name() == _ACCUMULATES:
            leaves.append(node.variable)  # type: ignore[attr-defined]
    for leaf in (*leaves, *(t.fake for t in from_outside if t.fake.is_leaf)):
        known = tx.output.tensor_of(leaf)
        if known is not None and known.source is not None:
            tx.guard(AttrSource(known.source, "is_leaf"), "is", True)


def _guard_without_hooks(tx: Tracer, tensor: TensorVariable) -> None:
    for name, none in (("_backward_hooks", None), ("retains_grad", False)):
        found = getattr(tensor.value, name)
        if found is not none:
            unsupported(_KIND, f"{_WHAT} of {tensor.describe()}, which has hooks or retains its gradient")
        tx.guard(AttrSource(tensor.source, name), "is", none)  # type: ignore[arg-type]


def _reached(starts: Iterable[Node | None], stop: set[Any]) -> Iterator[Node]:
    """The nodes of autograd's graph that a backward pass may reach."""
    todo, seen = [node for node in starts if node is not None], set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if node not in stop:
            todo.extend(behind for behind, _ in node.next_functions if behind is not None)
