"""Writes one kernel as a C++ function.

The code follows the kernel's loop nest. A value that does not depend on a loop's variable is computed outside of that
loop. Inside the vector loop every value that differs between lanes is a vector of ``L`` lanes. The loop's body is a
lambda that takes the position and the number of active lanes, so that the tail has the same code as whole vectors.
Threads share the outer loops if these are long; otherwise they share the inner loop of each stage, and partial results
of reductions are combined in the order of the parts.

Invariant: every element is computed by the same sequence of operations, at any position and in the tail, too. Results
depend on the parts into which a reduction is divided, which follow from its size, but not on the number of threads.
"""

from __future__ import annotations

import functools
from typing import TypeGuard

from dynamo_lite.backends.inductor.codegen.cpp.accumulate import COPIES, Accumulator, are_positions_short
from dynamo_lite.backends.inductor.codegen.cpp.body import Emitted
from dynamo_lite.backends.inductor.codegen.cpp.column_sums import ColumnSums, shares_rows, sums_columns
from dynamo_lite.backends.inductor.codegen.cpp.expressions import STORAGE, VALUE, index_text
from dynamo_lite.backends.inductor.codegen.cpp.functions import DERIVED, FUNCTIONS
from dynamo_lite.backends.inductor.codegen.cpp.rows_at_once import RowsAtOnce, rows_at_once
from dynamo_lite.backends.inductor.codegen.cpp.scans import ScanBody
from dynamo_lite.backends.inductor.codegen.cpp.sharing import EXTRA_COPIES, EXTRA_FIELDS, EXTRA_VALUES
from dynamo_lite.backends.inductor.codegen.cpp.tables import ROOM, find_tables
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Statement, Store
from dynamo_lite.backends.inductor.target_info import TargetInfo

# Iterations of the outer loops from which on threads share these; with fewer, they share the inner loop, once per outer
# iteration. The number of threads must not decide this, as the bits of sums depend on it.
MIN_OUTER_PARALLEL = 8
# Least work of one part of a reduction, as in ``threads.h``.
LEAST_PART = 1 << 15
# Unit, in elements, of the parts of a loop: whole cache lines for every type, so that no two threads write to the same
# line, and whole vectors.
WHOLE_LINES = "64"
# Number of vectors that are added up one after the other, as in eager; longer sums are cascades of such sums.
CHAIN = 16
# Unit of the columns that threads share: a cache line of float32.
COLUMNS = 16
# Size of a cascade (``lanes.h``), in vectors.
CASCADE = 4
# Cost of a body from which on two vectors are computed side by side.
MIN_PAIRED_COST = 40
# Cost from which on a body is compiled only once, for whole vectors and the tail: per copy, each unit of cost takes the
# compiler a millisecond, and a branch for every load no longer matters in such a body.
MIN_LONG_COST = 160
# Cost up to which a body is worth four copies; one that calls functions is not.
MAX_UNROLLED_COST = 16

