"""Products of attention in an aten graph: those that a target without scores in memory computes itself, where it leaves
other products to the library.

Invariant: between the two products of a pair every node has a lowering, is of scores or of their rows, and only the
second product, as its left operand, and nodes of rows leave.
"""
from __future__ import annotations

from collections.abc import Callable

import torch

from dynamo_lite.backends.inductor.ir.contraction import MAX_HEAD

aten = torch.ops.aten

PRODUCTS = frozenset({aten.bmm.default, aten.mm.default})
_SOFTMAX = aten._softmax.default
# Reductions of rows beside those of softmax itself.
_OF_ROWS = frozenset({aten.all.dim, aten.any.dim, aten.amax.default, aten.logsumexp.default})
# More nodes than any function of scores has.
_MOST = 256


def attention_products(graph: torch.fx.Graph, has_lowering: Callable[[torch.fx.Node], bool]) -> set[torch.fx.Node]:
    """The products of queries and keys, and of weights and values, in a graph.

    Args:
        has_lowering: whether generated code computes a node.
    """
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.target in PRODUCTS and _is_narrow(node.args[0]):
            second = _second(node, has_lowering)
            if second is not None:
                found |= {node, second}
    return found


def _second(first: torch.fx.Node, has_lowering: Callable[[torch.fx.Node], bool]) -> torch.fx.Node | None:
    """The product of weights and values that belongs to a product of queries and keys; None if there is none."""
    scores = first.meta["val"].numel()
    inside, waiting = {first}, [first]
    last: torch.fx.Node | None = None
    while waiting:
        for user in waiting.pop().users:
            if user in inside or user is last:
                continue
            if user.op != "call_function" or len(inside) > _MOST:
                return None
            if user.target in PRODUCTS:
                left, right = user.args[:2]
                if last is not None or left not in inside or right in inside or not _is_narrow(right):
                    return None
                last = user
                continue
            value = user.meta.get("val")
            if not has_lowering(user) or not isinstance(value, torch.Tensor):
                return None
            if not _is_same(value.numel(), scores):
                if user.target not in _OF_ROWS:
                    return None
                continue  # where the row's number comes back to the scores, it is found through another user
            inside.add(user)
            waiting.append(user)
    return last if any(node.target is _SOFTMAX for node in inside) else None


def _is_narrow(operand: object) -> bool:
    """Whether rows of an operand are short enough for a program to hold."""
    value = operand.meta.get("val") if isinstance(operand, torch.fx.Node) else None
    width = value.shape[-1] if isinstance(value, torch.Tensor) else None
    return isinstance(width, int) and width <= MAX_HEAD


def _is_same(a: object, b: object) -> bool:
    """Whether two sizes are the same number, without a guard where they are symbols."""
    return a == b if isinstance(a, int) and isinstance(b, int) else str(a) == str(b)
