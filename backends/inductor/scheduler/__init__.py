"""Scheduling: which loop nests share a kernel, the order in which everything runs, and the loops of each kernel.

``schedule`` is the entry point: ``fusion`` groups the nests, ``build`` turns each group into a kernel, and the target's
``arrangement`` transforms its loops.

May import `lowering`, `target_info`, `gpu_info`, `ir`, `program` and `aot`; the package knows no language that kernels
are written in.
"""

from __future__ import annotations

import dataclasses
from typing import Union

from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.lowering.lowered_graph import LoweredGraph
from dynamo_lite.backends.inductor.scheduler.arrangement import BLOCKS, Arrangement, vectors
from dynamo_lite.backends.inductor.scheduler.build import build_kernel
from dynamo_lite.backends.inductor.scheduler.fusion import Fuser
from dynamo_lite.backends.inductor.scheduler.groups import Group
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.scheduler.reuse import operand_distances
from dynamo_lite.backends.inductor.scheduler.scan import scan_kernel
from dynamo_lite.backends.inductor.scheduler.update import update_kernel

__all__ = ["BLOCKS", "Arrangement", "Kernel", "Schedule", "schedule", "vectors"]

Step = Union[Kernel, prog.ExternCall, prog.View, prog.CopyInto]


@dataclasses.dataclass(slots=True)
class Schedule:
    """Kernels and other steps, in execution order."""

    steps: list[Step]
    metrics: dict[str, int]


def schedule(lowered: LoweredGraph, arrangement: Arrangement) -> Schedule:
    """Fuses the loop nests of a graph, and builds its kernels and their order.

    Args:
        arrangement: how the target wants the loops of kernels.
    """
    groups = Fuser(lowered, arrangement).run()
    needed = _read_outside(lowered, groups)
    distances = operand_distances(groups, lowered.buffers, frozenset((*lowered.inputs, *lowered.constants)))
    steps: list[Step] = []
    nests = 0
    for group in groups:
        if group.operation is not None:
            assert not isinstance(group.operation, LoopNest)
            steps.append(group.operation)
        elif not needed[group.number].isdisjoint(group.writes()):
            nests += len(group.members)
            first = group.members[0].nest
            if first.scan is not None:
                wanted = [m.nest for m in group.members if m.nest.buffer.name in needed[group.number]]
                steps.append(scan_kernel(lowered.builder, wanted, lowered.buffers, arrangement.scan_loops))
                continue
            if first.update is not None:
                steps.append(update_kernel(lowered.builder, first, lowered.buffers))
                continue
            kernel = build_kernel(lowered.builder, group, needed[group.number], lowered.buffers, arrangement)
            if group.contraction is not None:
                group.distances = distances[group.number]
                steps.append(arrangement.product_loops(lowered.builder, kernel, group, lowered.buffers))
            else:
                steps.append(arrangement.loops(lowered.builder, kernel))
    if arrangement.row_blocks is not None:
        returned = frozenset(o for o in lowered.outputs if isinstance(o, str))
        steps = arrangement.row_blocks(lowered.builder, steps, returned, frozenset(lowered.inputs), lowered.buffers)
    return Schedule(steps, {**lowered.metrics, "nests": nests})


def _read_outside(lowered: LoweredGraph, groups: list[Group]) -> dict[int, set[str]]:
    """For each group of nests, by number, the buffers that it must store: those that the graph returns or that another
    step reads. The set is empty for a group that is dead code. A nest that checks indices from memory is never dead, as
    an index may be out of bounds."""
    outputs = {o for o in lowered.outputs if isinstance(o, str)}
    needed: dict[int, set[str]] = {}
    wanted = set(outputs)
    for group in reversed(groups):
        if group.operation is not None:
            wanted.update(prog.step_reads(group.operation))
            continue
        checking = {m.nest.buffer.name for m in group.members if m.nest.checks()}
        needed[group.number] = {name for name in group.writes() if name in wanted or name in checking}
        if needed[group.number]:
            inside = set(group.writes())
            wanted.update(name for m in group.members for name in m.reads if name not in inside)
    return needed
