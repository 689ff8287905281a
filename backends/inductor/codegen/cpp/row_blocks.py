"""Writes the kernels of ``scheduler.row_blocks``: a loop over blocks of rows that calls the kernels of the parts.

Invariant: each row is in one block, and each thread has local buffers and workspaces of its own.
"""
from __future__ import annotations

from collections.abc import Mapping

import torch

from dynamo_lite.backends.inductor.codegen.cpp.expressions import STORAGE, const_text, index_text
from dynamo_lite.backends.inductor.codegen.cpp.kernel import CppKernel
from dynamo_lite.backends.inductor.codegen.cpp.sharing import without_markers
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.scheduler.kernel import BATCH, COLUMNS, FIRST_COLUMN, FIRST_ROW, ROWS, Kernel
from dynamo_lite.backends.inductor.target_info import TargetInfo

# Unit, in columns, of the range that is computed: some vectors of every width.
STEP = 64
# More work than any kernel has.
MOST_WORK = 1 << 62


class RowBlocksKernel(CppKernel):
    """Writes one such kernel. ``parts``: the names of the functions of ``RowBlocks.kernels``, to be added before."""

    def __init__(self, kernel: Kernel, symbol: str, info: TargetInfo):
        super().__init__(kernel, symbol, info)
        assert kernel.blocks is not None
        self.blocks = kernel.blocks
        self.parts: list[str] = []

    def write(self) -> str:
        declared = {name: f'extern "C" __attribute__((visibility("default"))) void {name}({_parameters(part)});\n'
                    for name, part in zip(self.parts, self.blocks.kernels())}
        return "".join(declared.values()) + without_markers(super().write())

    def _is_one_shared_loop(self) -> bool:
        return False

    def _least(self, awake: bool) -> int:
        return self.info.product_grain(awake)

    @property
    def work(self) -> str:
        """The work of the products."""
        blocks = self.kernel.blocks
        assert blocks is not None
        depth = ix.add(blocks.depth, blocks.width)
        return index_text(ix.product((*blocks.sizes, depth)), {})

    def _outer_loops(self) -> None:
        blocks = self.blocks
        batches, rows, _ = (index_text(n, {}) for n in blocks.sizes)
        limits = f"{blocks.near}, {blocks.least}, {blocks.most}, {blocks.blocks}"
        row_bytes = index_text(blocks.row_bytes, {})
        many = f"const i64 many = rows_at_once({batches}, {rows}, {row_bytes}, {limits})"
        count = f"blocks = ({rows} + many - 1) / many;"
        self.open_function("Loop", "i64 begin, i64 end, int part")
        self.line(f"{many}, {count}")
        self._memory()
        self._loop(rows)
        self.close_function("Loop", "loop")
        self.line(f"{many}, {count}")
        self.line(f"share_blocks(&loop, Loop::run, {batches} * blocks, {self.work}, {self.grain}, {blocks.slots}, "
                  "places);")

    def _memory(self) -> None:
        """Declares pointers to a thread's workspaces and local buffers."""
        blocks = self.blocks
        columns = index_text(blocks.sizes[2], {})
        self.line(f"float* room = {self._pointer(blocks.room)} + part * ({index_text(blocks.slot(), {})});")
        for at, elements in enumerate(blocks.workspaces.values()):
            self.line(f"float* const workspace{at} = room;")
            self.line(f"room += ({index_text(elements, {})} + 15) / 16 * 16;")
        for at, (name, buffer) in enumerate(blocks.local.items()):
            kind = STORAGE[buffer.dtype]
            if name in blocks.takeovers:
                continue
            self.line(f"{kind}* const local{at} = ({kind}*)room;")
            self.line(f"room += (many * ({columns}) * {buffer.dtype.itemsize} + 63) / 64 * 16;")
        names = list(blocks.local)
        for at, name in enumerate(names):
            if name in blocks.takeovers:
                kind = STORAGE[blocks.local[name].dtype]
                self.line(f"{kind}* const local{at} = local{names.index(blocks.takeovers[name])};")

    def _loop(self, rows: str) -> None:
        blocks = self.blocks
        columns = index_text(blocks.sizes[2], {})
        if blocks.counts is not None:
            self.line("bool bounded = false;")
            self.line("i64 seen_batch = -1;")
        self.open("for (i64 unit = begin; unit < end; ++unit)")
        # Blocks from both ends in turn, so that threads have equal work where later rows have more columns.
        self.line(f"const i64 {BATCH} = unit / blocks, order = unit % blocks;")
        self.line(f"const i64 {FIRST_ROW} = (order % 2 ? blocks - 1 - order / 2 : order / 2) * many;")
        self.line(f"const i64 {ROWS} = least(many, {rows} - {FIRST_ROW});")
        if blocks.counts is None:
            self.line(f"const i64 {FIRST_COLUMN} = 0, {COLUMNS} = {columns};")
        else:
            self._range(blocks.counts, columns)
        for part, name in zip(blocks.parts, self.parts):
            self.line(f"{name}({self._arguments(part, {})});")
        self.close()

    def _range(self, counts: Kernel, columns: str) -> None:
        """Determines the range of columns that are computed."""
        self.open(f"if ({BATCH} != seen_batch)")
        self.line(f"seen_batch = {BATCH};")
        tests = []
        for matrix, lines, depth, limit in self.blocks.bounded:
            place = f"{self._pointer(matrix.buffer)} + ({index_text(matrix.offset, {})})"
            numbers = ", ".join(index_text(n, {}) for n in (depth, matrix.depth, lines, matrix.line))
            tests.append(f"all_below({const_text(limit, torch.float32)}, {place}, {numbers})")
        self.line(f"bounded = {' && '.join(tests)};")
        self.close()
        self.open("const auto counts = [&](i64 from, i64 to)")
        self.line("bool found;")
        arguments = self._arguments(counts, {str(FIRST_COLUMN): "from", str(COLUMNS): "to - from"})
        self.line(f"{self.parts[-1]}({arguments});")
        self.line("return found;")
        self.close("};")
        self.line(f"const Columns range = bounded ? columns_that_count({columns}, {STEP}, counts) "
                  f": Columns{{0, {columns}}};")
        self.line(f"const i64 {FIRST_COLUMN} = range.from, {COLUMNS} = range.to - range.from;")

    def _arguments(self, part: Kernel, given: Mapping[str, str]) -> str:
        """The arguments of a call of a part."""
        blocks = self.blocks
        local, spaces = list(blocks.local), list(blocks.workspaces)
        pointers = []
        for name in part.buffers:
            if name in blocks.local:
                pointers.append(f"local{local.index(name)}")
            elif name in blocks.workspaces:
                pointers.append(f"workspace{spaces.index(name)}")
            elif name in self.kernel.buffers:
                pointers.append(f"(void*){self._pointer(name)}")
            else:
                pointers.append("&found")
        return ", ".join([*pointers, *(given.get(s, s) for s in part.symbols())])


def _parameters(part: Kernel) -> str:
    return ", ".join([*["void*"] * len(part.buffers), *["i64"] * len(part.symbols())])
