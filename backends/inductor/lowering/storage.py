"""Arguments of library calls whose results depend on an argument's storage, not only on its elements.

``slice_scatter``, ``select_scatter``, ``diagonal_scatter`` and ``as_strided_scatter`` copy their first argument's
strides, and its storage offset too (of an empty tensor and for ``as_strided_scatter``, see
``clone_preserve_strides`` in PyTorch's aten/src/ATen/native/TensorFactories.cpp), and write into the copy. Generated
code makes no copy for a clone of a view: it reads the view's memory. The library must not get such an argument in the
view's memory, whose storage offset differs from that of eager's clone.

Invariant: the buffer that ``argument_in_storage`` names has the storage offset and the storage size of eager's
argument, counted from the input or the library's result that it is a view of.
"""
from __future__ import annotations

import operator
from typing import Any

import torch

from dynamo_lite.backends.aot.passes import is_view
from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.layouts import same_layout, strides_of
from dynamo_lite.backends.inductor.lowering.values import TensorValue, is_size

aten = torch.ops.aten
KEEP_STORAGE = frozenset({
    aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default,
    aten.as_strided_scatter.default})
"""Operators whose result takes over the storage offset of the first argument."""


def _root_of(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose result owns, in eager, the memory that a chain of views refers to."""
    while node.op == "call_function" and is_view(node.target):
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        if node.target is operator.getitem and not is_view(source.target):
            return node
        node = source
    return node


def argument_in_storage(g: Any, node: torch.fx.Node) -> str:
    """The name of a buffer, with eager's storage, for the value of ``node``, which is the first argument of an operator
    of ``KEEP_STORAGE``; ``g`` is the ``GraphLowering``."""
    root = _root_of(node)
    value, x = g.env[root], g.env[node]
    if root.op != "call_function" or _is_in_own_memory(g, root, value):
        return str(g.tensor_ref(x))
    if value.dtype is not x.dtype:  # the offsets count elements of different sizes
        return str(g.realize(x, fresh=True))
    fake, base = node.meta["val"], root.meta["val"]
    name: str = g.realize(TensorValue(value.shape, value.dtype, value.node, strides_of(base), value.device), fresh=True)
    if node is root:
        return name
    view = g.new_buffer(x.shape, strides_of(fake), x.dtype, x.device)
    offset = ix.add(index_of(fake.storage_offset()), ix.mul(index_of(base.storage_offset()), -1))
    g.emit(prog.View(view.name, name, g.size_expr(offset)))
    return str(view.name)


def _is_in_own_memory(g: Any, root: torch.fx.Node, value: TensorValue) -> bool:
    """Whether the value is the whole of a buffer that is neither an input nor a constant, and that loops or the library
    call ``root`` itself have made."""
    layout = g.layout_of(value)
    if layout is None:
        return False
    name, stride, offset = layout
    if not is_size(offset, 0) or not same_layout(value.shape, stride, g.buffers[name]):
        return False
    return not g.is_given(name) and _maker(g, name) in (None, _call_of(root).target)


def keeps_foreign_storage(g: Any, name: str, node: torch.fx.Node) -> bool:
    """Whether a buffer has taken over the storage offset of a library call's argument, which the value of ``node`` does
    not have in eager."""
    maker = _maker(g, name)
    return maker in KEEP_STORAGE and maker is not _call_of(_root_of(node)).target


def _maker(g: Any, name: str) -> Any:
    """The operator of the library call that made a buffer; None if loops did."""
    maker = g.makers.get(name)
    return maker.target if isinstance(maker, prog.ExternCall) else None


def _call_of(node: torch.fx.Node) -> torch.fx.Node:
    """The call that a node's value is the result, or one of several results, of."""
    source = node.args[0] if node.target is operator.getitem else node
    assert isinstance(source, torch.fx.Node)
    return source
