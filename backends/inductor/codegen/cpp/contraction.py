"""Kernels that begin with a sum of products: the call of the template in ``contraction.h``, and what is fused behind,
which is the body that the template runs over each tile.

Invariant: the body reads the sum from the tile and nowhere else; the template hands over each element once.
"""

from __future__ import annotations

import functools
from pathlib import Path

from dynamo_lite.backends.inductor.codegen.cpp.body import Emitted
from dynamo_lite.backends.inductor.codegen.cpp.expressions import index_text
from dynamo_lite.backends.inductor.codegen.cpp.kernel import GRAIN, CppKernel
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Patches, volume
from dynamo_lite.backends.inductor.scheduler.contraction import planes
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage

# Lanes of a vector, and vectors of a panel; as in contraction.h.
_LANES = {"avx512": (16, 4), "avx2": (8, 2), "scalar": (4, 2)}


@functools.cache
def contraction_header() -> str:
    return (Path(__file__).parent / "contraction.h").read_text()


class ContractionKernel(CppKernel):
    """Writes one such kernel."""

    def __init__(self, kernel: Kernel, symbol: str, simd: str):
        super().__init__(kernel, symbol, simd)
        assert kernel.tiles is not None
        self.tiles = kernel.tiles
        self._template_lanes = _LANES[simd]
        (sum_,) = kernel.stages[0].statements
        assert isinstance(sum_, Accumulate)
        self._sums = [n for n in self.nodes if n.op == "acc" and n.attr == sum_.acc]

    def _outer_loops(self) -> None:
        t, c = self.tiles, self.tiles.contraction
        lanes, vectors = self._template_lanes
        columns = volume(c.columns)
        tail = -(-(columns % (lanes * vectors)) // lanes) or vectors
        rows, batches = volume(c.rows), volume(c.batch)
        self.line(f"constexpr int TAIL = {tail};")
        self.line(f"constexpr bool SHARE = {str(t.share).lower()}, TRANSPOSED = {str(c.transposed).lower()};")
        work = f"(i64){batches} * {rows} * {columns} * {c.depth}"
        self.line(f"const int threads = threads_for({work}, {GRAIN});")
        self.line(f"const Product shape{{{batches}, {rows}, {columns}, {c.depth}, {c.left.line}, {c.left.depth}}};")
        self.line(f"float* const workspace = {self._pointer(t.workspace)};")
        room = "workspace"
        if isinstance(c.right, Patches):
            self._deal(c, c.right)
            room = f"workspace + {planes(c)}"
        left = f"{self._pointer(c.left.buffer)} + {c.left.offset}{self._at_batch(c, c.left.batch)}"
        self.open(f"contract<TAIL, SHARE, TRANSPOSED>(shape, threads, {t.slots}, {room}, "
                  f"[=](i64 batch) INLINE_LAMBDA {{ return {left}; }}, "
                  "[=](i64 batch, i64 first, int columns, float* to) INLINE_LAMBDA")
        self._pack(c)
        self.indent -= 1
        self.open("}, [=](i64 batch, i64 line_begin, i64 line_end, i64 begin, i64 end, const float* tile, i64 pitch) "
                  "NOINLINE")
        self._body()
        self.close("});")

    def _at_batch(self, c: Contraction, strides: tuple[int, ...]) -> str:
        """The offset of a batch in an operand, as C++."""
        if not any(strides):
            return ""
        flat = ix.var("b", volume(c.batch))
        indices = ix.unflatten(flat, [v.size for v in c.batch])
        return f" + {index_text(ix.dot(indices, strides), dict.fromkeys(ix.free_vars(flat), 'batch'))}"

    # ------------------------------------------------------------ operands
    def _pack(self, c: Contraction) -> None:
        right = c.right
        if isinstance(right, Patches):
            self.line(f"pack_windows(windows, workspace + batch * {right.plane_elements()}, first, columns, to);")
            return
        start = f"{self._pointer(right.buffer)} + {right.offset}{self._at_batch(c, right.batch)}"
        if right.line == 1:
            self.line(f"pack_lines({start} + first, {right.depth}, {c.depth}, columns, to);")
        else:
            assert right.depth == 1
            self.line(f"pack_columns({start} + first * {right.line}, {right.line}, {c.depth}, columns, to);")

    def _deal(self, c: Contraction, p: Patches) -> None:
        """The input as planes, before anything is packed."""
        pairs = (p.kernel, p.stride, p.padding, p.dilation)
        numbers = [p.channels, p.height, p.width, p.out_height, p.out_width, *(n for pair in pairs for n in pair)]
        self.line(f"const Windows windows{{{', '.join(map(str, numbers))}}};")
        total, each = volume(c.batch) * p.channels, p.plane_elements() // p.channels
        self.open(f"parallel({total}, 1, threads_for({total * each}, {GRAIN}), "
                  "[=](i64 begin, i64 end, int) NOINLINE")
        self.open("for (i64 k = begin; k < end; ++k)")
        self.line(f"const i64 batch = k / {p.channels}, channel = k % {p.channels};")
        start = f"{self._pointer(p.buffer)} + {p.offset}{self._at_batch(c, p.batch)} + channel * {p.height * p.width}"
        self.line(f"deal_planes(windows, {start}, workspace + k * {each});")
        self.close()
        self.close("});")

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
