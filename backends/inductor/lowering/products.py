"""Lowerings of matrix products as loop nests that a template computes, so that the epilogue is computed on the tiles.

The template computes dtypes and sizes that the target declares (``Products``); the library computes the rest. A
symbolic size is assumed to be large enough. Products of 16-bit operands are accumulated in float32, and the operator's
result is rounded once, as the library's is.
"""

from __future__ import annotations

from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.lowering.formulas import like
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.promotion import elementwise, opmath
from dynamo_lite.backends.inductor.lowering.values import (
    Number,
    Shape,
    TensorValue,
    dim_var,
    is_size,
    loop_vars,
    reindexed,
    shape_vars,
)
from dynamo_lite.backends.inductor.lowering_registry import register_lowering

aten = torch.ops.aten

# Least number of products per sum of a product that is a plain reduction: a shorter loop is not vectorized.
MIN_SUM = 8


class Operand:
    """An operand of a product as a tensor in memory: buffer, offset and strides."""

    def __init__(self, g: GraphLowering, x: TensorValue):
        g.realize(x)
        layout = g.layout_of(x)
        if layout is None:
            g.realize(x, fresh=True)
            layout = g.layout_of(x)
        assert layout is not None
        self.shape = x.shape
        # The stride of a dimension of size 1 is never used, and may be symbolic, as in x[:, -1:] of a single sequence.
        dense = ix.contiguous_strides(self.shape)
        self.stride = tuple(d if is_size(n, 1) else s for n, s, d in zip(self.shape, layout[1], dense))
        self.buffer, self.offset = layout[0], layout[2]
        self.dtype = x.dtype

    def element(self, g: GraphLowering, at: Shape) -> Node:
        """The element at an index, converted to the dtype in which it is multiplied."""
        load = g.ops.load(self.buffer, ix.add(ix.dot(at, self.stride), self.offset), self.dtype)
        return g.ops.cast(load, opmath(self.dtype))

    def flat(self, first: int, last: int) -> ix.Index | None:
        """The common stride of dimensions ``first`` to ``last`` (exclusive) if they can be flattened into one; None if
        they cannot."""
        step: ix.Index | None = None
        extent: ix.Index = 1
        for n, s in reversed(list(zip(self.shape[first:last], self.stride[first:last]))):
            if is_size(n, 1):
                continue
            if step is None:
                step = s
            elif s != ix.mul(step, extent):
                return None
            extent = ix.mul(extent, n)
        return step if step is not None else 1


def _is_small(n: ix.Index, least: int) -> bool:
    """Whether a size is known to be less than ``least``."""
    return isinstance(n, int) and n < least


def suits(g: GraphLowering, *tensors: TensorValue) -> bool:
    """Whether the target's template takes operands of the dtype and on the device of these tensors, none of which is
    empty."""
    dtype = tensors[0].dtype
    return dtype in g.abilities.products.dtypes and all(
        t.dtype is dtype and t.device.type == g.device and not any(is_size(n, 0) for n in t.shape) for t in tensors
    )


def emit_product(
    g: GraphLowering,
    shape: Shape,
    loops: Shape,
    contraction: Contraction | None,
    a: Node,
    b: Node,
    reduced: tuple[ix.Var, ...],
    order: Shape | None = None,
) -> TensorValue:
    """Emits the loop nest of a sum of products, and returns its result, which is in memory.

    Args:
        shape: shape of the result, which is contiguous.
        loops: shape of the nest's iteration space: ``shape``, or ``shape`` with dimensions split further.
        contraction: description of the product for the template; None leaves the sum to the generated loops.
        a, b: the factors, in terms of ``shape_vars(loops)`` and ``reduced``.
        reduced: the variables over which products are summed.
        order: the variables of ``loops`` in the order of the nest's loops, if it is a different one.
    """
    stride = ix.contiguous_strides(shape)
    buffer = g.new_buffer(shape, stride, torch.float32, torch.device(g.device))
    variables = shape_vars(loops)
    if contraction is not None:
        g.products.add(buffer.name)
    g.emit(
        LoopNest(
            buffer,
            (*loop_vars(order or variables), *reduced),
            g.ops.op("mul", a, b),
            ix.dot(variables, ix.contiguous_strides(loops)),
            "sum",
            reduced,
            origin=g.origin,
            contraction=contraction,
        )
    )
    node = g.ops.load(buffer.name, buffer.load_index(shape_vars(shape)), torch.float32)
    return TensorValue(shape, torch.float32, node, stride, buffer.device)


