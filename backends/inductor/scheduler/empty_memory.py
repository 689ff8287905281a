"""Empty buffers and loops: which loads must not be hoisted out of loops that may have no iteration.

A load that does not depend on a loop's variable can be hoisted out of the loop. There it also happens if the loop has
no iteration. Its buffer, for example that of an expanded tensor, may then have no elements and no valid address.

Invariant: a node that no loop holds back reads memory that exists whenever the loops of its own variables run.
"""
from __future__ import annotations

from collections.abc import Iterable

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel


def sizes_to_ask(buffer: Buffer, running: Iterable[ix.Var]) -> list[ix.Index]:
    """The sizes of a buffer that may be 0 although the given loops have iterations."""
    known = {v.size for v in running}
    return [n for n in dict.fromkeys(buffer.size) if not ix.always_positive(n) and n not in known]


def held_back(kernel: Kernel) -> dict[int, frozenset[ix.Var]]:
    """The loops that each node must not be hoisted out of, by the node's id. Nodes without such loops are missing."""
    loops = [*kernel.outer, *(v for stage in kernel.stages for v in stage.inner)]
    unsure = frozenset(v for v in loops if not ix.always_positive(v.size))
    held: dict[int, frozenset[ix.Var]] = {}
    if not unsure:
        return held
    for n in walk([s.value for s in kernel.statements()]):
        behind = frozenset[ix.Var]().union(*(held.get(a.id, ()) for a in n.args))
        buffer = kernel.buffers.get(n.attr[0]) if n.op == "load" else None
        if buffer is not None and sizes_to_ask(buffer, n.vars):
            behind |= unsure
        if behind:
            held[n.id] = behind
    return held
