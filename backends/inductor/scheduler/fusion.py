"""Loop fusion: which loop nests become one kernel.

Operations are put in groups greedily, in the graph's order. A nest joins the group of a producer, or of a nest that
reads the same buffer, if their iteration spaces fit (``space``), every value that passes between them inside the group
is read in the iteration that computes it, and no other operation has to run in between. A library call is a group of
its own.

A group that begins with a sum of products for a template accepts only nests that can be computed tile by tile, as an
epilogue; the target's arrangement decides which ones can.

Invariant: the dependence graph of groups has no cycle; ``ancestors`` holds, as a bit mask by group number, all groups
that must run before a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynamo_lite.backends.aot import passes
from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.lowering.lowered_graph import LoweredGraph, Operation
from dynamo_lite.backends.inductor.scheduler.arrangement import Arrangement
from dynamo_lite.backends.inductor.scheduler.groups import Group, Member, make_member
from dynamo_lite.backends.inductor.scheduler.guards import Limit, edges_of
from dynamo_lite.backends.inductor.scheduler.order import dims_by_stride
from dynamo_lite.backends.inductor.scheduler.repeated_passes import passes_again
from dynamo_lite.backends.inductor.scheduler.space import Sizes, blocks, refine

MAX_MEMBERS = 64
MAX_BUFFERS = 48
# Largest number of nodes of a kernel's expressions. The compiler's time grows faster than the size of a function, and
# passing one more buffer between two kernels costs little compared to this many operations.
MAX_NODES = 2048
# For each buffer that a nest reads, the number of other groups that read it which are tried for horizontal fusion.
MAX_SIBLINGS = 4
# Number of orders of a nest's loops that are tried besides its own.
MAX_ORDERS = 2


class Fuser:
    """Builds the groups of one graph.

    Args:
        arrangement: the fusion rules of the target.
    """

    def __init__(self, lowered: LoweredGraph, arrangement: Arrangement):
        self.lowered = lowered
        self._arrangement = arrangement
        self.groups: list[Group] = []
        self._writer: dict[str, Group] = {}
        self._readers: dict[str, list[Group]] = {}
        self._last_in_place: Group | None = None  # the last call with effects or random numbers: these keep their order

    def run(self) -> list[Group]:
        """All groups, in an order in which they can run."""
        for order, operation in enumerate(self.lowered.operations):
            if isinstance(operation, LoopNest):
                self._place(make_member(operation, order))
            else:
                self._alone(operation)
        return self._sorted()

    # ------------------------------------------------------------ placing
    def _new_group(self) -> Group:
        group = Group(len(self.groups))
        self.groups.append(group)
        return group

    def _alone(self, operation: Operation) -> None:
        """Makes a group of an operation that is not a loop nest."""
        assert not isinstance(operation, LoopNest)
        group = self._new_group()
        group.operation = operation
        if isinstance(operation, prog.CopyInto):
            # The copy overwrites an input, so all operations before it must run first.
            group.ancestors = (1 << group.number) - 1
        for name in prog.step_reads(operation):
            self._depend(group, name)
        if isinstance(operation, prog.ExternCall) and passes.keeps_its_place(operation.target):
            if self._last_in_place is not None:
                self._add_ancestors(group, self._last_in_place.ancestors | 1 << self._last_in_place.number)
            self._last_in_place = group
        for name in prog.step_writes(operation):
            self._writer[name] = group

    def _depend(self, group: Group, name: str) -> None:
        """Records that a group reads a buffer, so that the buffer's writer must run first."""
        writer = self._writer.get(name)
        if writer is not None and writer is not group:
            self._add_ancestors(group, writer.ancestors | 1 << writer.number)

    def _add_ancestors(self, group: Group, mask: int) -> None:
        """Adds ancestors to a group and to all groups that depend on it."""
        if mask | group.ancestors == group.ancestors:
            return
        group.ancestors |= mask
        for other in self.groups:
            if other.ancestors >> group.number & 1:
                other.ancestors |= group.ancestors

    def _place(self, member: Member) -> None:
        """Adds a nest to an existing group that it can join, or to a new one."""
        alone = member.nest.contraction is not None or member.nest.alone()
        candidates = () if alone else self._candidates(member)
        group = next((g for g in candidates if self._join(g, member)), None) or self._same_scan(member)
        if group is None:
            group = self._new_group()
            group.dims = member.sizes
            group.reduced = tuple(v in member.nest.reduced for v in member.dims)
            group.members.append(member)
        for name in member.reads:
            self._depend(group, name)
            readers = self._readers.setdefault(name, [])
            if group not in readers:
                readers.append(group)
        self._writer[member.nest.buffer.name] = group

    def _candidates(self, member: Member) -> Iterator[Group]:
        """The groups that a nest may join: those of its producers, then those that read the same buffers; the latest
        ones first."""
        seen: set[int] = set()
        producers = [self._writer[name] for name in member.reads if name in self._writer]
        siblings = [g for name in member.reads for g in self._readers.get(name, ())[-MAX_SIBLINGS:]]
        for group in [*sorted(producers, key=lambda g: -g.number), *sorted(siblings, key=lambda g: -g.number)]:
            if group.operation is None and group.number not in seen and not group.members[0].nest.alone():
                seen.add(group.number)
                yield group

    def _same_scan(self, member: Member) -> Group | None:
        """The group of another result of the same scan, after adding the member to it; None if there is none. For
        example, the running maximum and its position are two results of one scan."""
        scan = member.nest.scan
        for group in (g for name in member.reads for g in self._readers.get(name, ())[-MAX_SIBLINGS:]):
            first = None if scan is None or group.operation is not None else group.members[0].nest
            if first is None or first.scan is None or first.dims != member.nest.dims or self._must_wait(group, member):
                continue
            if first.scan.goes_with(scan) and member.reads.keys().isdisjoint(group.writes()):
                group.members.append(member)
                return group
        return None

    # ------------------------------------------------------------ joining
    def _join(self, group: Group, member: Member) -> bool:
        """Adds the member to the group if that is legal and within the limits. Returns whether it was added."""
        if len(group.members) >= MAX_MEMBERS or sum(m.nodes for m in group.members) + member.nodes > MAX_NODES:
            return False
        if self._must_wait(group, member) or self._too_many_buffers(group, member):
            return False
        own = member.dims
        for order in list(self._orders(group, member)):
            member.dims = order
            for full in (True, False) if group.contraction is None else (False,):
                fitted = self._fit(group, member, full)
                if fitted is None:
                    continue
                dims, reduced = fitted
                if group.contraction is not None and not self._follows(group, member, dims, reduced):
                    continue
                if full and group.has_reduction and passes_again(group, member) and not self._arrangement.stays_near(
                    group, member, dims, reduced
                ):
                    continue
                if self._guards_stay(group, member, dims, reduced) and self._values_pass(
                    group, member, dims, reduced, full
                ):
                    group.dims, group.reduced, member.full = dims, reduced, full
                    group.members.append(member)
                    return True
        member.dims = own
        return False

    def _orders(self, group: Group, member: Member) -> Iterator[tuple[ix.Var, ...]]:
        """The orders of the member's loops to try: its own, then those by the strides of its reads of buffers that the
        group writes or reads."""
        seen = {member.dims}
        yield member.dims
        written = set(group.writes())
        read = {name for m in group.members for name in m.reads}
        for names in (written, read):
            for name in member.reads:
                if name not in names or len(seen) > MAX_ORDERS:
                    continue
                order = dims_by_stride(member.nest.dims, next(iter(member.reads[name])))
                if order is not None and order not in seen:
                    seen.add(order)
                    yield order

    def _must_wait(self, group: Group, member: Member) -> bool:
        """Whether an operation outside the group has to run after the group and before the member."""
        for name in member.reads:
            writer = self._writer.get(name)
            if writer is not None and writer is not group and writer.ancestors >> group.number & 1:
                return True
        return False

    def _too_many_buffers(self, group: Group, member: Member) -> bool:
        names = {name for m in group.members for name in (*m.reads, m.nest.buffer.name)}
        return len(names | set(member.reads)) + 1 > MAX_BUFFERS

    def _fit(self, group: Group, member: Member, full: bool) -> tuple[Sizes, tuple[bool, ...]] | None:
        """The group's dims and reduced flags after adding the member; None if the iteration spaces don't fit.

        Args:
            full: whether the member is to run over all dims, or over those that are not reduced.
        """
        if full:
            dims = refine(group.dims, member.sizes)
            if dims is None:
                return None
            flags = _spread(group.dims, group.reduced, dims)
            mine = _spread(member.sizes, [v in member.nest.reduced for v in member.dims], dims)
            if flags is None or mine is None:
                return None
            if any(mine):
                if any(flags) and flags != mine:
                    return None
                flags = mine
            return dims, flags
        if not group.has_reduction or member.nest.kind is not None:
            return None
        kept = refine(group.kept_dims(), member.sizes)
        parts = None if kept is None else blocks(group.kept_dims(), kept)
        if kept is None or parts is None:
            return None
        dims_: list[ix.Index] = []
        reduced: list[bool] = []
        following = iter(parts)
        for n, r in zip(group.dims, group.reduced):
            sizes = [n] if r else [kept[p] for p in next(following)]
            dims_.extend(sizes)
            reduced.extend([r] * len(sizes))
        return tuple(dims_), tuple(reduced)

    def _guards_stay(self, group: Group, member: Member, dims: Sizes, reduced: tuple[bool, ...]) -> bool:
        """Whether the guards can be removed by splitting loops later: each depends on a single loop, the order of their
        bounds is known, and the group reduces nothing. True if there are no guards."""
        guarded = [m for m in (*group.members, member) if m.guards]
        if not guarded:
            return True
        if any(reduced):
            return False
        limits: list[Limit] = []
        for m in guarded:
            mapping = group.mapping(m, dims, reduced, True)
            if mapping is None:
                return False
            for index, low, high in m.guards:
                index = substitute(index, mapping)
                terms = ix.affine_terms(index)
                if terms is None or len(terms[0]) > 1:
                    return False
                limits.append((index, low, high))
        return self._edges_known(limits)

    def _edges_known(self, limits: list[Limit]) -> bool:
        """Whether, for each loop, the order of the bounds of its guards is known."""
        loops = dict.fromkeys(v for value, *_ in limits for v in ix.free_vars(value))
        return all(edges_of(self.lowered.builder, limits, v) is not None for v in loops)

    def _follows(self, group: Group, member: Member, dims: Sizes, reduced: tuple[bool, ...]) -> bool:
        """Whether the member may be computed tile by tile in the epilogue of the group's sum of products."""
        if member.reads.keys().isdisjoint(group.writes()):
            return False
        return self._arrangement.follows_product(group, member, dims, reduced)

    def _values_pass(self, group: Group, member: Member, dims: Sizes, reduced: tuple[bool, ...], full: bool) -> bool:
        """Whether the member, where it reads a buffer of the group, always reads the element that the same iteration
        writes."""
        shared = [m for m in group.members if m.nest.buffer.name in member.reads]
        if not shared:
            return True
        mapping = group.mapping(member, dims, reduced, full)
        if mapping is None:
            return False
        for producer in shared:
            theirs = group.mapping(producer, dims, reduced)
            if theirs is None or (producer.full and producer.nest.kind is None and not full):
                return False
            written = substitute(producer.nest.index, theirs)
            for index in member.reads[producer.nest.buffer.name]:
                if substitute(index, mapping) != written:
                    return False
        return True

    # ------------------------------------------------------------ the order of groups
    def _sorted(self) -> list[Group]:
        """All groups in topological order, and in the order of their creation as far as that allows."""
        done = 0
        out: list[Group] = []
        waiting = list(self.groups)
        while waiting:
            left = []
            for group in waiting:
                if group.ancestors & ~done:
                    left.append(group)
                else:
                    done |= 1 << group.number
                    out.append(group)
            assert len(left) < len(waiting), "a cycle among groups"
            waiting = left
        return out


def _spread(coarse: Sizes, flags: Sequence[bool], fine: Sizes) -> tuple[bool, ...] | None:
    """The flags of a space for each size of a refinement of it; None if ``fine`` is no refinement."""
    parts = blocks(coarse, fine)
    if parts is None:
        return None
    out = [False] * len(fine)
    for flag, part in zip(flags, parts):
        for p in part:
            out[p] = flag
    return tuple(out)
