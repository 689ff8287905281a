"""Guards of loops (``inside`` nodes): from where on and up to where a loop's variable meets them.

Invariant: a loop is taken apart only where it is known in which order its guards begin and end, also where that is
known of symbols by inequalities alone (``Builder.know_order``).
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.ir.substitution import substitute

Limit = tuple[ix.Index, ix.Index, ix.Index]
"""A guard: an index, from where on and up to where (not included) it holds."""


def edges_of(builder: Builder, limits: Sequence[Limit], v: ix.Var) -> list[ix.Index] | None:
    """Where the parts of a loop begin and end that guards tell apart; None if it is not known in which order."""
    edges: list[ix.Index] = [0, v.size]
    for limit in limits:
        if v not in ix.free_vars(limit[0]):
            continue
        for bound in bounds_of(limit, v):
            if not builder.is_at_most(bound, 0) and not builder.is_at_most(v.size, bound):
                edges.append(bound)
    return builder.in_order(edges)


def bounds_of(limit: Limit, v: ix.Var) -> tuple[ix.Index, ix.Index]:
    """From where on and up to where (not included) a loop's variable meets a guard."""
    value, low, high = limit
    step, offset = ix.coefficient(value, v), substitute(value, {v: 0})
    assert isinstance(step, int) and step > 0, f"no guard of one loop: {limit}"
    first, last = (ix.mul(ix.floordiv(ix.add(offset, ix.mul(bound, -1)), step), -1) for bound in (low, high))
    return first, last
