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
# A left operand of more bytes does not stay in a core's own cache, packed panels of more not in the one that all share:
# to read them again and again costs so much.
FAR_LEFT, FAR_PACKED = 2 << 20, 8 << 20
FAR_COST = 1.05
# What it costs that all threads wait for each other once more.
SYNC_COST = 1.03
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
    share, slots, size = workspace(contraction, torch.get_num_threads())
    name = f"workspace{len(buffers)}"
    buffer = buffers[name] = Buffer(name, (size,), (1,), torch.float32)
    kernel.buffers[name] = buffer
    kernel.outputs = (*kernel.outputs, name)
    kernel.stages = [kernel.stages[0], Stage((lane,), stores)]
    kernel.tiles = Tiles(contraction, batch, line, lane, name, share, slots)
    kernel.inplace = ()
    return kernel


def workspace(contraction: Contraction, threads: int) -> tuple[bool, int, int]:
    """``(whether panels are shared, how many there is room for, elements)``."""
    right = contraction.right
    if isinstance(right, Patches) and right.each:
        return False, threads, _rounded(threads * right.strip()[-1])
    batches, columns = volume(contraction.batch), volume(contraction.columns)
    panels = -(-columns // MAX_PANEL) * batches
    share = _longest_share_of_rows(contraction, threads) < _longest_share_of_panels(contraction, threads)
    # With narrower vectors there are more panels, of the same size together.
    slots = panels if share else threads
    kept = volume(contraction.rows) if contraction.piece < contraction.depth else 0
    one = (contraction.piece + kept + MAX_LANES) * MAX_PANEL
    return share, slots, _rounded(slots * one + planes(contraction))


def _longest_share_of_panels(contraction: Contraction, threads: int) -> float:
    """What part of the time the busiest thread takes, in relation to one thread alone, if panels are shared out."""
    across = -(-volume(contraction.columns) // MAX_PANEL)
    panels = across * volume(contraction.batch)
    last = -(-(volume(contraction.columns) - (across - 1) * MAX_PANEL) // MAX_LANES)
    widths = [MAX_PANEL // MAX_LANES] * (across - 1) + [last]
    # Each panel reads the left operand anew, from memory if that is where it is.
    far = volume(contraction.rows) * contraction.depth * 4 > FAR_LEFT and not any(contraction.left.batch)
    cost = FAR_COST if far and panels > 1 else 1.0
    if panels > 64 * threads:
        return cost / threads
    work = [widths[p % across] for p in range(panels)]
    parts = (sum(work[panels * t // threads : panels * (t + 1) // threads]) for t in range(threads))
    return cost * max(parts) / sum(work)


def _longest_share_of_rows(contraction: Contraction, threads: int) -> float:
    """The same if all panels are packed first and rows are shared out."""
    units = -(-volume(contraction.rows) // MAX_LANES)
    packed = volume(contraction.columns) * volume(contraction.batch) * contraction.depth * 4
    return (FAR_COST if packed > FAR_PACKED else SYNC_COST) * -(-units // threads) / units


def planes(contraction: Contraction) -> int:
    """Elements of the input's planes, of all batches."""
    right = contraction.right
    if isinstance(right, Matrix):
        return 0
    return right.plane_elements() * volume(contraction.batch) + MAX_LANES


def _rounded(n: int) -> int:
    return -(-n // WORKSPACE_UNIT) * WORKSPACE_UNIT
