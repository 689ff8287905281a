"""Writes one kernel as Triton functions, and the Python function that launches them.

A kernel is one function, except for one that writes into parts of a buffer: a stage must be finished in all programs
before the next begins, so each stage is a function of its own. A reduction whose row fits a block holds it in
registers through all stages. A longer row is read piece by piece, once for each stage.

Invariant: names in the text refer only to parameters and to the kernel itself, so that equal kernels have equal
texts.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from dynamo_lite.backends.inductor.codegen.triton.blocks import (
    BY_RULE,
    BlockSizes,
    Rows,
    Tile,
    pointwise_tile,
    rows_of,
    warps,
)
from dynamo_lite.backends.inductor.codegen.triton.body import Axes, Axis, Body, Value
from dynamo_lite.backends.inductor.codegen.triton.expressions import POINTERS, const_text, index_text
from dynamo_lite.backends.inductor.codegen.triton.reduce import Reduction
from dynamo_lite.backends.inductor.codegen.triton.scan import BlockScan, can_join
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Store
from dynamo_lite.runtime.storage_extent import storage_extent

NAME = "KERNEL"
# With more elements than this, or symbolic sizes, indices have 64 bits, since the last block may reach beyond the end.
_NARROW = 1 << 30
_LETTERS = "zyx"


class Written(NamedTuple):
    """The text of a kernel's functions, of the function ``launch_NAME``, and of its entries in the signature table."""

    functions: str
    launch: str
    signatures: str

    def renamed(self, name: str) -> Written:
        """The same text for a kernel of this name."""
        return Written(*(text.replace(NAME, name) for text in self))


