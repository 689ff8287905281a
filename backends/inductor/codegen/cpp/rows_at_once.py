"""Writes reductions along the rows of a large matrix, several rows at a time, in C++.

One row after the other is one stream of memory, and a core waits for its cache lines: it can ask for a dozen or so at a
time. With several rows there are as many streams, each of which the hardware prefetches ahead in a page of its own, and
what all rows read, such as the vector that the matrix is multiplied with, is loaded once. Rows that come from the
core's own cache gain nothing, and their kernels keep the shorter text.

Invariant: each row's result is computed by the same operations in the same order as by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.cpp.accumulate import COPIES, Accumulator
from dynamo_lite.backends.inductor.codegen.cpp.body import Body, Emitted
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Store
from dynamo_lite.backends.inductor.target_info import TargetInfo


def rows_at_once(kernel: Kernel, light: bool, lanes: int, info: TargetInfo) -> int:
    """Number of rows that a kernel reduces at a time; 1 if it has another form or reads too little.

    Args:
        light: whether the body of the kernel's first stage is short.
        lanes: elements of a vector.
    """
    if kernel.tiles is not None or kernel.scratch or kernel.vector_outer or not kernel.outer or not kernel.stages:
        return 1
    first, *rest = kernel.stages
    special = first.scan or first.ordered or first.check or first.tiled or first.scalar
    if special or len(first.inner) != 1 or any(stage.inner or stage.check for stage in rest) or kernel.faults():
        return 1
    if any(stage.unless_same or stage.where_same for stage in kernel.stages):
        return 1
    sums = [s for s in first.statements if isinstance(s, Accumulate)]
    if len(sums) < len(first.statements) or any(s.kind.startswith("arg") for s in sums) or not light:
        return 1
    (inner,), row = first.inner, kernel.outer[-1]
    volume = ix.product(v.size for v in (*kernel.outer, inner))
    if not isinstance(volume, int) or not isinstance(inner.size, int) or inner.size < COPIES * lanes:
        return 1
    streams = {n.attr[0]: n.dtype.itemsize for n in walk([s.value for s in sums])
               if n.op == "load" and {row, inner} <= set(n.vars)}
    if volume * sum(streams.values()) <= info.own_cache:
        return 1
    # As many sums as the micro-kernel of products holds in registers.
    return max(info.tile[0] * info.tile[1] // (COPIES * len(sums)), 1)


class RowsAtOnce(Body):
    """Writes the loop over the rows of a kernel that reduces several at a time."""

    emitted: dict[Node, Emitted]

    def row_groups(self, accumulators: Sequence[Accumulator], rows: int, piece: int, begin: str, end: str) -> None:
        """Writes the reductions of the rows from ``begin`` to ``end``, and what follows from them.

        Args:
            accumulators: those of the first stage, with ``COPIES`` copies each.
            rows: number of rows at a time; those that are left over are computed one by one.
            piece: number of elements of a row that are added up before a cascade takes their sum.
            begin, end: C++ expressions.
        """
        (first, *rest), row = self.kernel.stages, self.kernel.outer[-1]
        (inner,), name = first.inner, self._name(row)
        size, cascades = self._size(inner), any(a.cascade for a in accumulators)
        before = self.scope()
        self.open_lanes(f"for_rows<{rows}>({begin}, {end}", f"const i64 {name}_0, auto rows")
        self._emit(first, frozenset((row, inner)))
        for a in accumulators:
            self.line(f"{a.type} {a.name}_of[rows.n][{a.copies}];")
            self.line(f"for (auto& of : {a.name}_of) for (auto& one : of) one = {a.initial()};")
            if a.cascade:
                self.line(f"cascade<{a.type}> {a.name}_sum_of[rows.n];")
        if cascades:
            self.open(f"for (i64 chunk = 0; chunk < {size}; chunk += {piece})")
        bounds = f"chunk, least(chunk + {piece}, {size})" if cascades else f"0, {size}"
        self.open_lanes(f"for_lanes4<L>({bounds}", f"const i64 {self._name(inner)}, auto m, auto k")
        self._v = inner
        outside = self.scope()
        self._emit(first, frozenset((row,)))
        self._open_rows(accumulators, False)
        self._emit(first, frozenset())
        self._take_in(first, accumulators, "k.n")
        self.close()
        self._v = None
        self.emitted = outside
        self.close("});")
        if cascades:
            self._open_rows(accumulators, True)
            for a in accumulators:
                self.text(a.end_of_chunk())
            self.close()
            self.close()
        self._open_rows(accumulators, True)
        for a in accumulators:
            self.text(a.finish())
            for n in self.nodes:
                if n.op == "acc" and n.attr == a.statement.acc:
                    self.emitted[n] = Emitted(a.result, False)
        for stage in rest:
            self._emit(stage, frozenset())
            for s in stage.statements:
                assert isinstance(s, Store)
                self._store(s)
        self.close()
        self.emitted = before
        self.close("});")

    def _open_rows(self, accumulators: Sequence[Accumulator], sums: bool) -> None:
        """Opens the loop over the rows of a group, in which the accumulators' names are those of one row.

        Args:
            sums: whether to name the cascades, too.
        """
        name = self._name(self.kernel.outer[-1])
        self.line("#pragma GCC unroll 8")
        self.open("for (int row = 0; row < rows.n; ++row)")
        self.line(f"const i64 {name} = {name}_0 + row;")
        for a in accumulators:
            self.line(f"auto& {a.name} = {a.name}_of[row];")
            if sums and a.cascade:
                self.line(f"auto& {a.name}_sum = {a.name}_sum_of[row];")
