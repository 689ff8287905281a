"""Writes contraction kernels: a call of one of the libraries that all graphs share, and the epilogue, which is fused
behind the products and which the library calls for each tile of results.

Invariant: the epilogue reads a sum only from the tile, and the library hands over each element once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.codegen.cpp.body import Emitted
from dynamo_lite.backends.inductor.codegen.cpp.expressions import index_text
from dynamo_lite.backends.inductor.codegen.cpp.kernel import CppKernel
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import MAX_LINES, Contraction, Matrix, Patches, volume
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.exchanged import PACKING_SHARE
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Store
from dynamo_lite.backends.inductor.scheduler.packing import saved_left
from dynamo_lite.backends.inductor.target_info import TargetInfo

# As in contraction.h.
MAX_BATCH_DIMS, MAX_TOUCHED = 3, 3
# Cost from which on values that depend only on the line are computed in vectors for all lines of a tile; below it, the
# arrays that hold them would cost more.
MIN_FACTOR_COST = 8

def library_of(contraction: Contraction) -> str:
    """The name in ``libraries.LIBRARIES`` of the library that computes a contraction."""
    return "depthwise" if isinstance(contraction.right, Patches) and contraction.right.each else "products"


class ContractionKernel(CppKernel):
    """Writes one contraction kernel."""

    _vectors: set[int]

    def __init__(self, kernel: Kernel, symbol: str, info: TargetInfo):
        super().__init__(kernel, symbol, info)
        assert kernel.tiles is not None
        self.tiles = kernel.tiles
        (sum_,) = kernel.stages[0].statements
        assert isinstance(sum_, Accumulate)
        self._sums = [n for n in self.nodes if n.op == "acc" and n.attr == sum_.acc]

    def _is_one_shared_loop(self) -> bool:
        return False  # the library shares the work

    def _outer_loops(self) -> None:
        """Writes the description of the contraction, the epilogue, and the call of the library."""
        t, c, sharing = self.tiles, self.tiles.contraction, self.tiles.sharing
        assert sharing is not None
        batches, rows, columns = volume(c.batch), volume(c.rows), volume(c.columns)
        sizes_ = _list((rows, columns, c.depth))
        self.line(f"Contraction c{{{{{_list(_filled([v.size for v in c.batch], 1))}}}, {sizes_}}};")
        left, right = c.left, c.right
        self.line(f"c.left = {self._matrix(left.buffer, left.offset, left.line, left.depth, left.batch)};")
        far = isinstance(right, Matrix) and right.far
        self.line(f"c.left_is_far = {_bool(left.far)}, c.right_is_far = {_bool(far)};")
        if left.taps:
            self.line(f"c.taps = {left.taps};")
        if isinstance(right, Matrix):
            self.line(f"c.right = {self._matrix(right.buffer, right.offset, right.line, right.depth, right.batch)};")
        else:
            self.line(f"c.right = {self._matrix(right.buffer, right.offset, 0, 0, right.batch)};")
            pairs = (right.kernel, right.stride, right.padding, right.dilation)
            sizes = (right.channels, right.height, right.width, right.out_height, right.out_width)
            self.line(f"c.windows = {{{_list([*sizes, *(n for pair in pairs for n in pair), right.each])}}};")
            if right.each:
                self.line(f"c.windows.set_tiles({_list(sharing.tiles or right.tiles(self.info.strip))});")
            else:
                self.line(f"c.windows.strip = {_list((sharing.strip,))}, c.windows.copies = {_bool(sharing.copies)};")
        self.line(f"c.transposed = {_bool(c.transposed)}, c.by_rows = {_bool(sharing.by_rows)};")
        self.line(f"c.direct = {_bool(sharing.direct)}, c.slots = {sharing.slots}, c.slot = {_list((sharing.slot,))};")
        for names in (("row_parts", "block_parts"), ("tile_lines",), ("tile_groups", "tile_rows"), ("kept",),
                      ("group", "chunk", "piece")):
            self.line(", ".join(f"c.{name} = {_list((getattr(sharing, name),))}" for name in names) + ";")
        self.line(f"c.decided = {_bool(sharing.decided)};")
        if not sharing.decided:
            self.line(f"c.packing = {sharing.packing!r}, c.widest = {sharing.widest};")
            self._costs()
        products = " * ".join(f"({index_text(n, {})})" for n in (batches, rows, columns, c.depth))
        self.line(f"c.work = (i64){products}, c.threads = threads_for(c.work, {self.grain});")
        self.line(f"c.workspace = {self._pointer(t.workspace)}, c.far_left = {self.info.far_left};")
        self._touched()
        tile = "i64 batch, i64 line_begin, i64 line_end, i64 begin, i64 end, const float* tile, i64 pitch"
        self.open_function("TileEpilogue", tile)
        self._body()
        self.close_function("TileEpilogue", "epilogue")
        self.line(f"contract<{library_of(c).upper()}>(c, TileEpilogue::run, &epilogue, places);")

    def _costs(self) -> None:
        """Writes the costs by which the library decides at the call, as ``scheduler/threads.py`` would."""
        info = self.info
        (period, places), (cache_period, ways) = info.near_lines
        own = info.costs
        foreign = info.foreign_read * own.product_rate
        numbers = (own.pack_lines, own.pack_columns, own.pack_far_lines, own.pack_far_columns, info.far_read, foreign,
                   own.left_lines, own.left_columns, own.near_left_lines, own.near_left_columns, own.strided_left,
                   saved_left(self.tiles.contraction, info), own.placed_right)
        text = ", ".join(map(repr, numbers))
        self.line(f"c.costs = {{{text}, {info.near_pixels}, {{{{{period}, {places}}}, "
                  f"{{{cache_period}, {ways}}}}}, {PACKING_SHARE!r}}};")

    def _least(self, awake: bool) -> int:
        # A depthwise convolution loads an operand for each product, as an operation on elements does.
        assert self.kernel.tiles is not None
        depthwise = library_of(self.kernel.tiles.contraction) == "depthwise"
        return self.info.grain(awake) if depthwise else self.info.product_grain(awake)

    def keeps_awake(self) -> bool:
        c = self.tiles.contraction
        products = ix.product((volume(c.batch), volume(c.rows), volume(c.columns), c.depth))
        return isinstance(products, int) and products >= 2 * self._least(False)

    def _touched(self) -> None:
        """Writes which buffers the library is to prefetch for the epilogue: those that it reads or writes along the
        tile's lines, with the same strides as the first of them. None where that does not pay (``_needless``)."""
        t = self.tiles
        statements = [s for s in self.kernel.stages[1].statements if isinstance(s, Store)]
        places = [(s.buffer, s.index, s.value.dtype) for s in statements]
        places += [(*n.attr, n.dtype) for n in walk([s.value for s in statements]) if n.op == "load"]
        loops = [v for v in (t.batch, t.line, t.lane) if v is not None]
        found: dict[str, None] = {}
        strides: list[ix.Index] = []
        for buffer, index, dtype in places:
            own = [0 if v is None else ix.coefficient(index, v) for v in (t.batch, t.line, t.lane)]
            if not buffer or own[2] != 1 or None in own or dtype.itemsize != 4:
                continue
            strides = strides or own
            if own == strides and own[1] != 0:
                start = index_text(substitute(index, dict.fromkeys(loops, 0)), {})
                found[f"(const float*){self._pointer(buffer)} + {start}"] = None
        needless = self._needless(len(found), places[0][2].itemsize)
        if needless == "true":
            return
        for at, place in enumerate(list(found)[:MAX_TOUCHED]):
            where = f"{needless} ? nullptr : {place}" if needless else place
            self.line(f"c.touched[{at}] = {where};")
        if found:
            self.line(f"c.touched_line = {_list(strides[1:2])}, c.touched_batch = {_list(strides[:1])};")

    def _needless(self, touched: int, itemsize: int) -> str:
        """The condition, in C++, on which prefetching what an epilogue touches does not pay; "true" or "" if it is
        known. Behind deep products, prefetches pay unless the result stays in the core's L2 cache until it is read, and
        its memory, which is often what an operand before has left, was there. Shallow products are done as soon as the
        prefetches for their results are, which pay only if all that the kernel reads and writes exceeds that cache.

        Args:
            touched: number of buffers that the epilogue touches.
            itemsize: bytes of an element of the first of them.
        """
        c, info = self.tiles.contraction, self.info
        size = ix.product((volume(c.batch), volume(c.rows), volume(c.columns), itemsize))
        read = 0 if isinstance(c.right, Patches) else ix.product((volume(c.batch), volume(c.columns), c.depth, 4))
        every = ix.add(ix.mul(size, touched), read)
        near, all_near = (_below(n, least) for n, least in ((size, info.near_result), (every, info.own_cache)))
        # Behind deep products both have to be the case.
        unknown = [text for text in (near, all_near) if text != "true"]
        stays = "" if "" in unknown else " && ".join(unknown) or "true"
        if isinstance(c.depth, int):
            return stays if c.depth >= info.fetched_depth else all_near
        return f"({index_text(c.depth, {})} < {info.fetched_depth} ? {all_near or 'false'} : {stays or 'false'})"

    def _matrix(
        self, buffer: str, offset: ix.Index, line: ix.Index, depth: ix.Index, batch: tuple[ix.Index, ...]
    ) -> str:
        """The initializer of a ``Matrix`` of ``contraction.h``."""
        numbers = _list((offset, line, depth))
        return f"{{{self._pointer(buffer)} + {numbers}, {{{_list(_filled(batch, 0))}}}}}"

    # ------------------------------------------------------------ the epilogue
    def _body(self) -> None:
        """Writes the epilogue: a loop over the lines of a tile around the vector loop."""
        t = self.tiles
        outside = self.scope()
        if t.batch is not None:
            self.var_names[t.batch] = "batch"
        stage = self.kernel.stages[1]
        lines = frozenset(v for v in (t.line, t.lane) if v is not None)
        self._emit(stage, lines)
        factors: list[str] = []
        if t.line is not None:
            self.var_names[t.line] = "line"
            factors = self._factors(stage, t.line, t.lane)
        self.open("for (i64 line = line_begin; line < line_end; ++line)")
        for name in factors:
            self.line(f"const float {name} = {name}s[line - line_begin];")
        self._emit(stage, frozenset((t.lane,)))
        self._last_loop(stage, t.lane, [], True, "begin", "end")
        self.close()
        self.emitted = outside

    def _factors(self, stage: Stage, line: ix.Var, lane: ix.Var) -> list[str]:
        """Computes the values that depend only on the line for all lines of a tile in vectors, into arrays, if they are
        as expensive as a division. (With shallow products these values matter, as a line of a tile has only a few
        vectors.) Returns the names of the values; none if they are computed line by line."""
        nodes = [n for n in walk([s.value for s in stage.statements]) if n.op != "const"]
        own = [n for n in nodes if n not in self.emitted and line in n.vars and lane not in n.vars]
        if sum(OPS[n.op].cost for n in own if n.op in OPS) < MIN_FACTOR_COST or not all(
            n.dtype is torch.float32 and (n.op in OPS or n.op == "load" and self._plain(n.attr[1], line)) for n in own
        ):
            return []
        inside = set(own)
        wanted = {a: None for n in nodes if n not in inside for a in n.args if a in inside}
        wanted.update((s.value, None) for s in stage.statements if s.value in inside)
        names = {n: self.fresh("factor") for n in wanted}
        for name in names.values():
            self.line(f"alignas(64) float {name}s[{MAX_LINES}];")
        before, vectors = self.scope(), self._vectors
        self._vectors = vectors | {n.id for n in own}
        self.open_lanes("for_lanes<L>(line_begin, line_end", "const i64 line, auto m")
        self._v = line
        for n in own:
            self._emit_node(n)
        for n, name in names.items():
            self.line(f"store<L>({name}s + (line - line_begin), {self._as(n, True)}, full());")
        self._v, self._vectors = None, vectors
        self.close("});")
        self.emitted = {**before, **{n: Emitted(names.get(n, ""), False) for n in own}}
        return list(names.values())

    def _emit(self, stage: Stage, changing: frozenset[ix.Var]) -> None:
        """As in ``Body``; inside the vector loop it first loads the sums from the tile."""
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
    """The values for each batch dimension of the library, preceded by ``fill`` for the dimensions that are missing."""
    return [*[fill] * (MAX_BATCH_DIMS - len(values)), *values]


def _below(size: ix.Index, least: int) -> str:
    """The condition, in C++, that a size is below a number; "true" or "" if it is known."""
    if isinstance(size, int):
        return "true" if size < least else ""
    return f"{index_text(size, {})} < {least}"


def _list(values: Sequence[ix.Index]) -> str:
    """Indices as C++, separated by commas."""
    return ", ".join(index_text(n, {}) for n in values)


def _bool(value: bool | ix.Index) -> str:
    return f"{index_text(value, {})} != 0" if isinstance(value, ix.Expr) else "true" if value else "false"
