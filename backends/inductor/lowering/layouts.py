"""Properties of layouts: whether strides agree, whether elements share memory, and whether there are gaps.

A layout with symbolic sizes is assumed to be dense: it is that of a result of eager's, and those are.

Invariant: the functions have no side effects; where a layout is not known, the answer is that for a dense layout.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.values import Shape, is_size


def strides_of(fake: torch.Tensor) -> Shape:
    """The strides of a fake tensor as indices; contiguous strides if its layout has none (sparse tensors)."""
    return (
        tuple(map(index_of, fake.stride())) if fake.layout is torch.strided else ix.contiguous_strides(fake.shape)
    )


def same_strides(shape: Shape, a: Sequence[ix.Index], b: Sequence[ix.Index] | None) -> bool:
    """Whether strides agree in all dimensions of more than one element."""
    return b is not None and all(x == y for n, x, y in zip(shape, a, b) if not is_size(n, 1))


def same_layout(shape: Shape, stride: Shape, buffer: Buffer) -> bool:
    """Whether a buffer has this shape and these strides."""
    return shape == buffer.size and same_strides(shape, stride, buffer.stride)


def is_dense(shape: Shape, stride: Shape) -> bool:
    """Whether the layout has neither gaps nor overlaps: each element of its memory is exactly one of the tensor's."""
    if not all(isinstance(n, int) and isinstance(s, int) for n, s in zip(shape, stride)):
        return True
    expected = 1
    for s, n in sorted((s, n) for n, s in zip(shape, stride) if n != 1):
        if s != expected:
            return any(n == 0 for n in shape)
        expected *= n
    return True


def is_separate(shape: Shape, stride: Shape) -> bool:
    """Whether no two elements of the layout share memory; there may be gaps between them."""
    if is_dense(shape, stride) or any(is_size(n, 0) for n in shape):
        return True
    end = 1
    for s, n in sorted((s, n) for n, s in zip(shape, stride) if n != 1):
        if s < end:
            return False
        end = s * (n - 1) + end
    return True
