"""Groups of loop nests that become one kernel.

A group is a list of members in one iteration space ``dims``, some dimensions of which are ``reduced``. A member is
*full* (it runs over all dims) or *kept* (it runs over the dims that are not reduced, once for each reduced row).

Invariant: each member's own variables are combinations of the group's variables.
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
    """A nest in a group.

    Attributes:
        order: the position of the nest among the graph's operations.
        dims: the nest's variables in the order of its loops in the group.
        reads: the indices at which the nest reads each buffer.
        guards: the conditions of its ``inside`` nodes.
        full: whether the nest runs over all dims of the group, or only over those that are not reduced.
        nodes: number of nodes of its expressions.
    """

    nest: LoopNest
    order: int
    dims: tuple[ix.Var, ...]
    reads: dict[str, set[ix.Index]]
    guards: tuple[Limit, ...] = ()
    full: bool = True
    nodes: int = 0

    @property
    def sizes(self) -> Sizes:
        return tuple(v.size for v in self.dims)


@dataclasses.dataclass(slots=True, eq=False)
class Group:
    """See the module's docstring. ``operation`` is the library call, view or copy of a group that is not a kernel;
    ``ancestors`` is a bit mask of the groups, by number, that must run first; ``distances`` are those of the
    operands of the group's product, see ``reuse``."""

    number: int
    members: list[Member] = dataclasses.field(default_factory=list)
    dims: Sizes = ()
    reduced: tuple[bool, ...] = ()
    ancestors: int = 0
    operation: Operation | None = None
    distances: tuple[int, int] = (0, 0)

    @property
    def has_reduction(self) -> bool:
        return any(self.reduced)

    @property
    def contraction(self) -> Contraction | None:
        """The contraction of the group's first member; None if it has none."""
        return self.members[0].nest.contraction if self.members else None

    def kept_dims(self) -> Sizes:
        return tuple(n for n, r in zip(self.dims, self.reduced) if not r)

    def writes(self) -> Iterator[str]:
        for m in self.members:
            yield m.nest.buffer.name

    def mapping(
        self, member: Member, dims: Sizes | None = None, reduced: Sequence[bool] | None = None, full: bool | None = None
    ) -> dict[ix.Var, ix.Index] | None:
        """The member's variables in terms of the group's variables ``x0``, ``x1`` and so on; None if it doesn't fit.

        Args:
            dims, reduced, full: replace those of the group and the member.
        """
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
    """The group's variable of dimension ``d``; 0 if the dimension has size 1."""
    return ix.var(f"x{d}", dims[d])


def group_position(variable: ix.Var) -> int:
    """The dimension of the group that one of its variables runs over."""
    return int(variable.name[1:])


def make_member(nest: LoopNest, order: int) -> Member:
    """The nest as a member of a group, with its loops ordered by the strides of its accesses."""
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
        # A template or an ordered loop computes the nest: its loops keep their order, and its guards constrain no
        # fusion.
        return Member(nest, order, nest.dims, reads, nodes=nodes)
    return Member(nest, order, ordered_dims(nest), reads, tuple(guards), nodes=nodes)
