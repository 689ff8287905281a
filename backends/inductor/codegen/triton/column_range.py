"""The range of columns that a block of rows computes: from the first to the last block of columns in which any score
counts, see ``RowBlocks.counts``.

Conditions of positions are decided from the ends of a block (``block_bounds``). What depends on numbers in memory is
evaluated for each score of a block, which takes much less than its products.

Invariant: no score outside of the range counts. The range is a block of columns at least, and all columns if an operand
is not bounded (``scheduler/bounded_operands.py``).
"""
from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.triton.block_bounds import BlockBounds
from dynamo_lite.backends.inductor.codegen.triton.blocks import power_of_two
from dynamo_lite.backends.inductor.codegen.triton.body import Body
from dynamo_lite.backends.inductor.codegen.triton.expressions import index_text
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.scheduler.bounded_operands import LARGEST
from dynamo_lite.backends.inductor.scheduler.kernel import BATCH, FIRST_COLUMN, RowBlocks

_BOTH = frozenset((0, 1))
_FLAGS = 1024
"""Flags that are loaded at once: a few for each thread."""


class ColumnRange:
    """Writes what determines the range.

    Args:
        body: its axes are those of a block of scores.
        row, column: the loops over a block.
        wide: the text that gives indices their type.
    """

    def __init__(self, body: Body, blocks: RowBlocks, row: ix.Var, column: ix.Var, wide: str) -> None:
        assert blocks.counts is not None
        self.body, self.blocks, self.wide = body, blocks, wide
        self.condition = blocks.counts.stages[0].statements[0].value
        self.extents = {row: "YBLOCK - 1", column: "XBLOCK - 1"}
        self.columns = index_text(blocks.sizes[2], {}, str)

    def write(self, flags: Sequence[str], queries: str) -> str:
        """Returns the bounds of the range.

        Args:
            flags: the parameters of ``RowBlocks.flags``.
            queries: the name of the block of queries.
        """
        body, integer = self.body, self.body.integer
        body.prepare([self.condition])
        bounds = BlockBounds(body, self.extents)
        may = bounds.may(self.condition)
        self._bounded(flags, queries)
        body.line(f"begin = tl.full((), 0, {integer})")
        body.line(f"last = tl.full((), ({self.columns} - 1) // XBLOCK * XBLOCK, {integer})")
        if isinstance(may, str):
            self._by_ends(may)
        if not bounds.complete:
            self._by_elements()
        return "begin, last + XBLOCK"

    def _bounded(self, flags: Sequence[str], queries: str) -> None:
        """Writes whether operands permit to leave out columns."""
        body = self.body
        n = power_of_two(self.blocks.sizes[2], _FLAGS)
        body.line("bounded = tl.full((), 1, tl.int32)")
        if self.blocks.added:
            below = f"(tl.abs({queries}.to(tl.float32)) < {LARGEST}).to(tl.int32)"
            body.line(f"bounded = tl.min(tl.min({below}, 1), 0)")
        body.line(f"for start in range(0, {self.columns}, {n}):")
        body.indent += 1
        body.line(f"f = start + tl.arange(0, {n}){self.wide}")
        for pointer in flags:
            held = f"tl.load({pointer} + {BATCH} * {self.columns} + f, mask=f < {self.columns}, other=1)"
            body.line(f"bounded = tl.minimum(bounded, tl.min({held}.to(tl.int32), 0))")
        body.indent -= 1

    def _by_ends(self, may: str) -> None:
        for start, goes_on, step, end in (("last", "> begin", "-", "last"), ("begin", "< last", "+", "begin")):
            self.body.line(f"{FIRST_COLUMN} = {start}")
            self.body.line(f"while ({FIRST_COLUMN} {goes_on}) & (bounded != 0) & ({may} == 0):")
            self.body.line(f"    {FIRST_COLUMN} = {FIRST_COLUMN} {step} XBLOCK")
            self.body.line(f"{end} = {FIRST_COLUMN}")

    def _by_elements(self) -> None:
        body = self.body
        for start, goes_on, step, end in (("last + XBLOCK", "> begin", "-", "last"),
                                          ("begin - XBLOCK", "< last", "+", "begin")):
            body.line(f"{FIRST_COLUMN} = {start}")
            body.line("counted = tl.full((), 0, tl.int32)")
            body.line(f"while ({FIRST_COLUMN} {goes_on}) & (bounded != 0) & (counted == 0):")
            body.indent += 1
            body.line(f"{FIRST_COLUMN} = {FIRST_COLUMN} {step} XBLOCK")
            body.line(f"c = tl.arange(0, XBLOCK){self.wide}")
            body.values.clear()
            body.prepare([self.condition])
            text, mask = f"{body.text(self.condition)}.to(tl.int32)", body.mask(_BOTH)
            held = f"tl.broadcast_to({text}, {body.shape(_BOTH)})"
            if mask:
                held = f"tl.where({mask}, {held}, 0)"
            body.line(f"counted = tl.max(tl.max({held}, 1), 0)")
            body.indent -= 1
            body.line(f"{end} = tl.where(bounded != 0, {FIRST_COLUMN}, {end})")
