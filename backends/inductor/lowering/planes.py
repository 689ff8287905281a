"""Images that are stored in planes (channels first) although they are channels-last in eager: the convolution templates
compute in planes.

Values between two convolutions are visible only inside the graph, so they stay in planes as well. Values that a library
call or the caller gets are copied to eager's layout first.

Invariant: the buffers that ``GraphLowering.in_planes`` names have another layout than eager's tensors; none of them is
an input or a constant. Code that needs eager's layout compares strides first (``memory_of``, ``tensor_ref``).
"""
from __future__ import annotations

from typing import Any

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.lowering.layouts import same_strides
from dynamo_lite.backends.inductor.lowering.values import TensorValue


def pays_in_planes(g: Any, image: TensorValue, depthwise: bool, overlaps: bool) -> bool:
    """Whether it pays to compute a convolution in planes whose result is channels-last in eager.

    It does not where the image or the result is an output of the graph, as tensors saved for a backward pass are: each
    would be written twice. If windows share no pixels, they are rows of a matrix in a channels-last image, so that the
    library's matrix product is as fast. A depthwise convolution has too few products to pay for a copy of its image, so
    the image has to be in planes already.

    Args:
        g: the ``GraphLowering``.
        image: the convolution's input.
        depthwise: whether every group has one input channel.
        overlaps: whether windows share pixels, or are single pixels.
    """
    if g.abilities.near is None or image.ndim != 4 or g.leaves_graph():
        return False
    return overlaps and (not depthwise or is_in_planes(g, image))


def is_in_planes(g: Any, x: TensorValue) -> bool:
    """Whether ``x`` is computed elementwise from an image of the same shape that is stored in planes."""
    return any(n.op == "load" and n.attr[0] in g.in_planes and g.buffers[n.attr[0]].size == x.shape
               for n in walk((x.node,)))


def keep_in_planes(g: Any, x: TensorValue) -> None:
    """Records that the buffer of ``x``, which a template has computed, is in planes."""
    for n in walk((x.node,)):
        if n.op == "load" and not g.is_given(n.attr[0]) and g.buffers[n.attr[0]].size == x.shape:
            g.in_planes.add(n.attr[0])


def to_planes(g: Any, x: TensorValue) -> None:
    """Realizes a value in planes that is not in memory yet."""
    dense = ix.contiguous_strides(x.shape)
    copy = TensorValue(x.shape, x.dtype, x.node, dense, x.device)
    name = g.realize(copy)
    if not same_strides(x.shape, dense, x.stride):
        g.in_planes.add(name)
    x.node = copy.node


def realize_where_read(g: Any, x: TensorValue) -> None:
    """Realizes a value that only generated code reads: in planes if it is computed from an image in planes."""
    if x.node.op != "load" and is_in_planes(g, x):
        to_planes(g, x)
    else:
        g.realize(x)
