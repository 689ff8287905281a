"""Tables of values that are the same in all rows. They are computed once, for the elements of one row, before the loop
over rows.

For example, a batch norm of channels-last images needs a square root and a division for each channel, not for each
element; the scale of a bias is another example. A table is a local array of the kernel, which is read as fast as the
inputs that its values are computed from.

Invariant: a table holds bit for bit the values that each row would compute. No value in it depends on an outer loop, on
a reduction, or on a buffer that the kernel writes.
"""
from __future__ import annotations

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target_info import TargetInfo

# Number of elements of every table, whatever the length of the rows, so that kernels which differ in that length have
# the same text.
ROOM = 2048
# Cost, in additions, up to which a value is computed again in each row, since reading it from a table costs a load.
LEAST_COST = 4
# Number of rows from which on a table is worth while: each of its elements is read once per row.
LEAST_ROWS = 8


def find_tables(kernel: Kernel, info: TargetInfo) -> tuple[Node, ...]:
    """The nodes whose values are worth a table: those that are the same in all rows, costly enough, and read by a
    value that differs between rows or by a statement. There are none if their tables would fill more than half of the
    L1 cache."""
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
    """The loop along a kernel's rows, if every stage with inner loops has this loop and no other; None otherwise."""
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
    """The cost, in additions, of computing a node from memory and constants."""
    return sum(OPS[m.op].cost for m in walk((n,)) if m.op in OPS)
