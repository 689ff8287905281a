"""Writes sums over the rows of a matrix, one for each column, with vectors along the rows, in C++.

Column sums occur as the gradient of a bias or of a layer norm's weight, and as the product of one row with a matrix
whose rows are contiguous. If one vector of columns followed another, a matrix would be read in strips half a cache line
wide, each through all rows. Instead a block of columns is summed up together, 16 rows at a time: the 16 rows are added
up in registers, and the cascades, which take the sum of each 16, stay in the L1 cache.

Where columns are few, threads share the rows, in parts that follow from the work (``parts_for`` in ``threads.h``). If
they shared columns there, each would read short pieces of rows, and no more threads could work than a row has cache
lines.

Invariant: each column's sum consists of the same additions in the same order as without blocks, wherever the parts of
threads end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynamo_lite.backends.inductor.codegen.cpp.accumulate import Accumulator
from dynamo_lite.backends.inductor.codegen.cpp.body import Body, Emitted
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Store
from dynamo_lite.backends.inductor.target_info import LINE

# Largest cost of the values that depend only on the column: they are computed again for each row.
MAX_REPEATED = 4
# Number of cache lines of a row up to which columns are few; with more, there are columns to share for as many threads.
FEW_LINES = 16
# Bytes of the stack that the sums of all parts may take.
ROOM_FOR_PARTS = 128 << 10
# Largest number of parts that ``parts_for`` in ``threads.h`` returns.
MAX_PARTS = 64
# Number of vectors that are accumulated side by side if the body is short; with one, additions wait for each other.
SIDE_BY_SIDE = 4


def sums_columns(kernel: Kernel) -> bool:
    """Whether a kernel has the form that ``ColumnSums`` writes: a stage of sums along serial loops, and stages without
    loops that use the results."""
    if not kernel.vector_outer or kernel.scratch or kernel.tiles is not None or not kernel.stages:
        return False
    first, *rest = kernel.stages
    special = first.scan or first.ordered or first.check or first.tiled or first.unless_same is not None
    if special or not first.inner or any(stage.inner for stage in rest):
        return False
    sums = [s for s in first.statements if isinstance(s, Accumulate)]
    if not sums or any(s.kind != "sum" or not s.value.dtype.is_floating_point for s in sums):
        return False
    lane, rows = kernel.outer[-1], frozenset(first.inner)
    nodes = walk([s.value for s in first.statements])
    return sum(OPS[n.op].cost for n in nodes
               if n.op in OPS and lane in n.vars and rows.isdisjoint(n.vars)) <= MAX_REPEATED


def shares_rows(kernel: Kernel) -> bool:
    """Whether threads share the rows, not the columns, of a kernel that sums up columns."""
    columns = kernel.outer[-1].size
    sizes = [s.value.dtype.itemsize for s in kernel.stages[0].statements if isinstance(s, Accumulate)]
    return (isinstance(columns, int) and columns * max(sizes) <= FEW_LINES * LINE
            and columns * sum(sizes) * MAX_PARTS <= ROOM_FOR_PARTS)


class ColumnSums(Body):
    """Writes the loops of a kernel that sums up columns."""

    emitted: dict[Node, Emitted]

    def column_sums(self, accumulators: Sequence[Accumulator], chunk: int, vectors: int, light: bool, begin: str,
                    end: str) -> None:
        """Writes the sums of the columns from ``begin`` to ``end``, and what follows from them.

        Args:
            accumulators: those of the first stage, each of which is a cascade.
            chunk: number of rows that are added up before the cascade takes their sum.
            vectors: number of vectors of a block.
            light: whether the body is short.
            begin, end: C++ expressions.
        """
        lane = self.kernel.outer[-1]
        before = self._open_block(accumulators, chunk, vectors, light, begin, end, ("0", None))
        name = self._name(lane)
        self._results(accumulators, lambda a: f"{a.name}_sum[({name} - block) / L].total()", "block", "edge")
        self.close()
        self.emitted = before

    def column_sums_in_parts(self, accumulators: Sequence[Accumulator], chunk: int, vectors: int, light: bool) -> None:
        """Writes the sums of all columns by parts of the rows, which threads share, and what follows from the sums. The
        other arguments are those of ``column_sums``."""
        lane, rows = self.kernel.outer[-1], self.kernel.stages[0].inner
        columns = self._size(lane)
        for a in accumulators:
            self.line(f"{a.scalar} {a.name}_parts[parts * {columns}], *const {a.name}_part = {a.name}_parts;")
        unit = chunk if len(rows) == 1 else 1
        self.open_threads(self._size(rows[0]), str(unit), "parts")
        before = self._open_block(accumulators, chunk, vectors, light, "0", columns, ("begin", "end"))
        name = self._name(lane)
        self.open_lanes("for_lanes<L>(block, edge", f"const i64 {name}, auto m")
        for a in accumulators:
            total = f"{a.name}_sum[({name} - block) / L].total()"
            self.line(f"store<L>({a.name}_part + part * {columns} + {name}, {total}, m);")
        self.close("});")
        self.close()
        self.close("});")
        self.emitted = before
        for a in accumulators:
            self.line(f"join_columns<L>({a.name}_part, parts, {columns});")
        before = self.scope()
        self._results(accumulators, lambda a: f"load<L>({a.name}_part + {name}, m)", "0", columns)
        self.emitted = before

    def _open_block(self, accumulators: Sequence[Accumulator], chunk: int, vectors: int, light: bool, begin: str,
                    end: str, rows: tuple[str, str | None]) -> dict[Node, Emitted]:
        """Opens the loop over blocks of columns, sums up the rows of a block, and returns ``emitted`` as it was before.
        ``rows``: bounds of the first loop over rows, in C++; None is its end."""
        first = self.kernel.stages[0]
        lane = self.kernel.outer[-1]
        self.open(f"for (i64 block = {begin}; block < {end}; block += {vectors} * L)")
        self.line(f"const i64 edge = least(block + {vectors} * L, {end});")
        for a in accumulators:
            self.line(f"alignas(64) cascade<{a.type}> {a.name}_sum[{vectors}];")
        before = self.scope()
        self._emit(first, frozenset((*first.inner, lane)))
        self._sums_of_rows(first, first.inner, accumulators, chunk, SIDE_BY_SIDE if light else 1, rows)
        return before

    def _results(self, accumulators: Sequence[Accumulator], text: Callable[[Accumulator], str], begin: str,
                 end: str) -> None:
        """Writes the stages that use the sums, for columns from ``begin`` to ``end``. ``text``: the C++ value of an
        accumulator's sums."""
        lane = self.kernel.outer[-1]
        self.open_lanes(f"for_lanes<L>({begin}, {end}", f"const i64 {self._name(lane)}, auto m")
        self._v = lane
        for a in accumulators:
            self.line(f"const auto {a.result} = {text(a)};")
            for n in self.nodes:
                if n.op == "acc" and n.attr == a.statement.acc:
                    self.emitted[n] = Emitted(a.result, True)
        for stage in self.kernel.stages[1:]:
            self._emit(stage, frozenset())
            for s in stage.statements:
                assert isinstance(s, Store)
                self._store(s)
        self._v = None
        self.close("});")

    def _sums_of_rows(self, stage: Stage, loops: Sequence[ix.Var], accumulators: Sequence[Accumulator], chunk: int,
                      group: int, bounds: tuple[str, str | None]) -> None:
        """Writes the loops over the rows of a block. ``group``: number of vectors that are accumulated side by side."""
        v, *rest = loops
        name = self._name(v)
        begin, end = bounds[0], bounds[1] or self._size(v)
        if rest:
            self.open(f"for (i64 {name} = {begin}; {name} < {end}; ++{name})")
            before = self.scope()
            self._emit(stage, frozenset((*rest, self.kernel.outer[-1])))
            self._sums_of_rows(stage, rest, accumulators, chunk, group, ("0", None))
            self.emitted = before
            self.close()
            return
        self.open(f"for (i64 chunk = {begin}; chunk < {end}; chunk += {chunk})")
        self.open_lanes(f"for_groups<L, {group}>(block, edge", "const i64 first, auto m, auto group")
        for a in accumulators:
            self.line(f"{a.type} {a.name}[group.n];")
        each = "each_of(group, [&](auto u) __attribute__((always_inline)) {"
        for a in accumulators:
            self.line(f"{each} {a.name}[u.n] = {a.initial()}; }});")
        self.open(f"for (i64 {name} = chunk; {name} < least(chunk + {chunk}, {end}); ++{name})")
        self._row_of_group(stage, accumulators)
        self.close()
        for a in accumulators:
            self.line(f"{each} {a.name}_sum[(first - block) / L + u.n].add({a.name}[u.n]); }});")
        self.close("});")
        self.close()

    def _row_of_group(self, stage: Stage, accumulators: Sequence[Accumulator]) -> None:
        """Accumulates the values of one row in all vectors of a group."""
        lane = self.kernel.outer[-1]
        before = self.scope()
        self._emit(stage, frozenset((lane,)))
        self.open_lanes("each_of(group", "auto u")
        self.line(f"const i64 {self._name(lane)} = first + u.n * L;")
        self._v = lane
        self._emit(stage, frozenset())
        self._take_in(stage, accumulators, "u.n")
        self._v = None
        self.close("});")
        self.emitted = before