class CppKernel(ScanBody, ColumnSums, RowsAtOnce):
    """Writes one kernel. ``symbol`` is the function's name."""

    emitted: dict[Node, Emitted]
    _vectors: set[int]

    def __init__(self, kernel: Kernel, symbol: str, info: TargetInfo):
        super().__init__(kernel)
        self.symbol = symbol
        self.functions = {n.op for n in self.nodes if n.op in FUNCTIONS or n.op in DERIVED}
        positions = {s.acc: are_positions_short(s) for s in kernel.statements() if self._is_position(s)}
        in_vectors = [n for n in self.nodes if self._in_vector(n) and not (n.op == "acc" and positions.get(n.attr))]
        in_vectors += self.ahead_of_scans()
        wide = any(n.dtype.itemsize == 8 for n in in_vectors) or not all(positions.values())
        self.info = info
        self.L = max(info.lanes // 2, 4) if wide else info.lanes
        self.grain = self._least(False)
        self._acc_names: dict[str, str] = {}

    @staticmethod
    def _is_position(s: Statement) -> TypeGuard[Accumulate]:
        return isinstance(s, Accumulate) and s.kind.startswith("arg")

    # ------------------------------------------------------------ the function
    def write(self) -> str:
        kernel = self.kernel
        parameters = [f"void* a{k}" for k in range(len(kernel.buffers))] + [f"i64 {s}" for s in kernel.symbols()]
        parameters += ["i64* fault"] * kernel.faults()
        fixed, shared = self._fixed(), self._is_one_shared_loop()
        if fixed or not shared:
            self.line(f"constexpr int L = {self.L};")
            self._pointers()
        for n in fixed:
            self._emit_node(n)
        if shared:
            self._shared_loop()
        else:
            self._outer_loops()
        return f"KERNEL {self.symbol}({', '.join(parameters)}) {{\n" + "\n".join(self.lines) + "\n}\n"

    def _types(self) -> list[str]:
        """The C++ types of the pointers ``p0``, ``p1``, ... to the buffers."""
        outputs, buffers = self.kernel.outputs, self.kernel.buffers
        return [f"{'' if b in outputs else 'const '}{STORAGE[buffer.dtype]}*" for b, buffer in buffers.items()]

    def _pointers(self) -> None:
        """Typed pointers for the arguments; a thread's function declares them again, to have them in registers."""
        for k, kind in enumerate(self._types()):
            self.line(f"{kind} const p{k} = ({kind})a{k};")

    def _is_one_shared_loop(self) -> bool:
        """Whether the kernel is one loop that threads share."""
        return self._may_be_parallel() and self._is_long_outer()

    def _is_long_outer(self) -> bool:
        outer = self._serial_outer()
        volume = ix.product(v.size for v in outer)
        # Threads can't share the loop of a scan.
        least = 2 if all(stage.scan for stage in self.kernel.stages) else MIN_OUTER_PARALLEL
        return bool(outer) and (not isinstance(volume, int) or volume >= least)

    def _shared_loop(self) -> None:
        """Writes a kernel that is one loop which threads share."""
        outer = self._serial_outer()
        self.open_function("Loop", "i64 begin, i64 end, int")
        self._fill_tables()
        self._flat_loop(outer, "begin", "end")
        self.close_function("Loop", "loop")
        volume = index_text(ix.product(v.size for v in outer), {})
        self.line(f"share_loop(&loop, Loop::run, {volume}, {self.work}, {self.grain}, places);")

    @functools.cached_property
    def _tabulated(self) -> tuple[Node, ...]:
        return tuple(n for n in find_tables(self.kernel, self.info) if n.id not in self.held_back)

    def _fill_tables(self) -> None:
        """Writes the loop that computes the values which are the same in all rows (``tables``)."""
        nodes = self._tabulated
        if not nodes:
            return
        (lane,) = {v for n in nodes for v in n.vars}
        names = {n.id: self.fresh("table") for n in nodes}
        for n in nodes:
            self.line(f"alignas(64) {STORAGE[n.dtype]} {names[n.id]}[{ROOM}];")
        before = self.scope()
        self.open_lanes(f"for_lanes<L>(0, {self._size(lane)}", f"const i64 {self._name(lane)}, auto m")
        self._v = lane
        for n in walk(nodes):
            if n not in self.emitted and n.op != "const":
                self._emit_node(n)
        for n in nodes:
            self.line(f"store<L>({names[n.id]} + {self._name(lane)}, {self._as(n, True)}, m);")
        self._v = None
        self.close("});")
        self.emitted = before
        self.tables = names

    def _fields(self) -> dict[str, tuple[str, str]]:
        """The variables that a function inside of the kernel reads: by name, their types and initial values, in terms
        of the kernel's arguments and of values computed before all loops."""
        kernel = self.kernel
        fields = {f"p{k}": (kind, f"({kind})a{k}") for k, kind in enumerate(self._types())}
        fields |= {s: ("i64", s) for s in kernel.symbols()}
        fields |= {"fault": ("i64*", "fault")} if kernel.faults() else {}
        return fields | {self.emitted[n].name: (VALUE[n.dtype], self.emitted[n].name) for n in self._fixed()}

    def open_function(self, struct: str, parameters: str) -> None:
        """Opens a function for a library to call, with the kernel's arguments in a struct. (g++ takes a third longer
        for a lambda that captures them.)"""
        fields = self._fields()
        self.open(f"struct {struct}")
        self.line(" ".join(f"{kind} {name};" for name, (kind, _) in fields.items()) + EXTRA_FIELDS)
        self.open(f"static void run(const void* of, {parameters})")
        self.line(f"constexpr int L = {self.L};")
        self.line(f"const {struct} own = *(const {struct}*)of;")
        for name, (kind, _) in fields.items():
            self.line(f"{kind + ' const' if kind.endswith('*') else 'const ' + kind} {name} = own.{name};")
        self.line(EXTRA_COPIES)

    def close_function(self, struct: str, variable: str) -> None:
        """Closes a function of ``open_function`` and fills in its struct, as ``variable``."""
        self.close()
        self.close("};")
        self.line("static SeenByWork places;")
        values = ", ".join(value for _, value in self._fields().values())
        self.line(f"const {struct} {variable} = {{{values}{EXTRA_VALUES}}};")

    def open_threads(self, volume: str, unit: str, parts: str = "threads") -> None:
        """Opens a loop over parts of range(volume), one for each thread or as many as ``parts`` says; their bounds are
        multiples of ``unit``."""
        call = f"parallel({volume}, {unit}" if parts == "threads" else f"in_parts({volume}, {unit}, {parts}"
        self.open(f"{call}, threads, work, [&](i64 begin, i64 end, int part) NOINLINE")
        self._pointers()

    def _fixed(self) -> list[Node]:
        """The nodes that depend on no loop and no reduction, and are computed before all loops."""
        fixed: dict[int, bool] = {}
        for n in self.nodes:
            free = not n.vars and n.id not in self.held_back
            fixed[n.id] = free and n.op not in ("acc", "update") and all(fixed[a.id] for a in n.args)
        return [n for n in self.nodes if fixed[n.id] and n.op != "const"]

    # ------------------------------------------------------------ loops around the stages
    @functools.cached_property
    def work(self) -> str:
        """The work of the whole kernel as a C++ expression, in vectorized operations on elements."""
        total: ix.Index = 0
        for stage in self.kernel.stages:
            volume = ix.product(v.size for v in (*self.kernel.outer, *stage.inner))
            nodes = walk([s.value for s in stage.statements], {n.id: n for n in self._tabulated})
            cost = (
                sum(OPS[n.op].cost for n in nodes if n.op in OPS)
                + sum(n.op == "load" for n in nodes)
                + len(stage.statements)
            )
            if (stage.scan or stage.scalar) and not self.vector_outer:
                cost *= self.L  # not vectorized
            total = ix.add(total, ix.mul(volume, cost))
        return index_text(total, {})

    def _serial_outer(self) -> tuple[ix.Var, ...]:
        return self.kernel.outer[:-1] if self.vector_outer else self.kernel.outer

    def _least(self, awake: bool) -> int:
        """The least work for one thread, in the unit of ``work``. ``awake``: whether other threads are awake."""
        return self.info.grain(awake)

    def keeps_awake(self) -> bool:
        """Whether the kernel is certain to run in several threads, which are then awake for other kernels."""
        return self.work.isdigit() and int(self.work) >= 2 * self._least(False)

    def stay_awake(self) -> None:
        """Lowers the least work of a thread: other kernels of the file are certain to keep threads awake."""
        self.grain = self._least(True)

    def _may_be_parallel(self) -> bool:
        return not self.work.isdigit() or int(self.work) >= 2 * self.grain

    def _has_parts(self) -> bool:
        """Whether a reduction along an inner loop has parts (``parts_for`` in ``threads.h``), whatever threads cost."""
        enough = not self.work.isdigit() or int(self.work) >= 2 * LEAST_PART
        if not enough or self.kernel.scratch:
            return False
        if self.vector_outer:
            return bool(self._column_sums()) and shares_rows(self.kernel)
        return any(isinstance(s, Accumulate) for s in self.kernel.statements())

    def _outer_loops(self) -> None:
        outer = self._serial_outer()
        if self._may_be_parallel() or self._has_parts() and not self._is_long_outer():
            self.line(f"const i64 work = {self.work};")
            self.line(f"const int threads = threads_for(work, {self.grain}), parts = parts_for(work);")
            self._nested(outer, 0, parallel_inner=True)
        else:
            self._fill_tables()
            self._nested(outer, 0, parallel_inner=False)

    def _flat_loop(self, outer: tuple[ix.Var, ...], begin: str, end: str) -> None:
        """Writes several loops as one loop over their common iteration space, and keeps each loop's variable."""
        if len(outer) == 1:
            self._last_outer(outer[0], begin, end)
            return
        rest = "flat"
        if not all(isinstance(v.size, int) for v in outer):
            self.line(f"if ({begin} >= {end}) return;")  # a size may be 0
        self.line(f"i64 rest = {begin};")
        for v in reversed(outer):
            self.line(f"i64 {self._name(v)} = rest % ({self._size(v)});")
            self.line(f"rest /= {self._size(v)};")
        self.open(f"for (i64 {rest} = {begin}; {rest} < {end}; ++{rest})")
        self._inside_outer(False)
        step = ""
        for at, v in enumerate(reversed(outer)):
            name = self._name(v)
            step += f"if (++{name} == {self._size(v)}) {{ {name} = 0; " if at < len(outer) - 1 else f"++{name};"
        self.line(step + " }" * (len(outer) - 1))
        self.close()

    def _last_outer(self, v: ix.Var, begin: str, end: str) -> None:
        first = self.kernel.stages[0]
        rows = 1 if self._tabulated else rows_at_once(self.kernel, self._is_light(first), self.L, self.info)
        if rows > 1:
            accumulators = self._accumulators(first, True)
            self.row_groups(accumulators, rows, self._chunk(True, accumulators[0].copies), begin, end)
            return
        name = self._name(v)
        self.open(f"for (i64 {name} = {begin}; {name} < {end}; ++{name})")
        self._inside_outer(False)
        self.close()

    def _nested(self, outer: tuple[ix.Var, ...], at: int, parallel_inner: bool) -> None:
        if at == len(outer):
            self._inside_outer(parallel_inner)
            return
        if at + 1 == len(outer) and not parallel_inner:
            self._last_outer(outer[at], "0", self._size(outer[at]))
            return
        name = self._name(outer[at])
        self.open(f"for (i64 {name} = 0; {name} < {self._size(outer[at])}; ++{name})")
        self._nested(outer, at + 1, parallel_inner)
        self.close()

    def _inside_outer(self, parallel_inner: bool) -> None:
        """Writes the stages for one iteration of the serial outer loops."""
        if not self.vector_outer:
            self._stages(parallel_inner)
            return
        v = self.kernel.outer[-1]
        name = self._name(v)
        begin, end = "0", self._size(v)
        accumulators = self._column_sums()
        light = bool(accumulators) and self._is_light(self.kernel.stages[0])
        if accumulators and parallel_inner and shares_rows(self.kernel):
            self.column_sums_in_parts(accumulators, CHAIN, self._vectors_of_block(accumulators, v), light)
            return
        if parallel_inner:
            self.open_threads(end, str(max(self.L, COLUMNS)) if accumulators else WHOLE_LINES)
            begin, end = "begin", "end"
        if accumulators:
            self.column_sums(accumulators, CHAIN, self._vectors_of_block(accumulators, v), light, begin, end)
        else:
            self.open_lanes(f"for_lanes<L>({begin}, {end}", f"const i64 {name}, auto m")
            self._v = v
            self._stages(False)
            self._v = None
            self.close("});")
        if parallel_inner:
            self.close("});")

    def _column_sums(self) -> list[Accumulator]:
        """The accumulators, if the kernel sums up blocks of columns (``ColumnSums``); none otherwise."""
        if not sums_columns(self.kernel):
            return []
        accumulators = self._accumulators(self.kernel.stages[0], False)
        return accumulators if all(a.cascade for a in accumulators) else []

    def _vectors_of_block(self, accumulators: list[Accumulator], v: ix.Var) -> int:
        """Vectors of a block of columns: as many as there are, or as have cascades that fill the L1 cache; a power of
        two, so that kernels of other sizes have the same text."""
        size = sum(CASCADE * self.L * a.dtype.itemsize for a in accumulators)
        most = 1 << max(self.info.processor.l1.size // size, 8).bit_length() - 1
        return min(most, 1 << (-(-v.size // self.L) - 1).bit_length()) if isinstance(v.size, int) else most

    # ------------------------------------------------------------ stages
    def _stages(self, parallel_inner: bool) -> None:
        kept, vectors = self.scope(), self._vectors
        lanes = " * L" if self.vector_outer else ""
        for name, buffer in self.kernel.scratch.items():
            size = index_text(ix.product(buffer.size), {})
            self.line(f"alignas(64) {STORAGE[buffer.dtype]} {self._pointer(name)}[{size}{lanes}];")
        for stage in self.kernel.stages:
            before = self.scope()
            if len(self.kernel.stages) > 1:
                self._vectors = self._find_vectors((stage,))
            pair = stage.unless_same or stage.where_same
            if pair is not None:
                first, second = map(self._pointer, pair)
                self.open(f"if ((const void*){first} {'!=' if stage.unless_same else '=='} (const void*){second})")
            if stage.tiled and not stage.scan:
                self.tiled_stage(stage, parallel_inner)
            elif stage.inner:
                self._loop_stage(stage, parallel_inner and not self.kernel.scratch)
            else:
                self._emit(stage, frozenset())
                for s in stage.statements:
                    assert isinstance(s, Store)
                    self._store(s)
            if stage.check:
                self.line("if (*fault) return;")
            if pair is not None:
                self.close()
                self.emitted = before
        self.emitted, self._vectors = kept, vectors

    def _loop_stage(self, stage: Stage, parallel: bool) -> None:
        outside = self.scope()
        self._emit(stage, frozenset(stage.inner))
        if stage.scan:
            self._scan_stage(stage)
            self.emitted = outside
            return
        if stage.ordered or stage.check:
            self._ordered_stage(stage, parallel)
            self.emitted = outside
            return
        outside = self.scope()
        along = not self.vector_outer
        accumulators = self._accumulators(stage, along)
        if parallel:
            self._parallel_stage(stage, accumulators, along)
        else:
            self._accumulation(stage, accumulators, along, None)
        self.emitted = outside
        for a in accumulators:
            for n in self.nodes:
                if n.op == "acc" and n.attr == a.statement.acc:
                    self.emitted[n] = Emitted(a.result, self.vector_outer)

    def _ordered_stage(self, stage: Stage, parallel: bool) -> None:
        """Writes iterations in their order; threads share the first or the last loop where that keeps the order."""
        if parallel and stage.apart and not stage.free:
            first, rest = stage.inner[0], stage.inner[1:]
            name = self._name(first)
            self.open_threads(self._size(first), "1")
            self.open(f"for (i64 {name} = begin; {name} < end; ++{name})")
            before = self.scope()
            self._emit(stage, frozenset(rest))
            self._ordered_loops(stage, rest, "0", self._size(rest[-1]))
            self.emitted = before
            self.close()
            self.close("});")
            return
        if not parallel or not stage.free:
            self._ordered_loops(stage, stage.inner, "0", self._size(stage.inner[-1]))
            return
        self.open_threads(self._size(stage.inner[-1]), WHOLE_LINES)
        self._ordered_loops(stage, stage.inner, "begin", "end")
        self.close("});")

    def _ordered_loops(self, stage: Stage, loops: tuple[ix.Var, ...], begin: str, end: str) -> None:
        v, rest = loops[0], loops[1:]
        if not rest:
            self._last_loop(stage, v, [], not stage.scalar, begin, end)
            return
        name = self._name(v)
        self.open(f"for (i64 {name} = 0; {name} < {self._size(v)}; ++{name})")
        before = self.scope()
        self._emit(stage, frozenset(rest))
        self._ordered_loops(stage, rest, begin, end)
        self.emitted = before
        self.close()

    def _accumulators(self, stage: Stage, along: bool) -> list[Accumulator]:
        statements = [s for s in stage.statements if isinstance(s, Accumulate)]
        copies = COPIES if along and statements and self._is_light(stage) else 1
        volume = ix.product(v.size for v in stage.inner)
        limit = self._chunk(along, copies)
        long = not isinstance(volume, int) or volume > limit
        return [
            Accumulator(
                s,
                self._acc_names.setdefault(s.acc, f"r{len(self._acc_names)}"),
                along,
                along or self.vector_outer,
                copies,
                long,
                stage.inner,
            )
            for s in statements
        ]

    def _chunk(self, along: bool, copies: int) -> int:
        """Number of iterations of the last loop whose sum is one addend of a cascade."""
        return CHAIN * copies * self.L if along else CHAIN

    def _cost(self, stage: Stage) -> int:
        return sum(OPS[n.op].cost for n in walk([s.value for s in stage.statements]) if n.op in OPS)

    def _is_light(self, stage: Stage) -> bool:
        return self._cost(stage) <= MAX_UNROLLED_COST

    def _is_heavy(self, stage: Stage, v: ix.Var) -> bool:
        """Whether a body is too long to overlap with the next one, so that two vectors at a time hide latencies."""
        return self._cost(stage) >= MIN_PAIRED_COST and isinstance(v.size, int) and v.size >= 4 * self.L

    def _parallel_stage(self, stage: Stage, accumulators: list[Accumulator], along: bool) -> None:
        unit = WHOLE_LINES if along and len(stage.inner) == 1 else "1"
        for a in accumulators:
            self.text(a.declare_parts())
        self.open_threads(self._size(stage.inner[0]), unit, "parts" if accumulators else "threads")
        self._accumulation(stage, accumulators, along, ("begin", "end"))
        for a in accumulators:
            self.text(a.save_part())
        self.close("});")
        for a in accumulators:
            self.text(a.join_parts())

    def _accumulation(
        self, stage: Stage, accumulators: list[Accumulator], along: bool, bounds: tuple[str, str] | None
    ) -> None:
        """Writes the loops of a stage; accumulators are declared before these and finished after them."""
        for a in accumulators:
            self.text(a.declare())
        self._inner_loops(stage, stage.inner, accumulators, along, bounds)
        for a in accumulators:
            self.text(a.finish())

    def _inner_loops(
        self,
        stage: Stage,
        loops: tuple[ix.Var, ...],
        accumulators: list[Accumulator],
        along: bool,
        bounds: tuple[str, str] | None,
    ) -> None:
        v, rest = loops[0], loops[1:]
        begin, end = bounds or ("0", self._size(v))
        rows = self._rows_of_chunk(rest, accumulators, along)
        if rows > 1:
            self._rows_in_chunks(stage, loops, accumulators, along, (begin, end), rows)
            return
        if rest:
            name = self._name(v)
            self.open(f"for (i64 {name} = {begin}; {name} < {end}; ++{name})")
            before = self.scope()
            self._emit(stage, frozenset(rest))
            self._inner_loops(stage, rest, accumulators, along, None)
            self.emitted = before
            self.close()
            return
        if not any(a.cascade for a in accumulators):
            self._last_loop(stage, v, accumulators, along, begin, end)
            return
        piece = self._chunk(along, accumulators[0].copies)
        self.open(f"for (i64 chunk = {begin}; chunk < {end}; chunk += {piece})")
        self._last_loop(stage, v, accumulators, along, "chunk", f"least(chunk + {piece}, {end})")
        for a in accumulators:
            self.text(a.end_of_chunk())
        self.close()

    def _rows_of_chunk(self, rest: tuple[ix.Var, ...], accumulators: list[Accumulator], along: bool) -> int:
        """Number of iterations of a loop around one short loop that are added up before the cascade takes the sum, so
        that no chain of additions is longer than in other sums."""
        if len(rest) != 1 or not any(a.cascade for a in accumulators) or not isinstance(rest[0].size, int):
            return 1
        if self._is_short(rest[0], accumulators, along):
            return CHAIN * accumulators[0].copies // -(-rest[0].size // self.L)
        return CHAIN // max(-(-rest[0].size * CHAIN // self._chunk(along, accumulators[0].copies)), 1)

    def _is_short(self, v: ix.Var, accumulators: list[Accumulator], along: bool) -> bool:
        """Whether a loop has too few vectors for all accumulators' copies: each outer iteration then uses one copy."""
        return along and accumulators[0].copies > 1 and isinstance(v.size, int) and v.size < 4 * self.L

    def _rows_in_chunks(
        self, stage: Stage, loops: tuple[ix.Var, ...], accumulators: list[Accumulator], along: bool,
        bounds: tuple[str, str], rows: int,
    ) -> None:
        v, last = loops
        name, (begin, end) = self._name(v), bounds
        self.open(f"for (i64 chunk = {begin}; chunk < {end}; chunk += {rows})")
        short = self._is_short(last, accumulators, along)
        if short:
            self.open_lanes(f"for_lanes4<1>(chunk, least(chunk + {rows}, {end})", f"const i64 {name}, auto, auto k")
        else:
            self.open(f"for (i64 {name} = chunk; {name} < least(chunk + {rows}, {end}); ++{name})")
        before = self.scope()
        self._emit(stage, frozenset((last,)))
        self._last_loop(stage, last, accumulators, along, "0", self._size(last), "k.n" if short else None)
        self.emitted = before
        self.close("});" if short else "}")
        for a in accumulators:
            self.text(a.end_of_chunk())
        self.close()

    def _last_loop(
        self, stage: Stage, v: ix.Var, accumulators: list[Accumulator], along: bool, begin: str, end: str,
        copy: str | None = None,
    ) -> None:
        """Writes the innermost loop, the vector loop if ``along``. ``copy``: the one accumulator copy used, if any."""
        name = self._name(v)
        before = self.scope()
        slot = copy or "0"
        once = "_once" if self._cost(stage) >= MIN_LONG_COST else ""
        if along and accumulators and accumulators[0].copies == COPIES and copy is None:
            self.open_lanes(f"for_lanes4<L>({begin}, {end}", f"const i64 {name}, auto m, auto k")
            slot = "k.n"
        elif along and not accumulators and self._is_heavy(stage, v):
            self.open_lanes(f"for_lanes2{once}<L>({begin}, {end}", f"const i64 {name}, auto m, auto m_")
            self._paired = True
        elif along:
            self.open_lanes(f"for_lanes{once}<L>({begin}, {end}", f"const i64 {name}, auto m")
        else:
            self.open(f"for (i64 {name} = {begin}; {name} < {end}; ++{name})")
        if along:
            self._v = v
        self._emit(stage, frozenset())
        self._take_in(stage, accumulators, slot)
        if along:
            self._v = None
            self._paired = False
        self.close("});" if along else "}")
        self.emitted = before
