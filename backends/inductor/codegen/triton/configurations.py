"""Sizes of blocks that the templates of products may have: a table, and which rows of it suit a problem.

Invariant: a row is a choice of speed alone; each computes the same sums, in another order at most.
"""
from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.codegen.triton.blocks import power_of_two
from dynamo_lite.backends.inductor.gpu_info import TYPICAL, GpuInfo
from dynamo_lite.backends.inductor.ir import index as ix


@dataclasses.dataclass(frozen=True, slots=True)
class ProductBlocks:
    """Attributes:
        lines, columns: of the results that a block computes.
        depth: how many products are added up at a time.
        warps: that run a block.
        stages: so many pieces of the operands are on their way at once.
        group: so many lines of blocks are gone through column by column, so that programs that run at one time read
            the same operands, which the second cache then holds.
    """

    lines: int
    columns: int
    depth: int
    warps: int
    stages: int
    group: int = 8

    @property
    def results(self) -> int:
        """How many sums a thread holds."""
        return self.lines * self.columns // (32 * self.warps)

    def shared(self, itemsize: int) -> int:
        """Bytes of shared memory that the pieces on their way take."""
        return (self.lines + self.columns) * self.depth * itemsize * self.stages


CROWDED = 32
"""Sums that a thread holds at most where it needs its 255 registers for more: where functions (``erf``, ``exp``) of
16-bit products follow, since all of a thread's are computed at once, with what each needs on the way; and where sizes
are symbols, with which addresses have 64 bits and every end has a mask. With 64, ``gelu`` of a linear layer spills up
to 240 bytes on compute capability 9.0 and 10.0, a float32 product of symbolic sizes 24; with 32 neither spills
(``benchmarks/triton_offline.py``)."""

MOST_WARPS = 16

LEAST = 16
"""Lines, columns and depth that ``tl.dot`` takes at least."""

# For operands of 16 bits, on tensor cores: from those of large products to those of a few lines, as one token at a
# time has them. Found in what cuBLAS and Triton's own tutorial use: tiles of 128 x 256 and 128 x 128 on Hopper with
# eight or four warps; deep pieces where blocks are small, since little else hides memory's latency then.
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
# For float32. Without TF32 products are computed by the units that compute everything else: small tiles, whose sums
# and operands stay in registers (128 x 128 of float32 are 64 of 255 registers with eight warps).
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
    """The rows of the table for products of these sizes, of which none is mostly idle; all that are not known count as
    large. There is always one.

    Args:
        itemsize: of the operands, in bytes.
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
    """A row with more warps, if a thread would have more sums than it has room for."""
    while row.results > CROWDED and row.warps < MOST_WARPS:
        row = dataclasses.replace(row, warps=2 * row.warps)
    return row


def by_rule(
    batch: ix.Index, lines: ix.Index, columns: ix.Index, depth: ix.Index, itemsize: int, info: GpuInfo = TYPICAL,
    functions: bool = False,
) -> ProductBlocks:
    """The row that is taken without a measurement: the largest of those that give each multiprocessor a block, else
    that with the most blocks.

    Args:
        info: the GPU.
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
