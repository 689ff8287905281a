"""Loop order of a nest: by the strides of its memory accesses, largest first.

Invariant: the order of loops changes no value.
"""

from __future__ import annotations

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.ir.nodes import loads


def ordered_dims(nest: LoopNest) -> tuple[ix.Var, ...]:
    """The nest's variables, outermost first: by their strides in the store, or, for a reduction, in the load that
    depends on the most variables."""
    index = nest.index
    if nest.kind is not None:
        candidates = [n.attr[1] for n in loads((nest.value,))]
        if candidates:
            index = max(candidates, key=lambda i: len(ix.free_vars(i)))
    # Broadcast dimensions and symbolic strides can't be sorted; then the nest keeps its order.
    return dims_by_stride(nest.dims, index) or nest.dims


def dims_by_stride(dims: tuple[ix.Var, ...], index: ix.Index) -> tuple[ix.Var, ...] | None:
    """The variables sorted by their strides in an index, largest first; None unless all strides are positive ints."""
    strides = [ix.coefficient(index, v) for v in dims]
    if not all(isinstance(s, int) and s > 0 for s in strides):
        return None
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    return tuple(dims[d] for d in order)
