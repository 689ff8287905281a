"""The order in memory of the elements that a reduction reads, as far as lowering's decisions depend on it.

A reduction runs *along rows* if the elements of one result are contiguous. It runs *down columns* if neighbors in
memory belong to different results: a batch norm of channels-last images, a bias's gradient. It runs *in short runs* if
both is the case: a group norm of channels-last images, in which a group's channels are contiguous, but its pixels are
not.

Invariant: these decisions change nothing about a result except the order in which its elements are combined.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, walk
from dynamo_lite.backends.inductor.lowering.values import Shape, TensorValue, is_size, reindexed, shape_vars
from dynamo_lite.backends.inductor.target_info import LINE

# Contiguous elements of one result count as a row if they take at least this many cache lines. The inner loop over a
# shorter run costs more to begin and end than to run.
ROW_LINES = 16
# A sample has at least one in this many of the reduced elements: ``sampled`` says why.
SAMPLE = 16


def steps_of(x: TensorValue) -> Shape | None:
    """The strides, for each dimension, of the loads that ``x`` is computed from and that depend on all its dimensions.
    None if they have several layouts, or one that is not strided."""
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
    """The dimension along which the elements that ``x`` is computed from are contiguous; None if there is none."""
    steps = steps_of(x) or ()
    return next((d for d, step in enumerate(steps) if is_size(step, 1) and not is_size(x.shape[d], 1)), None)


def short_run(x: TensorValue, dims: Sequence[int], near: int) -> int | None:
    """The contiguous dimension, if it is reduced in short runs: other results' elements lie between the runs of one
    result. A cache line is then read again for each result that has elements in it. None if this is not so, or if it
    does no harm, because the lines stay in the L1 cache.

    Args:
        dims: the reduced dimensions.
        near: size of the L1 data cache in bytes.
    """
    inner, steps = contiguous_dim(x), steps_of(x)
    if inner is None or steps is None or inner not in dims:
        return None
    run = x.shape[inner]
    if not isinstance(run, int) or not 0 < run * x.dtype.itemsize < ROW_LINES * LINE:
        return None
    # Results that share a cache line each read it again, so that fewer lines in all may stay in the cache.
    shared = max(LINE // (run * x.dtype.itemsize), 1)
    if not _is_long(x, [d for d in dims if d != inner], near // shared):
        return None
    # A symbolic stride is assumed to be larger than any known one.
    farthest = max((s if isinstance(s, int) else math.inf for d in dims if (s := steps[d]) != 0), default=0)
    between = (d for d, step in enumerate(steps) if d not in dims and not is_size(x.shape[d], 1)
               and isinstance(step, int) and 0 < step < farthest)
    return inner if any(True for _ in between) else None


def _is_long(x: TensorValue, dims: Sequence[int], near: int) -> bool:
    """Whether a column has more elements than the L1 cache has lines; assumed if its length is symbolic."""
    rows = ix.product(x.shape[d] for d in dims)
    return not isinstance(rows, int) or rows * LINE > near


def down_columns(x: TensorValue, dims: Sequence[int], near: int) -> bool:
    """Whether a reduction runs down columns, or in short runs, that touch more lines than the L1 cache holds.

    Args:
        dims: the reduced dimensions.
        near: size of the L1 data cache in bytes.
    """
    inner = contiguous_dim(x)
    if inner is None:
        return False
    return short_run(x, dims, near) is not None if inner in dims else _is_long(x, dims, near)


def sampled(builder: Builder, x: TensorValue, dims: Sequence[int], near: int) -> TensorValue | None:
    """A sample of the reduced elements, at least a sixteenth of them, whose mean can replace the mean of all elements
    as the shift from which differences are summed. None where it pays to read all elements, since they stay in the L1
    cache.

    The mean m of all n elements and the mean s of k of them are at most sqrt((n - k) / k) standard deviations apart
    (otherwise these k would make the deviation larger). The variance about s, from which n (m - s)^2 is subtracted
    later, is therefore at most n / k times as large as the variance about m, and so is the rounding error (Chan, Golub,
    LeVeque 1983: shifted data).

    Args:
        dims: the reduced dimensions.
        near: size of the L1 data cache in bytes.
    """
    if not down_columns(x, dims, near):
        return None
    inner = contiguous_dim(x)
    sizes = [(d, x.shape[d]) for d in dims if d != inner and not is_size(x.shape[d], 1)]
    known = [(d, n) for d, n in sizes if isinstance(n, int)]
    # The first elements of an outer dimension are contiguous in memory; only a long one can be cut to a sixteenth.
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
    # The sample is the beginning of the dimension, so its elements keep their indices.
    return TensorValue(shape, x.dtype, reindexed(builder, x, shape_vars(shape)), device=x.device)
