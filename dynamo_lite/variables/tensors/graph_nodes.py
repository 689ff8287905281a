"""Nodes of a graph that is being built: the name of a node's operation, the kind of its result, and the nodes that it
is computed from.

Invariant: this module only reads the graph.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx


def operation_name(node: fx.Node) -> str:
    """The name of the function or method that a node calls; "" if it has no name."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def computed_from(
    nodes: Iterable[fx.Node],
    operands_of: Callable[[fx.Node], Sequence[fx.Node] | None],
    is_given: Callable[[fx.Node], bool] = lambda node: False,
    limit: int | None = None,
) -> list[fx.Node] | None:
    """The nodes that have to be computed in order to compute some nodes, these included, each after its operands.

    Args:
        operands_of: gives the nodes that a node is computed from; None if the node can't be computed again.
        is_given: whether a node is known already, so that it and its operands are left out.
        limit: the largest number of nodes, found and pending together, at which another node with operands is entered.

    Returns:
        None if one of the nodes can't be computed again, or there are too many.
    """
    found: dict[fx.Node, None] = {}
    pending = [(node, False) for node in nodes]
    while pending:
        node, done = pending.pop()
        if done:
            found[node] = None
        elif node not in found and not is_given(node):
            operands = operands_of(node)
            if operands is None or operands and limit is not None and len(found) + len(pending) > limit:
                return None
            pending.append((node, True))
            pending += [(operand, False) for operand in operands]
    return list(found)


def has_tensor(result: Any) -> bool:
    """Whether an operation's result is a tensor or has one in it."""
    if isinstance(result, torch.Tensor):
        return True
    return isinstance(result, (tuple, list)) and any(has_tensor(r) for r in result)


def is_metadata(result: Any) -> bool:
    """Whether an operation's result consists of numbers, dtypes and the like, which the trace knows."""
    if isinstance(result, (tuple, list)):
        return all(is_metadata(r) for r in result)
    return result is None or isinstance(result, (
        bool, int, float, complex, str, torch.SymInt, torch.SymBool, torch.dtype, torch.device, torch.layout,
        torch.memory_format))


def fake_of(node: fx.Node) -> Any:
    """The fake value of a node of the graph."""
    return node.meta["example_value"]
