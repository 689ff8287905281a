"""Where eager's elementwise loops leave vectors.

Eager computes two vectors at a time and what is left one by one, with formulas that differ at NaN and in the signs of
zeros: the larger of 0.0 and -0.0 is the second in a vector, the first behind the last one. Lowerings of these operators
ask here which of the two an element gets.

Known limit: from some size on eager cuts the elements into parts for its threads, each with a rest of its own; there,
and for operands that are not laid out alike, all count as computed in vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Union

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.promotion import Operand, result_type
from dynamo_lite.backends.inductor.lowering.values import TensorValue, shape_vars

# From so many elements on eager uses several threads (at::internal::GRAIN_SIZE).
_IN_PARTS = 32768

Tail = Union[bool, Node]


@functools.cache
def _bytes_at_a_time() -> int:
    """How many bytes eager's vectorized loop takes in one step, a power of two: of 511 elements it leaves all but one
    of a step."""
    zeros = torch.zeros(511)
    return 4 * (1 + int(torch.signbit(torch.maximum(-zeros, zeros)).sum()))


def scalar_tail(g: GraphLowering, *operands: Operand) -> Tail:
    """Whether eager computes the element at a place one by one: for all places, or a node."""
    tensors = [x for x in operands if isinstance(x, TensorValue) and x.ndim]
    dtype = result_type(operands)
    if not tensors or not dtype.is_floating_point:
        return False
    shape, stride = tensors[0].shape, tensors[0].stride
    if stride is None or any(x.shape != shape or x.stride != stride for x in tensors):
        return False
    count, step = ix.product(shape), _bytes_at_a_time() // dtype.itemsize
    if not isinstance(count, int) or count >= _IN_PARTS or not _is_dense(shape, stride):
        return False
    rest = count % step
    if rest in (0, count):
        return bool(rest)
    place = g.ops.index(ix.dot(shape_vars(shape), stride))
    return g.ops.op("ge", place, g.ops.const(count - rest, torch.int64))


def either(g: GraphLowering, tail: Tail, alone: Callable[[], Node], in_vector: Callable[[], Node]) -> Node:
    """The node for one by one, or the one for vectors, or a choice between them."""
    if isinstance(tail, bool):
        return alone() if tail else in_vector()
    return g.ops.op("where", tail, alone(), in_vector())


def _is_dense(shape: tuple[ix.Index, ...], stride: tuple[ix.Index, ...]) -> bool:
    known = [(s, n) for n, s in zip(shape, stride) if n != 1 and isinstance(s, int) and isinstance(n, int)]
    expected = 1
    for s, n in sorted(known):
        if s != expected:
            return False
        expected *= n
    return expected == ix.product(shape)
