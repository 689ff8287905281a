"""What ``as_strided`` has to keep to in order to be a view of a tensor's elements rather than of raw memory.

Invariant: where both checks pass, the view's elements are elements of the tensor, read in its dtype, so that a value of
the tensor determines them, and a write to the view is a write to the tensor.
"""
from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import torch

from dynamo_lite.backends.aot.functional import CannotFunctionalize
from dynamo_lite.runtime.storage_extent import storage_extent
from dynamo_lite.symbols.nodes import hint_of

# Elements of an ``as_strided`` of a part that are compared with the part's; larger ones are refused.
_MOST_ELEMENTS = 1 << 12


def is_within(root: torch.Tensor, size: Any, stride: Any, offset: Any) -> bool:
    """Whether ``as_strided`` reaches elements of the tensor only: a write elsewhere in the memory would be lost."""
    if not _is_dense(root) or offset < 0:
        return False
    return bool(offset + max(storage_extent(size, stride), 1) <= max(root.numel(), 1))


def _is_dense(x: torch.Tensor) -> bool:
    """Whether the elements of a tensor lie side by side in some order of its dimensions, each in a place of its own.
    Decides about sizes and strides that are symbols."""
    expected = 1
    dims = [(hint_of(stride), hint_of(n), stride, n) for n, stride in zip(x.shape, x.stride())]
    for _, _, stride, n in sorted(dims, key=lambda dim: dim[:2]):
        if n == 0:
            return True
        if n == 1:
            continue
        if stride != expected:
            return False
        expected *= n
    return True


def check_reads_alike(view: torch.Tensor, root: torch.Tensor) -> None:
    """Refuses the view's ``as_strided`` if the view reads the memory of `root` as another type (``x.view(dtype)``) or
    lazily conjugated or negated: the strides count in the view's elements.

    Raises:
        CannotFunctionalize
    """
    if (view.dtype, view.is_conj(), view.is_neg()) != (root.dtype, root.is_conj(), root.is_neg()):
        raise CannotFunctionalize("as_strided of a view that reads its memory as another type")


def check_has_gradients(view: torch.Tensor, root: torch.Tensor, size: Any, stride: Any, offset: Any) -> None:
    """Refuses ``as_strided`` of a part of a tensor under autograd if it reaches elements outside of the part. Eager
    drops their gradients (``as_strided_backward``); in the graph, the view is one of the whole, which has them all.
    Decides about sizes that are symbols.

    Args:
        view: the part.
        size, stride, offset: of ``as_strided``, counted from the first element of ``root``.

    Raises:
        CannotFunctionalize
    """
    if not view.requires_grad or not view.numel() < root.numel():
        return
    begin = view.storage_offset() - root.storage_offset()
    if is_within(view, size, stride, offset - begin):
        return
    dims = sorted(((int(k), int(n)) for n, k in zip(view.shape, view.stride()) if n > 1), reverse=True)
    sizes, strides = [int(n) for n in size], [int(k) for k in stride]
    if math.prod(sizes) > _MOST_ELEMENTS or not all(
            _is_element(int(offset - begin) + sum(map(operator.mul, place, strides)), dims)
            for place in itertools.product(*map(range, sizes))):
        raise CannotFunctionalize("as_strided of a part of a tensor, whose gradients end with the part")


def _is_element(distance: int, dims: list[tuple[int, int]]) -> bool:
    """Whether an element at this distance from a part's first one belongs to the part, whose dimensions are given as
    pairs of stride and size, the largest stride first."""
    for stride, size in dims:
        steps = min(max(distance // max(stride, 1), 0), size - 1)
        distance -= steps * stride
    return distance == 0
