"""Reductions over a few elements, as chains of operations: over coordinates, colors, the ends of a box.

A loop of two or three iterations cannot be vectorized, and a reduction kernel's loops cannot be reordered freely.
Written as a chain of operations, such a reduction is pointwise and fuses with the operations around it.

Invariant: the chain starts from the neutral element where that affects the result, as the reduction does (a sum of
negative zeros is positive), and takes the elements in the order of their positions.
"""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.ir.ops import JOINS
from dynamo_lite.backends.inductor.lowering.values import TensorValue, dim_var, reindexed

# Largest number of nodes of a chain: a long expression is not repeated for each element.
MAX_NODES = 256


def are_few(g: Any, x: TensorValue, dims: Sequence[int]) -> bool:
    """Whether reductions over these dimensions become chains. Their operands are then better not stored in memory:
    a kernel that stores them could not contain the chain, because an iteration would read elements that other
    iterations have written. ``g`` is the ``GraphLowering``."""
    count = ix.product(x.shape[d] for d in dims)
    return isinstance(count, int) and 2 <= count <= g.abilities.few


def chained(g: Any, x: TensorValue, kind: str, dims: Sequence[int], keepdim: bool) -> TensorValue | None:
    """``g.reduce`` as a chain of operations; None if there are too many elements for the target or too many nodes, or
    if the kind of reduction has no such form."""
    if kind not in JOINS or not are_few(g, x, dims) or len(walk((x.node,))) * g.abilities.few > MAX_NODES:
        return None
    indices: list[ix.Index] = []
    kept: list[ix.Index] = []
    for d, n in enumerate(x.shape):
        if d not in dims:
            indices.append(dim_var(len(kept), n))
        if d not in dims or keepdim:
            kept.append(1 if d in dims else n)
        if d in dims:
            indices.append(0)
    node = g.ops.const(0, x.dtype) if kind == "sum" and x.dtype.is_floating_point else None
    for place in itertools.product(*(range(n) for d in dims for n in (x.shape[d],) if isinstance(n, int))):
        for d, at in zip(dims, place):
            indices[d] = at
        element = reindexed(g.ops, x, indices)
        node = element if node is None else g.ops.op(JOINS[kind], node, element)
    assert node is not None
    return TensorValue(tuple(kept), x.dtype, node, device=x.device)
