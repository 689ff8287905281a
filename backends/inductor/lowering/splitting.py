"""Splits reductions into two steps.

On a GPU, one reduced dimension is cut into pieces, each piece is reduced separately, and then the partial results are:
this keeps more blocks busy. On a CPU, one of several reduced dimensions is reduced last, so that loops run over whole
rows of memory (``memory_order``).

Invariant: only the order in which elements are combined changes; reductions to positions (argmax) are not split.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.gpu_info import GpuInfo
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.lowering.memory_order import short_run
from dynamo_lite.backends.inductor.lowering.values import Shape, TensorValue, reindexed, shape_vars

# Kinds of reductions whose elements may be combined in any order, except for rounding.
_JOINED = frozenset({"sum", "prod", "max", "min", "any", "all"})
# Number of columns that a block reduces side by side (`blocks.COLUMNS` of the Triton code generator).
_COLUMNS = 32


def pieces(shape: Shape, kind: str, dims: Sequence[int], gpu: GpuInfo | None) -> tuple[int, int] | None:
    """The dimension to cut, and the number of pieces. None if the reduction keeps the device busy as it is, is small,
    or has symbolic sizes, or if there is no GPU.

    Args:
        shape: shape of the operand.
        kind: kind of the reduction, a key of ``ir.ops.REDUCTIONS``.
        dims: the reduced dimensions.
    """
    sizes = [n for n in shape if isinstance(n, int)]
    if gpu is None or len(sizes) != len(shape) or not dims or kind.startswith("arg") or 0 in sizes:
        return None
    reduced = math.prod(sizes[d] for d in dims)
    kept = math.prod(sizes) // reduced
    real = [d for d, n in enumerate(sizes) if n > 1]
    along = not real or real[-1] in dims
    blocks, least = (kept, gpu.row) if along else (-(-kept // _COLUMNS), gpu.lines)
    wanted = min(gpu.programs // blocks, reduced // least)
    if wanted < 2:
        return None
    outer = next((d for d in dims if sizes[d] >= wanted), max(dims, key=lambda d: sizes[d]))
    n = sizes[outer]
    wanted = 1 << (min(wanted, n) - 1).bit_length()
    # Pieces of equal size need no guard, so that operations fused with the reduction keep their loops.
    even = [k for k in range(max(wanted // 2, 2), min(wanted * 2, n) + 1) if n % k == 0]
    return outer, min(even, key=lambda k: abs(k - wanted)) if even else min(wanted, n)


def reduced_in_steps(g: Any, x: TensorValue, kind: str, dims: Sequence[int], keepdim: bool) -> TensorValue | None:
    """``g.reduce`` in two steps; None where a single step is sufficient.

    Args:
        g: the ``GraphLowering``.
    """
    abilities = g.abilities
    if abilities.gpu is not None:
        cut = pieces(x.shape, kind, dims, abilities.gpu)
        return None if cut is None else reduced_in_pieces(g, x, kind, dims, keepdim, *cut, abilities.gpu.vector)
    if abilities.near is None or kind not in _JOINED:
        return None
    last = short_run(x, dims, abilities.near)
    if last is None:
        return None
    first: TensorValue = g.reduce_at_once(x, kind, [d for d in dims if d != last], True)
    whole: TensorValue = g.reduce_at_once(first, kind, (last,), True)
    shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    return whole if keepdim else TensorValue(shape, whole.dtype, g.without_ones(whole, dims), device=x.device)


def reduced_in_pieces(
    g: Any, x: TensorValue, kind: str, dims: Sequence[int], keepdim: bool, cut: int, count: int,
    together: int
) -> TensorValue:
    """``g.reduce`` in two steps: first of each piece of a dimension, then of the partial results.

    Args:
        g: the ``GraphLowering``.
        cut, count: the dimension to cut and the number of pieces, as ``pieces`` returns them.
        together: the length of pieces is rounded up to a multiple of this where they cannot be of equal size.
    """
    n = x.shape[cut]
    assert isinstance(n, int)
    length = n // count if n % count == 0 else -(-n // count // together) * together
    count = -(-n // length)
    shape = (*x.shape[:cut], count, length, *x.shape[cut + 1:])
    variables = shape_vars(shape)
    place = ix.add(ix.mul(variables[cut], length), variables[cut + 1])
    node = reindexed(g.ops, x, [*variables[:cut], place, *variables[cut + 2:]])
    if count * length != n:
        nothing = g.ops.const(_neutral(kind, x.dtype), x.dtype)
        node = g.ops.op("where", g.ops.inside(place, 0, n), node, nothing)
    inner = [d if d < cut else d + 1 for d in dims]
    parts = g.reduce_at_once(TensorValue(shape, x.dtype, node, device=x.device), kind, inner, False)
    at = sum(d not in dims for d in range(cut))
    whole: TensorValue = g.reduce_at_once(parts, kind, (at,), False)
    if not keepdim:
        return whole
    kept = tuple(1 if d in dims else size for d, size in enumerate(x.shape))
    indices = [v for d, v in enumerate(shape_vars(kept)) if d not in dims]
    return TensorValue(kept, whole.dtype, reindexed(g.ops, whole, indices), device=x.device)


def _neutral(kind: str, dtype: torch.dtype) -> bool | int | float:
    """The neutral element of a reduction."""
    if kind in ("any", "all"):
        return kind == "all"
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if dtype.is_floating_point:
        return -math.inf if kind == "max" else math.inf
    info = torch.iinfo(dtype)
    return info.min if kind == "max" else info.max
