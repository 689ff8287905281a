"""Captured graphs that call ``torch.autograd.grad``: how such calls affect the autograd graph of their results.

The recorder sees the operations of autograd's engine like any others. Two things are special: such a call may free a
part of the history of the graph's results, so that their backward pass is an error in eager; and a result that a
gradient was computed from has to stay in one segment with that gradient.

Invariant: a compiled graph has a backward pass for exactly those results for which eager has one.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.fx import GraphModule

from dynamo_lite.backends.aot.functional import CannotFunctionalize
from dynamo_lite.backends.aot.interface import Freed


def last_gradient(nodes: Sequence[torch.fx.Node]) -> int:
    """Index of the last call of ``torch.autograd.grad`` among the nodes; -1 if there is none."""
    return max((at for at, node in enumerate(nodes) if node.target is torch.autograd.grad), default=-1)


def computes_gradients(gm: GraphModule) -> bool:
    """Whether a captured graph calls ``torch.autograd.grad``."""
    return any(node.target is torch.autograd.grad for node in gm.graph.nodes)


def makes_leaves(gm: GraphModule) -> bool:
    """Whether a captured graph makes leaves that require gradients, which its inputs do not show."""
    return any(node.kwargs.get("requires_grad") or node.target == "requires_grad_" and False not in node.args
               for node in gm.graph.nodes if node.op.startswith("call_"))


def freed(head: torch.Tensor, ends: Sequence[GradientEdge | None]) -> Freed | None:
    """Describes the part of a tensor's history that can't be used any more; None if there is none. `ends`: the gradient
    edges of the inputs."""
    if head.grad_fn is None:
        return None
    nodes = sorted(_behind(head.grad_fn), key=lambda n: n._sequence_nr(), reverse=True)  # the engine's order
    broken = [(node, error) for node in nodes if (error := _error_of(node)) is not None]
    if not broken:
        return None
    before: dict[Node, list[Node]] = {}
    for node in nodes:
        for behind, _ in node.next_functions:
            if behind is not None:
                before.setdefault(behind, []).append(node)
    to_inputs: set[Node] = set()
    todo = [end.node for end in ends if end is not None]
    while todo:
        node = todo.pop()
        if node not in to_inputs:
            to_inputs.add(node)
            todo += before.get(node, ())
    return Freed(broken[0][1], any(node in to_inputs for node, _ in broken))


def _error_of(node: Node) -> str | None:
    for name in dir(type(node)):
        if not name.startswith("_saved_") and name != "saved_tensors":
            continue
        try:
            getattr(node, name)
        except RuntimeError as error:
            return str(error)
    return None


def leads_to(start: Node | None, ends: Sequence[GradientEdge | None]) -> set[int]:
    """Indices of the edges that a backward pass from a node reaches."""
    found = set(_behind(start)) if start is not None else set()
    return {at for at, end in enumerate(ends) if end is not None and end.node in found}


def refuse_uncut(seen: Sequence[Any], results: Sequence[Any]) -> None:
    """Refuses results that are computed from a result that the program sees: the graph is one operation for autograd,
    which would not show that.

    Args:
        seen: the tensors that the program sees.
        results: these and all other results of the graph.

    Raises:
        CannotFunctionalize: there are such results.
    """
    ends = {(edge.node, edge.output_nr) for edge in map(_edge, seen) if edge is not None}
    for edge in map(_edge, results):
        if edge is not None and any(place in ends for place in _edges_behind(edge.node)):
            raise CannotFunctionalize("a result is used on in the graph before it takes a gradient (autograd.grad)")


def _edge(value: Any) -> GradientEdge | None:
    return get_gradient_edge(value) if isinstance(value, torch.Tensor) and value.grad_fn is not None else None


def _edges_behind(start: Node) -> Iterator[tuple[Node, int]]:
    for node in _behind(start):
        yield from ((behind, number) for behind, number in node.next_functions if behind is not None)


def _behind(start: Node) -> Iterator[Node]:
    """The node and all nodes that a backward pass from it reaches."""
    todo, seen = [start], {start}
    while todo:
        node = todo.pop()
        yield node
        for behind, _ in node.next_functions:
            if behind is not None and behind not in seen:
                seen.add(behind)
                todo.append(behind)
