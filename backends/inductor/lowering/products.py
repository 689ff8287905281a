"""Matrix products as loops that a template computes, so that what follows is computed on the tiles.

Only dtypes and sizes that the target's template takes (``Products``); the rest is the library's. A size that is a
symbol is taken to be worth it. Operands of 16 bits are summed up in float32, and the operator's result is rounded once,
as the library's is.
"""

from __future__ import annotations

from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Node
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

# A sum of fewer products is no loop for vectors.
MIN_SUM = 8


class Operand:
    """A tensor in memory: buffer, offset and strides."""

    def __init__(self, g: GraphLowering, x: TensorValue):
        g.realize(x)
        layout = g.layout_of(x)
        if layout is None:
            g.realize(x, fresh=True)
            layout = g.layout_of(x)
        assert layout is not None
        self.shape = x.shape
        # That of a dimension of one element is never taken, and may be a symbol: x[:, -1:] of one sequence.
        dense = ix.contiguous_strides(self.shape)
        self.stride = tuple(d if is_size(n, 1) else s for n, s, d in zip(self.shape, layout[1], dense))
        self.buffer, self.offset = layout[0], layout[2]
        self.dtype = x.dtype

    def element(self, g: GraphLowering, at: Shape) -> Node:
        """An element as it is multiplied."""
        load = g.ops.load(self.buffer, ix.add(ix.dot(at, self.stride), self.offset), self.dtype)
        return g.ops.cast(load, opmath(self.dtype))

    def flat(self, first: int, last: int) -> ix.Index | None:
        """The stride of dims ``first`` to ``last`` (not included) as one, if they are that."""
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
    return isinstance(n, int) and n < least


def suits(g: GraphLowering, *tensors: TensorValue) -> bool:
    """Whether tensors are of the kind that the target's template takes."""
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
    """The nest of a sum of products, in memory.

    Args:
        shape: of the result, which is contiguous.
        loops: the same elements as the nest runs over them: ``shape``, or a finer form of it.
        contraction: None leaves the sum to the generated loops.
        a, b: what is multiplied, over ``shape_vars(loops)`` and ``reduced``.
        order: the variables of ``loops`` in the order of the nest's loops, if that is another.
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
    """``x @ y`` with ``batch`` leading dims in common: x is (batch, lines..., k), y is (batch, k, n). None: not for the
    template, or, if ``library``, faster by the library. The sums are of float32."""
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
        # One pass over the second factor, without packing anything: its columns are rows in memory, with sums along
        # them, or its rows are, and all sums of one line grow together.
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
        # The second factor's columns lie in memory (the weights of a linear layer): they are what is streamed.
        contraction = Contraction(batches, last, rows, depth, second, first, True)
    else:
        contraction = Contraction(batches, rows, last, depth, first, second, False)
    if library and rule.faster is not None and is_size(count, 1) and contraction.is_sized:
        if rule.faster(contraction, g.is_read_on()):
            return None
    return emit_product(g, shape, shape, contraction, a, b, loop_vars((k,)))


def _of_few_terms(g: GraphLowering, x: TensorValue, y: TensorValue, batch: int, depth: int) -> TensorValue:
    """``x @ y`` as a chain of operations: coordinates that are turned, say, by a matrix for each point."""
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
    copy = TensorValue(x.shape, x.dtype, x.node, ix.contiguous_strides(x.shape), x.device)
    g.realize(copy, fresh=True)
    return copy


def turned(g: GraphLowering, x: TensorValue) -> TensorValue:
    """``x`` with its last two dims exchanged, without moving data."""
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
    out = product(g, self, mat2, 0)
    return NotImplemented if out is None else rounded(g, out, self.dtype)


@register_lowering(aten.bmm.default)
def bmm(g: GraphLowering, self: TensorValue, mat2: TensorValue) -> Any:
    shared = _of_all(g, self, mat2) if suits(g, self, mat2) else None
    out = product(g, self, mat2, 1) if shared is None else product(g, self, shared, 0)
    return NotImplemented if out is None else rounded(g, out, self.dtype)


def _of_all(g: GraphLowering, x: TensorValue, y: TensorValue) -> TensorValue | None:
    """The matrix that all of the batch ``y`` are, if they are one and one product of all lines of ``x`` takes less: the
    matrix is packed once then. Where the lines are not equally far apart they are copied first, which they are worth on
    a CPU if they are shorter than what would be packed for each entry of the batch. So torch has a linear layer of
    an input with the batch in the middle (``batch_first`` attention)."""
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
    """The result of an operator on operands of this dtype, in memory if that is not how it was summed up: what reads
    it in another kernel moves half as many bytes."""
    if x.dtype is dtype:
        return x
    result = TensorValue(x.shape, dtype, g.ops.cast(x.node, dtype), ix.contiguous_strides(x.shape), x.device)
    g.products.add(g.realize(result))
    return result


def scaled_sum(
    g: GraphLowering, self: TensorValue, product: TensorValue | None, beta: Number, alpha: Number
) -> Any:
    """``beta * self + alpha * product``; with ``beta`` 0 what ``self`` holds does not matter, NaN included."""
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
    if not suits(g, self, x, y):
        return NotImplemented
    out = scaled_sum(g, self, product(g, x, y, batch), beta, alpha)
    return out if out is NotImplemented else rounded(g, out, self.dtype)
