"""Lowerings of ``view_as_real`` and ``view_as_complex``: the same memory, read as numbers of another dtype.

Invariant: loops read and write the real form only; the complex form is given to library calls and returned.
"""
from __future__ import annotations

from typing import Any

import torch

from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.values import Shape, TensorValue, is_size, shape_vars
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten


@register_lowering(aten.view_as_real.default, view=True)
def view_as_real(g: GraphLowering, self: TensorValue) -> Any:
    if g.layout_of(self) is None or g.results()[0].is_neg():
        return NotImplemented
    name = g.tensor_ref(self)
    stride = (*(ix.mul(n, 2) for n in g.buffers[name].stride), 1)
    return _seen_as(g, name, (*self.shape, 2), stride)


@register_lowering(aten.view_as_complex.default, view=True)
def view_as_complex(g: GraphLowering, self: TensorValue) -> Any:
    layout = g.layout_of(self)
    if layout is None or not _holds_pairs(layout[1], layout[2]):
        if self.stride is None or not _holds_pairs(self.stride, 0):
            return NotImplemented
        g.realize(self, fresh=True)
    name = g.tensor_ref(self)
    stride = g.buffers[name].stride
    if not _holds_pairs(stride, 0):
        return NotImplemented
    return _seen_as(g, name, self.shape[:-1], tuple(ix.floordiv(n, 2) for n in stride[:-1]))


def _holds_pairs(stride: Shape, offset: ix.Index) -> bool:
    """Whether memory of these strides can be viewed as complex: neighbours in the last dimension are next to each
    other, and pairs begin at even places, whatever values symbols have."""
    return is_size(stride[-1], 1) and all(is_size(ix.mod(n, 2), 0) for n in (*stride[:-1], offset))


def _seen_as(g: GraphLowering, name: str, shape: Shape, stride: Shape) -> TensorValue:
    """The value of a buffer's memory in the result's dtype."""
    (result,) = g.results()
    view = g.new_buffer(shape, stride, result.dtype, result.device)
    g.emit(prog.View(view.name, name))
    g.share(view.name, name)
    node = g.ops.load(view.name, view.load_index(shape_vars(shape)), result.dtype)
    return TensorValue(shape, result.dtype, node, stride, result.device)
