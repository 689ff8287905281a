"""Attention as a Triton kernel: each program computes a block of rows, and passes over the columns in blocks, with an
``OnlineSoftmax`` between two products (``scheduler/row_blocks.py``).

The queries of the block are loaded once. For each block of columns: scores, the largest one so far, exponentials, and
their product with the values, which is added to what has been summed after that has been scaled. Blocks of columns at
either end in which no score counts are left out (``column_range``).

Invariant: sums are accumulated in float32; columns that do not exist count as scores of minus infinity, and rows that
do not exist are not stored.
"""
from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.codegen.triton.blocks import power_of_two
from dynamo_lite.backends.inductor.codegen.triton.body import Axis, Body, Value
from dynamo_lite.backends.inductor.codegen.triton.column_range import ColumnRange
from dynamo_lite.backends.inductor.codegen.triton.configurations import LEAST
from dynamo_lite.backends.inductor.codegen.triton.expressions import MEMORY, index_text
from dynamo_lite.backends.inductor.codegen.triton.kernel import TritonKernel, blocks_of
from dynamo_lite.backends.inductor.codegen.triton.product import ALLOWED, narrow, operand
from dynamo_lite.backends.inductor.codegen.triton.reduce import Reduction
from dynamo_lite.backends.inductor.gpu_info import GpuInfo
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import MAX_HEAD
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.scheduler.kernel import (
    BATCH,
    FIRST_COLUMN,
    FIRST_ROW,
    Accumulate,
    Kernel,
    OnlineSoftmax,
    Store,
)

_BOTH, _ROWS = frozenset((0, 1)), frozenset((0,))
_JOINED = {"max": "tl.maximum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
           "min": "tl.minimum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
           "sum": "{} + {}", "any": "{} | {}", "all": "{} & {}"}


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """Rows and columns of a block, number of warps and of pipeline stages."""

    rows: int
    columns: int
    warps: int
    stages: int

    def shared(self, depth: int, width: int, itemsize: int, beside: int) -> int:
        """Bytes of shared memory: for queries, and for the keys, values and scores' numbers that are being loaded.
        Products of float32 read the weights from there, too, and are not under way while the next operands arrive.

        Args:
            depth, width: of the first and of the last product, as powers of two.
            itemsize: of the products' operands.
            beside: bytes that are loaded for each score.
        """
        under_way = max(self.stages - 1, 1)
        weights = 0 if itemsize == 2 else self.rows * self.columns * itemsize + _FEW
        loaded = self.columns * (depth + width) * itemsize * (self.stages if itemsize == 2 else under_way)
        return self.rows * (depth * itemsize + self.columns * beside * under_way) + weights + loaded


# Bytes in which warps exchange what they have reduced.
_FEW = 1024
# For heads of up to this width, block sizes in the order of preference. For 16-bit operands these are about those of
# FlashAttention 2 (Dao, 2023). Products of float32 run on the ordinary arithmetic units: operands and sums of a block
# stay in registers. (With one stage and a number of columns that is no constant, the assembler spills 5 KB of them for
# the widest heads, with two it spills none.)
_HALF = {64: (Sizes(128, 64, 8, 3), Sizes(128, 64, 8, 2), Sizes(64, 64, 4, 2)),
         128: (Sizes(128, 64, 8, 2), Sizes(128, 32, 8, 2), Sizes(64, 32, 4, 2)),
         MAX_HEAD: (Sizes(64, 32, 8, 2), Sizes(32, 32, 4, 2), Sizes(32, 32, 4, 1))}
_SINGLE = {64: (Sizes(64, 32, 8, 2),), 128: (Sizes(32, 32, 8, 2),),
           MAX_HEAD: (Sizes(16, 32, 8, 2), Sizes(16, 32, 8, 1))}


