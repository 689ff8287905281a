"""Building the kernel of a group of nests.

The members' bodies are rewritten over the group's variables. A value that one member computes and another one reads is
passed in a register if both run in the same stage, recomputed if that is cheaper than memory, and passed through a row
of scratch memory otherwise. A buffer that nothing outside of the group reads is not stored, unless its rows are too
long for scratch memory. Afterwards the target's arrangement transforms the loops.

Invariant: a buffer that is read outside of the group holds the values that its nest defines.
"""

from __future__ import annotations

from collections.abc import Set

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.arrangement import Arrangement
from dynamo_lite.backends.inductor.scheduler.groups import Group, Member, group_var
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Statement, Store

# A value that a later stage needs is recomputed if its operations cost at most this much and it takes at most this many
# loads.
REPEAT_COST = 6
REPEAT_LOADS = 2


class KernelBuilder:
    """Builds the kernel of one group."""

    def __init__(self, builder: Builder, group: Group, needed: Set[str], buffers: dict[str, Buffer],
                 arrangement: Arrangement):
        self.ops = builder
        self.group = group
        self.needed = needed  # buffers that are read outside of the group
        self.buffers = buffers
        self.arrangement = arrangement
        self.dims = [group_var(d, group.dims) for d in range(len(group.dims))]
        self.kept = self._atoms(False)
        self.inner = self._atoms(True)
        self.stages: dict[int, list[Statement]] = {}
        self.after: dict[int, list[Statement]] = {}
        self.scratch: dict[str, Buffer] = {}
        self._value: dict[str, Node] = {}
        self._ready: dict[str, int] = {}  # the stage that computes a buffer (full), or after which it exists (kept)
        self._full: dict[str, bool] = {}
        self._stored: set[str] = set()

    def _atoms(self, reduced: bool) -> tuple[ix.Var, ...]:
        """The loop variables of the dimensions that are reduced, or of those that are not."""
        return tuple(v for i, r in zip(self.dims, self.group.reduced) if r == reduced for v in ix.free_vars(i))

    def build(self) -> tuple[tuple[ix.Var, ...], list[Stage], dict[str, Buffer]]:
        """Returns ``(kept variables, stages, scratch buffers)``; the loops are not transformed yet."""
        for member in self.group.members:
            self._add(member)
        stages: list[Stage] = []
        for s in sorted({*self.stages, *self.after}):
            if self.stages.get(s):
                stages.append(Stage(self.inner, self.stages[s]))
            if self.after.get(s):
                stages.append(Stage((), self.after[s]))
        return self.kept, stages, self.scratch

    # ------------------------------------------------------------ members
    def _add(self, member: Member) -> None:
        nest = member.nest
        name = nest.buffer.name
        mapping = self.group.mapping(member)
        assert mapping is not None
        value = self.ops.substitute(nest.value, mapping)
        index = substitute(nest.index, mapping)
        inside = [n for n in walk((value,)) if n.op == "load" and n.attr[0] in self._value]
        full = member.full and (bool(self.inner) or nest.kind is not None or not self.group.has_reduction)
        stage = self._stage_for(inside, full)
        if inside:
            value = self.ops.substitute(value, {}, {n: self._passed(n, stage, full) for n in inside})
        self._full[name] = full and nest.kind is None
        self._ready[name] = stage
        needed = name in self.needed
        if nest.kind is not None:
            position = substitute(nest.position, mapping)
            self.stages.setdefault(stage, []).append(Accumulate(name, nest.kind, value, position))
            self._value[name] = self.ops.acc(name, nest.buffer.dtype, frozenset(self.kept))
            if needed:
                self.after.setdefault(stage, []).append(Store(name, index, self._value[name]))
        elif full:
            self._value[name] = value
            if needed:
                self.stages.setdefault(stage, []).append(Store(name, index, value))
        else:
            self._value[name] = value
            if needed:
                self.after.setdefault(stage, []).append(Store(name, index, value))

    def _stage_for(self, inside: list[Node], full: bool) -> int:
        """The number of the first stage that can compute a member, or, for a kept member, after which it can be
        computed; -1: before all inner loops.

        Args:
            inside: the member's loads of values that the group computes.
        """
        stage = 0 if full else -1
        for n in inside:
            name = n.attr[0]
            ready = self._ready[name]
            if full and not self._full[name]:
                ready += 1
            stage = max(stage, ready)
        return stage

    def _passed(self, load: Node, stage: int, full: bool) -> Node:
        """The replacement of a load of a value that the group itself computes: the value, the load of a row of scratch
        memory, or the load itself."""
        name = load.attr[0]
        value = self._value[name]
        if not self._full[name] or self._ready[name] == stage or not full:
            return value
        volume = ix.product(v.size for v in self.inner)
        if isinstance(volume, int) and volume <= self.arrangement.row_in_registers:
            return value
        nodes = walk((value,))
        cost = sum(OPS[n.op].cost for n in nodes if n.op in OPS)
        if cost <= REPEAT_COST and sum(n.op == "load" for n in nodes) <= REPEAT_LOADS:
            return value
        if name in self.needed:
            return load
        return self._through_scratch(name, load, value)

    def _through_scratch(self, name: str, load: Node, value: Node) -> Node:
        """The load of a value from a row of scratch memory, which the value's stage stores."""
        sizes = [v.size for v in self.inner]
        volume = ix.product(sizes)
        itemsize = max(value.dtype.itemsize, 1)
        if not isinstance(volume, int) or volume * itemsize > self.arrangement.row_in_scratch or not self.inner:
            # The row is too long for scratch memory, so the buffer is stored after all.
            if name not in self._stored:
                self._stored.add(name)
                self.stages[self._ready[name]].append(Store(name, load.attr[1], value))
            return load
        row = f"row_{name}"
        index = ix.dot([ix.atom(v) for v in self.inner], ix.contiguous_strides(sizes))
        if row not in self.scratch:
            self.scratch[row] = Buffer(row, tuple(sizes), ix.contiguous_strides(sizes), value.dtype)
            self.stages.setdefault(self._ready[name], []).append(Store(row, index, value))
        return self.ops.load(row, index, value.dtype)


def build_kernel(builder: Builder, group: Group, needed: Set[str], buffers: dict[str, Buffer],
                 arrangement: Arrangement) -> Kernel:
    """The kernel of a group, with the group's loops.

    Args:
        needed: the group's buffers that are read outside of it.
    """
    made = KernelBuilder(builder, group, needed, buffers, arrangement)
    kept, stages, scratch = made.build()
    names: dict[str, None] = {}
    outputs: dict[str, None] = {}
    for stage in stages:
        for s in stage.statements:
            for n in walk((s.value,)):
                if n.op == "load" and n.attr[0] not in scratch:
                    names[n.attr[0]] = None
            if isinstance(s, Store) and s.buffer not in scratch:
                outputs[s.buffer] = None
    arguments = {n: buffers[n] for n in (*(n for n in names if n not in outputs), *outputs)}
    origin = tuple(dict.fromkeys(o for m in group.members for o in m.nest.origin))
    return Kernel(kept, stages, False, arguments, tuple(outputs), scratch, origin)
