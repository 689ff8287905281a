"""Images in planes where eager has their channels innermost: the templates of convolutions compute in planes.

A network's values between two convolutions are nobody's business but the graph's, so they stay in planes as well. What
a library call or the caller gets has eager's layout: it is copied on the way.

Invariant: ``GraphLowering.in_planes`` names buffers that are laid out otherwise than eager's tensors, none of which is
an input or a constant. Who needs eager's layout compares strides first (``memory_of``, ``tensor_ref``).
"""
from __future__ import annotations

from typing import Any

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.lowering.layouts import same_strides
from dynamo_lite.backends.inductor.lowering.values import TensorValue


def pays_in_planes(g: Any, image: TensorValue, depthwise: bool, overlaps: bool) -> bool:
    """Whether a convolution whose result is not in planes in eager is computed in planes.

    Not where its operand or its result leaves the graph, as what a backward pass reads does: each would be written
    twice. Windows that see no pixel twice are rows of a matrix if channels lie innermost, so that the library's product
    is as fast; a depthwise one has too few products for a copy of what it sees.

    Args:
        g: the ``GraphLowering``.
    """
    if g.abilities.near is None or image.ndim != 4 or g.leaves_graph():
        return False
    return overlaps and (not depthwise or is_in_planes(g, image))


def is_in_planes(g: Any, x: TensorValue) -> bool:
    """Whether ``x`` is computed, element by element, from an image in planes."""
    return any(n.op == "load" and n.attr[0] in g.in_planes and g.buffers[n.attr[0]].size == x.shape
               for n in walk((x.node,)))


def keep_in_planes(g: Any, x: TensorValue) -> None:
    """Notes that ``x``, which a template has computed, is in planes."""
    for n in walk((x.node,)):
        if n.op == "load" and not g.is_given(n.attr[0]) and g.buffers[n.attr[0]].size == x.shape:
            g.in_planes.add(n.attr[0])


def to_planes(g: Any, x: TensorValue) -> None:
    """Puts a value that is not in memory yet there in planes."""
    dense = ix.contiguous_strides(x.shape)
    copy = TensorValue(x.shape, x.dtype, x.node, dense, x.device)
    name = g.realize(copy)
    if not same_strides(x.shape, dense, x.stride):
        g.in_planes.add(name)
    x.node = copy.node


def realize_where_read(g: Any, x: TensorValue) -> None:
    """Realizes a value that only generated code reads: in planes, if what it is made of is."""
    if x.node.op != "load" and is_in_planes(g, x):
        to_planes(g, x)
    else:
        g.realize(x)
