"""Row-block fusion: two products with kernels of rows between them, such as attention, as one kernel that computes a
block of rows at a time.

Scores, what is computed from each row of them, and the product with the values run one after the other on each block,
so that scores and weights are never whole in memory: they lie in a thread's own part of a workspace, and so in its
cache. Each of these kernels becomes a *part*: a kernel whose batch, rows and columns are symbols (``BLOCK``), for which
the code around the parts has variables. Where a condition says which scores count (``skipped``), only the range of
columns that contains them is computed.

Invariant: a part computes what the kernel that it was made from computes, for the rows and columns of its symbols. The
rows of a block follow from sizes and caches, not from the number of threads, as the last bits of results may depend on
which columns are left out.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import MAX_HEAD, Contraction, Matrix, volume
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.scheduler.bounded_operands import Limited, flag_kernels, limited, pays_to_test
from dynamo_lite.backends.inductor.scheduler.chains import (
    Step,
    chain_from,
    has_more_scores,
    is_small,
    may_write,
    read_by,
)
from dynamo_lite.backends.inductor.scheduler.inlined import Inlined, with_inlined
from dynamo_lite.backends.inductor.scheduler.kernel import (
    BATCH,
    COLUMNS,
    FIRST_COLUMN,
    FIRST_ROW,
    ROWS,
    Accumulate,
    Kernel,
    RowBlocks,
    Stage,
    Store,
    Tiles,
)
from dynamo_lite.backends.inductor.scheduler.loop_transforms import rewrite
from dynamo_lite.backends.inductor.scheduler.online_softmax import online_softmax
from dynamo_lite.backends.inductor.scheduler.skipped import loaded_mask, may_skip, stored_mask
from dynamo_lite.backends.inductor.scheduler.threads import share_later
from dynamo_lite.backends.inductor.target_info import TargetInfo

Places = dict[ix.Var, ix.Index]
# Rows of a block: as many as have scores that stay in the core's own cache, within these limits. Fewer rows would read
# the right operands too often, more leave too few blocks for threads. They are multiples of a vector's lanes.
LEAST_ROWS, MOST_ROWS = 32, 256
# Number of blocks that a kernel has at least, if blocks have more than the least number of rows: one for each of 64
# threads. (8 blocks were no faster on two cores.)
MIN_BLOCKS = 64


def fuse_row_blocks(
    builder: Builder, steps: Sequence[Step], kept: frozenset[str], inputs: frozenset[str], buffers: dict[str, Buffer],
    threads: int, info: TargetInfo,
) -> list[Step]:
    """The steps with chains of kernels replaced.

    Args:
        kept: names that the graph returns.
        inputs: names of the graph's inputs.
        buffers: all buffers; those of workspaces are added.
    """
    def pays(first: Contraction, last: Contraction) -> bool:
        return not is_small(first, info) and has_more_scores(first, last)

    return _fused(steps, kept, inputs, pays, lambda chain: _Blocks(builder, chain, buffers, threads, info))


def fuse_online(
    builder: Builder, steps: Sequence[Step], kept: frozenset[str], inputs: frozenset[str], buffers: dict[str, Buffer]
) -> list[Step]:
    """The same for a target whose kernels hold a block of scores in registers: chains that are an ``OnlineSoftmax``."""
    def inlined(steps: Sequence[Step], chain: Sequence[int]) -> Inlined:
        begin = next((k + 1 for k in range(chain[-1], -1, -1) if may_write(steps[k], inputs)), 0)
        return with_inlined(builder, [steps[k] for k in chain], steps[begin:chain[-1]])

    return _fused(
        steps, kept, inputs, lambda first, last: True, lambda chain: _Online(builder, chain, buffers), inlined)


def _fused(
    steps: Sequence[Step], kept: frozenset[str], inputs: frozenset[str],
    pays: Callable[[Contraction, Contraction], bool], blocks_of: Callable[[Sequence[Kernel]], _Blocks],
    inlined: Callable[[Sequence[Step], Sequence[int]], Inlined] | None = None,
) -> list[Step]:
    out = list(steps)
    at = 0
    while at < len(out):
        chain = chain_from(out, at, inputs, pays)
        if chain:
            found = Inlined([out[k] for k in chain], []) if inlined is None else inlined(out, chain)
            blocks = blocks_of(found.chain)
            made = blocks.kernel(kept | read_by(s for k, s in enumerate(out) if k not in chain))
            if made is not None:
                out[chain[-1]:chain[-1] + 1] = [*blocks.before, made]
                for k in reversed(chain[:-1]):
                    del out[k]
                for producer in found.producers:
                    k = next((k for k, step in enumerate(out) if step is producer), None)
                    if k is not None and (kept | read_by(iter(out))).isdisjoint(producer.outputs):
                        del out[k]
                        at -= k < at
                continue
        at += 1
    return out


# ---------------------------------------------------------------- parts
class _Blocks:
    """Turns a chain into one kernel.

    Attributes:
        batches, rows, columns: sizes of the scores.
        local: buffers that nothing outside of the chain reads.
        batch: the element of the batch.
        base: the index of a block's first element in a buffer of scores.
        line, lane: the loops over a block's rows and columns; ``row`` and ``column`` are the numbers of a row and of a
            column of the whole in terms of these.
        before: kernels that have to run before.
    """

    def __init__(
        self, builder: Builder, chain: Sequence[Kernel], buffers: dict[str, Buffer], threads: int = 1,
        info: TargetInfo | None = None,
    ):
        self.builder, self.chain, self.buffers = builder, chain, buffers
        self.threads, self.info = threads, info
        first = self._tiles(chain[0]).contraction
        self.batches, self.rows, self.columns = volume(first.batch), volume(first.lines), volume(first.lanes)
        self.local: dict[str, Buffer] = {}
        self.batch: ix.Index = 0 if self.batches == 1 else BATCH
        self.base = ix.mul(ix.add(ix.mul(self.batch, self.rows), FIRST_ROW), self.columns)
        self.line, self.lane = ix.Var("r", ROWS), ix.Var("c", COLUMNS)
        self.row = ix.add(FIRST_ROW, ix.atom(self.line))
        self.column = ix.add(FIRST_COLUMN, ix.atom(self.lane))
        self.workspaces: dict[str, ix.Index] = {}
        self.before: list[Kernel] = []

    @staticmethod
    def _tiles(kernel: Kernel) -> Tiles:
        assert kernel.tiles is not None
        return kernel.tiles

    def kernel(self, needed: frozenset[str]) -> Kernel | None:
        """The kernel; None if rows don't pass through the chain one by one.

        Args:
            needed: names that are read outside of the chain.
        """
        first, *between, last = self.chain
        product, final = self._tiles(first).contraction, self._tiles(last).contraction
        scores, weights = first.outputs[0], final.left.buffer
        made = [name for kernel in (first, *between) for name in kernel.outputs if name != self._workspace(kernel)]
        self.local = {name: self.buffers[name] for name in made if name not in needed}
        same = (volume(final.batch), volume(final.lines), final.depth) == (self.batches, self.rows, self.columns)
        if not same or final.transposed or scores not in self.local or weights not in self.local:
            return None
        parts = [self._scores(first), *(self._of_rows(kernel) for kernel in between), self._result(last)]
        whole = [part for part in parts if part is not None]
        if len(whole) < len(parts):
            return None
        sizes = (self.batches, self.rows, self.columns)
        return self._around(whole, RowBlocks(whole, sizes, product.depth, volume(final.columns), self.local))

    def _around(self, parts: list[Kernel], blocks: RowBlocks) -> Kernel | None:
        """The kernel around the parts."""
        assert self.info is not None
        counted = self._counts()
        if counted is not None:
            blocks.counts, added = counted
            blocks.bounded = [(_moved(o.matrix, self._batch(o.contraction), 0), o.lines, o.depth, o.limit)
                              for o in self._limited(added)]
        blocks.takeovers, blocks.workspaces, blocks.slots = self._takeovers(parts), self.workspaces, self.threads
        blocks.near, blocks.least, blocks.most = self.info.own_cache // 2, LEAST_ROWS, MOST_ROWS
        blocks.blocks = MIN_BLOCKS
        blocks.room = f"workspace{len(self.buffers)}"
        room = Buffer(blocks.room, (ix.mul(blocks.slot(), self.threads),), (1,), torch.float32)
        self.buffers[blocks.room] = room
        kernel = self._joined(blocks)
        kernel.buffers[blocks.room] = room
        kernel.outputs = (*kernel.outputs, blocks.room)
        return kernel

    def _workspace(self, kernel: Kernel) -> str:
        return kernel.tiles.workspace if kernel.tiles is not None else ""

    def _joined(self, blocks: RowBlocks) -> Kernel:
        """The kernel of the parts, without a workspace."""
        every = blocks.kernels()
        inside = {*self.local, *self.workspaces, FLAG}
        outputs = tuple(dict.fromkeys(n for part in every for n in part.outputs if n not in inside))
        names = dict.fromkeys(n for part in every for n in part.buffers if n not in inside and n not in outputs)
        origin = tuple(dict.fromkeys(o for kernel in self.chain for o in kernel.origin))
        arguments = {n: self.buffers[n] for n in (*names, *outputs)}
        return Kernel((), [], False, arguments, outputs, {}, origin, blocks=blocks)

    def _scores(self, kernel: Kernel) -> Kernel | None:
        """The part that computes the scores of a block."""
        c = self._tiles(kernel).contraction
        assert isinstance(c.right, Matrix)
        queries, keys = (c.right, c.left) if c.transposed else (c.left, c.right)
        batch = self._batch(c)
        queries = _moved(queries, batch, ix.mul(FIRST_ROW, queries.line))
        keys = _moved(keys, batch, ix.mul(FIRST_COLUMN, keys.line))
        left, right = (keys, queries) if c.transposed else (queries, keys)
        rows, columns = ((self.lane,), (self.line,)) if c.transposed else ((self.line,), (self.lane,))
        block = Contraction((), rows, columns, c.depth, left, right, c.transposed)
        most = ix.Var("r", MOST_ROWS), ix.Var("c", self.columns)
        bound = dataclasses.replace(block, rows=most[1:] if c.transposed else most[:1],
                                    columns=most[:1] if c.transposed else most[1:])
        return self._product(kernel, block, bound, self.column)

    def _result(self, kernel: Kernel) -> Kernel | None:
        """The part that multiplies a block's weights by the values."""
        c = self._tiles(kernel).contraction
        assert isinstance(c.right, Matrix)
        batch = self._batch(c)
        weights = _moved(c.left, batch, ix.add(ix.mul(FIRST_ROW, c.left.line), ix.mul(FIRST_COLUMN, c.left.depth)))
        offset = ix.add(weights.offset, ix.mul(self.base, -1))
        if offset != FIRST_COLUMN or (c.left.line, c.left.depth) != (self.columns, 1):
            return None
        weights = dataclasses.replace(weights, offset=offset)
        values = _moved(c.right, batch, ix.mul(FIRST_COLUMN, c.right.depth))
        block = Contraction((), (self.line,), c.columns, COLUMNS, weights, values, False)
        bound = dataclasses.replace(block, rows=(ix.Var("r", MOST_ROWS),), depth=self.columns)
        # The loop of the sum, which runs along the block's columns.
        summed = kernel.stages[0].inner
        if len(summed) != 1:
            return None
        return self._product(kernel, block, bound, ix.atom(self._tiles(kernel).lane), {summed[0]: self.column})

    def _batch(self, c: Contraction) -> tuple[ix.Index, ...]:
        """The index along each dim of the batch."""
        return _unflattened(self.batch, [v.size for v in c.batch])

    def _product(self, kernel: Kernel, block: Contraction, bound: Contraction, lane: ix.Index,
                 further: Mapping[ix.Var, ix.Index] | None = None) -> Kernel | None:
        """The part of a product.

        Args:
            block: the sum of products of a block.
            bound: the same with its largest sizes, for which the workspace has room.
            lane: what replaces the variable along lines.
            further: what replaces other loops.
        """
        name, places = self._tiles(kernel).workspace, self._places_of_product(kernel, lane)
        if places is None:
            return None
        mapping = {**places, **(further or {})}
        part = self._part(kernel, mapping)
        sharing = None if self.info is None else share_later(block, bound, self.info)
        if part is not None:
            if sharing is not None:
                self.workspaces[name] = sharing.slot
            part.tiles = Tiles(block, None, self.line, next(iter(ix.free_vars(lane))), name, sharing)
        return part

    def _places_of_product(self, kernel: Kernel, lane: ix.Index) -> Places | None:
        """What replaces the loop variables of a product's epilogue; None if it has a single row."""
        own = self._tiles(kernel)
        if own.line is None:
            return None
        batch: Places = {} if own.batch is None else {own.batch: self.batch}
        return {own.lane: lane, own.line: self.row, **batch}

    def _of_rows(self, kernel: Kernel) -> Kernel | None:
        """The part of a kernel that computes rows."""
        places = self._places_of_rows(kernel)
        return None if places is None else self._part(kernel, places)

    def _places_of_rows(self, kernel: Kernel) -> Places | None:
        """What replaces the loop variables of a kernel of rows; None if its loops are others than batch, rows and
        columns."""
        *others, v = kernel.outer
        outside = ix.floordiv(v.size, self.rows)
        batch = [*(w.size for w in others), outside]
        inner = {w for stage in kernel.stages for w in stage.inner}
        fits = ix.mul(outside, self.rows) == v.size and all(w.size == self.columns for w in inner)
        if not fits or ix.product(batch) != self.batches:
            return None
        *before, own = _unflattened(self.batch, batch)
        return {**dict(zip(others, before)), v: ix.add(ix.mul(own, self.rows), self.row),
                **dict.fromkeys(inner, self.column)}

    def _limited(self, added: bool) -> tuple[Limited, ...]:
        return limited(self._tiles(self.chain[0]).contraction, self._tiles(self.chain[-1]).contraction, added)

    def _counts(self) -> tuple[Kernel, bool] | None:
        """The kernel that tests whether any element of a range of columns counts, in any row of the block, and whether
        the mask is added to scores; None if all columns have to be computed."""
        first, *between, last = self.chain
        scores, weights = first.outputs[0], self._tiles(last).contraction.left.buffer
        masked = stored_mask(first, scores)
        if masked is not None:
            own, places = first, self._places_of_product(first, self.column)
        else:
            own, masked = between[0], loaded_mask(between[0], scores)
            places = self._places_of_rows(own)
            if any(scores in kernel.buffers for kernel in between[1:]):
                return None
        if masked is None or places is None or not may_skip(between, scores, weights, set(self.local), masked.scores):
            return None
        acc = self.builder.acc("counts", torch.bool, frozenset())
        condition = masked.condition.of(self.builder, places)
        stages = [Stage((self.line, self.lane), [Accumulate("counts", "any", condition)]),
                  Stage((), [Store(FLAG, 0, acc)])]
        names = dict.fromkeys(n.attr[0] for n in walk((condition,)) if n.op == "load")
        if not names.keys().isdisjoint(self.local):
            return None
        flag = Buffer(FLAG, (1,), (1,), torch.bool)
        buffers = {**{n: self.buffers[n] for n in names}, FLAG: flag}
        return Kernel((), stages, False, buffers, (FLAG,), {}, own.origin), masked.condition.added

    def _part(self, kernel: Kernel, places: Places) -> Kernel | None:
        """A copy of the kernel with loop variables replaced and local buffers indexed from the block's first element;
        None if it accesses another element of a local buffer than those of its own row and column."""
        stages = [dataclasses.replace(stage, statements=[dataclasses.replace(s) for s in stage.statements])
                  for stage in kernel.stages]
        part = dataclasses.replace(kernel, stages=stages, inplace=())
        own = {self.line, self.lane}
        # Loops of a product's columns stay as they are.
        replaced = {v: tuple(w for w in ix.free_vars(index) if w in own or w is v) for v, index in places.items()}
        rewrite(self.builder, part, places, replaced)
        statements = part.statements()
        moved: dict[Node, Node] = {}
        for n in walk([s.value for s in statements]):
            if n.op == "load" and n.attr[0] in self.local:
                index = self._own(n.attr[1])
                if index is None:
                    return None
                moved[n] = self.builder.load(n.attr[0], index, n.dtype)
        values = self.builder.substitute_all([s.value for s in statements], {}, moved) if moved else None
        for k, s in enumerate(statements):
            s.value = s.value if values is None else values[k]
            if isinstance(s, Store) and s.buffer in self.local:
                index = self._own(s.index)
                if index is None:
                    return None
                s.index = index
        return part

    def _own(self, index: ix.Index) -> ix.Index | None:
        """An index into a local buffer, counted from the block's first element; None if it is of another row."""
        own = ix.add(index, ix.mul(self.base, -1))
        allowed = ix.add(ix.mul(ix.atom(self.line), self.columns), self.column)
        return own if own == allowed else None

    def _takeovers(self, parts: Sequence[Kernel]) -> dict[str, str]:
        """For local buffers that can overwrite another one, that one: where every element is written by the iteration
        that reads the same element of the other, for the last time. (All local elements are read by the iteration of
        their own row and column.)"""
        found: dict[str, str] = {}
        for at, part in enumerate(parts):
            later = {name for other in parts[at + 1:] for name in other.buffers}
            for output in part.outputs:
                stored = [k for k, stage in enumerate(part.stages) if output in _stored(stage)]
                donors = [name for name in part.buffers if name in self.local and name not in part.outputs
                          and name not in later and name not in found.values()
                          and self.local[name].dtype is self.buffers[output].dtype]
                if output not in self.local or len(stored) != 1:
                    continue
                for name in donors[:1]:
                    if not any(name in _loaded(stage) for stage in part.stages[stored[0] + 1:]):
                        found[output] = name
        return found


