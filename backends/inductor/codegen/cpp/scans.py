"""Writes the loops of scans (``cumsum``, ``cummax``) in C++: iterations in their order, with values carried from one
to the next in variables; and stages over tiles, whose lines are transposed as those of scans are.

Where every lane of a vector scans a line of its own, an iteration processes a vector; lines that are contiguous along
the scan are read and written in tiles, whose columns are these vectors. Elsewhere an iteration processes one element,
and the part of its value that does not depend on the carried values (the ``tanh`` of ``x.tanh().cumsum(-1)``) would
occupy one lane of a vector. Where that part is expensive, the loop is divided into blocks, and for each block these
values are computed ahead, in vectors.

Invariant: values are carried in the order of the loop. An element's own value is the same whether it is computed ahead
or not, as scalar functions compute the same as those of vectors.
"""

from __future__ import annotations

import torch

from dynamo_lite.backends.inductor.codegen.cpp.body import Body, Emitted
from dynamo_lite.backends.inductor.codegen.cpp.expressions import STORAGE, VALUE, index_text
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import DEAR, OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Stage, Store
from dynamo_lite.backends.inductor.scheduler.loop_transforms import is_transposed

# Vectors in a block: so many that the overhead of loops does not matter, so few that blocks stay in the L1 cache.
BLOCK = 16


