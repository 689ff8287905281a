"""Scalar tails: the elements for which eager's elementwise loops use their scalar instead of their vectorized form.

Eager's iterator (TensorIterator) sorts the dimensions by strides and coalesces those that are contiguous with each
other. If the innermost dimension is contiguous in all tensors (it may be broadcast in one of them), the loop along it
computes two vectors at a time, and the remaining elements, the tail, one by one. Otherwise it computes all elements
one by one. The formulas of the two forms differ at NaN and in the signs of zeros: the maximum of 0.0 and -0.0 is the
second operand in a vector, and the first one in the tail. Lowerings of such operators ask here which form an element
gets.

From 32,768 elements on, eager divides the work into one part for each of its threads, and each part has a tail. So the
sign of its zeros depends on the number of threads. Generated code gives the results that eager has with one thread,
whatever the number of threads: they are the same on every machine, and no element costs more. Elements of tensors with
symbolic sizes, or whose strides are not known, count as computed in vectors.
"""

from __future__ import annotations

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
from dynamo_lite.runtime.neutral_state import probe

Tail = Union[bool, Node]
"""Whether an element is in the scalar tail: the same for all elements, or a node."""
Sizes = tuple[int, ...]


@probe
def _bytes_at_a_time(wide: bool) -> int:
    """Number of bytes that eager's vectorized loop computes in one step. This is found by an experiment: the number of
    elements in a step is a power of two, so of 511 elements the tail has one less than a step.

    Args:
        wide: whether to ask for kernels that use the processor's widest vectors; not all of eager's kernels do.
    """
    if wide:
        ones = torch.ones(511, dtype=torch.float32)
        alone = ~torch.ops.aten.elu_backward(ones, 1, 1, 1, False, ones * math.nan).isnan()
    else:
        zeros = torch.zeros(511, dtype=torch.float32)
        alone = torch.signbit(torch.maximum(-zeros, zeros))
    return 4 * (1 + int(alone.sum()))


def scalar_tail(g: GraphLowering, *operands: Operand, wide: bool = False) -> Tail:
    """Whether eager computes an element of the result by its scalar form: a bool for all elements, or a node.

    Args:
        wide: whether the operator's kernel in eager uses the processor's widest vectors.
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
    # A number counts as a tensor without dimensions, which is broadcast.
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
    """The node of the scalar form (``alone``), that of the vectorized form (``in_vector``), or a choice of the two."""
    if isinstance(tail, bool):
        return alone() if tail else in_vector()
    return g.ops.op("where", tail, alone(), in_vector())


# ---------------------------------------------------------------- eager's iterator
def _strides(x: TensorValue, rank: int, dtype: torch.dtype) -> Sizes | None:
    """An operand's strides in elements, one for each dimension of the result: 0 where the operand is broadcast. None if
    they are not known.

    Args:
        rank: number of dimensions of the result.
        dtype: dtype of the computation.
    """
    if x.stride is None and x.ndim:
        return None
    strides = tuple(s for s in x.stride or () if isinstance(s, int))
    sizes = tuple(n for n in x.shape if isinstance(n, int))
    if len(strides) != x.ndim or len(sizes) != x.ndim:
        return None
    if x.dtype is not dtype and not is_dense(sizes, strides):
        strides = tuple(s for s in ix.contiguous_strides(sizes) if isinstance(s, int))  # strides of the converted copy
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
    """The dimensions that are coalesced into the innermost loop, from the inside out."""
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
    """Whether eager vectorizes the innermost loop: its elements are contiguous in all operands except for at most one,
    which may be broadcast."""
    steps = [s[innermost] for s in strides]
    return all(s in (0, 1) for s in steps) and steps.count(0) <= 1
