"""A kernel: loops around stages, each a list of stores and accumulations. What code generators read.

``outer`` loops run around everything; inside, the stages run one after the other, each with loops of its own
(``inner``; none
for what happens once per outer iteration). A reduction accumulates in a stage and its result is an ``acc`` node from
the next stage on. One loop runs in vector registers: the last inner one of each stage, or, if ``vector_outer``, the
last outer one.

Invariants (``checker`` asserts them): a node names only variables of the loops around it; an ``acc`` is read only
after the stage that makes it; a scratch buffer is written in an earlier stage than it is read, over the same inner
loops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Union

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.scheduler.threads import WorkSharing


@dataclasses.dataclass(slots=True)
class Store:
    """``buffer[index] = value``."""

    buffer: str
    index: ix.Index
    value: Node


@dataclasses.dataclass(slots=True)
class Accumulate:
    """``acc = kind(acc, value)``. For argmax and argmin ``acc`` is the position of the best value. In a scan the
    kind is "carry": ``acc`` is ``start``, then ``value``, which may name it as it was; ``element`` as in
    ``ir.loops.Carried``."""

    acc: str
    kind: str
    value: Node
    position: ix.Index = 0
    start: Node | None = None
    element: Node | None = None


Statement = Union[Store, Accumulate]


def positions_ascend(statement: Accumulate, loops: Sequence[ix.Var]) -> bool:
    """Whether loops in this order meet the elements of an argmax or argmin in the order of their positions, so that the
    first of equal elements that they meet is the one to find."""
    steps = [ix.coefficient(statement.position, v) for v in loops]
    if not steps or any(step is None or not ix.always_positive(step) for step in steps):
        return False
    following = zip(steps, steps[1:], loops[1:])
    return all(step == ix.mul(inner, v.size) for step, inner, v in following if step is not None and inner is not None)


@dataclasses.dataclass(slots=True)
class Stage:
    """Loops and what they do. If ``tiled``, the last two loops go together over square tiles: some loads are contiguous
    along the last but one, and are transposed in registers. Of a scan, its own loop and the kernel's last outer one do:
    loads and stores are contiguous along its own.

    A stage that is ``ordered`` writes into parts of a buffer, maybe at one place twice; threads share its last loop if
    that leads to different places (``free``), its first one if each of its iterations writes to a range of its own
    (``apart``), and nothing otherwise. One that is ``scalar`` has no vector loop. A
    ``check`` only computes, so that an index out of bounds is known before anything is written: the kernel ends there
    if it is; with a pair ``where_same`` it is for nothing where the two buffers are not one, as what is written then is
    nobody's yet. One with a pair ``unless_same`` copies, which is for nothing where they are one.

    A stage that is a ``scan`` carries values from one iteration of its loops to the next; what it stores is computed
    from them as they are after the iteration."""

    inner: tuple[ix.Var, ...]
    statements: list[Statement]
    tiled: bool = False
    ordered: bool = False
    free: bool = False
    apart: bool = False
    scalar: bool = False
    check: bool = False
    unless_same: tuple[str, str] | None = None
    where_same: tuple[str, str] | None = None
    scan: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """Elements of a buffer as a matrix, or as a batch of them; one dimension is a vector for all lines."""

    buffer: str
    size: tuple[ix.Index, ...]
    stride: tuple[ix.Index, ...]
    offset: ix.Index


@dataclasses.dataclass(frozen=True, slots=True)
class LibraryProduct:
    """What may stand for the kernel of a product, see ``library_product``.

    Attributes:
        operands: the left and the right one.
        addend: what the library's operator adds, if there is such.
        result: the buffer of its result.
        direct: the kernel's output that the result is, if nothing follows.
        after: the kernel of what follows, which reads ``result``.
    """

    operands: tuple[Operand, Operand]
    addend: Operand | None
    result: Buffer
    direct: str | None
    after: Kernel | None


@dataclasses.dataclass(slots=True)
class Tiles:
    """How a kernel that begins with a sum of products runs: the first stage is the template's, the second is computed
    over each of its tiles.

    Attributes:
        batch, line, lane: the loops; None for one of a single iteration. The last is the vector loop.
        workspace: the buffer for packed operands; "" for a target that packs none.
        sharing: what each thread does, for a target whose threads share the work as its arrangement says.
        library: what may stand for the kernel, where that is wanted and there is such.
    """

    contraction: Contraction
    batch: ix.Var | None
    line: ix.Var | None
    lane: ix.Var
    workspace: str = ""
    sharing: WorkSharing | None = None
    library: LibraryProduct | None = None

    def indices(self) -> tuple[ix.Index, ...]:
        """All sizes, strides and offsets."""
        own = self.contraction.indices()
        return own if self.sharing is None else (*own, *self.sharing.indices())


@dataclasses.dataclass(slots=True)
class Kernel:
    """See the module's docstring.

    Attributes:
        buffers: what the kernel reads and writes, in the order of its arguments.
        outputs: names of those that it writes.
        vector_outer: whether the last outer loop is the vector loop; the inner ones are then serial.
        scratch: rows that live in the kernel only, by name.
        origin: the operations computed, for comments.
        tiles: for a kernel that begins with a sum of products, how it runs.
    """

    outer: tuple[ix.Var, ...]
    stages: list[Stage]
    vector_outer: bool
    buffers: dict[str, Buffer]
    outputs: tuple[str, ...]
    scratch: dict[str, Buffer]
    origin: tuple[str, ...]
    inplace: tuple[tuple[str, str], ...] = ()
    tiles: Tiles | None = None

    @property
    def inner(self) -> tuple[ix.Var, ...]:
        """The inner loops, which all stages share until guards are taken apart."""
        return next((s.inner for s in self.stages if s.inner), ())

    def is_pure(self) -> bool:
        """Whether nothing is reduced, so that any order of loops will do."""
        return not any(isinstance(s, Accumulate) for s in self.statements())

    def vector(self, stage: Stage) -> ix.Var | None:
        """The vector loop's variable while a stage runs."""
        if self.vector_outer:
            return self.outer[-1]
        return stage.inner[-1] if stage.inner and not stage.scalar else None

    def faults(self) -> bool:
        """Whether the kernel may report an index out of bounds."""
        return any(n.op == "bounded" for n in walk([s.value for s in self.statements()]))

    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic sizes that the kernel needs."""
        used: list[ix.Index] = [v.size for v in self.outer]
        used += [v.size for stage in self.stages for v in stage.inner]
        used += [n for row in self.scratch.values() for n in row.size]
        if self.tiles is not None:
            used += self.tiles.indices()
        for s in self.statements():
            used.append(s.index if isinstance(s, Store) else s.position)
        for n in walk([s.value for s in self.statements()]):
            if n.op == "load":
                used.append(n.attr[1])
            elif n.op == "index":
                used.append(n.attr)
            elif n.op in ("bounded", "update"):
                used.append(n.attr[0])
        return tuple(sorted({a.name for x in used for a in ix.atoms_of(x) if isinstance(a, ix.Sym)}))

    def statements(self) -> list[Statement]:
        return [s for stage in self.stages for s in stage.statements]

    def describe(self) -> str:
        """Readable text for the log ``ir``."""
        outer = ", ".join(f"{v}<{v.size}" for v in self.outer)
        where = "outer" if self.vector_outer else "inner"
        lines = [f"kernel over {outer or 'nothing'}; vector {where}; {'; '.join(self.origin)}"]
        for stage in self.stages:
            lines.append("  stage " + ", ".join(f"{v}<{v.size}" for v in stage.inner))
            for s in stage.statements:
                if isinstance(s, Store):
                    lines.append(f"    {s.buffer}[{s.index}] = {s.value}")
                else:
                    lines.append(f"    {s.acc} = {s.kind} of {s.value}")
        return "\n".join(lines)
