"""Groups of loop nests that become one kernel.

A group is a list of members over one space of ``dims``, of which some are ``reduced``. A member is *full* (it runs over
all dims) or *kept* (over those that are not reduced: what happens once per row).

Invariant: each member's own variables are combinations of the group's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.lowering.lowered_graph import Operation
from dynamo_lite.backends.inductor.scheduler.guards import Limit
from dynamo_lite.backends.inductor.scheduler.order import ordered_dims
from dynamo_lite.backends.inductor.scheduler.space import Sizes, blocks, combine


@dataclasses.dataclass(slots=True)
class Member:
    """A nest in a group."""

    nest: LoopNest
    order: int
    dims: tuple[ix.Var, ...]
    reads: dict[str, set[ix.Index]]
    guards: tuple[Limit, ...] = ()
    full: bool = True
    nodes: int = 0  # of its expressions

    @property
    def sizes(self) -> Sizes:
        return tuple(v.size for v in self.dims)


@dataclasses.dataclass(slots=True, eq=False)
class Group:
    """See the module's docstring. ``operation`` is the library call, view or copy of a group that is no kernel."""

    number: int
    members: list[Member] = dataclasses.field(default_factory=list)
    dims: Sizes = ()
    reduced: tuple[bool, ...] = ()
    ancestors: int = 0
    operation: Operation | None = None

    @property
    def has_reduction(self) -> bool:
        return any(self.reduced)

    @property
    def contraction(self) -> Contraction | None:
        """The sum of products that the group begins with, if it does."""
        return self.members[0].nest.contraction if self.members else None

    def kept_dims(self) -> Sizes:
        return tuple(n for n, r in zip(self.dims, self.reduced) if not r)

    def writes(self) -> Iterator[str]:
        for m in self.members:
            yield m.nest.buffer.name

    def mapping(
        self, member: Member, dims: Sizes | None = None, reduced: Sequence[bool] | None = None, full: bool | None = None
    ) -> dict[ix.Var, ix.Index] | None:
        """The member's variables in terms of the group's, ``x0`` and so on."""
        dims = self.dims if dims is None else dims
        reduced = self.reduced if reduced is None else reduced
        full = member.full if full is None else full
        positions = [d for d in range(len(dims)) if full or not reduced[d]]
        parts = blocks(member.sizes, [dims[d] for d in positions])
        if parts is None:
            return None
        return {
            v: combine([group_var(positions[p], dims) for p in part], [dims[positions[p]] for p in part])
            for v, part in zip(member.dims, parts)
        }


def group_var(d: int, dims: Sizes) -> ix.Index:
    return ix.var(f"x{d}", dims[d])


def group_position(variable: ix.Var) -> int:
    """Which of the group's dims one of its variables runs over."""
    return int(variable.name[1:])


def make_member(nest: LoopNest, order: int) -> Member:
    reads: dict[str, set[ix.Index]] = {}
    guards: dict[Limit, None] = {}
    nodes = 0
    for n in walk(nest.roots()):
        nodes += 1
        if n.op == "load":
            reads.setdefault(n.attr[0], set()).add(n.attr[1])
        elif n.op == "inside":
            guards[n.attr] = None
    if nest.contraction is not None or nest.alone():
        # A template computes it, or one after the other: the loops stay as they are, and the borders are its business.
        return Member(nest, order, nest.dims, reads, nodes=nodes)
    return Member(nest, order, ordered_dims(nest), reads, tuple(guards), nodes=nodes)