def product(
    g: GraphLowering, x: TensorValue, y: TensorValue, batch: int, library: bool = True
) -> TensorValue | None:
    """``x @ y``, accumulated in float32; None if the library has to compute it.

    Args:
        x, y: tensors of shapes (batch..., lines..., k) and (batch..., k, n).
        batch: number of leading batch dimensions, which both operands have.
        library: whether to leave the product to the library where that is faster.
    """
    rule = g.abilities.products
    if not suits(g, x, y):
        return None
    depth, columns = x.shape[-1], y.shape[-1]
    if isinstance(depth, int) and 1 <= depth <= g.abilities.few:
        return _of_few_terms(g, x, y, batch, depth)
    lines, count = ix.product(x.shape[batch:-1]), ix.product(x.shape[:batch])
    few = _is_small(lines, rule.least_lines)
    if few and not rule.streams:
        return None
    if not few and (_is_small(columns, rule.least_columns) or _is_small(depth, rule.least_depth)):
        return None
    if not g.sizes.at_most(1, depth, "what is summed in a product"):
        return None
    left, right = Operand(g, x), Operand(g, y)
    line = left.flat(batch, x.ndim - 1)
    if line is None:
        left = Operand(g, _copied(g, x))
        line = left.flat(batch, x.ndim - 1)
        assert line is not None
    shape = (*x.shape[:-1], y.shape[-1])
    variables = shape_vars(shape)
    k = dim_var(len(shape), depth)
    a = left.element(g, (*variables[:-1], k))
    b = right.element(g, (*variables[:batch], k, variables[-1]))
    if few:
        # A plain reduction, which reads the second factor once and packs nothing. Either the factor's columns are
        # contiguous, and sums run along them, or its rows are, and all sums of the single line are accumulated at once.
        along_depth = is_size(right.stride[-2], 1) and is_size(left.stride[-1], 1)
        in_rows = is_size(right.stride[-1], 1) and is_size(lines, 1)
        along_columns = in_rows and not _is_small(columns, rule.least_columns)
        if not is_size(count, 1) or not (along_depth or along_columns) or _is_small(depth, MIN_SUM):
            return None
        order = (*variables[-1:], *variables[:-1])
        return emit_product(g, shape, shape, None, a, b, loop_vars((k,)), order)
    batches, rows, last = (loop_vars(v) for v in (variables[:batch], variables[batch:-1], variables[-1:]))
    outer = [tuple(s for n, s in zip(o.shape[:batch], o.stride[:batch]) if not is_size(n, 1)) for o in (left, right)]
    first = Matrix(left.buffer, left.offset, outer[0], line, left.stride[-1])
    second = Matrix(right.buffer, right.offset, outer[1], right.stride[-1], right.stride[-2])
    if rule.streams and second.line != 1 and second.depth == 1 and 1 in (first.line, first.depth):
        # The second factor's columns are contiguous (the weights of a linear layer), so it becomes the left operand.
        contraction = Contraction(batches, last, rows, depth, second, first, True)
    else:
        contraction = Contraction(batches, rows, last, depth, first, second, False)
    if library and rule.faster is not None and is_size(count, 1) and contraction.is_sized:
        if rule.faster(contraction, g.is_read_on()):
            return None
    return emit_product(g, shape, shape, contraction, a, b, loop_vars((k,)))


def _of_few_terms(g: GraphLowering, x: TensorValue, y: TensorValue, batch: int, depth: int) -> TensorValue:
    """``x @ y`` as a chain of operations, for instance the rotation of coordinates by a matrix for each point."""
    shape = (*x.shape[:-1], y.shape[-1])
    for operand, times in ((x, shape[-1]), (y, ix.product(x.shape[batch:-1]))):
        if isinstance(times, int) and times <= g.abilities.few:
            g.realize_if_dear(operand)
        else:
            g.realize(operand)
    variables = shape_vars(shape)
    total: Node | None = None
    for k in range(depth):
        a = reindexed(g.ops, x, (*variables[:-1], k))
        b = reindexed(g.ops, y, (*variables[:batch], k, variables[-1]))
        term = g.ops.op("mul", g.ops.cast(a, torch.float32), g.ops.cast(b, torch.float32))
        total = term if total is None else g.ops.op("add", total, term)
    assert total is not None
    return TensorValue(shape, torch.float32, total, device=x.device)


def _copied(g: GraphLowering, x: TensorValue) -> TensorValue:
    """A contiguous copy in memory."""
    copy = TensorValue(x.shape, x.dtype, x.node, ix.contiguous_strides(x.shape), x.device)
    g.realize(copy, fresh=True)
    return copy


def turned(g: GraphLowering, x: TensorValue) -> TensorValue:
    """``x`` with its last two dimensions transposed, without moving data."""
    g.realize(x)
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    variables = shape_vars(shape)
    old = shape_vars(x.shape)
    mapping = {}
    for mine, theirs in ((old[-1], variables[-2]), (old[-2], variables[-1])):
        for v in ix.free_vars(mine):
            mapping[v] = theirs
    stride = None if x.stride is None else (*x.stride[:-2], x.stride[-1], x.stride[-2])
    return TensorValue(shape, x.dtype, g.ops.substitute(x.node, mapping), stride, x.device)


def plus(g: GraphLowering, x: TensorValue, bias: TensorValue | None) -> TensorValue:
    """``x + bias``, or ``x`` if there is no bias."""
    return x if bias is None else elementwise(g, lambda a, b: g.ops.op("add", a, b), x, bias)


