"""Loop nests: each defines the elements of one buffer.

A ``LoopNest`` iterates over ``dims`` and stores a value at an index. A pointwise nest computes
``buffer[index] = value`` in every iteration. A reduction computes, for every iteration of the dimensions that are not
``reduced``, ``buffer[index]`` as the reduction of ``value`` over those that are.

Invariants (``checker`` asserts most of them): ``index`` contains only variables of kept dimensions, and no two
iterations of these store to the same element; ``value`` contains only variables of ``dims`` and has the buffer's dtype
(except for argmax and argmin, whose result is ``position``, an index).
"""

from __future__ import annotations

import dataclasses

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction
from dynamo_lite.backends.inductor.ir.nodes import Node, walk


@dataclasses.dataclass(slots=True)
class Buffer:
    """A strided tensor in memory. ``stride`` is that of eager's tensor."""

    name: str
    size: tuple[ix.Index, ...]
    stride: tuple[ix.Index, ...]
    dtype: torch.dtype
    device: torch.device = torch.device("cpu")

    def load_index(self, indices: tuple[ix.Index, ...]) -> ix.Index:
        """The offset, in elements, of the element at the given indices."""
        return ix.dot(indices, self.stride)


@dataclasses.dataclass(slots=True)
class Update:
    """The initial contents of a buffer that the nest then writes into, possibly several times at one element:
    ``buffer[index] = value`` for every iteration of ``dims``."""

    dims: tuple[ix.Var, ...]
    value: Node
    index: ix.Index


@dataclasses.dataclass(slots=True)
class Carried:
    """A loop-carried value of a scan: ``start`` before the first iteration, ``value`` after each one. In ``value``, an
    "acc" node with the name of a carried value stands for that value after the previous iteration.

    With an ``element``, a node that occurs in ``value``, the scan is associative: replacing ``element`` by the value
    carried over a following run of elements gives the value carried over both runs, and replacing it by ``start``
    changes nothing. So partial scans may be combined in any grouping.
    """

    name: str
    start: Node
    value: Node
    element: Node | None = None


@dataclasses.dataclass(slots=True)
class Scan:
    """The values that a nest carries along the loop ``over``, whose iterations run in order."""

    over: ix.Var
    carried: tuple[Carried, ...]

    def goes_with(self, other: Scan) -> bool:
        """Whether both scans can run in one loop: they share a carried value, and each name that both use is the same
        value."""
        mine = {c.name: c for c in self.carried}
        return self.over is other.over and any(c.name in mine for c in other.carried) and all(
            mine[c.name] == c for c in other.carried if c.name in mine)


@dataclasses.dataclass(slots=True)
class LoopNest:
    """The loops, the body and the store that define one buffer; see the module's docstring.

    Attributes:
        kind: a key of ``ops.REDUCTIONS``, or None for a pointwise nest.
        position: for argmax and argmin, the number of the current iteration among those over the reduced dimensions;
            the result is the number of the iteration that is found.
        origin: the operations that the nest computes and the user's source lines, for comments in generated code.
        contraction: the description of a sum of products that a template may compute.
        update: for a nest that writes to some elements of a buffer, in the order of its loops: the buffer's initial
            contents. The nest's value is an "update" node, which holds the index, and ``index`` is 0.
        scan: the loop-carried values of a nest whose results depend on preceding iterations. In ``value``, "acc" nodes
            are the carried values after the iteration.
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
        """The dimensions that are not reduced."""
        return tuple(v for v in self.dims if v not in self.reduced)

    def alone(self) -> bool:
        """Whether the nest is an update or a scan, which form kernels of their own kind: ordinary fusion does not apply
        to them."""
        return self.update is not None or self.scan is not None

    def checks(self) -> bool:
        """Whether the nest reads indices from memory and reports those that are out of bounds."""
        return any(n.op == "bounded" for n in walk(self.roots()))

    def roots(self) -> tuple[Node, ...]:
        """The root nodes of everything that the nest computes."""
        before = () if self.update is None else (self.update.value,)
        carried = () if self.scan is None else tuple(c.value for c in self.scan.carried)
        return (*before, *carried, self.value)

    def describe(self) -> str:
        """The loops, the body and the store as readable text."""
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
