"""``torch.utils.checkpoint.checkpoint``: a node that runs its function again in the backward pass.

The function is evaluated in place. The nodes that it records become a graph of their own, which a node
(:class:`graph_calls.CheckpointCall`) hands to torch's own checkpoint, so that memory use and random numbers are as in
eager. The second run writes again to the tensors from outside that the first has written to, such as the statistics of
a batch norm. Invariant: a function whose second run would be visible in another way, because it has effects beyond its
result, breaks the graph.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import fx

from ...rules.table import handles
from ...runtime.graph_calls import CheckpointCall
from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from ..tensors.tensor import TensorVariable
from .subgraphs import Part, alive, as_graph, reachable, read_from_outside, remove, tensors_in

if TYPE_CHECKING:
    from ..protocols import Tracer

_KIND = "autograd_in_graph"
_HIDDEN_WRITES = (F.batch_norm, torch.batch_norm, torch.instance_norm, F.instance_norm)


@handles(torch.utils.checkpoint.checkpoint)
def _checkpoint(
    tx: Tracer, function: VariableTracker, *args: VariableTracker, use_reentrant: VariableTracker | None = None,
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
    tx.output.overrides.refuse_later("checkpoint()")
    return _capture(tx, function, list(args), kwargs, tx.truth(use_reentrant), {
        "preserve_rng_state": tx.truth(preserve), **options})


def _capture(
    tx: Tracer, function: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker],
    reentrant: bool, options: dict[str, Any],
) -> VariableTracker:
    output = tx.output
    known = {**reachable([*args, *kwargs.values()], output.effects), **alive(tx)}
    versions = {id(t): t.fake._version for t in output.tensors() if not t.fake.is_inference()}
    attributes = output.effects.written_attributes()
    part = Part(output)
    mode = output.fake_mode
    random_before, mode.random_seen = mode.random_seen, False
    try:
        with output.effects.watched() as touched:
            returned = tx.call(function, args, kwargs)
        is_random = mode.random_seen
    finally:
        mode.random_seen |= random_before
    nodes = part.close()
    own = set(nodes)
    results = [t for t in tensors_in([returned]) if t.node in own]
    needs_grad = [t for t in results if t.fake.requires_grad]
    if reentrant and any(t.fake.is_floating_point() and not t.fake.requires_grad for t in results):
        unsupported(_KIND, "checkpoint(use_reentrant=True) with a result that needs no gradient by itself")
    if not needs_grad:
        return returned  # nothing is saved, so nothing runs again
    if is_random and not options["preserve_rng_state"]:
        unsupported(_KIND, "checkpoint(preserve_rng_state=False) of a function whose second run draws other numbers")
    # The second run ends at the node that saves the last of the values that the backward pass needs.
    last_saving = next((at for at, n in reversed(list(enumerate(nodes))) if _saves(n)), -1)
    until = nodes[last_saving].meta["epoch"] if last_saving >= 0 else 0
    for tracker in touched:
        if tracker is None or tracker.source is not None or id(tracker) in known:
            if tracker is not None and output.effects.is_as_before(tracker, attributes) and tracker.changed_at < until:
                continue  # it was changed and restored
            what = "globals" if tracker is None else tracker.describe()
            unsupported(_KIND, f"checkpoint() of a function that changes {what}, as it runs again in the backward pass")
    given = tensors_in([*args, *kwargs.values()])
    memory = _written_memory(output, nodes, versions, given, last_saving)
    inputs = read_from_outside(nodes)
    written = [at for at, n in enumerate(inputs) if _memory(n.meta["example_value"]) in memory]
    _move(tx, nodes, inputs, results, options, tuple(written))
    return returned


def _written_memory(
    output: Any, nodes: list[fx.Node], versions: dict[int, int], given: list[TensorVariable], last_saving: int
) -> set[int]:
    """The storages of tensors from outside that the function writes to each time it runs.

    Args:
        versions: the version counters, by id, of the tensors that were known before it ran.
        given: the checkpoint's arguments.
        last_saving: the index of the last node that the second run executes.

    Raises:
        Unsupported: the second run would not do the same as the first.
    """
    inputs = [t for t in output.tensors() if t.source is not None and not t.fake.is_inference()]
    written = [t for t in output.tensors() if not t.fake.is_inference() and (id(t) in versions or t.source is not None)
               and t.fake._version != versions.get(id(t), 0)]
    hidden = [n for n in nodes if n.target in _HIDDEN_WRITES and n.meta["impure"]]
    statistics = {n for call in hidden for n in call.all_input_nodes[1:] if not n.meta["example_value"].requires_grad}
    written += [t for t in inputs if t.node in statistics and t not in written]
    if any(t.source is None or t.fake.requires_grad or t in given for t in written) or hidden and not written:
        unsupported(_KIND, "checkpoint() of a function that writes to a tensor, as it runs again in the backward pass")
    memory = {t.fake.untyped_storage()._cdata for t in written}
    if not written:
        return memory
    if any(getattr(n.target, "recomputes", False) for n in nodes):
        unsupported(_KIND, "checkpoint() of a function with a checkpoint that writes to tensors")
    last_write = max((at for at, n in enumerate(nodes) if n.meta["impure"] and any(
        _memory(read.meta["example_value"]) in memory for read in n.all_input_nodes)), default=len(nodes))
    if last_write > last_saving:
        unsupported(_KIND, "checkpoint() of a function that writes to a tensor after all that its gradients need")
    return memory


def _memory(value: Any) -> int | None:
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _saves(node: fx.Node) -> bool:
    """Whether autograd is certain to have saved a tensor for the gradient of a node's result in a way that a checkpoint
    sees; it does not see numbers of Python's."""
    value = node.meta["example_value"]
    made = value if isinstance(value, (tuple, list)) else [value]
    for tensor in made:
        grad_fn = tensor.grad_fn if isinstance(tensor, torch.Tensor) else None
        for name in dir(grad_fn):
            if name.startswith("_raw_saved_"):
                try:
                    saved = getattr(grad_fn, name.removeprefix("_raw"), None)
                except RuntimeError:
                    return True  # the saved tensor has been written to since
                tensors = saved if isinstance(saved, tuple) else (saved,)
                if any(isinstance(t, torch.Tensor) and t.dim() for t in tensors):
                    return True
    return False


def _move(
    tx: Tracer, nodes: list[fx.Node], inputs: list[fx.Node], results: list[TensorVariable], options: dict[str, Any],
    written: tuple[int, ...],
) -> None:
    """Replaces the nodes by one call, which computes the results from now on."""
    output = tx.output
    body = as_graph(nodes, inputs, [t.node for t in results], output.fake_mode)
    impure = any(n.meta["impure"] for n in nodes)
    remove(nodes)
    call = CheckpointCall(body, options, written)
    value = tuple(t.fake for t in results)
    node = output.create_node(tx, "call_function", call, tuple(inputs), {}, value, impure)
    node.meta["raises"] = any(n.meta.get("raises") for n in body.graph.nodes)
    for index, tensor in enumerate(results):
        tensor.node = output.item_node(tx, node, index, tensor.fake)