class TritonKernel:
    """Writes one kernel. In the text, ``NAME`` stands for the kernel's name.

    Args:
        gpu: whether the kernel runs on a GPU instead of in the interpreter.
        sizes: the block sizes.
    """

    def __init__(self, kernel: Kernel, gpu: bool = False, sizes: BlockSizes = BY_RULE) -> None:
        self.kernel = kernel
        self.gpu = gpu
        self.sizes = sizes
        inputs = [b for b in kernel.buffers if b not in kernel.outputs]
        outputs = list(kernel.outputs)
        self.pointers = {b: f"in{k}" for k, b in enumerate(inputs)} | {b: f"out{k}" for k, b in enumerate(outputs)}
        # A kernel on a GPU gets the elements of a buffer on the host as numbers.
        on_gpu = any(kernel.buffers[b].device.type != "cpu" for b in outputs)
        self.hosts = {b: f"host{k}" for k, b in enumerate(inputs) if on_gpu and kernel.buffers[b].device.type == "cpu"}
        self.pointers |= self.hosts
        self.symbols = kernel.symbols()
        self._given = [self.pointers[b] for b in kernel.buffers] + list(self.symbols)
        if kernel.faults() and not gpu:
            self._given.append("fault")
        numbers = {host: [f"{host}_{k}" for k in range(_count(kernel.buffers[b]))] for b, host in self.hosts.items()}
        self.numbers = [name for names in numbers.values() for name in names]
        self.parameters = [name for given in self._given for name in numbers.get(given, [given])]
        self.wide = bool(self.symbols) or any(_extent(b.size, b.stride) >= _NARROW for b in kernel.buffers.values())
        self._functions: list[str] = []
        self._helpers: list[str] = []
        self._launches: list[str] = []
        self._signatures: list[str] = []

    def write(self) -> Written:
        """The kernel's text."""
        self._write_functions()
        head = f"def launch_{NAME}({', '.join(self.given())}):"
        numbers = [f"    {', '.join(n for n in self.numbers if n.startswith(f'{host}_'))} = {host}.tolist()"
                   for host in self.hosts.values()]
        launch = "\n".join([head, *numbers, *self._launches, ""])
        return Written("\n\n".join([*self._helpers, *self._functions]), launch, "".join(self._signatures))

    def given(self) -> list[str]:
        """The parameters of the launching function."""
        return ["stream", *self._given] if self.gpu else self._given

    def _write_functions(self) -> None:
        """Writes all functions and their launches."""
        stages = self.kernel.stages
        if any(stage.ordered or stage.check for stage in stages):
            for stage in stages:
                if not stage.ordered:
                    self._apart(stage)
                elif self.gpu:
                    self._in_any_order(stage)
                else:
                    self._one_after_the_other(stage)
        elif any(stage.scan for stage in stages):
            write_scan = self._scan_in_blocks if can_join(stages[0]) else self._scan
            write_scan(stages[0])
        elif self.kernel.is_pure() and not self.kernel.inner:
            self._pointwise(stages)
        else:
            self._reduction(stages)

    # ------------------------------------------------------------ functions
    def _body(self) -> Body:
        return Body(self.pointers, self.wide, self.gpu, frozenset(self.hosts), self.kernel.buffers)

    def _function_name(self) -> str:
        """The name of the next function."""
        return NAME if not self._functions else f"{NAME}_{len(self._functions)}"

    def _finish(self, body: Body, blocks: dict[str, int], grid: list[str], volume: int,
                around: str = "", threads: int | None = None, stages: int = 1) -> None:
        """Adds a function with its launch.

        Args:
            blocks: compile-time constants.
            grid: factors of the number of programs.
            volume: number of elements of a block.
            around: a condition for the launch.
            threads: number of warps per block, unless it follows from the volume.
            stages: number of pipeline stages for the loads of a loop.
        """
        name = self._function_name()
        plain = [*self.symbols, *self.numbers]
        decorator = f"@triton.jit(do_not_specialize={plain})" if plain else "@triton.jit"
        # Sizes are plain numbers in the interpreter: with NumPy 2.5 that of Triton 3.6 takes no others as loop bounds.
        constants = {*blocks, *(() if self.gpu else self.symbols)}
        parameters = [f"{p}: tl.constexpr" if p in constants else p for p in (*self.parameters, *blocks)]
        head = [decorator, f"def {name}({', '.join(parameters)}):"]
        self._functions.append("\n".join([*head, *(body.lines or ["    pass"]), ""]))
        given = [*self.parameters, *(f"{b}={n}" for b, n in blocks.items())]
        threads = warps(volume, self.sizes) if threads is None else threads
        indent = "    "
        if around:
            self._launches.append(f"{indent}if {around}:")
            indent += "    "
        programs = " * ".join(grid) or "1"
        if not all(g.isdigit() for g in grid):
            self._launches.append(f"{indent}programs = {programs}")
            programs = "programs"
            self._launches.append(f"{indent}if programs:")
            indent += "    "
        elif "0" in grid:
            self._launches.append(f"{indent}pass")
            return
        if self.gpu:
            self._launches.append(f"{indent}run_{name}({programs}, stream, {', '.join(self.parameters)})")
        else:
            self._launches.append(
                f"{indent}{name}[({programs},)]({', '.join(given)}, num_warps={threads}, num_stages={stages}, "
                "enable_fp_fusion=False)")
        pointers = {name: POINTERS[self.kernel.buffers[b].dtype] for b, name in self.pointers.items()}
        kinds = {name: pointers.get(name, "*i64" if name == "fault" else "i64") for name in self.parameters}
        self._signatures.append(f"    {name!r}: ({kinds}, {blocks}, {threads}, {stages}),\n".replace("'", '"'))

    def _programs(self, body: Body, loops: Sequence[tuple[ix.Var, str, int]]) -> list[str]:
        """Assigns the blocks of loops to programs; the blocks of the first loop vary fastest.

        Args:
            loops: the loops, each with the name of its block size and that size; no name: a block is one iteration.

        Returns:
            the number of blocks of each loop, as Python text.
        """
        grid: list[str] = []
        if not loops:
            return grid
        wide = ".to(tl.int64)" if self.wide else ""
        body.line(f"program = tl.program_id(0){wide}")
        for at, (v, block, size) in enumerate(loops):
            count = blocks_of(v.size, size)
            grid.append(count if count.isdigit() else f"({count})")
            last = at == len(loops) - 1
            body.line(f"{v.name}_block = program" + ("" if last else f" % {grid[-1]}"))
            if not last:
                body.line(f"program = program // {grid[-1]}")
            if not block:
                body.names[v], body.spread[v] = f"{v.name}_block", frozenset()
        return grid

    def _tile(self, body: Body, tile: Tile, programs: Sequence[ix.Var]) -> tuple[list[str], dict[str, int]]:
        """Defines the variables of a tile's loops and of the loops over programs; returns the grid and block sizes."""
        letters = _LETTERS[-len(tile.loops):] if tile.loops else ""
        names = [f"{letter.upper()}BLOCK" for letter in letters]
        body.axes = [Axis(name) for name in names]
        inner = [(v, name, n) for v, name, n in zip(tile.loops, names, tile.sizes)]
        grid = self._programs(body, [*inner[::-1], *((v, "", 1) for v in reversed(programs))])
        for k, (v, name, n) in enumerate(inner):
            body.line(f"{v.name} = {v.name}_block * {name} + tl.arange(0, {name}){body.along(k)}")
            body.names[v], body.spread[v] = v.name, frozenset((k,))
            if not isinstance(v.size, int) or v.size % n:
                body.line(f"{v.name}_mask = {v.name} < {index_text(v.size, {}, str)}")
                body.axes[k].mask = f"{v.name}_mask"
        return grid, dict(zip(names, tile.sizes))

    # ------------------------------------------------------------ kinds of kernels
    def _pointwise(self, stages: Sequence[Stage]) -> None:
        body = self._body()
        tile = pointwise_tile(self.kernel, self.kernel.outer, self.sizes.block)
        grid, blocks = self._tile(body, tile, [v for v in self.kernel.outer if v not in tile.loops])
        self._stores(body, [s for stage in stages for s in stage.statements if isinstance(s, Store)])
        self._finish(body, blocks, grid, tile.volume)

    def _stores(self, body: Body, stores: Sequence[Store]) -> None:
        body.prepare([s.value for s in stores])
        for s in stores:
            body.store(s, frozenset(range(len(body.axes))))

    def _apart(self, stage: Stage) -> None:
        """Writes a stage of a kernel that writes into parts of a buffer: the buffer's earlier contents, or a check."""
        body = self._body()
        tile = pointwise_tile(self.kernel, stage.inner)
        grid, blocks = self._tile(body, tile, [v for v in stage.inner if v not in tile.loops])
        self._stores(body, [s for s in stage.statements if isinstance(s, Store)])
        around = ""
        if stage.unless_same is not None:
            first, second = (self.pointers[b] for b in stage.unless_same)
            around = f"{first}.data_ptr() != {second}.data_ptr()"
        self._finish(body, blocks, grid, tile.volume, around)
        if stage.check and not self.gpu:
            self._launches += ["    if fault[2]:", "        return"]

    def _one_after_the_other(self, stage: Stage) -> None:
        """Writes elements in program order. Only writes that certainly go to different places run in parallel."""
        body = self._body()
        loops = list(stage.inner)
        programs = [loops.pop(0)] if stage.apart and len(loops) > 1 else []
        tile = pointwise_tile(self.kernel, [loops.pop()] if stage.free and loops else [])
        grid, blocks = self._tile(body, tile, programs)
        for v in loops:
            body.line(f"for {v.name}_step in range({index_text(v.size, {}, str)}):")
            body.indent += 1
            body.line(f"{v.name} = tl.full((), {v.name}_step, {body.integer})")
            body.names[v], body.spread[v] = v.name, frozenset()
        (s,) = stage.statements
        assert isinstance(s, Store)
        body.prepare(s.value.args)
        body.update(s.buffer, s.value, frozenset(range(len(body.axes))))
        if loops:
            # The next iteration may read an element that another thread of this block has written.
            body.line("tl.debug_barrier()")
        self._finish(body, blocks, grid, tile.volume, threads=None if tile.loops else 1)

    def _in_any_order(self, stage: Stage) -> None:
        """Writes elements in parallel, as eager does on a GPU; sums that meet in one place use atomic additions."""
        body = self._body()
        tile = pointwise_tile(self.kernel, stage.inner)
        grid, blocks = self._tile(body, tile, [v for v in stage.inner if v not in tile.loops])
        (s,) = stage.statements
        assert isinstance(s, Store)
        body.prepare(s.value.args)
        body.add_or_set(s.buffer, s.value, frozenset(range(len(body.axes))))
        self._finish(body, blocks, grid, tile.volume)

    def _scan(self, stage: Stage) -> None:
        """Writes a sequential loop in which every lane of the block carries its own values."""
        body = self._body()
        tile = pointwise_tile(self.kernel, self.kernel.outer, 256)
        grid, blocks = self._tile(body, tile, [v for v in self.kernel.outer if v not in tile.loops])
        every = frozenset(range(len(body.axes)))
        carried = [s for s in stage.statements if isinstance(s, Accumulate)]
        stores = [s for s in stage.statements if isinstance(s, Store)]
        shape = body.shape(every) if body.axes else "()"
        for k, s in enumerate(carried):
            assert s.start is not None
            start = const_text(s.start.attr, s.start.dtype).replace("()", shape, 1)
            body.line(f"c{k} = {start}")
            body.results[s.acc] = Value(f"c{k}", every)
        for v in stage.inner:
            body.line(f"for {v.name}_step in range({index_text(v.size, {}, str)}):")
            body.indent += 1
            body.line(f"{v.name} = tl.full((), {v.name}_step, {body.integer})")
            body.names[v], body.spread[v] = v.name, frozenset()
        body.prepare([s.value for s in (*carried, *stores)])
        names = {s.acc for s in carried}
        following = [body.value(s.value) for s in carried]
        for k, value in enumerate(following):
            text = value.text if value.axes == every else f"tl.broadcast_to({value.text}, {shape})"
            body.line(f"next{k} = {text}")
        for k in range(len(carried)):
            body.line(f"c{k} = next{k}")
        # Values computed from the old carried values are invalid from here on.
        body.values = {n: value for n, value in body.values.items() if not any(
            inner.op == "acc" and inner.attr in names for inner in walk((n,)))}
        for s in stores:
            body.store(s, every)
        self._finish(body, blocks, grid, tile.volume)

    def _scan_in_blocks(self, stage: Stage) -> None:
        """Writes a blocked scan: all threads of the block scan a piece, which is then joined with carried values."""
        body, inner = self._body(), stage.inner
        rows = rows_of(self.kernel, inner, self.sizes)
        outer = [v for v in self.kernel.outer if v is not rows.loop]
        tile = Tile((rows.loop,), (rows.rows,)) if rows.loop is not None else Tile((), ())
        body.axes = [Axis("XBLOCK"), Axis("RBLOCK")] if rows.loop is not None else [Axis("RBLOCK")]
        grid, blocks = self._rows(body, tile, outer)
        blocks["RBLOCK"] = rows.elements
        carried = [s for s in stage.statements if isinstance(s, Accumulate)]
        stores = [s for s in stage.statements if isinstance(s, Store)]
        scan = BlockScan(carried, body, self._function_name())
        self._helpers.append(scan.function())
        if rows.whole:
            self._elements(body, inner, rows, "0")
            scan.piece(None)
        else:
            scan.begin()
            body.line(f"for start in range(0, {index_text(ix.product(v.size for v in inner), {}, str)}, RBLOCK):")
            body.indent += 1
            self._elements(body, inner, rows, "start")
            scan.piece("start")
        every = frozenset(range(len(body.axes)))
        body.prepare([s.value for s in stores])
        for s in stores:
            body.store(s, every)
        self._finish(body, blocks, grid, rows.rows * rows.elements)

    # ------------------------------------------------------------ reductions
    def _reduction(self, stages: Sequence[Stage]) -> None:
        body = self._body()
        inner = self.kernel.inner
        rows = rows_of(self.kernel, inner, self.sizes)
        outer = [v for v in self.kernel.outer if v is not rows.loop]
        tile = Tile((rows.loop,), (rows.rows,)) if rows.loop is not None else Tile((), ())
        body.axes = [Axis("XBLOCK"), Axis("RBLOCK")] if rows.loop is not None else [Axis("RBLOCK")]
        grid, blocks = self._rows(body, tile, outer)
        kept = frozenset(range(len(body.axes) - 1))
        if inner:
            blocks["RBLOCK"] = rows.elements
        if inner and rows.whole:
            self._elements(body, inner, rows, "0")
        outside = dict(body.values)
        written: set[str] = set()
        for stage in stages:
            reads = {n.attr[0] for n in walk([s.value for s in stage.statements]) if n.op == "load"}
            if written & reads:
                # Other threads of this block may have written the element.
                body.line("tl.debug_barrier()")
            self._stage(body, stage, rows, kept)
            if not rows.whole:
                body.values = dict(outside)
            written |= {s.buffer for s in stage.statements if isinstance(s, Store)}
        self._finish(body, blocks, grid, rows.rows * rows.elements, stages=self.sizes.stages)

    def _rows(self, body: Body, tile: Tile, outer: Sequence[ix.Var]) -> tuple[list[str], dict[str, int]]:
        if not tile.loops:
            return self._programs(body, [(v, "", 1) for v in reversed(outer)]), {}
        (v,), (n,) = tile.loops, tile.sizes
        grid = self._programs(body, [(v, "XBLOCK", n), *((w, "", 1) for w in reversed(outer))])
        body.line(f"{v.name} = {v.name}_block * XBLOCK + tl.arange(0, XBLOCK){body.along(0)}")
        body.names[v], body.spread[v] = v.name, frozenset((0,))
        if not isinstance(v.size, int) or v.size % n:
            body.line(f"{v.name}_mask = {v.name} < {index_text(v.size, {}, str)}")
            body.axes[0].mask = f"{v.name}_mask"
        return grid, {"XBLOCK": n}

    def _elements(self, body: Body, inner: Sequence[ix.Var], rows: Rows, start: str) -> None:
        """Defines the variables of the loops along a row, for one piece of it."""
        at = len(body.axes) - 1
        begin = "" if start == "0" else f"{start} + "
        place = f"{begin}tl.arange(0, RBLOCK){body.along(at)}"
        body.line(f"r = ({place}).to(tl.int64)" if self.wide else f"r = {place}")
        volume = ix.product(v.size for v in inner)
        body.axes[at].mask = ""
        if not isinstance(volume, int) or volume % rows.elements or not volume:
            body.line(f"r_mask = r < {index_text(volume, {}, str)}")
            body.axes[at].mask = "r_mask"
        rest = "r"
        for k, v in enumerate(reversed(inner)):
            size = index_text(v.size, {}, str)
            if k == len(inner) - 1:
                body.line(f"{v.name} = {rest}")
            else:
                body.line(f"{v.name} = ({rest}) % ({size})")
                rest = f"({rest}) // ({size})"
            body.names[v], body.spread[v] = v.name, frozenset((at,))

    def _stage(self, body: Body, stage: Stage, rows: Rows, kept: Axes) -> None:
        statements = stage.statements
        reductions = [Reduction(s, f"a{len(body.results) + k}", len(body.axes) == 2, stage.inner)
                      for k, s in enumerate(s for s in statements if isinstance(s, Accumulate))]
        every = frozenset(range(len(body.axes)))
        body.prepare([s.value for s in statements])
        if not stage.inner:
            for s in statements:
                if isinstance(s, Store):
                    body.store(s, kept)
                else:
                    result = body.value(s.value) if not s.kind.startswith("arg") else body.assign(
                        f"tl.full((), {body.index(s.position)}, tl.int64)", frozenset())
                    body.results[s.acc] = result
            return
        if not rows.whole:
            shape = body.shape(every)
            for r in reductions:
                for text in r.declare(shape):
                    body.line(text)
            volume = index_text(ix.product(v.size for v in stage.inner), {}, str)
            body.line(f"for start in range(0, {volume}, RBLOCK):")
            body.indent += 1
            self._elements(body, stage.inner, rows, "start")
        following = iter(reductions)
        for s in statements:
            if isinstance(s, Store):
                body.store(s, every)
                continue
            r, value = next(following), body.value(s.value)
            text = value.text if value.axes == every else f"tl.broadcast_to({value.text}, {body.shape(every)})"
            position = f"tl.broadcast_to({body.index(s.position)}, {body.shape(every)})" if r.positions else ""
            for line in r.whole(text, position, body.mask(every)) if rows.whole else r.take(
                    text, position, body.mask(every)):
                body.line(line)
        if not rows.whole:
            body.indent -= 1
            for r in reductions:
                for line in r.finish():
                    body.line(line)
        for r in reductions:
            body.results[r.acc] = Value(r.result, kept)


def blocks_of(size: ix.Index, block: int) -> str:
    """The number of blocks of a loop, as text that is valid in Python and Triton."""
    if isinstance(size, int):
        return str(-(-size // block))
    text = index_text(size, {}, str)
    return text if block == 1 else f"({text} + {block - 1}) // {block}"


def _count(buffer: Buffer) -> int:
    """The number of elements of a buffer on the host."""
    count = ix.product(buffer.size)
    assert isinstance(count, int) and buffer.dtype is torch.int64
    return count


def _extent(size: Sequence[ix.Index], stride: Sequence[ix.Index]) -> int:
    """The distance in elements from the first to the last element of a buffer; if unknown, the largest possible."""
    known = [int(n) for n in (*size, *stride) if isinstance(n, int)]
    if len(known) < len(size) + len(stride):
        return _NARROW
    return storage_extent(known[:len(size)], known[len(size):])