def _stored(stage: Stage) -> set[str]:
    return {s.buffer for s in stage.statements if isinstance(s, Store)}


def _loaded(stage: Stage) -> set[str]:
    return {n.attr[0] for n in walk([s.value for s in stage.statements]) if n.op == "load"}


def _unflattened(flat: ix.Index, sizes: Sequence[ix.Index]) -> tuple[ix.Index, ...]:
    """The index along each dim of the batch, given the number of its element."""
    out: list[ix.Index] = []
    for at, size in enumerate(sizes):
        part = ix.floordiv(flat, ix.product(sizes[at + 1:]))
        # A remainder is left out where it would be that of division by the size of the whole batch.
        first = all(n == 1 for n in sizes[:at])
        out.append(0 if size == 1 else part if first else ix.mod(part, size))
    return tuple(out)


class _Online(_Blocks):
    """Turns a chain that is an ``OnlineSoftmax`` into one kernel, which needs no memory for a block."""

    def _around(self, parts: list[Kernel], blocks: RowBlocks) -> Kernel | None:
        depth, width = blocks.depth, blocks.width
        if not isinstance(depth, int) or not isinstance(width, int) or max(depth, width) > MAX_HEAD:
            return None
        blocks.online = online_softmax(self.builder, parts, self.local)
        if blocks.online is None:
            return None
        operand = self.buffers[self._tiles(self.chain[0]).contraction.left.buffer]
        counted = self._counts() if pays_to_test(blocks, operand.dtype.itemsize) else None
        if counted is None:
            return self._joined(blocks)
        blocks.counts, blocks.added = counted
        right = self._limited(blocks.added)[:2]
        origin = tuple(dict.fromkeys(o for kernel in self.chain for o in kernel.origin))
        self.before = flag_kernels(self.builder, right, self.columns, self.buffers, origin)
        kernel = self._joined(blocks)
        blocks.flags = [name for before in self.before for name in before.outputs]
        kernel.buffers = {**{name: self.buffers[name] for name in blocks.flags}, **kernel.buffers}
        return kernel


FLAG = "counts"
"""The name of the flag that ``RowBlocks.counts`` sets."""


def _moved(matrix: Matrix, batch: Sequence[ix.Index], further: ix.Index) -> Matrix:
    """The operand of one element of the batch, moved by ``further`` elements."""
    offset = ix.sum_of([matrix.offset, ix.dot(batch, matrix.batch), further])
    return dataclasses.replace(matrix, offset=offset, batch=())
