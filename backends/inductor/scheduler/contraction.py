"""Contractions in the scheduler: which epilogues may be fused behind them, and the loops of their kernels.

The kernel of a contraction has three loops: over the batch, over lines, and along a line. A template computes tiles of
lines, and the epilogue is computed on each tile, so it has to run over the same elements. Where lines are vectorized
(``runs_along_vectors``, ``tiles_of_vectors``), the epilogue's memory accesses must have stride 1 or 0 along a line;
blocks (``tiles_of_blocks``) accept any access.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch

from dynamo_lite import log
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, Patches, volume
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder, walk
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.groups import Group, Member, group_position
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel, Stage, Store, Tiles
from dynamo_lite.backends.inductor.scheduler.late_sharing import shared_late
from dynamo_lite.backends.inductor.scheduler.loop_transforms import rewrite
from dynamo_lite.backends.inductor.scheduler.narrowing import narrow_integers
from dynamo_lite.backends.inductor.scheduler.space import Sizes
from dynamo_lite.backends.inductor.scheduler.threads import share_work
from dynamo_lite.backends.inductor.target_info import TargetInfo


def flat_loops(contraction: Contraction, mapping: Mapping[ix.Var, ix.Index]) -> dict[ix.Var, ix.Index]:
    """The group's variables in terms of the kernel's three loop variables ``b``, ``r`` (line) and ``c`` (lane).

    Args:
        mapping: the variables of the contraction's nest in terms of the group's; each is a combination of one or more.
    """
    out: dict[ix.Var, ix.Index] = {}
    for name, variables in (("b", contraction.batch), ("r", contraction.lines), ("c", contraction.lanes)):
        own = [u for v in variables for u in sorted(ix.free_vars(mapping[v]), key=group_position)]
        flat = ix.var(name, volume(variables))
        out.update(zip(own, ix.unflatten(flat, [v.size for v in own])))
    return out


def runs_along_vectors(group: Group, member: Member, dims: Sizes, reduced: Sequence[bool]) -> bool:
    """Whether a member may join the epilogue of the group's contraction: all its memory accesses have stride 1 or 0
    along the lines of tiles, and it checks no indices from memory.

    Args:
        member: a nest whose loops fit the group.
        dims, reduced: those of the group with the member in it.
    """
    contraction = group.contraction
    if any(n.op == "bounded" for n in walk((member.nest.value,))):
        return False
    own = group.mapping(group.members[0], dims, reduced)
    mapping = group.mapping(member, dims, reduced, full=False)
    assert contraction is not None and own is not None and mapping is not None
    flat = flat_loops(contraction, own)
    (lane,) = {v for index in flat.values() for v in ix.free_vars(index) if v.name == "c"}
    indices = [member.nest.index, *(index for several in member.reads.values() for index in several)]
    indices += [n.attr for n in walk((member.nest.value,)) if n.op == "index"]
    return all(ix.coefficient(substitute(substitute(index, mapping), flat), lane) in (0, 1) for index in indices)


def tiles_of_blocks(builder: Builder, kernel: Kernel, group: Group, buffers: dict[str, Buffer]) -> Kernel:
    """The kernel with the loops ``b``, ``r`` and ``c``. Its first stage is the sum of products, the second one the
    epilogue."""
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
    # A size of 1 has no variable, and so no loop.
    rewrite(builder, kernel, flat, replaced)
    batch, line, lane = (names.get(n) for n in "brc")
    assert lane is not None
    kernel.outer = tuple(v for v in (batch, line) if v is not None)
    stores = [s for stage in kernel.stages for s in stage.statements if isinstance(s, Store)]
    kernel.stages = [kernel.stages[0], Stage((lane,), stores)]
    kernel.tiles = Tiles(contraction, batch, line, lane)
    kernel.inplace = ()
    return kernel


def tiles_of_vectors(
    builder: Builder, kernel: Kernel, group: Group, buffers: dict[str, Buffer], threads: int, info: TargetInfo
) -> Kernel:
    """The same as ``tiles_of_blocks``, with a workspace for packed operands and the division of work among threads."""
    kernel = tiles_of_blocks(builder, kernel, group, buffers)
    assert kernel.tiles is not None
    narrow_integers(builder, kernel)
    name, contraction = f"workspace{len(buffers)}", _placed(kernel.tiles.contraction, group.distances, info)
    kernel.tiles.contraction = contraction
    if isinstance(contraction.right, Patches) and not contraction.right.is_sized:
        sharing = shared_late(contraction, threads, name, info)
    else:
        sharing = share_work(contraction, threads, info)
    log.artifact("targets").debug("%s: %s", "; ".join(group.members[0].nest.origin), sharing)
    buffer = buffers[name] = Buffer(name, (sharing.elements,), (1,), torch.float32)
    kernel.buffers[name] = buffer
    kernel.outputs = (*kernel.outputs, name)
    kernel.tiles.workspace, kernel.tiles.sharing = name, sharing
    return kernel


def _placed(contraction: Contraction, distances: tuple[int, int], info: TargetInfo) -> Contraction:
    """The contraction with the knowledge which matrices have left the core's own cache since they were used last.

    Args:
        distances: bytes of the operands with their reuse distances.
    """
    left, right = contraction.left, contraction.right
    far_left, far_right = (d > info.own_cache for d in distances)
    if isinstance(right, Matrix):
        right = dataclasses.replace(right, far=far_right)
    return dataclasses.replace(contraction, left=dataclasses.replace(left, far=far_left), right=right)
