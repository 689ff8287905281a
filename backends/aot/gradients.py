"""Whether a graph has to take part in autograd."""
from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node


def needs_gradients(gm: GraphModule, example_inputs: list[Any]) -> bool:
    """Whether running ``gm`` in eager would extend the autograd graph.

    That takes grad mode, on at entry or switched on inside, and a tensor that requires grad. Where the front end left
    the metadata of every call (``meta["example_value"]``), it tells exactly, but for calls without a result, which may
    write: for these any operand that requires grad at the end counts. Otherwise any input that requires grad counts.
    """
    grad_modes = [torch.is_grad_enabled()] + [bool(n.args[0]) for n in gm.graph.nodes if _switches_grad_mode(n)]
    if not any(grad_modes):
        return False
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
    """Of the tensor that a placeholder stands for, whether it requires grad and is a leaf when the graph is entered;
    the example shows it as it is afterwards, if the graph writes to it.
    """
    known: tuple[bool, bool] = node.meta.get("at_entry") or (example.requires_grad, example.is_leaf)
    return known


def _switches_grad_mode(node: Node) -> bool:
    return node.op == "call_function" and node.target is torch._C._set_grad_enabled


def _requires_grad(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    return isinstance(value, (tuple, list)) and any(map(_requires_grad, value))
