"""How the elements that a reduction reads lie in memory, as far as lowering decides by it.

*Along rows* what one result is made of lies side by side. *Down columns* neighbours in memory belong to other results:
a batch norm of images whose channels lie innermost, a bias's gradient. *In short runs* it is both: the groups of
channels of a group norm of such images.

Invariant: nothing here changes what is computed but for the order in which elements are joined.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, walk
from dynamo_lite.backends.inductor.lowering.values import Shape, TensorValue, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.target_info import LINE

# Neighbours in memory that are reduced together are a row if they take so many lines at least. The inner loop over a
# shorter run costs more to begin and end than to run.
ROW_LINES = 16
# What a sample has at least of what is reduced: ``sampled`` says why.
SAMPLE = 16


def steps_of(x: TensorValue) -> Shape | None:
    """How far neighbours along each dimension lie apart, in what most of ``x`` is read from; None if that is no
    strided layout, or several."""
    variables = shape_vars(x.shape)
    loops = [next(iter(ix.free_vars(v)), None) for v in variables]
    indices = [n.attr[1] for n in walk((x.node,)) if n.op == "load"]
    whole = [index for index in indices if len(ix.free_vars(index)) == sum(v is not None for v in loops)]
    found = {tuple(0 if v is None else ix.coefficient(index, v) for v in loops) for index in whole}
    if len(found) != 1:
        return None
    (steps,) = found
    known = [step for step in steps if step is not None]
    return tuple(known) if len(known) == len(steps) else None


def contiguous_dim(x: TensorValue) -> int | None:
    """The dimension whose neighbours lie side by side."""
    steps = steps_of(x) or ()
    return next((d for d, step in enumerate(steps) if is_size(step, 1) and not is_size(x.shape[d], 1)), None)


def short_run(x: TensorValue, dims: Sequence[int], near: int) -> int | None:
    """The contiguous dimension, if it is reduced, but with others between whose elements other results' lie: lines of
    the caches are then read again for each result that has some of them.

    Args:
        dims: what is reduced.
        near: bytes of the first cache, in which one result's lines stay."""
    inner, steps = contiguous_dim(x), steps_of(x)
    if inner is None or steps is None or inner not in dims:
        return None
    run = x.shape[inner]
    if not isinstance(run, int) or not 0 < run * x.dtype.itemsize < ROW_LINES * LINE:
        return None
    # Of a line that several results share, each has a part: they read the others' again.
    shared = max(LINE // (run * x.dtype.itemsize), 1)
    if not _is_long(x, [d for d in dims if d != inner], near // shared):
        return None
    # A step that is a symbol, or has one as a factor, is longer than one that has not.
    farthest = max((s if isinstance(s, int) else math.inf for d in dims if (s := steps[d]) != 0), default=0)
    between = (d for d, step in enumerate(steps) if d not in dims and not is_size(x.shape[d], 1)
               and isinstance(step, int) and 0 < step < farthest)
    return inner if any(True for _ in between) else None


def _is_long(x: TensorValue, dims: Sequence[int], near: int) -> bool:
    """Whether a column has more lines than the first cache; taken for granted where its length is a symbol."""
    rows = ix.product(x.shape[d] for d in dims)
    return not isinstance(rows, int) or rows * LINE > near


def down_columns(x: TensorValue, dims: Sequence[int], near: int) -> bool:
    """Whether a reduction runs down columns, or in short runs, that are longer than the first cache has lines."""
    inner = contiguous_dim(x)
    if inner is None:
        return False
    return short_run(x, dims, near) is not None if inner in dims else _is_long(x, dims, near)


def sampled(builder: Builder, x: TensorValue, dims: Sequence[int], near: int) -> TensorValue | None:
    """A part of what is reduced whose mean may stand for the mean of all, where differences from it are summed: a
    sixteenth at least. None where it pays to read all of it, since it stays near.

    A mean m of all n elements and one s of k among them are at most sqrt((n - k) / k) deviations apart (the k would
    make a larger deviation otherwise). The variance about s, of which n (m - s)^2 is taken off, is therefore at most
    n / k times as large as that about m, and so is what rounding does to it (Chan, Golub, LeVeque 1983: shifted data).
    """
    if not down_columns(x, dims, near):
        return None
    inner = contiguous_dim(x)
    sizes = [(d, x.shape[d]) for d in dims if d != inner and not is_size(x.shape[d], 1)]
    known = [(d, n) for d, n in sizes if isinstance(n, int)]
    # The first of a dimension that lies outermost are together in memory; one that is long has a sixteenth.
    long = [t for t in known if t[1] >= SAMPLE]
    symbolic = [(d, n) for d, n in sizes if not isinstance(n, int)]
    if long:
        cut, n = long[0]
    elif symbolic:
        cut, n = symbolic[-1]
    elif known:
        cut, n = max(known, key=lambda t: t[1])
    else:
        return None
    shape = (*x.shape[:cut], ix.floordiv(ix.add(n, SAMPLE - 1), SAMPLE), *x.shape[cut + 1:])
    # They have their places in memory as they had them.
    return TensorValue(shape, x.dtype, reindexed(builder, x, shape_vars(shape)), device=x.device)
