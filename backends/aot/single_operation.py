"""Which training graphs autograd runs as fast by itself: those of views alone, or of one operation on few elements.

A compiled graph that takes part in autograd costs some 5 to 10 us more per step than an operation of torch's, since its
node is Python's. Fusion pays for it from the second operation on that takes part in gradients. One by itself is one
pass over memory forward and one backward in eager too; there, compiled code can gain only what its loops are faster.
Operations outside of any gradient (``torch.linspace`` in ``x * torch.linspace(0, 1, n)``) are a call in eager, of some
3 us, without a node.

Invariant: the answer depends on the graph alone, so all processes give the same.
"""
from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from dynamo_lite import config
from dynamo_lite.backends.aot import passes
from dynamo_lite.backends.aot.joint import JointGraph

aten = torch.ops.aten

FEW = 1 << 12
"""Elements of the largest tensor up to which the loops of any operation take less than what compiled code costs more:
the slower ones of torch's loops take some 2 ns per element longer than ours, forward and backward."""
MANY = 1 << 20
"""The same for operations whose loops torch has vectorized in both directions, and which only move memory. Larger
results gain by the memory that compiled graphs keep."""
MOST_BACKWARD = 5
"""Calls in eager's backward pass; where there are more, fusing these pays."""
MOST_OUTSIDE = 2
"""Operations on few elements outside of any gradient; where there are more, fusing these pays."""

_MOVING = {
    aten.neg, aten.relu, aten.clone, aten.hardtanh, aten.hardsigmoid, aten.leaky_relu, aten.softshrink, aten.threshold,
    aten.add, aten.sub, aten.mul, aten.sum, aten.flip, aten.roll, aten._to_copy, aten.constant_pad_nd,
    aten.reflection_pad1d, aten.reflection_pad2d, aten.replication_pad1d, aten.replication_pad2d,
}
# Torch computes these element by element, in ten times as long as loops of ours or longer.
_SLOW = {aten.logcumsumexp, aten.prod, aten.cumprod, aten.gelu, aten.upsample_nearest2d}
# The gradient of these is one call in eager, and several here (``decompositions``).
_DECOMPOSED = {aten.nll_loss_forward, aten.nll_loss2d_forward}
_DETACHED = {aten.detach.default, aten.alias.default}
_PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.mv, aten.dot, aten.convolution}


def is_left_to_autograd(joint: JointGraph) -> bool:
    """Whether eager computes a captured graph and its gradients at least as fast as compiled code."""
    if joint.mutated or joint.freed:
        return False
    forward = [n for n in joint.graph.nodes if n in joint.forward and _computes(n)]
    if not forward:
        return True
    differentiable = _with_gradients(joint)
    outside = [n for n in forward if n not in differentiable]
    if len(forward) - len(outside) > 1 or not config.torch_for_single_operations:
        return False
    if len(outside) > (MOST_OUTSIDE if differentiable else 1) or (differentiable and _elements(outside) > FEW):
        return False
    if any(passes.is_random(n) or not str(n.target).startswith("aten.") for n in forward):
        return False
    operation = next((n for n in forward if n in differentiable), forward[0])
    backward = [n for n in joint.graph.nodes if n not in joint.forward and _computes(n)]
    packet = getattr(operation.target, "overloadpacket", None)
    if packet is None or packet in _SLOW or outside and _converts(operation):
        return False
    if len(backward) > MOST_BACKWARD and packet not in _DECOMPOSED:
        return False
    most = MANY if packet in _MOVING else FEW // 4 if packet in _PRODUCTS else FEW
    return _elements([operation, *backward]) <= most


def _with_gradients(joint: JointGraph) -> set[Node]:
    """The forward operations, without views, that are computed from inputs that require grad, so that autograd makes a
    node for each: results that are not floating point and what was detached lead no further."""
    carries = {joint.inputs[at] for at in joint.requiring}
    for node in joint.graph.nodes:
        if node in joint.forward and node.target not in _DETACHED and any(n in carries for n in node.all_input_nodes):
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
                carries.add(node)
    return {node for node in carries if _computes(node)}


def _converts(operation: Node) -> bool:
    """Whether tensors of several dtypes come in, besides masks, which torch's loops convert element by element."""
    values = [node.meta.get("val") for node in operation.all_input_nodes]
    return len({value.dtype for value in values if isinstance(value, torch.Tensor)} - {torch.bool}) > 1


def _computes(node: Node) -> bool:
    return node.op == "call_function" and not passes.is_view(node.target)


def _elements(nodes: list[Node]) -> float:
    """Elements of the largest tensor that the calls read or make; infinite if a size is a symbol."""
    most = 0
    for value in (n.meta.get("val") for call in nodes for n in (call, *call.all_input_nodes)):
        for tensor in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(tensor, torch.Tensor):
                shape: Any = tuple(tensor.shape)
                if not all(type(n) is int for n in shape):
                    return math.inf
                most = max(most, math.prod(shape))
    return most
