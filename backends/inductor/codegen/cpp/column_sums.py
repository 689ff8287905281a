"""Sums over the rows of a matrix, one for each column, with vectors along the rows, as C++.

Which is a bias's gradient, a layer norm's weight's, one row times a matrix whose rows lie in memory. One vector of
columns after another would read a matrix in strips of half a line of the cache, each through all rows. Here a block of
columns is summed up together, 16 rows at a time: the 16 are added up in registers, and what is carried from each 16 to
the next, the levels of the cascade, lies in the first cache.

Invariant: each column's sum is made of the same additions in the same order as without blocks, wherever threads' parts
end.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.cpp.accumulate import Accumulator
from dynamo_lite.backends.inductor.codegen.cpp.body import Body, Emitted
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Store

# What depends on the column alone is computed for each row: it costs at most this much.
MAX_REPEATED = 4
# So many vectors are added up side by side if the body is short: with one, additions wait for each other.
SIDE_BY_SIDE = 4


def sums_columns(kernel: Kernel) -> bool:
    """Whether a kernel is of the form that ``ColumnSums`` writes: a stage of sums along serial loops, and what follows
    from its results."""
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


class ColumnSums(Body):
    """Writes the loop over the columns of a kernel."""

    emitted: dict[Node, Emitted]

    def column_sums(self, accumulators: Sequence[Accumulator], chunk: int, vectors: int, light: bool, begin: str,
                    end: str) -> None:
        """The columns from ``begin`` to ``end``.

        Args:
            accumulators: those of the first stage, each a cascade.
            chunk: how many rows are added up before the cascade takes them.
            vectors: of how many vectors a block is.
            light: whether the body is short.
        """
        first, *rest = self.kernel.stages
        lane = self.kernel.outer[-1]
        self.open(f"for (i64 block = {begin}; block < {end}; block += {vectors} * L)")
        self.line(f"const i64 edge = least(block + {vectors} * L, {end});")
        for a in accumulators:
            self.line(f"alignas(64) cascade<{a.type}> {a.name}_sum[{vectors}];")
        before = self.scope()
        self._emit(first, frozenset((*first.inner, lane)))
        self._sums_of_rows(first, first.inner, accumulators, chunk, SIDE_BY_SIDE if light else 1)
        name = self._name(lane)
        self.open_lanes("for_lanes<L>(block, edge", f"const i64 {name}, auto m")
        self._v = lane
        for a in accumulators:
            self.line(f"const auto {a.result} = {a.name}_sum[({name} - block) / L].total();")
            for n in self.nodes:
                if n.op == "acc" and n.attr == a.statement.acc:
                    self.emitted[n] = Emitted(a.result, True)
        for stage in rest:
            self._emit(stage, frozenset())
            for s in stage.statements:
                assert isinstance(s, Store)
                self._store(s)
        self._v = None
        self.close("});")
        self.close()
        self.emitted = before

    def _sums_of_rows(self, stage: Stage, loops: Sequence[ix.Var], accumulators: Sequence[Accumulator], chunk: int,
                      group: int) -> None:
        v, *rest = loops
        name = self._name(v)
        if rest:
            self.open(f"for (i64 {name} = 0; {name} < {self._size(v)}; ++{name})")
            before = self.scope()
            self._emit(stage, frozenset((*rest, self.kernel.outer[-1])))
            self._sums_of_rows(stage, rest, accumulators, chunk, group)
            self.emitted = before
            self.close()
            return
        self.open(f"for (i64 chunk = 0; chunk < {self._size(v)}; chunk += {chunk})")
        self.open_lanes(f"for_groups<L, {group}>(block, edge", "const i64 first, auto m, auto group")
        for a in accumulators:
            self.line(f"{a.type} {a.name}[group.n];")
        each = "each_of(group, [&](auto u) __attribute__((always_inline)) {"
        for a in accumulators:
            self.line(f"{each} {a.name}[u.n] = {a.initial()}; }});")
        self.open(f"for (i64 {name} = chunk; {name} < least(chunk + {chunk}, {self._size(v)}); ++{name})")
        self._row_of_group(stage, accumulators)
        self.close()
        for a in accumulators:
            self.line(f"{each} {a.name}_sum[(first - block) / L + u.n].add({a.name}[u.n]); }});")
        self.close("});")
        self.close()

    def _row_of_group(self, stage: Stage, accumulators: Sequence[Accumulator]) -> None:
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
