"""Which loops of a kernel form a block, and how many iterations of each.

A block is a tile of at most three loops. The other loops are distributed over programs, one iteration each, or run
sequentially inside a program. Block sizes are powers of two, as Triton requires.

Invariant: the blocks of all programs cover each iteration once. The decisions here don't affect results, except for the
order in which a sum is accumulated.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.scheduler.loop_transforms import score

# Elements of a block: eight for each of 128 threads, so that a thread moves two 16-byte vectors of float32.
BLOCK = 1024
# Lines and columns of a square block: loads along either loop then use whole 32-byte sectors or more.
SQUARE = 32
# The longest row that a block holds at once; longer rows are processed in pieces.
MAX_ROW = 4096
# Columns of a block that is reduced along the other loop: whole 128-byte cache lines of float32.
COLUMNS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class BlockSizes:
    """Attributes:
        block: number of elements of a block of parallel loops.
        row: the longest row that a block holds at once; longer rows are processed in pieces.
        warp: number of elements for each warp of a block.
        stages: number of pipeline stages for the loads of a loop.
    """

    block: int = BLOCK
    row: int = MAX_ROW
    warp: int = 256
    stages: int = 1


BY_RULE = BlockSizes()
SIDE_BY_SIDE = (
    BY_RULE, BlockSizes(512, warp=128), BlockSizes(1024, warp=128), BlockSizes(2048), BlockSizes(2048, warp=512),
    BlockSizes(4096, warp=512), BlockSizes(256, warp=128))
"""Block sizes to try for kernels whose loops are all parallel: one to four 16-byte vectors per thread, in blocks of one
to eight warps."""
ALONG_ROWS = (
    BY_RULE, BlockSizes(row=8192), BlockSizes(row=8192, warp=512), BlockSizes(row=16384, warp=1024),
    BlockSizes(row=4096, warp=128), BlockSizes(row=4096, warp=512), BlockSizes(row=2048),
    BlockSizes(row=2048, stages=3), BlockSizes(row=1024, stages=4), BlockSizes(4096, warp=512))
"""Block sizes to try for row reductions: rows of up to 16,384 elements held at once, 4 to 32 of them per thread; longer
rows in pieces, some of which are being loaded at any time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """The loops of a block, from the outermost to the innermost, and the number of iterations of each."""

    loops: tuple[ix.Var, ...]
    sizes: tuple[int, ...]

    @property
    def volume(self) -> int:
        volume = 1
        for n in self.sizes:
            volume *= n
        return volume


def power_of_two(n: ix.Index, most: int) -> int:
    """The smallest power of two that is at least ``n``, but at most ``most``, a power of two."""
    if not isinstance(n, int):
        return most
    return min(1 << max(n - 1, 0).bit_length(), most)


def pointwise_tile(kernel: Kernel, loops: Sequence[ix.Var], volume: int = BLOCK) -> Tile:
    """The block of a kernel in which all loops are parallel."""
    if not loops:
        return Tile((), ())
    x = max(loops, key=lambda v: (*score(kernel, v), loops.index(v)))
    rest = [v for v in loops if v is not x]
    across = [v for v in rest if _is_contiguous(kernel, v, x)]
    if across:
        # Loads that are contiguous along another loop then use whole sectors, too.
        y = across[-1]
        columns = power_of_two(x.size, SQUARE)
        lines = power_of_two(y.size, volume // columns)
        columns = power_of_two(x.size, volume // lines)
        return Tile((y, x), (lines, columns))
    sizes = [power_of_two(x.size, volume)]
    chosen = [x]
    for v in reversed(rest):
        room = volume // _product(sizes)
        if room < 2 or len(chosen) == 3:
            break
        chosen.append(v)
        sizes.append(power_of_two(v.size, room))
    order = sorted(range(len(chosen)), key=lambda k: loops.index(chosen[k]) if chosen[k] is not x else len(loops))
    return Tile(tuple(chosen[k] for k in order), tuple(sizes[k] for k in order))


def _is_contiguous(kernel: Kernel, v: ix.Var, x: ix.Var) -> bool:
    """Whether some load is contiguous along ``v`` and strided along ``x``."""
    for n in walk([s.value for s in kernel.statements()]):
        if n.op == "load" and not n.args and ix.coefficient(n.attr[1], v) == 1:
            if ix.coefficient(n.attr[1], x) not in (0, 1):
                return True
    return False


def _product(sizes: Sequence[int]) -> int:
    out = 1
    for n in sizes:
        out *= n
    return out


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """The block of a reduction: a number of rows (iterations of one outer loop, if there is one), and a number of
    elements of each row; ``whole`` if these are all its elements."""

    loop: ix.Var | None
    rows: int
    elements: int
    whole: bool


def rows_of(kernel: Kernel, inner: Sequence[ix.Var], sizes: BlockSizes = BY_RULE) -> Rows:
    """How the kernel's rows are processed, where ``inner`` are the loops along a row."""
    volume = ix.product(v.size for v in inner)
    loop: ix.Var | None = None
    along = True
    if kernel.outer:
        best = max((*kernel.outer, *inner), key=lambda v: (*score(kernel, v), v in inner))
        along = best in inner
        loop = kernel.outer[-1] if along else best
    if along:
        elements = power_of_two(volume, sizes.row)
        rows = 1 if loop is None else power_of_two(loop.size, max(sizes.block // elements, 1))
    else:
        assert loop is not None
        rows = power_of_two(loop.size, COLUMNS)
        elements = power_of_two(volume, sizes.row // rows)
    return Rows(loop, rows, elements, isinstance(volume, int) and volume <= elements)


def warps(volume: int, sizes: BlockSizes = BY_RULE) -> int:
    """The number of warps per block."""
    return min(max(volume // sizes.warp, 1), 16)
