"""Whether a kernel may make several passes over the elements that it reduces.

Some operations use the result of a reduction and run over all its elements again, such as differences from the mean, or
the quotients of a softmax. In the reduction's kernel, they find the elements in a cache if the reduction runs along
rows. A reduction along the columns of a matrix is vectorized over a few adjacent columns, a strip of one cache line in
each row. If a strip is larger than the L1 cache, or its pages exceed the TLB, each pass fetches every cache line again,
once for each vector that shares the line, and threads can share only as much work as a row has cache lines. Then each
pass is a kernel of its own, which reads row by row.

Invariant: the decision depends on sizes and on the processor, not on the number of threads.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.groups import Group, Member, group_var
from dynamo_lite.backends.inductor.scheduler.space import Sizes
from dynamo_lite.backends.inductor.target_info import LINE, TargetInfo

# Size of a page in bytes.
PAGE = 4096


def passes_again(group: Group, member: Member) -> bool:
    """Whether a member that runs over all elements of a group depends on a result of the group's reductions."""
    behind: set[str] = set()
    for m in group.members:
        if m.nest.kind is not None or not m.full or not behind.isdisjoint(m.reads):
            behind.add(m.nest.buffer.name)
    return not behind.isdisjoint(member.reads)


def stays_near(group: Group, member: Member, dims: Sizes, reduced: Sequence[bool], info: TargetInfo) -> bool:
    """Whether another pass over a group's elements finds them in a near cache.

    Args:
        group: a group with a reduction.
        member: the nest that runs over all elements again.
        dims, reduced: those of the group with the member in it.
        info: the description of the processor.
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
    """Whether the loop with the most accesses of stride 1 is not reduced, so that the reduction runs down columns."""
    scores = [0] * len(dims)
    for index in accesses:
        for d in range(len(dims)):
            step = ix.coefficient(index, _var(d, dims))
            scores[d] += 1 if step == 1 else 0 if step == 0 else -1
    best = max(range(len(dims)), key=lambda d: (dims[d] != 1, scores[d], reduced[d]))
    return not reduced[best]


def _var(d: int, dims: Sizes) -> ix.Var:
    """The group's variable of dimension ``d``, or an unused one if the dimension has size 1."""
    (v,) = ix.free_vars(group_var(d, dims)) or (ix.Var(f"x{d}", dims[d]),)
    return v


def _accesses(group: Group, member: Member, dims: Sizes, reduced: Sequence[bool]) -> Iterator[ix.Index]:
    """The indices of all accesses to memory outside of the group that depend on a reduced loop."""
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
