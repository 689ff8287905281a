"""Masks and biases of positions that a chain of kernels computes itself instead of reading them from memory.

A mask that all elements of a batch share is computed by a kernel of its own, as it would otherwise be computed for each
of them. A chain in blocks of rows takes hardly longer to compute it from positions than to read it, the memory of all
scores' masks is saved, and which scores count is known from positions (``row_blocks``).

Invariant: the kernels read the same values as before.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel, Store

# The cost of the operations of a mask, at most: some, of which each score takes as many anyway.
MOST_COST = 16


@dataclasses.dataclass(slots=True)
class Inlined:
    """The kernels of a chain, and those whose results they compute now."""

    chain: list[Kernel]
    producers: list[Kernel]


def with_inlined(builder: Builder, chain: Sequence[Kernel], before: Sequence[Any]) -> Inlined:
    """A chain that computes the masks it reads.

    Args:
        before: the steps of the program before the chain, back to one that may write what others read.
    """
    stores = {s.buffer: (s, kernel) for kernel in before if isinstance(kernel, Kernel) for s in _cheap_stores(kernel)}
    made, used = [], dict[str, Kernel]()
    for kernel in chain:
        # The operands of products stay in memory.
        stages = kernel.stages[1:] if kernel.tiles is not None else kernel.stages
        roots = [s.value for stage in stages for s in stage.statements]
        moved: dict[Node, Node] = {}
        for load in (n for n in walk(roots) if n.op == "load" and n.attr[0] in stores):
            store, producer = stores[load.attr[0]]
            value = _at(builder, store, producer.outer, load.attr[1])
            if value is not None:
                moved[load] = value
                used[store.buffer] = producer
        made.append(_moved(builder, kernel, len(kernel.stages) - len(stages), moved, used) if moved else kernel)
    return Inlined(made, list(used.values()))


def _cheap_stores(kernel: Kernel) -> list[Store]:
    """Those of a kernel's stores whose values are computed by a few operations from positions and from numbers that
    depend on one of them."""
    plain = kernel.is_pure() and kernel.tiles is None and kernel.blocks is None and not kernel.scratch
    if not plain or kernel.faults() or len(kernel.stages) != 1:
        return []
    (stage,) = kernel.stages
    if stage.inner or stage.ordered or stage.check or stage.scan:
        return []
    return [s for s in stage.statements if isinstance(s, Store) and _is_cheap(s.value)]


def _is_cheap(value: Node) -> bool:
    nodes = walk((value,))
    cost = sum(OPS[n.op].cost for n in nodes if n.op in OPS)
    return cost <= MOST_COST and all(len(n.vars) < 2 for n in nodes if n.op == "load") and len(value.vars) > 1


def _at(builder: Builder, store: Store, loops: Sequence[ix.Var], place: ix.Index) -> Node | None:
    """What has been stored at a place; None if places are not numbered in the order of the loops, without gaps, or if
    the iterations of a place are no plain indices."""
    order = [v for v in loops if v in ix.free_vars(store.index)]
    sizes = [v.size for v in order]
    if store.index != ix.dot([ix.atom(v) for v in order], ix.contiguous_strides(sizes)):
        return None
    found = ix.unflatten(place, sizes)
    if any(isinstance(a, ix.Division) and ix.free_vars(a.expr) for x in found for a in ix.atoms_of(x)):
        return None
    return builder.substitute(store.value, dict(zip(order, found)))


def _moved(builder: Builder, kernel: Kernel, first: int, moved: dict[Node, Node], used: dict[str, Kernel]) -> Kernel:
    """The kernel with loads replaced in its stages from the given one on."""
    stages = []
    for at, stage in enumerate(kernel.stages):
        values = [s.value for s in stage.statements]
        if at >= first:
            values = builder.substitute_all(values, {}, moved)
        statements = [dataclasses.replace(s, value=value) for s, value in zip(stage.statements, values)]
        stages.append(dataclasses.replace(stage, statements=statements))
    read = {n.attr[0] for stage in stages for n in walk([s.value for s in stage.statements]) if n.op == "load"}
    buffers = dict(kernel.buffers)
    for load in moved:
        name = load.attr[0]
        buffers |= {n: b for n, b in used[name].buffers.items() if n in read and n not in buffers}
        if name not in read:
            buffers.pop(name, None)
    outputs = {n: buffers.pop(n) for n in kernel.outputs}
    return dataclasses.replace(kernel, stages=stages, buffers={**buffers, **outputs}, inplace=())
