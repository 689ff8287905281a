"""Checks of indices from memory whose elements no loop of the graph reads.

Invariant: after ``check_rest``, every index of every call that may raise is checked by some loop.
"""
from __future__ import annotations

from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Node, walk


def check_rest(g: Any) -> None:
    """Emits loops that check indices from memory of which no other loop checks every one, because the elements that
    they select are not needed, or only in part; ``g`` is the ``GraphLowering``."""
    if not g.checked:
        return
    nests = [operation for operation in g.operations if isinstance(operation, LoopNest)]
    seen = {(n.attr, _buffers_read(n), _places(n)) for nest in nests
            for nodes in [walk(nest.roots())] if all(n.op != "inside" for n in nodes)
            for n in nodes if n.op == "bounded"}
    for node in dict.fromkeys(g.checked):
        if (node.attr, _buffers_read(node), _places(node)) in seen:
            continue
        variables = tuple(sorted(node.vars, key=lambda v: v.name))
        size = tuple(v.size for v in variables)
        (device,) = {g.buffers[name].device for name in _buffers_read(node)} or {torch.device("cpu")}
        buffer = g.new_buffer(size, ix.contiguous_strides(size), torch.int64, device)
        index = buffer.load_index(tuple(map(ix.atom, variables)))
        g.emit(LoopNest(buffer, variables, node, index, origin=("index check",)))


def _buffers_read(node: Node) -> frozenset[str]:
    return frozenset(n.attr[0] for n in walk((node,)) if n.op == "load")


def _places(node: Node) -> ix.Index:
    """Number of iterations of the loops that the node depends on."""
    return ix.product(tuple(v.size for v in node.vars))
