"""Guards (``inside`` nodes): the ranges of a loop variable in which they hold.

Invariant: a loop is split at the bounds of its guards only if the order of these bounds is known. For symbolic bounds,
it may be known by inequalities alone (``Builder.know_order``).
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.ir.substitution import substitute

Limit = tuple[ix.Index, ix.Index, ix.Index]
"""A guard: an index, the inclusive lower bound and the exclusive upper bound of the range in which it holds."""


def edges_of(builder: Builder, limits: Sequence[Limit], v: ix.Var) -> list[ix.Index] | None:
    """The ascending edges of the parts into which guards divide the loop over ``v``, from 0 to its size; None if their
    order is not known."""
    edges: list[ix.Index] = [0, v.size]
    for limit in limits:
        if v not in ix.free_vars(limit[0]):
            continue
        for bound in bounds_of(limit, v):
            if not builder.is_at_most(bound, 0) and not builder.is_at_most(v.size, bound):
                edges.append(bound)
    return builder.in_order(edges)


def bounds_of(limit: Limit, v: ix.Var) -> tuple[ix.Index, ix.Index]:
    """The inclusive lower and the exclusive upper bound of the values of ``v`` for which a guard holds."""
    value, low, high = limit
    step, offset = ix.coefficient(value, v), substitute(value, {v: 0})
    assert isinstance(step, int) and step > 0, f"no guard of one loop: {limit}"
    first, last = (ix.mul(ix.floordiv(ix.add(offset, ix.mul(bound, -1)), step), -1) for bound in (low, high))
    return first, last
