"""Sums of products in the scheduler: what may be fused behind one, and how its kernel's loops are named.

The kernel of a contraction has three loops: over the batch, over lines, and along a line in vectors. The template
computes tiles of them; everything fused behind is computed tile by tile, so it has to run over the same elements and to
touch memory along the lines contiguously or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, volume
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder, walk
from dynamo_lite.backends.inductor.scheduler.arrange import rewrite
from dynamo_lite.backends.inductor.scheduler.groups import Group, Member
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel, Stage, Store, Tiles

# Workspaces are rounded up to so many elements, so that kernels find one of the same size to take over.
WORKSPACE_UNIT = 1 << 14
# A left operand of more bytes than this is read once, by all panels in turn, rather than once for each panel.
MAX_REREAD_BYTES = 256 * 1024
# The widest panel, in columns, and the widest vector, in elements, of ``contraction.cpp``.
MAX_PANEL, MAX_LANES = 64, 16


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
    panels = -(-volume(contraction.columns) // MAX_PANEL) * volume(contraction.batch)
    left_bytes = volume(contraction.rows) * contraction.depth * 4
    share = left_bytes > MAX_REREAD_BYTES or panels < 2 * threads
    if volume(contraction.batch) > 1 and contraction.left.batch and any(contraction.left.batch):
        # Each batch has a left operand of its own: nothing is read twice.
        share = panels < threads
    # With narrower vectors there are more panels, of the same size together.
    slots = panels if share else threads
    one = contraction.depth * MAX_PANEL + MAX_LANES * MAX_PANEL
    return share, slots, _rounded(slots * one + planes(contraction))


def planes(contraction: Contraction) -> int:
    """Elements of the input's planes, of all batches."""
    right = contraction.right
    if isinstance(right, Matrix):
        return 0
    return right.plane_elements() * volume(contraction.batch) + MAX_LANES


def _rounded(n: int) -> int:
    return -(-n // WORKSPACE_UNIT) * WORKSPACE_UNIT
