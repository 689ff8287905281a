"""Scalar tails: for which elements eager's elementwise loops leave their vectorized form.

Eager's iterator orders the dimensions by strides and joins those that lie behind each other. Along the innermost one it
computes two vectors at a time and what is left one by one, if that dimension is contiguous in all tensors (in one of
them it may be a single element); otherwise everything goes one by one. The formulas of the two differ at NaN and in the
signs of zeros: the larger of 0.0 and -0.0 is the second in a vector, the first behind the last one. Lowerings of these
operators ask here which of the two an element gets.

From 32,768 elements on eager cuts the work into one part for each of its threads, with a rest in each part. So which
zero it gives depends on how many threads there are; ours is what it gives with one thread, whatever their number: a
result that is the same on every machine, and no element costs more. Elements of symbolic sizes, and of results whose
strides aren't known, count as computed in vectors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Union

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.layouts import is_dense
from dynamo_lite.backends.inductor.lowering.promotion import Operand, result_type
from dynamo_lite.backends.inductor.lowering.values import TensorValue, broadcast_shapes, shape_vars

Tail = Union[bool, Node]
Sizes = tuple[int, ...]


@functools.cache
def _bytes_at_a_time(wide: bool) -> int:
    """How many bytes eager's vectorized loop takes in one step, a power of two: of 511 elements it leaves all but one
    of a step. Not all of its kernels use the widest vectors of the processor; ``wide`` is one that does."""
    if wide:
        nan = torch.full((511,), math.nan)
        alone = ~torch.ops.aten.elu_backward(torch.ones(511), 1, 1, 1, False, nan).isnan()
    else:
        zeros = torch.zeros(511)
        alone = torch.signbit(torch.maximum(-zeros, zeros))
    return 4 * (1 + int(alone.sum()))


def scalar_tail(g: GraphLowering, *operands: Operand, wide: bool = False) -> Tail:
    """Whether eager computes the element at a place one by one: for all places, or a node.

    Args:
        wide: the operator's kernel uses the widest vectors.
    """
    tensors = [x for x in operands if isinstance(x, TensorValue)]
    dtype = result_type(operands)
    if g.device != "cpu" or not tensors or not dtype.is_floating_point:
        return False
    step = _bytes_at_a_time(wide) // dtype.itemsize
    whole = broadcast_shapes(*[x.shape for x in tensors])
    shape = tuple(n for n in whole if isinstance(n, int))
    strides = [_strides(x, len(shape), dtype) for x in tensors]
    if len(shape) != len(whole) or None in strides or 0 in shape:
        return False
    known = [s for s in strides if s is not None]
    # A number is a tensor without dimensions, too.
    known += [(0,) * len(shape)] * (len(operands) - len(tensors))
    order = _order(shape, known)
    inner = _inner(shape, known, order)
    if not inner or not _in_vectors(inner[0], known):
        return True
    size = math.prod(shape[d] for d in inner)
    rest = size % step
    if rest in (0, size):
        return bool(rest)
    places, weight = [], 1
    for d in inner:
        places.append((d, weight))
        weight *= shape[d]
    variables = shape_vars(whole)
    place = g.ops.index(ix.dot([variables[d] for d, _ in places], [w for _, w in places]))
    return g.ops.op("ge", place, g.ops.const(size - rest, torch.int64))


def either(g: GraphLowering, tail: Tail, alone: Callable[[], Node], in_vector: Callable[[], Node]) -> Node:
    """The node for one by one, or the one for vectors, or a choice between them."""
    if isinstance(tail, bool):
        return alone() if tail else in_vector()
    return g.ops.op("where", tail, alone(), in_vector())


# ---------------------------------------------------------------- eager's iterator
def _strides(x: TensorValue, rank: int, dtype: torch.dtype) -> Sizes | None:
    """In elements, for each dimension of the result: 0 where the operand is repeated."""
    if x.stride is None and x.ndim:
        return None
    strides = tuple(s for s in x.stride or () if isinstance(s, int))
    sizes = tuple(n for n in x.shape if isinstance(n, int))
    if len(strides) != x.ndim or len(sizes) != x.ndim:
        return None
    if x.dtype is not dtype and not is_dense(sizes, strides):
        strides = tuple(s for s in ix.contiguous_strides(sizes) if isinstance(s, int))  # of its converted copy
    return (0,) * (rank - x.ndim) + tuple(0 if n == 1 else s for n, s in zip(sizes, strides))


def _order(shape: Sizes, strides: Sequence[Sizes]) -> list[int]:
    """The dimensions from the innermost to the outermost, as TensorIterator sorts them."""

    def compare(a: int, b: int) -> int:
        for s in strides:
            if not s[a] or not s[b]:
                continue
            if s[a] != s[b]:
                return -1 if s[a] < s[b] else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    order = list(reversed(range(len(shape))))
    for at in range(1, len(order)):
        place = at
        for before in range(at - 1, -1, -1):
            found = compare(order[before], order[place])
            if found > 0:
                order[before], order[place] = order[place], order[before]
                place = before
            elif found < 0:
                break
    return order


def _inner(shape: Sizes, strides: Sequence[Sizes], order: Sequence[int]) -> list[int]:
    """The dimensions that are one loop, the innermost: each begins where the one before it ends."""
    inner: list[int] = []
    size = 1
    for d in order:
        if shape[d] == 1:
            continue
        if inner and any(s[inner[0]] * size != s[d] for s in strides):
            break
        inner.append(d)
        size *= shape[d]
    return inner


def _in_vectors(innermost: int, strides: Sequence[Sizes]) -> bool:
    """Whether the loop's elements lie side by side, in all operands but one that may be a single element."""
    steps = [s[innermost] for s in strides]
    return all(s in (0, 1) for s in steps) and steps.count(0) <= 1
