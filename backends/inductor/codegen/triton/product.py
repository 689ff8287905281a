"""Matrix products as Triton kernels: ``tl.dot`` accumulates a block of results piece by piece along the depth, and the
fused epilogue is computed on the block before it is stored.

The kernel's first stage is the sum of products, its second the epilogue (``scheduler/contraction.py``). Programs
process the results in groups of rows, see ``ProductBlocks``. An operand's element may be the value of an expression.

Invariant: sums are accumulated in float32. Beyond the last row, column and depth, zeros are added, and nothing is
stored.
"""
from __future__ import annotations

from dynamo_lite.backends.inductor.codegen.triton.body import Axis, Body, Value
from dynamo_lite.backends.inductor.codegen.triton.configurations import ProductBlocks
from dynamo_lite.backends.inductor.codegen.triton.expressions import MEMORY, index_text
from dynamo_lite.backends.inductor.codegen.triton.kernel import TritonKernel, blocks_of
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Store

_BOTH = frozenset((0, 1))
_EXACT = "ieee"
ALLOWED = 'torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32"'
"""Python text of the condition that products of float32 may be computed in TF32."""


class ProductKernel(TritonKernel):
    """Writes the kernel of a matrix product.

    Args:
        blocks: the block sizes.
        precision: the precision of float32 operands in ``tl.dot``: "ieee", or "tf32" where torch's settings allow it.
    """

    def __init__(self, kernel: Kernel, gpu: bool, blocks: ProductBlocks, precision: str = "ieee") -> None:
        super().__init__(kernel, gpu)
        self.blocks = blocks
        self.precision = precision

    def _write_functions(self) -> None:
        tiles = self.kernel.tiles
        assert tiles is not None
        single = self.kernel.buffers[tiles.contraction.left.buffer].dtype not in HALF
        if single and self.gpu and self.precision != _EXACT:
            # The setting may differ in a later call.
            self._write_function(self.precision, ALLOWED)
            self._write_function(_EXACT, ALLOWED.replace("==", "!="))
        else:
            self._write_function(self.precision, "")

    def _write_function(self, precision: str, around: str) -> None:
        """Writes the kernel; ``around`` is a condition for its launch."""
        tiles, (first, second) = self.kernel.tiles, self.kernel.stages
        assert tiles is not None and tiles.line is not None and not tiles.contraction.transposed
        (sum_,), (k,) = first.statements, first.inner
        assert isinstance(sum_, Accumulate) and sum_.value.op == "mul"
        a, b = sum_.value.args
        if tiles.line not in a.vars or tiles.lane not in b.vars:
            a, b = b, a
        body = self._body()
        grid = self._places(body)
        body.line("sums = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
        self._sum(body, a, b, k, precision)
        self._axes(body, tiles.line, tiles.lane, "YBLOCK", "XBLOCK")
        body.results[sum_.acc] = Value("sums", _BOTH)
        self._stores(body, [s for s in second.statements if isinstance(s, Store)])
        n = self.blocks
        sizes = {"YBLOCK": n.lines, "XBLOCK": n.columns, "KBLOCK": n.depth, "GROUP": n.group}
        self._finish(body, sizes, grid, n.lines * n.columns, around, n.warps, n.stages)

    def _places(self, body: Body) -> list[str]:
        """Computes which block of results belongs to a program; returns the grid."""
        tiles, n = self.kernel.tiles, self.blocks
        assert tiles is not None and tiles.line is not None
        lines, columns = blocks_of(tiles.line.size, n.lines), blocks_of(tiles.lane.size, n.columns)
        grid = [lines if lines.isdigit() else f"({lines})", columns if columns.isdigit() else f"({columns})"]
        body.line(f"program = tl.program_id(0){'.to(tl.int64)' if self.wide else ''}")
        if tiles.batch is not None:
            body.line(f"b = program // ({grid[0]} * {grid[1]})")
            body.line(f"program = program % ({grid[0]} * {grid[1]})")
            body.names[tiles.batch], body.spread[tiles.batch] = "b", frozenset()
            size = index_text(tiles.batch.size, {}, str)
            grid.append(size if size.isdigit() else f"({size})")
        # Groups of block rows; within a group, programs go column by column.
        body.line(f"group = program // (GROUP * {grid[1]})")
        body.line(f"lines = tl.minimum({grid[0]} - group * GROUP, GROUP)")
        body.line(f"program = program % (GROUP * {grid[1]})")
        body.line("r = (group * GROUP + program % lines) * YBLOCK + tl.arange(0, YBLOCK)[:, None]")
        body.line("c = (program // lines) * XBLOCK + tl.arange(0, XBLOCK)[None, :]")
        for v, name, block in ((tiles.line, "r", n.lines), (tiles.lane, "c", n.columns)):
            if not isinstance(v.size, int) or v.size % block:
                body.line(f"{name}_mask = {name} < {index_text(v.size, {}, str)}")
        return grid

    def _mask(self, v: ix.Var, name: str, block: int) -> str:
        return "" if isinstance(v.size, int) and v.size % block == 0 else f"{name}_mask"

    def _axes(self, body: Body, first: ix.Var, second: ix.Var, *blocks: str, k: ix.Var | None = None) -> None:
        """Declares the two axes of a tile; ``k`` is the loop that is summed over."""
        tiles, n = self.kernel.tiles, self.blocks
        assert tiles is not None
        sizes = {"YBLOCK": n.lines, "XBLOCK": n.columns, "KBLOCK": n.depth}
        body.values.clear()
        body.axes = []
        for at, (v, block) in enumerate(zip((first, second), blocks)):
            name = f"k{at}" if v is k else "r" if v is tiles.line else "c"
            body.names[v], body.spread[v] = name, frozenset((at,))
            body.axes.append(Axis(block, self._mask(v, name, sizes[block])))

    def _sum(self, body: Body, a: Node, b: Node, k: ix.Var, precision: str) -> None:
        tiles = self.kernel.tiles
        assert tiles is not None and tiles.line is not None
        body.line(f"for start in range(0, {index_text(k.size, {}, str)}, KBLOCK):")
        body.indent += 1
        wide = ".to(tl.int64)" if self.wide else ""
        body.line(f"k = (start + tl.arange(0, KBLOCK)){wide}")
        for name, along in (("k1", "[None, :]"), ("k0", "[:, None]")):
            body.line(f"{name} = k{along}")
            if self._mask(k, name, self.blocks.depth):
                body.line(f"{name}_mask = {name} < {index_text(k.size, {}, str)}")
        self._axes(body, tiles.line, k, "YBLOCK", "KBLOCK", k=k)
        left = operand(body, a, 1, self.gpu)
        self._axes(body, k, tiles.lane, "KBLOCK", "XBLOCK", k=k)
        right = operand(body, b, 0, self.gpu)
        half = narrow(a).dtype in HALF
        given = "" if half and self.gpu else f', input_precision="{precision}"'
        body.line(f"sums = tl.dot({left}, {right}, sums{given})")
        body.indent -= 1


def operand(body: Body, node: Node, depth: int, gpu: bool) -> str:
    """The text of a block of a product's operand, zero beyond the ends; ``depth`` is the axis that is summed over."""
    inner = narrow(node)
    # The interpreter has no products of bfloat16. Products of the same values in float32 are equal.
    half = inner.dtype in HALF and gpu
    body.prepare([inner])
    if inner.op == "load":
        value = body.loaded(inner) if half else body.value(inner)
        text = value.text
    else:
        value = body.value(inner)
        text = f"{value.text}.to({MEMORY[inner.dtype]})" if half else value.text
        mask = body.axes[depth].mask
        if mask:
            text = f"tl.where({mask}, {text}, 0.0)"
            value = Value(text, value.axes | {depth})
    if value.axes != _BOTH:
        text = f"tl.broadcast_to({text}, {body.shape(_BOTH)})"
    return text


def narrow(node: Node) -> Node:
    """The operand without its conversion to the accumulators' type."""
    if node.op == "cast" and node.args[0].dtype in HALF:
        return node.args[0]
    return node