@register_lowering(aten.linear.default)
def linear(g: GraphLowering, input: TensorValue, weight: TensorValue, bias: TensorValue | None = None) -> Any:
    if input.ndim < 2 or weight.ndim != 2 or (bias is not None and bias.ndim != 1):
        return NotImplemented
    if not suits(g, input, weight, *([] if bias is None else [bias])):
        return NotImplemented
    out = product(g, input, turned(g, weight), 0)
    return NotImplemented if out is None else rounded(g, plus(g, out, bias), input.dtype)


@register_lowering(aten.mm.default)
def mm(g: GraphLowering, self: TensorValue, mat2: TensorValue) -> Any:
    out = product(g, *_narrowed(g, self, mat2), 0)
    return NotImplemented if out is None else rounded(g, out, self.dtype)


@register_lowering(aten.bmm.default)
def bmm(g: GraphLowering, self: TensorValue, mat2: TensorValue) -> Any:
    x, y = _narrowed(g, self, mat2)
    shared = _of_all(g, x, y) if suits(g, x, y) else None
    out = product(g, x, y, 1) if shared is None else product(g, x, shared, 0)
    return NotImplemented if out is None else rounded(g, out, self.dtype)


def _narrowed(g: GraphLowering, x: TensorValue, y: TensorValue) -> tuple[TensorValue, TensorValue]:
    """Two operands of a product before their conversion from 16-bit floats to float32, if both have one and the
    template takes such operands: their products are exact in float32, in which it accumulates."""
    both = []
    for operand in (x, y):
        node = operand.node
        if node.op != "cast" or operand.dtype is not torch.float32 or node.args[0].dtype not in HALF:
            return x, y
        both.append(TensorValue(operand.shape, node.args[0].dtype, node.args[0], operand.stride, operand.device))
    return (both[0], both[1]) if suits(g, *both) else (x, y)


def _of_all(g: GraphLowering, x: TensorValue, y: TensorValue) -> TensorValue | None:
    """The single matrix that the batch ``y`` repeats, if there is one and it pays to compute one product of all lines
    of ``x``, for which the matrix is packed only once. None otherwise. If the lines of ``x`` do not have a common
    stride, they have to be copied first. On a CPU this pays if there are fewer lines than columns, since the matrix
    would otherwise be packed for each entry of the batch. torch makes such products for a linear layer whose input has
    the batch in the middle (``batch_first`` attention)."""
    if is_size(y.shape[0], 1) or any(v in y.node.vars for v in loop_vars(shape_vars(y.shape)[:1])):
        return None
    if Operand(g, x).flat(0, 2) is None:
        lines, columns = x.shape[1], y.shape[2]
        fewer = isinstance(lines, int) and isinstance(columns, int) and lines < columns
        if not (g.abilities.products.streams and fewer):
            return None
    shape = y.shape[1:]
    node = reindexed(g.ops, y, (0, *shape_vars(shape)))
    return TensorValue(shape, y.dtype, node, y.stride and y.stride[1:], y.device)


def rounded(g: GraphLowering, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    """The result of a product, converted to the dtype of the operands. It is realized if that differs from the dtype of
    accumulation, so that another kernel that reads it moves half as many bytes."""
    if x.dtype is dtype:
        return x
    result = TensorValue(x.shape, dtype, g.ops.cast(x.node, dtype), ix.contiguous_strides(x.shape), x.device)
    g.products.add(g.realize(result))
    return result


def scaled_sum(
    g: GraphLowering, self: TensorValue, product: TensorValue | None, beta: Number, alpha: Number
) -> Any:
    """``beta * self + alpha * product``. If ``beta`` is 0, ``self`` is ignored, even if it holds NaN.
    ``NotImplemented`` if there is no product."""
    if product is None:
        return NotImplemented
    if alpha != 1:
        product = elementwise(g, lambda a: g.ops.op("mul", a, like(g.ops, a, alpha)), product)
    if beta == 0:
        return product
    if beta != 1:
        self = elementwise(g, lambda a: g.ops.op("mul", a, like(g.ops, a, beta)), self)
    return plus(g, product, self)


@register_lowering(aten.addmm.default)
def addmm(
    g: GraphLowering, self: TensorValue, mat1: TensorValue, mat2: TensorValue, beta: Number = 1, alpha: Number = 1
) -> Any:
    return _scaled(g, self, mat1, mat2, 0, beta, alpha)


@register_lowering(aten.baddbmm.default)
def baddbmm(
    g: GraphLowering, self: TensorValue, batch1: TensorValue, batch2: TensorValue, beta: Number = 1, alpha: Number = 1
) -> Any:
    return _scaled(g, self, batch1, batch2, 1, beta, alpha)


def _scaled(
    g: GraphLowering, self: TensorValue, x: TensorValue, y: TensorValue, batch: int, beta: Number, alpha: Number
) -> Any:
    """``beta * self + alpha * (x @ y)``, rounded once."""
    if not suits(g, self, x, y):
        return NotImplemented
    out = scaled_sum(g, self, product(g, x, y, batch), beta, alpha)
    return out if out is NotImplemented else rounded(g, out, self.dtype)