class ScanBody(Body):
    """Writes the stages that are scans or run over tiles."""

    L: int
    emitted: dict[Node, Emitted]
    _vectors: set[int]

    def ahead_of_scans(self) -> list[Node]:
        """The values that scans compute ahead in blocks, and all nodes in the loop that these are computed from."""
        stages = () if self.vector_outer else (s for s in self.kernel.stages if s.scan)
        return [n for s in stages for n in self._made_in_loop(self._ahead(s), s.inner[-1])]

    def _ahead(self, stage: Stage) -> list[Node]:
        """Expensive values of single elements that do not depend on carried values, and from which the rest of an
        iteration is computed."""
        loop = stage.inner[-1]
        roots = [s.value for s in stage.statements]
        carried = {n.id for n in walk(roots) if n.op == "acc"}
        for n in walk(roots):
            if any(a.id in carried for a in n.args):
                carried.add(n.id)
        starts = [a for n in walk(roots) if n.id in carried for a in n.args] + roots
        own = dict.fromkeys(self._uncast(n) for n in starts if n.id not in carried and loop in n.vars)
        return [n for n in own if any(
            OPS[made.op].cost >= DEAR for made in self._made_in_loop([n], loop) if made.op in OPS)]

    @staticmethod
    def _uncast(n: Node) -> Node:
        """The value before its casts. Those are left to the iteration, as vectors of wider values have fewer lanes."""
        while n.op == "cast":
            (n,) = n.args
        return n

    @staticmethod
    def _made_in_loop(values: list[Node], loop: ix.Var) -> list[Node]:
        """These values and all that they are computed from, as far as it depends on the loop."""
        return [n for n in walk(values) if loop in n.vars]

    def _scan_stage(self, stage: Stage) -> None:
        carried = [s for s in stage.statements if isinstance(s, Accumulate)]
        names = {s.acc: f"c{k}" for k, s in enumerate(carried)}
        for s in carried:
            assert s.start is not None
            kind = f"vec<{VALUE[s.start.dtype]}, L>" if self.vector_outer else VALUE[s.start.dtype]
            self.line(f"{kind} {names[s.acc]} = {self._as(s.start, self.vector_outer)};")
        for n in self.nodes:
            if n.op == "acc" and n.attr in names:
                self.emitted[n] = Emitted(names[n.attr], self.vector_outer)
        ahead = [] if self.vector_outer else self._ahead(stage)
        for v in stage.inner[:-1]:
            self.open(f"for (i64 {self._name(v)} = 0; {self._name(v)} < {self._size(v)}; ++{self._name(v)})")
        if stage.tiled:
            self._tile_loop(stage, names)
        elif ahead:
            self._block_loop(stage, ahead, names)
        else:
            self._iterations(stage, names, "0", self._size(stage.inner[-1]))
        for _ in stage.inner[:-1]:
            self.close()

    def _tile_loop(self, stage: Stage, names: dict[str, str]) -> None:
        """Writes the loop in square tiles: ``L`` iterations of the ``L`` lines that the lanes scan. ``names``: the C++
        variables of carried values."""
        v, rows = stage.inner[-1], self._v
        assert rows is not None
        name = self._name(v)
        self.open_lanes(f"for_lanes<L>(0, {self._size(v)}", f"const i64 {name}_0, auto columns")
        before, own = self.scope(), self.var_names.get(v)
        self.var_names[v] = f"{name}_0"
        for n in walk([s.value for s in stage.statements]):
            if is_transposed(n, v, rows):
                tile = self.loaded_tile(n, "columns")
                self.emitted[n] = Emitted(f"{tile}[{name}_r]", True)
        stores = [s for s in stage.statements if isinstance(s, Store)]
        tiles = [self._tile(s.value, " = {}") for s in stores]
        places = [self._place(s.buffer, s.index) for s in stores]
        self.open(f"for (int {name}_r = 0; {name}_r < alive(columns, L); ++{name}_r)")
        self.var_names[v] = name
        self.line(f"const i64 {name} = {name}_0 + {name}_r;")
        self._iteration(stage, names)
        for s, tile in zip(stores, tiles):
            self.line(f"{tile}[{name}_r] = {self._as(s.value, True)};")
        self.close()
        for s, tile, place in zip(stores, tiles, places):
            self.line(f"store_tile<L>({place}, {self._lines_apart(s.index)}, {tile}, columns, m);")
        self.close("});")
        self.emitted = before
        if own is not None:
            self.var_names[v] = own

    def tiled_stage(self, stage: Stage, parallel: bool) -> None:
        """Writes a stage over square tiles: loads along ``u`` are transposed, then each row is computed along ``v``."""
        u, v = stage.inner
        self._emit(stage, frozenset(stage.inner))
        outside = self.scope()
        row = self._name(u)
        begin, end = "0", self._size(u)
        if parallel:
            self.open_threads(end, "L")
            begin, end = "begin", "end"
        self.open_lanes(f"for_lanes<L>({begin}, {end}", f"const i64 {row}_0, auto rows")
        self.open_lanes(f"for_lanes<L>(0, {self._size(v)}", f"const i64 {self._name(v)}, auto m")
        self._v = v
        self.var_names[u] = f"{row}_0"
        for n in walk([s.value for s in stage.statements]):
            if is_transposed(n, u, v):
                tile = self.loaded_tile(n, "rows")
                self.emitted[n] = Emitted(f"{tile}[{row}_r]", True)
        self._emit(stage, frozenset((u,)))
        self.open(f"for (int {row}_r = 0; {row}_r < alive(rows, L); ++{row}_r)")
        self.var_names[u] = row
        self.line(f"const i64 {row} = {row}_0 + {row}_r;")
        self._emit(stage, frozenset())
        for s in stage.statements:
            assert isinstance(s, Store)
            self._store(s)
        self._v = None
        self.close()
        self.close("});")
        self.close("});")
        if parallel:
            self.close("});")
        self.emitted = outside

    def loaded_tile(self, n: Node, alive: str) -> str:
        """Loads a transposed tile and returns its C++ name. ``alive``: the number of active elements of each line."""
        tile = self._tile(n)
        self.line(f"load_tile<L>({tile}, {self._place(*n.attr)}, {self._lines_apart(n.attr[1])}, {alive}, m);")
        return tile

    def _tile(self, n: Node, initial: str = "") -> str:
        """Declares a tile for values of a node's type and returns its C++ name."""
        tile = self.fresh("tile")
        self.line(f"vec<{'i8' if n.dtype is torch.bool else VALUE[n.dtype]}, L> {tile}[L]{initial};")
        return tile

    def _place(self, buffer: str, index: ix.Index) -> str:
        return f"{self._pointer(buffer)} + {self._scalar_index(index)}"

    def _lines_apart(self, index: ix.Index) -> str:
        """The stride from the line of one lane to the next."""
        assert self._v is not None
        stride = ix.coefficient(index, self._v)
        assert stride is not None
        return index_text(stride, {})

    def _block_loop(self, stage: Stage, ahead: list[Node], names: dict[str, str]) -> None:
        """Writes the loop in blocks: the values computed ahead go to arrays, then the block's iterations follow."""
        v = stage.inner[-1]
        name, block = self._name(v), self.fresh("block")
        arrays = {n: self.fresh("ahead") for n in ahead}
        for n, array in arrays.items():
            self.line(f"alignas(64) {STORAGE[n.dtype]} {array}[{BLOCK} * L];")
        self.open(f"for (i64 {block} = 0; {block} < {self._size(v)}; {block} += {BLOCK} * L)")
        self.line(f"const i64 {block}_end = least({block} + {BLOCK} * L, {self._size(v)});")
        before, vectors = self.scope(), self._vectors
        self.open_lanes(f"for_lanes<L>({block}, {block}_end", f"const i64 {name}, auto m")
        self._v, self._vectors = v, vectors | {n.id for n in self._made_in_loop(ahead, v)}
        self._emit(Stage(stage.inner, [Store(array, 0, n) for n, array in arrays.items()]), frozenset())
        for n, array in arrays.items():
            self.line(f"store<L>({array} + ({name} - {block}), {self._as(n, True)}, m);")
        self._v, self._vectors = None, vectors
        self.close("});")
        self.emitted = before
        given = {n: f"load1({array} + ({name} - {block}))" for n, array in arrays.items()}
        self._iterations(stage, names, block, f"{block}_end", given)
        self.close()

    def _iterations(self, stage: Stage, names: dict[str, str], begin: str, end: str,
                    given: dict[Node, str] | None = None) -> None:
        """Writes the loop from ``begin`` to ``end``. ``given``: nodes whose values are computed already, with the C++
        text that loads them."""
        name = self._name(stage.inner[-1])
        before = self.scope()
        self.open(f"for (i64 {name} = {begin}; {name} < {end}; ++{name})")
        for n, text in (given or {}).items():
            value = self.fresh("t")
            self.line(f"const {VALUE[n.dtype]} {value} = {text};")
            self.emitted[n] = Emitted(value, False)
        self._iteration(stage, names, {n.id: n for n in given or {}})
        for s in stage.statements:
            if isinstance(s, Store):
                self._store(s)
        self.close()
        self.emitted = before

    def _iteration(self, stage: Stage, names: dict[str, str], known: dict[int, Node] | None = None) -> None:
        """Writes the update of the carried values in one iteration, then the values that it stores. ``known``: nodes,
        by id, whose values exist already."""
        carried = [s for s in stage.statements if isinstance(s, Accumulate)]
        known = known or {}
        self._emit(Stage(stage.inner, list(carried)), frozenset(), known)
        if len(carried) > 1:
            for s in carried:
                self.line(f"const auto {names[s.acc]}_next = {self._as(s.value, self.vector_outer)};")
        for s in carried:
            value = f"{names[s.acc]}_next" if len(carried) > 1 else self._as(s.value, self.vector_outer)
            self.line(f"{names[s.acc]} = {value};")
        # Values computed from the old carried values are stale now.
        self.emitted = {n: e for n, e in self.emitted.items() if n.op == "acc" or not any(
            inner.op == "acc" and inner.attr in names for inner in walk((n,)))}
        stores = [s for s in stage.statements if isinstance(s, Store)]
        self._emit(Stage(stage.inner, list(stores)), frozenset(), known)
