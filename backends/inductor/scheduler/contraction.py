"""Sums of products in the scheduler: what may be fused behind one, and how its kernel's loops are named.

The kernel of a contraction has three loops: over the batch, over lines, and along a line in vectors. The template
computes tiles of them; everything fused behind is computed tile by tile, so it has to run over the same elements and to
touch memory along the lines contiguously or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import MAX_LANES, Contraction, Matrix, Patches, volume
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder, walk
from dynamo_lite.backends.inductor.scheduler.arrange import rewrite
from dynamo_lite.backends.inductor.scheduler.groups import Group, Member
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel, Stage, Store, Tiles

# Workspaces are rounded up to so many elements, so that kernels find one of the same size to take over.
WORKSPACE_UNIT = 1 << 14
# A left operand of more bytes does not stay in a core's own cache: to read it again and again costs so much.
FAR_LEFT, FAR_COST = 2 << 20, 1.05
# Packing takes as long as the products of so many rows, if lines are copied and otherwise. (Threads that share packed panels wait for each other, and read from
# each other's caches what is not written to memory yet: as long as the products of fifty rows.)
PACKING_LINES, PACKING = 3, 8
# Where what follows goes through results by their outermost dim, each thread finds its own in its cache if it has computed them.
# Otherwise that costs so much.
FOREIGN_COST = 1.06
# Rows are shared out in such units.
ROWS = 2
# The widest panel, in columns, of ``contraction.cpp``.
MAX_PANEL = 64


def flat_loops(contraction: Contraction, mapping: Mapping[ix.Var, ix.Index]) -> dict[ix.Var, ix.Index]:
    """The group's variables (which ``mapping`` gives for the nest's) in terms of the kernel's three."""
    out: dict[ix.Var, ix.Index] = {}
    for name, variables in (("b", contraction.batch), ("r", contraction.lines), ("c", contraction.lanes)):
        own = [next(iter(ix.free_vars(mapping[v]))) for v in variables]
        flat = ix.var(name, volume(variables))
        out.update(zip(own, ix.unflatten(flat, [v.size for v in own])))
    return out


def accepts(group: Group, member: Member) -> bool:
    """Whether a member that fits the group by its loops touches memory along the tiles' lines contiguously, or the same
    all along."""
    contraction = group.contraction
    if any(n.op == "bounded" for n in walk((member.nest.value,))):
        return False
    own = group.mapping(group.members[0])
    mapping = group.mapping(member, full=False)
    assert contraction is not None and own is not None and mapping is not None
    flat = flat_loops(contraction, own)
    (lane,) = {v for index in flat.values() for v in ix.free_vars(index) if v.name == "c"}
    indices = [member.nest.index, *(index for several in member.reads.values() for index in several)]
    indices += [n.attr for n in walk((member.nest.value,)) if n.op == "index"]
    return all(
        ix.coefficient(ix.substitute(ix.substitute(index, mapping), flat), lane) in (0, 1) for index in indices
    )


def arrange_contraction(builder: Builder, kernel: Kernel, group: Group, buffers: dict[str, Buffer]) -> Kernel:
    """The kernel with its loops named, and with a workspace for packed operands."""
    (first, *_), contraction = group.members, group.contraction
    assert contraction is not None
    mapping = group.mapping(first)
    assert mapping is not None
    flat = flat_loops(contraction, mapping)
    names = {v.name: v for index in flat.values() for v in ix.free_vars(index)}
    replaced: dict[ix.Var, tuple[ix.Var, ...]] = {}
    for old, new in flat.items():
        owner = {v.name for v in ix.free_vars(new)}
        taken = {v.name for loops in replaced.values() for v in loops}
        replaced[old] = tuple(names[n] for n in sorted(owner - taken))
    # Sizes of 1 leave no variable, and so no loop.
    rewrite(builder, kernel, flat, replaced)
    batch, line, lane = (names.get(n) for n in "brc")
    assert lane is not None
    kernel.outer = tuple(v for v in (batch, line) if v is not None)
    stores = [s for stage in kernel.stages for s in stage.statements if isinstance(s, Store)]
    by_rows, slots, size = workspace(contraction, torch.get_num_threads())
    name = f"workspace{len(buffers)}"
    buffer = buffers[name] = Buffer(name, (size,), (1,), torch.float32)
    kernel.buffers[name] = buffer
    kernel.outputs = (*kernel.outputs, name)
    kernel.stages = [kernel.stages[0], Stage((lane,), stores)]
    kernel.tiles = Tiles(contraction, batch, line, lane, name, by_rows, slots)
    kernel.inplace = ()
    return kernel


def workspace(contraction: Contraction, threads: int) -> tuple[bool, int, int]:
    """``(whether threads share out rows, how many of them there is room for, elements)``."""
    right = contraction.right
    if isinstance(right, Patches) and right.each:
        return False, threads, _rounded(threads * right.strip()[-1])
    by_rows, by_panels = _longest_share_of_rows(contraction, threads), _longest_share_of_panels(contraction, threads)
    if threads > 1 and contraction.transposed:
        by_rows *= FOREIGN_COST
    elif threads > 1:
        by_panels *= FOREIGN_COST
    kept = volume(contraction.rows) if contraction.piece < contraction.depth else 0
    one = (contraction.piece + kept + MAX_LANES) * MAX_PANEL
    return by_rows < by_panels, threads, _rounded(threads * one + planes(contraction))


def _longest_share_of_panels(contraction: Contraction, threads: int) -> float:
    """What part of the time the busiest thread takes, in relation to one thread alone, if panels are shared out."""
    across = -(-volume(contraction.columns) // MAX_PANEL)
    panels = across * volume(contraction.batch)
    last = -(-(volume(contraction.columns) - (across - 1) * MAX_PANEL) // MAX_LANES)
    widths = [MAX_PANEL // MAX_LANES] * (across - 1) + [last]
    # Each panel reads the left operand anew, from memory if that is where it is.
    far = _left(contraction) > FAR_LEFT
    cost = FAR_COST if far and panels > 1 else 1.0
    if panels > 64 * threads:
        return cost / threads
    work = [widths[p % across] for p in range(panels)]
    parts = (sum(work[panels * t // threads : panels * (t + 1) // threads]) for t in range(threads))
    return cost * max(parts) / sum(work)


def _longest_share_of_rows(contraction: Contraction, threads: int) -> float:
    """The same if rows are shared out and each thread packs all panels."""
    unit = MAX_LANES if contraction.transposed else ROWS
    rows, units = volume(contraction.rows), -(-volume(contraction.rows) // unit)
    cost = FAR_COST if _left(contraction) > FAR_LEFT * threads else 1.0
    lines = isinstance(contraction.right, Matrix) and contraction.right.line == 1
    packing = PACKING_LINES if lines else PACKING
    return cost * (min(-(-units // threads) * unit, rows) + packing) / (rows + packing)


def _left(contraction: Contraction) -> int:
    """Bytes of the left operand that every panel reads; 0 if each batch has its own."""
    return 0 if any(contraction.left.batch) else volume(contraction.rows) * contraction.depth * 4


def planes(contraction: Contraction) -> int:
    """Elements of the input's planes, of all batches."""
    right = contraction.right
    if isinstance(right, Matrix):
        return 0
    return right.plane_elements() * volume(contraction.batch) + MAX_LANES


def _rounded(n: int) -> int:
    return -(-n // WORKSPACE_UNIT) * WORKSPACE_UNIT
