"""Block sizes for matrix products: a table, and the choice of its rows that suit a problem.

Invariant: the choice of a row affects speed only; all rows compute the same sums, except for their order.
"""
from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.codegen.triton.blocks import power_of_two
from dynamo_lite.backends.inductor.gpu_info import TYPICAL, GpuInfo
from dynamo_lite.backends.inductor.ir import index as ix


@dataclasses.dataclass(frozen=True, slots=True)
class ProductBlocks:
    """Attributes:
        lines, columns: the size of the block of results that a program computes.
        depth: number of products that are accumulated at a time.
        warps: number of warps per block.
        stages: number of pieces of the operands that are being loaded at once (pipeline stages).
        group: number of block rows that programs process column by column, so that programs that run at the same time
            read the same operands, which the L2 cache then holds.
    """

    lines: int
    columns: int
    depth: int
    warps: int
    stages: int
    group: int = 8

    @property
    def results(self) -> int:
        """Number of accumulators per thread."""
        return self.lines * self.columns // (32 * self.warps)

    def shared(self, itemsize: int) -> int:
        """Bytes of shared memory for the pieces in the pipeline."""
        return (self.lines + self.columns) * self.depth * itemsize * self.stages


CROWDED = 32
"""Largest number of accumulators per thread in kernels that need its 255 registers for other values as well. In one
case, functions (``erf``, ``exp``) of 16-bit products follow: all of a thread's results are computed at once, each with
its intermediate values. In the other, sizes are symbolic: addresses have 64 bits, and every end has a mask. With 64,
``gelu`` of a linear layer spills up to 240 bytes on compute capability 9.0 and 10.0, a float32 product of symbolic
sizes 24; with 32 neither spills (``benchmarks/triton_offline.py``)."""

MOST_WARPS = 16

LEAST = 16
"""Smallest number of lines, columns and depth that ``tl.dot`` accepts."""

# For 16-bit operands, on tensor cores: from large products to products of a few rows, as in decoding one token at a
# time. Based on the sizes that cuBLAS and Triton's own tutorial use: tiles of 128 x 256 and 128 x 128 on Hopper with
# eight or four warps; deep pieces where blocks are small, since little else hides the memory latency there.
HALF = (
    ProductBlocks(128, 256, 64, 8, 3),
    ProductBlocks(256, 128, 64, 8, 3),
    ProductBlocks(128, 128, 64, 8, 3),
    ProductBlocks(128, 128, 32, 4, 4),
    ProductBlocks(128, 64, 64, 4, 4),
    ProductBlocks(64, 128, 64, 4, 4),
    ProductBlocks(64, 64, 64, 4, 4),
    ProductBlocks(64, 32, 64, 4, 5),
    ProductBlocks(32, 64, 64, 4, 5),
    ProductBlocks(32, 32, 128, 4, 4),
    ProductBlocks(16, 128, 128, 4, 3),
    ProductBlocks(16, 64, 128, 4, 4),
    ProductBlocks(16, 32, 128, 2, 4),
)
# For float32. Without TF32, products run on the ordinary arithmetic units: small tiles, whose sums and operands stay in
# registers (128 x 128 of float32 take 64 of 255 registers with eight warps).
SINGLE = (
    ProductBlocks(128, 128, 16, 8, 3),
    ProductBlocks(128, 64, 16, 8, 3),
    ProductBlocks(64, 128, 16, 8, 3),
    ProductBlocks(64, 64, 32, 8, 3),
    ProductBlocks(64, 64, 16, 4, 3),
    ProductBlocks(32, 64, 32, 4, 3),
    ProductBlocks(64, 32, 32, 4, 3),
    ProductBlocks(32, 32, 32, 4, 4),
    ProductBlocks(16, 64, 64, 4, 3),
    ProductBlocks(16, 32, 64, 2, 4),
)


def suitable(
    lines: ix.Index, columns: ix.Index, depth: ix.Index, itemsize: int, functions: bool = False
) -> tuple[ProductBlocks, ...]:
    """The rows of the table for products of these sizes, without those whose blocks would be mostly idle. Symbolic
    sizes count as large. There is always at least one row.

    Args:
        itemsize: the size of an element of the operands, in bytes.
        functions: whether functions of the products are computed.
    """
    table: tuple[ProductBlocks, ...] = HALF if itemsize == 2 else SINGLE
    if functions and itemsize == 2 or not all(isinstance(n, int) for n in (lines, columns, depth)):
        table = tuple(row for row in map(_spread, table) if row.results <= CROWDED)
    most = [power_of_two(n, 1 << 20) for n in (lines, columns, depth)]
    at_most = [max(n, LEAST) for n in most]

    def trimmed(row: ProductBlocks) -> ProductBlocks:
        return dataclasses.replace(row, depth=min(row.depth, at_most[2]))

    rows = [trimmed(row) for row in table if row.lines <= at_most[0] and row.columns <= at_most[1]]
    if not rows:
        sides = (min(table[-1].lines, at_most[0]), min(table[-1].columns, at_most[1]))
        rows = [dataclasses.replace(trimmed(table[-1]), lines=sides[0], columns=sides[1])]
    return tuple(dict.fromkeys(rows))


def _spread(row: ProductBlocks) -> ProductBlocks:
    """A row with more warps, if a thread would have more accumulators than registers for them."""
    while row.results > CROWDED and row.warps < MOST_WARPS:
        row = dataclasses.replace(row, warps=2 * row.warps)
    return row


def by_rule(
    batch: ix.Index, lines: ix.Index, columns: ix.Index, depth: ix.Index, itemsize: int, info: GpuInfo = TYPICAL,
    functions: bool = False,
) -> ProductBlocks:
    """The row that is used without a measurement: the one with the largest blocks among those that give every
    multiprocessor a block, or else the one with the most blocks.

    Args:
        info: the properties of the GPU.
    """
    all_rows = suitable(lines, columns, depth, itemsize, functions)
    rows = [row for row in all_rows if row.shared(itemsize) <= info.shared]
    rows = rows or [min(all_rows, key=lambda row: row.shared(itemsize))]

    def blocks(row: ProductBlocks) -> int:
        count = 1
        for size, block in ((lines, row.lines), (columns, row.columns), (batch, 1)):
            count *= -(-size // block) if isinstance(size, int) else info.processors
        return count

    busy = [row for row in rows if blocks(row) >= info.processors]
    return max(busy, key=lambda row: row.lines * row.columns) if busy else max(rows, key=blocks)
