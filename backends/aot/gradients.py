"""Decides whether a graph has to take part in autograd.

Invariant: a graph that would extend the autograd graph in eager is never classified as one that would not.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynamo_lite.backends.aot.inner_gradients import computes_gradients
from dynamo_lite.symbols.nodes import hint_of


def needs_gradients(gm: GraphModule, example_inputs: list[Any]) -> bool:
    """Whether running ``gm`` in eager would extend the autograd graph.

    That needs grad mode, on at entry or switched on inside, and a tensor that requires grad. If the front end left the
    metadata of every call (``meta["example_value"]``), it gives the exact answer, except for calls without a result,
    which may write: these count if any operand requires grad at the graph's end. Otherwise any input that requires grad
    counts. A graph that calls ``torch.autograd.grad`` always extends the autograd graph, at least while it runs.
    """
    grad_modes = [torch.is_grad_enabled()] + [bool(n.args[0]) for n in gm.graph.nodes if _switches_grad_mode(n)]
    if not any(grad_modes):
        return False
    if computes_gradients(gm):
        return True
    calls = [n for n in gm.graph.nodes if n.op.startswith("call_") and not _switches_grad_mode(n)]
    if calls and all("example_value" in n.meta for n in calls):
        return any(_requires_grad(n.meta["example_value"]) for n in calls) or _writes_with_gradients(gm)
    return any(_requires_grad(value) for value in example_inputs)


def _writes_with_gradients(gm: GraphModule) -> bool:
    """Whether a call without a result, such as ``x[i] = y``, may have written under autograd."""
    grad = torch.is_grad_enabled()
    for node in gm.graph.nodes:
        if _switches_grad_mode(node):
            grad = bool(node.args[0])
        elif grad and node.op.startswith("call_") and node.meta["example_value"] is None:
            if any(_requires_grad(n.meta.get("example_value")) for n in node.all_input_nodes):
                return True
    return False


def at_entry(node: Node, example: torch.Tensor) -> tuple[bool, bool]:
    """Whether the tensor that a placeholder stands for requires grad, and whether it is a leaf, when the graph is
    entered. (If the graph writes to it, the example shows its state afterwards.)
    """
    known: tuple[bool, bool] = node.meta.get("at_entry") or (example.requires_grad, example.is_leaf)
    return known


_FAKE_HISTORY = "torch::autograd::Error"
"""Name of the ``grad_fn`` of the fake twin of an input that is not a leaf."""


def has_new_history(node: Node, example: torch.Tensor) -> bool:
    """Whether the graph has written under autograd to the input that a placeholder stands for."""
    if not example.requires_grad or example.grad_fn is None:
        return False
    return not at_entry(node, example)[0] or example.grad_fn.name() != _FAKE_HISTORY


def twin(mode: Any, fake: torch.Tensor) -> torch.Tensor:
    """A fake tensor of one graph as an input of another: with the same memory, and as a leaf of autograd or with a
    history outside of the graph.
    """
    with mode, torch.no_grad():
        made = fake.detach()
    return _with_history_of(fake, mode, made)


def _with_history_of(fake: torch.Tensor, mode: Any, made: torch.Tensor) -> torch.Tensor:
    if fake.requires_grad:
        with mode, torch.enable_grad():
            made.requires_grad_()
            if fake.grad_fn is not None:
                made = torch._C._functions.DelayedError(b"backward of a fake tensor", 1)(made)
    return made


def static_twins(mode: Any, examples: Sequence[Any]) -> list[Any]:
    """A graph's inputs with symbolic sizes specialized to the traced call; tensors that share memory still do."""
    memories: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    varying = {value.untyped_storage()._cdata for value in examples
               if isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides}
    made = []
    for value in examples:
        if not isinstance(value, torch.Tensor):
            made.append(hint_of(value))
            continue
        if value.untyped_storage()._cdata not in varying:
            made.append(value)
            continue
        key = value.untyped_storage()._cdata, value.dtype
        with mode, torch.no_grad():
            if key not in memories:
                held = hint_of(value.untyped_storage().nbytes()) // value.itemsize
                memories[key] = torch.empty(held, dtype=value.dtype, device=value.device)
            size, stride = (tuple(map(hint_of, numbers)) for numbers in (value.shape, value.stride()))
            plain = memories[key].as_strided(size, stride, hint_of(value.storage_offset()))
            plain = plain.conj() if value.is_conj() else plain
            plain = plain._neg_view() if value.is_neg() else plain
        made.append(_with_history_of(value, mode, plain.detach()))
    return made


def _switches_grad_mode(node: Node) -> bool:
    return node.op == "call_function" and node.target is torch._C._set_grad_enabled


def _requires_grad(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    return isinstance(value, (tuple, list)) and any(map(_requires_grad, value))
