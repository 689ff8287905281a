"""Unrolling of loops of two to four iterations beside the vector loop: over coordinates, colors, the ends of a box.

If such a loop is innermost in memory, the vector loop's accesses have its size as stride, and each of its iterations
would pass once more over the same cache lines. So it is fully unrolled inside of the vector loop: common subexpressions
of its iterations are computed once, guards on its variable become constants, and vectors are stored interleaved.

Invariant: the same elements are computed by the same operations.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import JOINS, MEDIUM, OPS
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Statement, Store

# Largest size of a loop that is unrolled, which is the number of vectors that are stored interleaved. Measured with 8
# and 16 lanes on a Zen 4 for 2, 3, 4, 5, 6 and 8 vectors: always faster than storing element by element, 4 vectors 2 to
# 8 times; but each vector occupies at least one register until the others are ready.
SHORT = 4
# Largest number of nodes of a kernel after unrolling. More take the compiler long, and cause register spills.
MAX_NODES = 256
# The common subexpressions of iterations must be worth at least a function or two divisions, and a fourth of the whole
# cost: a longer body takes the compiler more time, and loads cost little.
LEAST_SAVED, LEAST_SHARE = 2 * MEDIUM, 0.25


def may_write_out(kernel: Kernel) -> bool:
    """Whether short loops of the kernel are candidates for unrolling, as far as its size and its stages allow."""
    nodes = len(walk([s.value for s in kernel.statements()]))
    return kernel.is_pure() and not _has_order(kernel) and nodes * SHORT <= MAX_NODES


def is_interleaved(kernel: Kernel, index: ix.Index, v: ix.Var, stored: bool) -> bool:
    """Whether whole vectors along ``v`` load an access's elements, or store them together with those of the iterations
    of a short loop, which lie between them."""
    step = ix.coefficient(index, v)
    if not isinstance(step, int) or not 2 <= step <= SHORT:
        return False
    return not stored or any(
        w.size == step and ix.coefficient(index, w) == 1 for w in (*kernel.outer, *kernel.inner))


def _has_order(kernel: Kernel) -> bool:
    """Whether the kernel has scratch memory or stages whose loops must not be changed."""
    return bool(kernel.scratch) or any(s.scan or s.ordered or s.scalar or s.tiled or s.check for s in kernel.stages)


def write_out_short_loops(builder: Builder, kernel: Kernel) -> bool:
    """Unrolls the short loops for which that pays. Returns whether there was one."""
    found = False
    while (u := next((u for u in _short_loops(kernel) if _pays(builder, kernel, u)), None)) is not None:
        kernel.outer = tuple(w for w in kernel.outer if w is not u)
        for stage in kernel.stages:
            stage.inner = tuple(w for w in stage.inner if w is not u)
            stage.statements = _written_out(builder, stage, u)
        found = True
    return found


def _short_loops(kernel: Kernel) -> Iterator[ix.Var]:
    """The loops that may be unrolled."""
    if _has_order(kernel):
        return
    accumulates = [stage for stage in kernel.stages if any(isinstance(s, Accumulate) for s in stage.statements)]
    joined = all(isinstance(s, Store) or s.kind in JOINS for s in kernel.statements())
    vectors = [kernel.vector(stage) for stage in kernel.stages]
    if None in vectors or not joined:
        return
    for v in (*kernel.outer, *kernel.inner):
        short = isinstance(v.size, int) and 2 <= v.size <= SHORT and v not in vectors
        if short and all(v in stage.inner and len(stage.inner) > 1 for stage in accumulates):
            yield v


def _pays(builder: Builder, kernel: Kernel, u: ix.Var) -> bool:
    """Whether unrolling the loop pays: its iterations access the memory between the elements of a strided vector, or
    have enough common subexpressions."""
    before = walk([s.value for s in kernel.statements()])
    assert isinstance(u.size, int)
    if len(before) * u.size > MAX_NODES:
        return False
    values = [value for stage in kernel.stages for several in _values(builder, stage, u) for value in several]
    after = walk(values)
    if any(n.op == "inside" and not n.vars for n in after):
        return False  # a guard whose value depends on symbols
    if any(_lies_between(index, v, u) for v, index in _accesses(kernel)):
        return True
    cost = _cost(before) * u.size
    saved = cost - _cost(after)
    return saved >= LEAST_SAVED and saved >= cost * LEAST_SHARE


def _cost(nodes: list[Node]) -> int:
    return sum(OPS[n.op].cost if n.op in OPS else n.op == "load" for n in nodes)


def _accesses(kernel: Kernel) -> Iterator[tuple[ix.Var, ix.Index]]:
    """The vector loop's variable and the index of each load and store."""
    for stage in kernel.stages:
        v = kernel.vector(stage)
        assert v is not None
        for s in stage.statements:
            if isinstance(s, Store):
                yield v, s.index
        for n in walk([s.value for s in stage.statements]):
            if n.op == "load":
                yield v, n.attr[1]


def _lies_between(index: ix.Index, v: ix.Var, u: ix.Var) -> bool:
    """Whether an access has stride 1 along ``u``, which fits between the elements of a strided vector along ``v``."""
    step = ix.coefficient(index, v)
    return ix.coefficient(index, u) == 1 and isinstance(step, int) and step >= 2 and u.size <= step


def _values(builder: Builder, stage: Stage, u: ix.Var) -> list[list[Node]]:
    """The values of the stage's statements in each iteration of the loop over ``u``."""
    assert isinstance(u.size, int)
    values = [s.value for s in stage.statements]
    return [builder.substitute_all(values, _at(u, k)) for k in range(u.size)]


def _at(u: ix.Var, k: int) -> Mapping[ix.Var, ix.Index]:
    return {u: k}


def _written_out(builder: Builder, stage: Stage, u: ix.Var) -> list[Statement]:
    """The stage's statements with the loop over ``u`` unrolled."""
    out: list[Statement] = []
    for s, *several in zip(stage.statements, *_values(builder, stage, u)):
        if isinstance(s, Store):
            out += [Store(s.buffer, substitute(s.index, _at(u, k)), value) for k, value in enumerate(several)]
            continue
        joined = several[0]
        for value in several[1:]:
            joined = builder.op(JOINS[s.kind], joined, value)
        out.append(Accumulate(s.acc, s.kind, joined))
    return out
