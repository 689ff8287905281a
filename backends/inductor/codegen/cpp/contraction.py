"""Kernels that begin with a sum of products: a call of the library in ``contraction.cpp`` and ``depthwise.cpp``, which
all graphs share, and what is fused behind, which the library calls for each tile.

Invariant: the body reads the sum from the tile and nowhere else; the library hands over each element once.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from dynamo_lite.backends.inductor.codegen.cpp.body import Emitted
from dynamo_lite.backends.inductor.codegen.cpp.kernel import GRAIN, CppKernel
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Matrix, volume
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage

# As in contraction.h.
MAX_BATCH_DIMS = 3
# Products are computed so many times faster than operations on elements that are in memory.
PRODUCTS_A_GRAIN = 8


@functools.cache
def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


@functools.cache
def _symbol(simd: str) -> str:
    """The library's entry: its name says what it does exactly, as several builds may be loaded at once."""
    parts = ("vec.h", "contraction.h", "contraction.cpp", "depthwise.cpp")
    digest = hashlib.sha256("".join(map(_text, parts)).encode())
    return f"dynamo_lite_contract_{simd}_{digest.hexdigest()[:16]}"


def contraction_header(simd: str) -> str:
    """What a kernel file that calls the library needs."""
    return f"#define CONTRACT {_symbol(simd)}\n{_text('contraction.h')}"


def contraction_library(simd: str) -> str:
    """The library's source."""
    return _text("vec.h") + contraction_header(simd) + _text("contraction.cpp") + _text("depthwise.cpp")


class ContractionKernel(CppKernel):
    """Writes one such kernel."""

    def __init__(self, kernel: Kernel, symbol: str, simd: str):
        super().__init__(kernel, symbol, simd)
        assert kernel.tiles is not None
        self.tiles = kernel.tiles
        (sum_,) = kernel.stages[0].statements
        assert isinstance(sum_, Accumulate)
        self._sums = [n for n in self.nodes if n.op == "acc" and n.attr == sum_.acc]

    def _outer_loops(self) -> None:
        t, c = self.tiles, self.tiles.contraction
        batches, rows, columns = volume(c.batch), volume(c.rows), volume(c.columns)
        self.line(f"Contraction c{{{{{_list(_filled([v.size for v in c.batch], 1))}}}, {rows}, {columns}, {c.depth}}};")
        left, right = c.left, c.right
        self.line(f"c.left = {self._matrix(left.buffer, left.offset, left.line, left.depth, left.batch)};")
        if isinstance(right, Matrix):
            self.line(f"c.right = {self._matrix(right.buffer, right.offset, right.line, right.depth, right.batch)};")
        else:
            self.line(f"c.right = {self._matrix(right.buffer, right.offset, 0, 0, right.batch)};")
            pairs = (right.kernel, right.stride, right.padding, right.dilation)
            sizes = (right.channels, right.height, right.width, right.out_height, right.out_width)
            own = right.strip() if right.each else ()
            self.line(f"c.windows = {{{_list([*sizes, *(n for pair in pairs for n in pair), right.each, *own])}}};")
        self.line(f"c.transposed = {_bool(c.transposed)}, c.share = {_bool(t.share)}, c.slots = {t.slots};")
        products = f"(i64){batches} * {rows} * {columns} * {c.depth}"
        self.line(f"c.threads = threads_for({products}, {PRODUCTS_A_GRAIN * GRAIN});")
        self.line(f"c.workspace = {self._pointer(t.workspace)};")
        self.open("contract(c, [=](i64 batch, i64 line_begin, i64 line_end, i64 begin, i64 end, const float* tile, "
                  "i64 pitch)")
        self._body()
        self.close("});")

    def _matrix(self, buffer: str, offset: int, line: int, depth: int, batch: tuple[int, ...]) -> str:
        return f"{{{self._pointer(buffer)} + {offset}, {line}, {depth}, {{{_list(_filled(batch, 0))}}}}}"

    # ------------------------------------------------------------ what is fused behind
    def _body(self) -> None:
        t = self.tiles
        self._pointers()
        outside = self.scope()
        if t.batch is not None:
            self.var_names[t.batch] = "batch"
        stage = self.kernel.stages[1]
        lines = frozenset(v for v in (t.line, t.lane) if v is not None)
        self._emit(stage, lines)
        self.open("for (i64 line = line_begin; line < line_end; ++line)")
        if t.line is not None:
            self.var_names[t.line] = "line"
        self._emit(stage, frozenset((t.lane,)))
        self._last_loop(stage, t.lane, [], True, "begin", "end")
        self.close()
        self.emitted = outside

    def _emit(self, stage: Stage, changing: frozenset[ix.Var]) -> None:
        if self._v is not None and self._sums and self._sums[0] not in self.emitted:
            name = self.fresh("sum")
            v = self.var_names[self._v]
            at = f"tile + (line - line_begin) * pitch + ({v} - begin)"
            self.line(f"const auto {name} = load<L>({at}, m);")
            if self._paired:
                self.line(f"const auto {name}_ = load<L>({at} + L, m_);")
            for n in self._sums:
                self.emitted[n] = Emitted(name, True, self._paired)
        super()._emit(stage, changing)


def _filled(values: Sequence[ix.Index], fill: int) -> list[ix.Index]:
    return [*[fill] * (MAX_BATCH_DIMS - len(values)), *values]


def _list(values: Sequence[ix.Index]) -> str:
    return ", ".join(map(str, values))


def _bool(value: bool) -> str:
    return "true" if value else "false"
