"""Whether a kernel may pass over the elements that it reduces once more.

What follows from a reduction and runs over all elements again (their distance from the mean, a softmax's quotients)
finds them in a cache, where it shares a kernel with the reduction. That holds for rows. A reduction along the columns
of a matrix runs in vectors over a few columns side by side, in a strip of one line of the cache in each row: where a
strip is larger than the first cache, or lies in more pages than the processor has at hand, each pass fetches every line
again, as often as vectors share it, and threads have no more work to share than there are lines in a row. There each
pass is a kernel of its own, which reads row by row.

Invariant: what is decided depends on sizes and on the processor, not on the number of threads.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.groups import Group, Member, group_var
from dynamo_lite.backends.inductor.scheduler.space import Sizes
from dynamo_lite.backends.inductor.target_info import LINE, TargetInfo

# Bytes of a page.
PAGE = 4096


def passes_again(group: Group, member: Member) -> bool:
    """Whether a member that runs over all elements of a group needs what the group reduces."""
    behind: set[str] = set()
    for m in group.members:
        if m.nest.kind is not None or not m.full or not behind.isdisjoint(m.reads):
            behind.add(m.nest.buffer.name)
    return not behind.isdisjoint(member.reads)


def stays_near(group: Group, member: Member, dims: Sizes, reduced: Sequence[bool], info: TargetInfo) -> bool:
    """Whether a pass more over a group's elements finds them near the core.

    Args:
        group: reduces something.
        member: runs over all elements again.
        dims, reduced: of the group with the member in it.
        info: of the processor.
    """
    accesses = list(_accesses(group, member, dims, reduced))
    if not _run_down_columns(accesses, dims, reduced):
        return True
    rows = ix.product(n for n, r in zip(dims, reduced) if r)
    if not isinstance(rows, int):
        return False
    inside = set(group.writes())
    buffers = len({name for m in (*group.members, member) for name in m.reads if name not in inside}) or 1
    steps = {ix.coefficient(index, _var(d, dims)) for index in accesses for d in range(len(dims)) if reduced[d]}
    apart = min((step for step in steps if isinstance(step, int) and step > 0), default=PAGE)
    pages = rows * buffers * min(apart * member.nest.buffer.dtype.itemsize, PAGE) // PAGE
    return rows * buffers * LINE <= info.processor.l1.size and pages <= info.pages // 2


def _run_down_columns(accesses: Sequence[ix.Index], dims: Sizes, reduced: Sequence[bool]) -> bool:
    """Whether most of what is read and written of all elements is contiguous along a loop that is not reduced."""
    scores = [0] * len(dims)
    for index in accesses:
        for d in range(len(dims)):
            step = ix.coefficient(index, _var(d, dims))
            scores[d] += 1 if step == 1 else 0 if step == 0 else -1
    best = max(range(len(dims)), key=lambda d: (dims[d] != 1, scores[d], reduced[d]))
    return not reduced[best]


def _var(d: int, dims: Sizes) -> ix.Var:
    (v,) = ix.free_vars(group_var(d, dims)) or (ix.Var(f"x{d}", dims[d]),)
    return v


def _accesses(group: Group, member: Member, dims: Sizes, reduced: Sequence[bool]) -> Iterator[ix.Index]:
    """What is read from outside, and written, at places that differ from one reduced element to the next."""
    inside = {*group.writes(), member.nest.buffer.name}
    loops = {_var(d, dims) for d in range(len(dims)) if reduced[d]}
    for m in (*group.members, member):
        mapping = group.mapping(m, dims, reduced, True if m is member else m.full)
        if mapping is None:
            continue
        indices = [index for name, read in m.reads.items() if name not in inside for index in read]
        if m.nest.kind is None:
            indices.append(m.nest.index)
        for index in (substitute(index, mapping) for index in indices):
            if not loops.isdisjoint(ix.free_vars(index)):
                yield index
