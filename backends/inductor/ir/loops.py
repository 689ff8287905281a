"""Loop nests: what one buffer holds, element by element.

A ``LoopNest`` runs over ``dims`` and says which value goes where. Pointwise: ``buffer[index] = value`` for every
iteration. Reduction: for every iteration of the dimensions that are not ``reduced``, ``buffer[index]`` is the reduction
of ``value`` over those that are.

Invariants (``checker`` asserts them): ``index`` names kept dimensions only and hits no element twice; ``value`` names
only ``dims`` and has the buffer's dtype (but for argmax and argmin, whose result is ``position``, an index).
"""

from __future__ import annotations

import dataclasses

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction
from dynamo_lite.backends.inductor.ir.nodes import Node, walk


@dataclasses.dataclass(slots=True)
class Buffer:
    """A piece of memory with a layout. ``stride`` is eager's."""

    name: str
    size: tuple[ix.Index, ...]
    stride: tuple[ix.Index, ...]
    dtype: torch.dtype
    device: torch.device = torch.device("cpu")

    def load_index(self, indices: tuple[ix.Index, ...]) -> ix.Index:
        return ix.dot(indices, self.stride)


@dataclasses.dataclass(slots=True)
class Update:
    """What a buffer holds before the nest writes into parts of it, some of them maybe twice: ``value`` for every
    iteration of ``dims``."""

    dims: tuple[ix.Var, ...]
    value: Node
    index: ix.Index


@dataclasses.dataclass(slots=True)
class Carried:
    """A value that a scan takes from one iteration to the next: ``start`` before the first, then ``value``, in which an
    "acc" node of this name is what it was, and one of another carried value's what that was.

    If it has an ``element``, a node of ``value``, what is carried may be joined in any grouping: ``value`` with what
    has been carried over any elements that follow in the place of their ``element`` is what is carried over all;
    with ``start``, it is what was carried.
    """

    name: str
    start: Node
    value: Node
    element: Node | None = None


@dataclasses.dataclass(slots=True)
class Scan:
    """What a nest carries along the loop ``over``, whose iterations run in order."""

    over: ix.Var
    carried: tuple[Carried, ...]

    def goes_with(self, other: Scan) -> bool:
        """Whether what the two carry may be carried side by side: a name that both have means one value."""
        mine = {c.name: c for c in self.carried}
        return self.over is other.over and any(c.name in mine for c in other.carried) and all(
            mine[c.name] == c for c in other.carried if c.name in mine)


@dataclasses.dataclass(slots=True)
class LoopNest:
    """See the module's docstring.

    Attributes:
        kind: a key of ``ops.REDUCTIONS``, or None for a pointwise nest.
        position: for argmax and argmin, the number of an iteration over the reduced dimensions.
        origin: the operations it computes and the user's lines, for comments.
        contraction: for a sum of products that is worth a template, what the template needs to know.
        update: for a nest that writes into a buffer here and there, in the order of its loops. Its value is an "update"
            node, which says where, and ``index`` is 0.
        scan: for a nest whose value depends on those before it: in ``value``, "acc" nodes are what is carried after the
            iteration.
    """

    buffer: Buffer
    dims: tuple[ix.Var, ...]
    value: Node
    index: ix.Index
    kind: str | None = None
    reduced: tuple[ix.Var, ...] = ()
    position: ix.Index = 0
    origin: tuple[str, ...] = ()
    contraction: Contraction | None = None
    update: Update | None = None
    scan: Scan | None = None

    @property
    def kept(self) -> tuple[ix.Var, ...]:
        return tuple(v for v in self.dims if v not in self.reduced)

    def alone(self) -> bool:
        """Whether it becomes a kernel of its own kind, which no other nest joins."""
        return self.update is not None or self.scan is not None

    def checks(self) -> bool:
        """Whether it looks at indices that stand in memory, and reports one that is out of bounds."""
        return any(n.op == "bounded" for n in walk(self.roots()))

    def roots(self) -> tuple[Node, ...]:
        """All that it computes."""
        before = () if self.update is None else (self.update.value,)
        carried = () if self.scan is None else tuple(c.value for c in self.scan.carried)
        return (*before, *carried, self.value)

    def describe(self) -> str:
        """Readable text: the loops, the body, the store."""
        carried = () if self.scan is None else self.scan.carried
        from_nodes = [f"    {n}" for n in walk((*(c.value for c in carried), self.value))]
        from_nodes += [f"    {c.name} = n{c.value.id} along {self.scan.over}, from {c.start.attr}"  # type: ignore[union-attr]
                       for c in carried]
        loops = ", ".join(f"{v}{'*' if v in self.reduced else ''}<{v.size}" for v in self.dims)
        what = f"{self.kind}(n{self.value.id})" if self.kind else f"n{self.value.id}"
        before = [] if self.update is None else [
            f"for {', '.join(f'{v}<{v.size}' for v in self.update.dims)}:",
            *(f"    {n}" for n in walk((self.update.value,))),
            f"    {self.buffer.name}[{self.update.index}] = n{self.update.value.id}"]
        return "\n".join([*before, f"for {loops}:", *from_nodes, f"    {self.buffer.name}[{self.index}] = {what}"])