def by_rule(rows: ix.Index, depth: int, width: int, itemsize: int, beside: int, info: GpuInfo) -> Sizes:
    """The first of the block sizes for these heads that fits the shared memory, or else the last one.

    Args:
        rows: number of rows of the whole.
        depth, width, itemsize, beside: as for ``Sizes.shared``.
    """
    table = _HALF if itemsize == 2 else _SINGLE
    found = table[next(most for most in table if max(depth, width) <= most)]
    sizes = next((s for s in found if s.shared(depth, width, itemsize, beside) <= info.shared), found[-1])
    return dataclasses.replace(sizes, rows=max(power_of_two(rows, sizes.rows), LEAST))


def _padded(n: int) -> int:
    """A head's width as the power of two that a program holds."""
    return max(power_of_two(n, MAX_HEAD), LEAST)


class RowBlocksKernel(TritonKernel):
    """Writes one such kernel. ``precision``: that of float32 operands, see ``product.ProductKernel``."""

    def __init__(self, kernel: Kernel, gpu: bool, info: GpuInfo, precision: str = "ieee") -> None:
        super().__init__(kernel, gpu)
        blocks = kernel.blocks
        assert blocks is not None and blocks.online is not None
        assert isinstance(blocks.depth, int) and isinstance(blocks.width, int)
        self.blocks, self.online, self.precision = blocks, blocks.online, precision
        self.depth, self.width = blocks.depth, blocks.width
        first, last = blocks.parts[0], blocks.parts[-1]
        assert first.tiles is not None and last.tiles is not None and first.tiles.line is not None
        self.row, self.column, self.lane = first.tiles.line, first.tiles.lane, last.tiles.lane
        (self.product,), (self.result,) = first.stages[0].statements, last.stages[0].statements
        assert isinstance(self.product, Accumulate) and isinstance(self.result, Accumulate)
        (self.summed,) = first.stages[0].inner
        factors = self.product.value.args
        self.queries, self.keys = factors if self.row in factors[0].vars else factors[::-1]
        half = [narrow(n).dtype in HALF for n in (self.queries, self.online.values)]
        self.heads = _padded(self.depth), _padded(self.width)
        scores = walk((self.online.largest.value,))
        beside = sum(n.dtype.itemsize for n in scores if n.op == "load" and {self.row, self.column} <= set(n.vars))
        self.sizes_ = by_rule(blocks.sizes[1], *self.heads, 2 if all(half) else 4, beside, info)
        self.single = not all(half)

    def _write_functions(self) -> None:
        if self.single and self.gpu and self.precision != "ieee":
            # The setting may differ in a later call.
            self._write_function(self.precision, ALLOWED)
            self._write_function("ieee", ALLOWED.replace("==", "!="))
        else:
            self._write_function(self.precision, "")

    # ------------------------------------------------------------ the function
    def _write_function(self, precision: str, around: str) -> None:
        body, n = self._body(), self.sizes_
        batches, rows, _ = self.blocks.sizes
        grid = self._places(body, batches, rows)
        blocks = {"YBLOCK": n.rows, "XBLOCK": n.columns, "DBLOCK": self.heads[0], "EBLOCK": self.heads[1]}
        body.line(f"d = tl.arange(0, DBLOCK){self._wide()}")
        body.line(f"e = tl.arange(0, EBLOCK)[None, :]{self._wide()}")
        self._axes(body, (self.row, "r", "YBLOCK"), (self.summed, "d[None, :]", "DBLOCK"), blocks)
        queries = body.assign(operand(body, self.queries, 1, self.gpu), _BOTH).text
        for name, start in self._carried():
            body.line(f"{name} = {start}")
        body.line("sums = tl.zeros([YBLOCK, EBLOCK], tl.float32)")
        outside = dict(body.values)
        body.line(f"for {FIRST_COLUMN} in range({self._range(body, queries, blocks)}, XBLOCK):")
        body.indent += 1
        self._step(body, queries, precision, blocks)
        body.indent -= 1
        body.values = outside
        self._end(body, blocks)
        self._finish(body, blocks, grid, n.rows * n.columns, around, n.warps, n.stages)

    def _range(self, body: Body, queries: str, blocks: dict[str, int]) -> str:
        """Writes what determines the columns that are computed; returns the bounds of the loop over them."""
        columns = index_text(self.blocks.sizes[2], {}, str)
        if self.blocks.counts is None:
            return f"0, {columns}"
        self._scores(body, blocks)
        return ColumnRange(body, self.blocks, self.row, self.column, self._wide()).write(
            [self.pointers[name] for name in self.blocks.flags], queries)

    def _scores(self, body: Body, blocks: dict[str, int]) -> None:
        """Declares the axes of a block of scores."""
        self._axes(body, (self.row, "r", "YBLOCK"), (self.column, "c[None, :]", "XBLOCK"), blocks)

    def _wide(self) -> str:
        return ".to(tl.int64)" if self.wide else ""

    def _places(self, body: Body, batches: ix.Index, rows: ix.Index) -> list[str]:
        """Computes which rows belong to a program; returns the grid."""
        count = blocks_of(rows, self.sizes_.rows)
        grid = [count if count.isdigit() else f"({count})"]
        size = index_text(batches, {}, str)
        grid.append(size if size.isdigit() else f"({size})")
        body.line(f"program = tl.program_id(0){self._wide()}")
        body.line(f"{BATCH} = program // {grid[0]}")
        block = f"program % {grid[0]}"
        if self.blocks.counts is not None:
            # Blocks with the most columns come first, as a rule, so that no multiprocessor begins one of them last.
            block = f"({grid[0]} - 1 - {block})"
        body.line(f"{FIRST_ROW} = {block} * YBLOCK")
        body.line(f"r = tl.arange(0, YBLOCK)[:, None]{self._wide()}")
        if not isinstance(rows, int) or rows % self.sizes_.rows:
            body.line(f"r_mask = {FIRST_ROW} + r < {index_text(rows, {}, str)}")
        return grid

    def _axes(self, body: Body, first: tuple[ix.Var, str, str], second: tuple[ix.Var, str, str],
              blocks: dict[str, int]) -> None:
        """Declares the two axes of a tile: for each its variable, the text of that, and the name of the block size."""
        body.values.clear()
        body.axes = []
        columns = self.blocks.sizes[2]
        for at, (v, text, block) in enumerate((first, second)):
            body.names[v], body.spread[v] = text, frozenset((at,))
            if v is self.row:
                known = isinstance(self.blocks.sizes[1], int) and self.blocks.sizes[1] % blocks[block] == 0
                mask = "" if known else "r_mask"
            elif v is self.column:
                known = isinstance(columns, int) and columns % blocks[block] == 0
                mask = "" if known else f"({FIRST_COLUMN} + {text} < {index_text(columns, {}, str)})"
            else:
                size = self.depth if v is self.summed else self.width
                mask = "" if size == blocks[block] else f"({text} < {size})"
            body.axes.append(Axis(block, mask))

    # ------------------------------------------------------------ blocks of columns
    def _carried(self) -> list[tuple[str, str]]:
        """The values that are carried from one block of columns to the next, with their first values."""
        made = [("highest", 'tl.full([YBLOCK, 1], float("-inf"), tl.float32)'),
                ("total", "tl.zeros([YBLOCK, 1], tl.float32)")]
        for k, a in enumerate(self.online.others):
            made.append((f"other{k}", self._reduction(a, k).declare("[YBLOCK, 1]")[0].partition(" = ")[2]))
        return made

    def _reduction(self, a: Accumulate, k: int) -> Reduction:
        return Reduction(a, f"piece{k}", True, (self.column,))

    def _precision(self, node: Node, precision: str) -> str:
        """The argument of ``tl.dot`` for products of operands like this one: those of 16 bits have no choice."""
        return "" if narrow(node).dtype in HALF and self.gpu else f', input_precision="{precision}"'

    def _step(self, body: Body, queries: str, precision: str, blocks: dict[str, int]) -> None:
        """Writes the loop's body."""
        online: OnlineSoftmax = self.online
        body.line(f"c = tl.arange(0, XBLOCK){self._wide()}")
        self._axes(body, (self.summed, "d[:, None]", "DBLOCK"), (self.column, "c[None, :]", "XBLOCK"), blocks)
        keys = operand(body, self.keys, 0, self.gpu)
        scores = body.assign(f"tl.dot({queries}, {keys}{self._precision(self.keys, precision)})", _BOTH)
        self._scores(body, blocks)
        body.results[self.product.acc] = scores
        body.prepare([online.largest.value, *(a.value for a in online.others)])
        score = self._spread(body, body.value(online.largest.value))
        mask = body.axes[1].mask
        if mask:
            score = body.assign(f'tl.where({mask}, {score}, float("-inf"))', _BOTH).text
        for k, a in enumerate(online.others):
            r = self._reduction(a, k)
            for text in r.whole(self._spread(body, body.value(a.value)), "", mask):
                body.line(text)
            body.line(f"other{k} = {_JOINED[a.kind].format(f'other{k}', r.result)}")
        most = Reduction(online.largest, "most", True, (self.column,))
        for text in most.whole(score, "", ""):
            body.line(text)
        body.line(f"following = {_JOINED['max'].format('highest', most.result)}")
        # Before the first finite score there is nothing to scale.
        body.line('shift = tl.where(following == float("-inf"), 0.0, following)')
        body.line("scale = tl.exp(highest - shift)")
        weights = body.assign(f"tl.exp({score} - shift)", _BOTH).text
        body.line(f"total = total * scale + tl.sum({weights}, 1, keep_dims=True)")
        body.line("highest = following")
        self._axes(body, (self.column, "c[:, None]", "XBLOCK"), (self.lane, "e", "EBLOCK"), blocks)
        values = operand(body, online.values, 0, self.gpu)
        if narrow(online.values).dtype in HALF and self.gpu:
            weights = f"{weights}.to({MEMORY[narrow(online.values).dtype]})"
        body.line(f"sums = tl.dot({weights}, {values}, sums * scale{self._precision(online.values, precision)})")

    def _spread(self, body: Body, value: Value) -> str:
        return value.text if value.axes == _BOTH else f"tl.broadcast_to({value.text}, {body.shape(_BOTH)})"

    # ------------------------------------------------------------ after the last column
    def _end(self, body: Body, blocks: dict[str, int]) -> None:
        """Writes the division by the sums, what is stored for each row, and the epilogue of the last product."""
        online: OnlineSoftmax = self.online
        # In a row without a finite score, eager's exponentials are NaN.
        body.line('total = tl.where(highest == float("-inf"), float("nan"), total)')
        self._axes(body, (self.row, "r", "YBLOCK"), (self.lane, "e", "EBLOCK"), blocks)
        body.results = {online.largest.acc: Value("highest", _ROWS), online.total.acc: Value("total", _ROWS)}
        for k, a in enumerate(online.others):
            text = f"(other{k} != 0)" if a.kind in ("any", "all") else f"other{k}"
            body.results[a.acc] = Value(text, _ROWS)
        last = self.blocks.parts[-1]
        stores = [s for s in last.stages[1].statements if isinstance(s, Store)]
        body.prepare([*online.empty, *(s.value for s in (*online.stores, *stores))])
        result = body.assign("sums / total", _BOTH).text
        for condition in online.empty:
            result = body.assign(f"tl.where({body.text(condition)}, 0.0, {result})", _BOTH).text
        body.results[self.result.acc] = Value(result, _BOTH)
        for s in online.stores:
            body.store(s, _ROWS)
        for s in stores:
            body.store(s, _BOTH)
