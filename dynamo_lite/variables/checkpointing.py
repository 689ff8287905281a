"""``torch.utils.checkpoint.checkpoint``: a node that runs its function again in the backward pass.

The function is evaluated in place; what it records becomes a graph of its own, which a node
(:class:`graph_calls.CheckpointCall`) hands to torch's own checkpoint, so that memory and random numbers are as in
eager. Invariant: a function whose second run would be seen, as it has effects beyond its result, breaks the graph.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import fx

from ..graph_calls import CheckpointCall
from .base import VariableTracker, unsupported
from .constant import ConstantVariable
from .subgraphs import Part, alive, as_graph, reachable, read_from_outside, remove, tensors_in
from .tensor import TensorVariable
from .torch_functions import handles

_KIND = "autograd_in_graph"
_HIDDEN_WRITES = (F.batch_norm, torch.batch_norm, torch.instance_norm, F.instance_norm)


@handles(torch.utils.checkpoint.checkpoint)
def _checkpoint(
    tx: Any, function: VariableTracker, /, *args: VariableTracker, use_reentrant: VariableTracker | None = None,
    context_fn: VariableTracker | None = None, determinism_check: VariableTracker | None = None,
    debug: VariableTracker | None = None, early_stop: VariableTracker | None = None, **kwargs: VariableTracker,
) -> VariableTracker:
    """checkpoint() (torch/utils/checkpoint.py)."""
    preserve = kwargs.pop("preserve_rng_state", ConstantVariable(True))
    if use_reentrant is None or use_reentrant.constant() is None:
        unsupported(_KIND, "checkpoint() without use_reentrant warns")
    if context_fn is not None and context_fn.constant() is not torch.utils.checkpoint.noop_context_fn:
        unsupported(_KIND, "checkpoint() with context_fn")
    options = {name: value.constant() for name, value in (
        ("determinism_check", determinism_check), ("debug", debug), ("early_stop", early_stop)) if value is not None}
    if options.get("debug"):
        unsupported(_KIND, "checkpoint() with debug=True")
    if tx.truth(use_reentrant):
        if kwargs:
            unsupported(_KIND, "checkpoint(use_reentrant=True) with keyword arguments")
        if not any(isinstance(a, TensorVariable) and a.fake.requires_grad for a in args):
            unsupported(_KIND, "checkpoint(use_reentrant=True) warns, since none of its inputs requires grad")
        options.clear()
    if not torch.is_grad_enabled():
        return tx.call(function, list(args), kwargs)
    return _capture(tx, function, list(args), kwargs, tx.truth(use_reentrant), {
        "preserve_rng_state": tx.truth(preserve), **options})


def _capture(
    tx: Any, function: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker],
    reentrant: bool, options: dict[str, Any],
) -> VariableTracker:
    output = tx.output
    known = {**reachable([*args, *kwargs.values()], output.effects), **alive(tx)}
    versions = [(t, t.fake._version) for t in output.tensors()]
    part = Part(output)
    with output.effects.watched() as touched:
        returned = tx.call(function, args, kwargs)
    nodes = part.close()
    own = set(nodes)
    results = [t for t in tensors_in([returned]) if t.node in own]
    needs_grad = [t for t in results if t.fake.requires_grad]
    if reentrant and any(t.fake.is_floating_point() and not t.fake.requires_grad for t in results):
        unsupported(_KIND, "checkpoint(use_reentrant=True) with a result that needs no gradient by itself")
    if not needs_grad:
        return returned  # nothing is saved, so nothing runs again
    for tracker in touched:
        if tracker is None or tracker.source is not None or id(tracker) in known:
            what = "globals" if tracker is None else tracker.describe()
            unsupported(_KIND, f"checkpoint() of a function that changes {what}, as it runs again in the backward pass")
    if any(t.fake._version != version for t, version in versions if not t.fake.is_inference()) or any(
            n.target in _HIDDEN_WRITES and n.meta["impure"] for n in nodes):
        unsupported(_KIND, "checkpoint() of a function that writes to a tensor, as it runs again in the backward pass")
    inputs = read_from_outside(nodes)
    _move(tx, nodes, inputs, results, options)
    return returned


def _move(
    tx: Any, nodes: list[fx.Node], inputs: list[fx.Node], results: list[TensorVariable], options: dict[str, Any]
) -> None:
    """Puts one call in place of the nodes; the results are what they were, computed by it."""
    output = tx.output
    body = as_graph(nodes, inputs, [t.node for t in results], output.fake_mode)
    impure = any(n.meta["impure"] for n in nodes)
    remove(nodes)
    call = CheckpointCall(body, options)
    value = tuple(t.fake for t in results)
    node = output.create_node(tx, "call_function", call, tuple(inputs), {}, value, impure)
    node.meta["raises"] = any(n.meta.get("raises") for n in body.graph.nodes)
    for index, tensor in enumerate(results):
        tensor.node = output.item_node(tx, node, index, tensor.fake)
