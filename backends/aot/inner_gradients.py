"""Captured graphs that call ``torch.autograd.grad``: what they leave of autograd's graph.

The recorder sees the engine's operations as any others. What is particular: such a call may free a part of the history
that the graph's results have, so that in eager their backward pass is an error; and a result that a gradient was
computed of has to stay in one piece with it.

Invariant: a compiled graph has a backward pass for exactly the results for which eager has one.
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
    """The place of the last call of ``torch.autograd.grad`` among the nodes; -1 if there is none."""
    return max((at for at, node in enumerate(nodes) if node.target is torch.autograd.grad), default=-1)


def computes_gradients(gm: GraphModule) -> bool:
    """Whether a captured graph calls ``torch.autograd.grad``."""
    return any(node.target is torch.autograd.grad for node in gm.graph.nodes)


def makes_leaves(gm: GraphModule) -> bool:
    """Whether gradients begin at what a captured graph makes, as its inputs do not tell."""
    return any(node.kwargs.get("requires_grad") or node.target == "requires_grad_" and False not in node.args
               for node in gm.graph.nodes if node.op.startswith("call_"))


def freed(head: torch.Tensor, ends: Sequence[GradientEdge | None]) -> Freed | None:
    """What of a tensor's history is of no use, if there is such a part; `ends`: the inputs."""
    if head.grad_fn is None:
        return None
    nodes = sorted(_behind(head.grad_fn), key=lambda n: n._sequence_nr(), reverse=True)  # as the engine comes to them
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
    """The places of the edges that a backward pass comes to from a node."""
    found = set(_behind(start)) if start is not None else set()
    return {at for at, end in enumerate(ends) if end is not None and end.node in found}


def refuse_uncut(seen: Sequence[Any], results: Sequence[Any]) -> None:
    """Refuses results that are computed of one that the program sees: as one operation of autograd's, the graph would
    not say so.

    Args:
        seen: the tensors that the program sees.
        results: those and others that the graph gives.

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
    """The node and those that a backward pass comes to from there."""
    todo, seen = [start], {start}
    while todo:
        node = todo.pop()
        yield node
        for behind, _ in node.next_functions:
            if behind is not None and behind not in seen:
                seen.add(behind)
                todo.append(behind)
