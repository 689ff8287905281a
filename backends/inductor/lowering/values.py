"""The values that lowerings compute with: tensors whose elements are expressions.

A ``TensorValue`` of shape ``(n0, n1, ...)`` holds an IR node over the variables ``i0 < n0, i1 < n1, ...``, which gives
the value of the element at these indices. Dimensions of size 1 have no variable. Elementwise operators combine nodes,
views replace variables. A value is stored only when it is needed in memory (``GraphLowering.realize``); its node then
becomes a load.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Union

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node

Number = Union[bool, int, float]
Shape = tuple[ix.Index, ...]


def dim_var(dim: int, size: ix.Index) -> ix.Index:
    """The index of dimension ``dim``: its loop variable, or 0 if the size is 1."""
    # Only known sizes are cached: symbols of the same name are equal, but their lower bounds differ between graphs.
    return _dim_var(dim, size) if isinstance(size, int) else ix.var(f"i{dim}", size)


@functools.lru_cache(maxsize=4096)
def _dim_var(dim: int, size: int) -> ix.Index:
    return ix.var(f"i{dim}", size)


def shape_vars(shape: Sequence[ix.Index]) -> tuple[ix.Index, ...]:
    """The index of each dimension of a shape, as ``dim_var`` makes it."""
    return tuple([dim_var(d, n) for d, n in enumerate(shape)])


def loop_vars(indices: Sequence[ix.Index]) -> tuple[ix.Var, ...]:
    """The loop variables (``Var`` atoms) of indices made by ``shape_vars``; dimensions of size 1 have none."""
    return tuple(v for i in indices for v in ix.free_vars(i))


@dataclasses.dataclass(slots=True, eq=False)
class TensorValue:
    """A tensor whose elements are an expression; see the module's docstring. ``stride`` holds eager's strides, where
    they are known; they decide the layout if the value is realized."""

    shape: Shape
    dtype: torch.dtype
    node: Node
    stride: Shape | None = None
    device: torch.device = torch.device("cpu")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> ix.Index:
        return ix.product(self.shape)


def is_size(n: ix.Index, k: int) -> bool:
    """Whether a size is known to be the number ``k``."""
    return isinstance(n, int) and n == k


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that torch broadcasts the shapes to. Symbolic sizes that are different expressions are assumed to be
    equal, as the graph's guards ensure.

    Raises:
        ValueError: if known sizes do not broadcast.
    """
    rank = max(map(len, shapes), default=0)
    out: list[ix.Index] = [1] * rank
    for shape in shapes:
        for at, n in enumerate(shape, rank - len(shape)):
            if is_size(out[at], 1):
                out[at] = n
            elif isinstance(out[at], int) and isinstance(n, int) and n != 1 and n != out[at]:
                raise ValueError(f"shapes {shapes} don't broadcast")
    return tuple(out)


def reindexed(builder: Builder, x: TensorValue, indices: Sequence[ix.Index]) -> Node:
    """The element of ``x`` at ``indices``, one for each of its dimensions."""
    mapping = {}
    for d, (n, new) in enumerate(zip(x.shape, indices)):
        if not is_size(n, 1):
            old = dim_var(d, n)
            if old is not new and old != new:
                mapping[next(iter(old.terms))[0]] = new
    return builder.substitute(x.node, mapping) if mapping else x.node


def expanded(builder: Builder, x: TensorValue, shape: Shape) -> Node:
    """The element of ``x`` in terms of the variables of ``shape``, to which ``x`` is broadcast."""
    lead = len(shape) - len(x.shape)
    if lead == 0 and all(is_size(n, 1) or n == whole for n, whole in zip(x.shape, shape)):
        return x.node
    # Equal symbolic sizes may be different expressions; the loop variables have those of the result.
    return reindexed(
        builder, x, [0 if is_size(n, 1) else dim_var(d + lead, shape[d + lead]) for d, n in enumerate(x.shape)]
    )
