"""Kernels, the input of code generators: loops around stages, each of which is a list of stores and accumulations.

The ``outer`` loops enclose everything. Inside, the stages run one after the other, each in loops of its own (``inner``;
none for a stage that runs once per outer iteration). A reduction accumulates in one stage; in the following stages its
result is an ``acc`` node. One loop is vectorized: the last inner loop of each stage, or, if ``vector_outer``, the last
outer loop.

Invariants (``checker`` asserts most of them): a node contains only variables of the loops around it; an ``acc`` is read
only after the stage that computes it; a scratch buffer is written in an earlier stage than it is read, over the same
inner loops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Union

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix
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
    """``acc = kind(acc, value)``. For argmax and argmin, ``acc`` is the position of the largest or smallest value. In a
    scan, the kind is "carry": ``acc`` is ``start`` at first and ``value`` after each iteration, where ``value`` may
    contain the previous ``acc``; for ``element`` see ``ir.loops.Carried``."""

    acc: str
    kind: str
    value: Node
    position: ix.Index = 0
    start: Node | None = None
    element: Node | None = None


Statement = Union[Store, Accumulate]


def positions_ascend(statement: Accumulate, loops: Sequence[ix.Var]) -> bool:
    """Whether loops in this order visit the elements of an argmax or argmin by ascending position, so that of equal
    elements the first one that they visit is the result."""
    steps = [ix.coefficient(statement.position, v) for v in loops]
    if not steps or any(step is None or not ix.always_positive(step) for step in steps):
        return False
    following = zip(steps, steps[1:], loops[1:])
    return all(step == ix.mul(inner, v.size) for step, inner, v in following if step is not None and inner is not None)


@dataclasses.dataclass(slots=True)
class Stage:
    """Statements and the loops around them.

    Attributes:
        inner: the loops, outermost first.
        tiled: whether the last two loops run over square tiles: some loads are contiguous along the loop before the
            last one, and are transposed in registers. In a scan, the tiles are of its own loop, along which loads and
            stores are contiguous, and the kernel's last outer loop.
        ordered: whether the stage writes to some elements of a buffer, possibly repeatedly, in the order of its loops.
        free: whether iterations of the last loop write to different elements; then threads may share it.
        apart: whether each iteration of the first loop writes to a range of its own; then threads may share that loop.
        scalar: whether the stage has no vector loop.
        check: whether the stage only checks indices before anything is written; if one is out of bounds, the kernel
            ends there.
        unless_same: a pair of buffers, the second of which the stage copies to the first; the stage is skipped if both
            are the same memory.
        where_same: a pair of buffers of a check, which is skipped unless both are the same memory: otherwise the kernel
            writes to new memory, which nothing else observes yet.
        scan: whether the stage carries values from one iteration of its loops to the next. What it stores is computed
            from the carried values after the iteration.
    """

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
    """Elements of a buffer as a matrix or a batch of matrices; with one dimension, a vector that is broadcast to all
    rows."""

    buffer: str
    size: tuple[ix.Index, ...]
    stride: tuple[ix.Index, ...]
    offset: ix.Index


@dataclasses.dataclass(frozen=True, slots=True)
class LibraryProduct:
    """A library call and an epilogue kernel that may replace the kernel of a product, see ``library_product``.

    Attributes:
        operands: the left and the right operand.
        addend: the operand that the library's operator adds; None if it adds nothing.
        result: the buffer of the call's result.
        direct: the kernel's output that equals the result, if there is no epilogue; None otherwise.
        after: the kernel of the epilogue, which reads ``result``; None if there is none.
    """

    operands: tuple[Operand, Operand]
    addend: Operand | None
    result: Buffer
    direct: str | None
    after: Kernel | None


@dataclasses.dataclass(slots=True)
class Tiles:
    """How a kernel that begins with a sum of products runs: the template computes the first stage, and the second stage
    is its epilogue, computed on each tile.

    Attributes:
        contraction: the sum of products.
        batch, line, lane: the variables of the loops; None for a loop with a single iteration. ``lane`` is that of the
            vector loop.
        workspace: the name of the buffer for packed operands; "" for a target that packs none.
        sharing: the division of work among threads, for targets whose arrangement determines it.
        library: what may replace the kernel, if a replacement is wanted and possible.
    """

    contraction: Contraction
    batch: ix.Var | None
    line: ix.Var | None
    lane: ix.Var
    workspace: str = ""
    sharing: WorkSharing | None = None
    library: LibraryProduct | None = None

    def indices(self) -> tuple[ix.Index, ...]:
        """All sizes, strides and offsets of the contraction, and those of the division of work."""
        own = self.contraction.indices()
        return own if self.sharing is None else (*own, *self.sharing.indices())


BATCH, FIRST_ROW, FIRST_COLUMN, ROWS, COLUMNS = (
    ix.atom(ix.Sym(name, least)) for name, least in (
        ("own_batch", 0), ("first_row", 0), ("first_column", 0), ("block_rows", 1), ("block_columns", 1)))
"""The symbols of a block in the parts of ``RowBlocks``: the element of the batch, the first row and column, and how
many of each."""
BLOCK = frozenset(str(x) for x in (BATCH, FIRST_ROW, FIRST_COLUMN, ROWS, COLUMNS))
"""The names of these symbols."""


@dataclasses.dataclass(slots=True)
class OnlineSoftmax:
    """Softmax of rows of scores, see ``online_softmax``. In its nodes, an "acc" with the first product's name stands
    for the product, the others for reductions of rows.

    Attributes:
        largest, total: the largest score, and the sum of exponentials of scores minus that.
        others: further reductions of scores.
        empty: conditions of rows whose weights are 0.
        stores: what is stored for each row.
        values: the second factor of the last product.
    """

    largest: Accumulate
    total: Accumulate
    others: list[Accumulate]
    empty: list[Node]
    stores: list[Store]
    values: Node


@dataclasses.dataclass(slots=True)
class RowBlocks:
    """How a kernel runs several kernels, its parts, in turn on one block of rows after the other (``row_blocks``).

    Attributes:
        parts: the kernels in order; the symbols ``BLOCK`` are the sizes and the place of the block.
        sizes: those of the batch, the rows and the columns.
        depth, width: the depth of the first product, and the number of columns of the last one.
        local: buffers of a block only; ``columns`` elements lie between one row and the next.
        counts: the kernel that tests whether any of the block's elements in a range of columns counts; columns at
            either end without such elements are left out. None: all columns are computed.
        online: what the parts compute, if they are to be computed column by column.
        flags: names of buffers with a flag for each element of the batch and each column; only if all of those of its
            batch hold, a block leaves columns out.
        added: whether queries have to be below ``bounded_operands.LARGEST``, too. The rest is for a target that has the
            parts computed one after the other:
        bounded: operands, for the batch ``BATCH``, whose elements must be smaller than a limit in magnitude if columns
            are to be left out: the operand, its number of lines, its depth, the limit. None without ``counts``.
        takeovers: for local buffers that are in the memory of another one, that one.
        workspaces: of the parts' products, in elements for each thread.
        slots: the largest number of threads that can take part.
        near, least, most, blocks: the rows of a block are as many as have ``near`` bytes of local buffers, but at least
            ``least`` and at most ``most``, and no more than leave this number of ``blocks``.
        room: the name of the workspace.
    """

    parts: list[Kernel]
    sizes: tuple[ix.Index, ix.Index, ix.Index]
    depth: ix.Index
    width: ix.Index
    local: dict[str, Buffer]
    counts: Kernel | None = None
    online: OnlineSoftmax | None = None
    flags: list[str] = dataclasses.field(default_factory=list)
    added: bool = False
    bounded: list[tuple[Matrix, ix.Index, ix.Index, float]] = dataclasses.field(default_factory=list)
    takeovers: dict[str, str] = dataclasses.field(default_factory=dict)
    workspaces: dict[str, ix.Index] = dataclasses.field(default_factory=dict)
    slots: int = 1
    near: int = 0
    least: int = 0
    most: int = 0
    blocks: int = 0
    room: str = ""

    def kernels(self) -> list[Kernel]:
        """The parts, and ``counts`` behind them if there is one."""
        return [*self.parts, *([] if self.counts is None else [self.counts])]

    @property
    def row_bytes(self) -> ix.Index:
        """Bytes of a row of all local buffers."""
        each = sum(buffer.dtype.itemsize for name, buffer in self.local.items() if name not in self.takeovers)
        return ix.mul(self.sizes[2], each)

    def slot(self) -> ix.Index:
        """Number of float32 elements of the workspace that a thread needs: for the products, then for the local
        buffers, each of which begins at a cache line."""
        line = 16
        total: ix.Index = line * (len(self.local) + 1)
        for elements in self.workspaces.values():
            total = ix.add(total, ix.add(elements, line))
        row = self.row_bytes
        if isinstance(row, int):
            rows = min(max(self.near // max(row, 1), self.least), self.most)
            return ix.add(total, rows * row // 4 + line)
        return ix.add(total, ix.add(ix.mul(row, self.least), self.near // 4 + line))

    def indices(self) -> tuple[ix.Index, ...]:
        """All numbers that may be symbolic."""
        return (*self.sizes, self.depth, self.width, *self.workspaces.values())


@dataclasses.dataclass(slots=True)
class Kernel:
    """See the module's docstring.

    Attributes:
        vector_outer: whether the last outer loop is the vector loop; the inner ones are then serial.
        buffers: the buffers that the kernel reads and writes, in the order of its arguments.
        outputs: names of the buffers that it writes.
        scratch: rows of memory that exist within the kernel only, by name.
        origin: the operations that the kernel computes, for comments in generated code.
        inplace: pairs ``(output, input)`` where the output may reuse the input's memory.
        tiles: for a kernel that begins with a sum of products, how it runs.
        blocks: for a kernel that runs others, its parts; it has no stages of its own then.
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
    blocks: RowBlocks | None = None

    @property
    def inner(self) -> tuple[ix.Var, ...]:
        """The inner loops. All stages that have inner loops share them, until loops are split at guards."""
        return next((s.inner for s in self.stages if s.inner), ())

    def is_pure(self) -> bool:
        """Whether the kernel reduces nothing, so that its loops may run in any order."""
        return not any(isinstance(s, Accumulate) for s in self.statements())

    def vector(self, stage: Stage) -> ix.Var | None:
        """The variable of the loop that is vectorized in a stage; None if there is none."""
        if self.vector_outer:
            return self.outer[-1]
        return stage.inner[-1] if stage.inner and not stage.scalar else None

    def faults(self) -> bool:
        """Whether the kernel may report an index out of bounds."""
        return any(n.op == "bounded" for n in walk([s.value for s in self.statements()]))

    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic sizes that the kernel needs."""
        if self.blocks is not None:
            return self._symbols_of_blocks(self.blocks)
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

    @staticmethod
    def _symbols_of_blocks(blocks: RowBlocks) -> tuple[str, ...]:
        inside = {name for part in blocks.kernels() for name in part.symbols()} - BLOCK
        own = {a.name for x in blocks.indices() for a in ix.atoms_of(x) if isinstance(a, ix.Sym)}
        return tuple(sorted(inside | own))

    def statements(self) -> list[Statement]:
        """The statements of all stages."""
        return [s for stage in self.stages for s in stage.statements]

    def describe(self) -> str:
        """Readable text for the log ``ir``."""
        outer = ", ".join(f"{v}<{v.size}" for v in self.outer)
        where = "outer" if self.vector_outer else "inner"
        lines = [f"kernel over {outer or 'nothing'}; vector {where}; {'; '.join(self.origin)}"]
        if self.blocks is not None:
            parts = [part.describe() for part in self.blocks.kernels()]
            return "\n".join([f"kernel of blocks of rows of {self.blocks.sizes}", *parts])
        for stage in self.stages:
            lines.append("  stage " + ", ".join(f"{v}<{v.size}" for v in stage.inner))
            for s in stage.statements:
                if isinstance(s, Store):
                    lines.append(f"    {s.buffer}[{s.index}] = {s.value}")
                else:
                    lines.append(f"    {s.acc} = {s.kind} of {s.value}")
        return "\n".join(lines)
