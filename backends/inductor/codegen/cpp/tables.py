"""Values that are the same in all rows: computed once, for the elements of one row, before the loop over rows.

A batch norm of images whose channels lie innermost needs a root and a division for each channel, not for each element;
a bias's scale is another example. In memory of the kernel's own they are read as fast as what they are computed from.

Invariant: a table holds what would be computed in each row, bit for bit; nothing in it depends on an outer loop, on
what is reduced, or on what the kernel writes.
"""
from __future__ import annotations

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target_info import TargetInfo

# Elements of a table: as many for all rows, so that kernels for rows of other sizes are the same text.
ROOM = 2048
# A value that costs no more, in additions, is computed again in each row: a table's element is a load.
LEAST_COST = 4
# So many times at least a table's elements are read.
LEAST_ROWS = 8


def find_tables(kernel: Kernel, info: TargetInfo) -> tuple[Node, ...]:
    """The nodes that are worth a table, none of which is computed from another."""
    lane = _lane(kernel)
    rows = ix.product(v.size for v in kernel.outer)
    if lane is None or isinstance(rows, int) and rows < LEAST_ROWS or kernel.faults():
        return ()
    nodes = walk([s.value for s in kernel.statements()])
    same = {n.id for n in nodes if _same_in_all_rows(n, lane, kernel)}
    read = {a.id for n in nodes if n.id not in same for a in n.args}
    read |= {s.value.id for s in kernel.statements()}
    found = tuple(n for n in nodes if n.id in same and n.id in read and lane in n.vars
                  and n.dtype in (torch.float32, torch.float64) and _cost(n) > LEAST_COST)
    size = lane.size if isinstance(lane.size, int) else ROOM
    return found if size * sum(n.dtype.itemsize for n in found) <= info.processor.l1.size // 2 else ()


def _lane(kernel: Kernel) -> ix.Var | None:
    """The loop of a kernel's rows, if all stages have that one loop alone."""
    if kernel.vector_outer or kernel.scratch or kernel.tiles is not None or not kernel.outer:
        return None
    lanes = {stage.inner for stage in kernel.stages if stage.inner}
    if len(lanes) != 1:
        return None
    (inner,) = lanes
    if len(inner) != 1 or not isinstance(inner[0].size, int) or inner[0].size > ROOM:
        return None
    special = (s.ordered or s.check or s.scan or s.scalar or s.tiled or s.unless_same for s in kernel.stages)
    return None if any(special) else inner[0]


def _same_in_all_rows(n: Node, lane: ix.Var, kernel: Kernel) -> bool:
    within = walk((n,))
    return n.vars <= {lane} and not any(
        m.op in ("acc", "update", "inside") or m.op == "load" and m.attr[0] in kernel.outputs for m in within)


def _cost(n: Node) -> int:
    return sum(OPS[m.op].cost for m in walk((n,)) if m.op in OPS)
