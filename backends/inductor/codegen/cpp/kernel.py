"""One kernel as a C++ function.

The text follows the kernel's loops. What doesn't depend on a loop's variable stands outside of it. Inside the vector
loop every value is a vector of ``L`` lanes; the loop's body is a lambda that takes the position and how many lanes are
alive, so that the tail is the same text as the rest. Work is spread over threads by the outer loops if they are long,
otherwise stage by stage over the inner loop, partial results of reductions being joined in the order of the threads.

Invariant: every element is computed by the same sequence of operations wherever it stands, in the tail too; how many
threads run changes results only as far as the order of a reduction's partial sums goes.
"""

from __future__ import annotations

import dataclasses

import torch

from dynamo_lite.backends.inductor.codegen.cpp import reductions
from dynamo_lite.backends.inductor.codegen.cpp.expressions import STORAGE, VALUE, const_text, index_text, operation_text
from dynamo_lite.backends.inductor.codegen.cpp.functions import FUNCTIONS
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Store

# Work that one thread should have at least, in element operations: below it, waking another costs more than it brings.
GRAIN = 65536
# Outer loops of at least so many iterations are what threads share; with fewer, the inner loop is.
MIN_OUTER_PARALLEL = 8
# Sums longer than this are made of partial sums, for accuracy.
CHUNK = 4096
# A body that calls functions is not worth four copies.
MAX_UNROLLED_COST = 16

LANES = {"avx512": (16, 8), "avx2": (8, 4), "scalar": (4, 4)}


@dataclasses.dataclass(frozen=True, slots=True)
class Emitted:
    """A value in the text: its name, and whether it is a vector."""

    name: str
    vector: bool


class CppKernel:
    """Writes one kernel. ``symbol`` is the function's name."""

    def __init__(self, kernel: Kernel, symbol: str, simd: str):
        self.kernel = kernel
        self.symbol = symbol
        self.arguments = {
            **{b: f"p{k}" for k, b in enumerate(kernel.buffers)},
            **{b: f"row{k}" for k, b in enumerate(kernel.scratch)},
        }
        self.nodes = walk([s.value for s in kernel.statements()])
        self.functions = {n.op for n in self.nodes if n.op in FUNCTIONS}
        # A vector loop outside the stages: reductions are over serial loops, each lane its own.
        self.vector_outer = kernel.vector is not None and kernel.vector in kernel.outer
        self._vectors = self._find_vectors()
        wide = any(n.dtype.itemsize == 8 for n in self.nodes if self._in_vector(n)) or self._has_positions()
        self.L = LANES[simd][1 if wide else 0]
        self.lines: list[str] = []
        self.indent = 1
        self.emitted: dict[Node, Emitted] = {}
        self.var_names: dict[ix.Var, str] = {}
        self._counter = 0
        self._vector_now = False
        self._acc_names: dict[str, str] = {}

    def _find_vectors(self) -> set[int]:
        """Ids of nodes with a value of its own in every lane."""
        v = self.kernel.vector
        found: set[int] = set()
        for n in self.nodes:
            per_lane = self.vector_outer and n.op == "load" and n.attr[0] in self.kernel.scratch
            if v is not None and (per_lane or v in n.vars or any(a.id in found for a in n.args)):
                found.add(n.id)
        return found

    def _in_vector(self, node: Node) -> bool:
        return node.id in self._vectors

    def _acc(self, s: Accumulate) -> str:
        """The accumulator's name in the text; by order of appearance, so that equal kernels have equal texts."""
        return self._acc_names.setdefault(s.acc, f"r{len(self._acc_names)}")

    def _has_positions(self) -> bool:
        return any(isinstance(s, Accumulate) and s.kind.startswith("arg") for s in self.kernel.statements())

    # ------------------------------------------------------------ text
    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def open(self, text: str) -> None:
        self.line(text + " {")
        self.indent += 1

    def close(self, text: str = "}") -> None:
        self.indent -= 1
        self.line(text)

    def fresh(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    # ------------------------------------------------------------ the function
    def write(self, size_args: tuple[str, ...] = ()) -> str:
        kernel = self.kernel
        parameters = [f"void* a{k}" for k in range(len(kernel.buffers))] + [f"i64 {s}" for s in size_args]
        for k, (b, buffer) in enumerate(kernel.buffers.items()):
            kind = f"{'' if b in kernel.outputs else 'const '}{STORAGE[buffer.dtype]}*"
            self.line(f"{kind} p{k} = ({kind})a{k};")
        self._hoist()
        self._outer_loops()
        return (
            f"KERNEL {self.symbol}({', '.join(parameters)}) {{\n    constexpr int L = {self.L};\n"
            + "\n".join(self.lines)
            + "\n}\n"
        )

    def _hoist(self) -> None:
        """What depends on no loop and no reduction, before all loops."""
        fixed: dict[int, bool] = {}
        for n in self.nodes:
            fixed[n.id] = not n.vars and n.op != "acc" and all(fixed[a.id] for a in n.args)
            if fixed[n.id] and n.op != "const":
                self._emit_node(n)

    # ------------------------------------------------------------ loops around the stages
    def work(self) -> str:
        """The amount of work of the whole kernel, in element operations, as C++."""
        total: ix.Index = 0
        for stage in self.kernel.stages:
            volume = ix.product(v.size for v in (*self.kernel.outer, *stage.inner))
            nodes = walk([s.value for s in stage.statements])
            cost = (
                sum(OPS[n.op].cost for n in nodes if n.op in OPS)
                + sum(n.op == "load" for n in nodes)
                + len(stage.statements)
            )
            total = ix.add(total, ix.mul(volume, cost))
        return index_text(total, {})

    def _serial_outer(self) -> tuple[ix.Var, ...]:
        return tuple(v for v in self.kernel.outer if v is not self.kernel.vector)

    def _may_be_parallel(self) -> bool:
        work = self.work()
        return not work.isdigit() or int(work) >= 2 * GRAIN

    def _outer_loops(self) -> None:
        outer = self._serial_outer()
        volume = ix.product(v.size for v in outer)
        parallel = self._may_be_parallel()
        long_outer = not isinstance(volume, int) or volume >= MIN_OUTER_PARALLEL
        if parallel and outer and long_outer:
            self.line(f"const int threads = threads_for({self.work()}, {GRAIN});")
            self.open(f"parallel({index_text(volume, {})}, 1, threads, [=](i64 begin, i64 end, int)")
            self._flat_loop(outer, "begin", "end", parallel_inner=False)
            self.close("});")
        elif parallel:
            self.line(f"const int threads = threads_for({self.work()}, {GRAIN});")
            self._nested(outer, 0, parallel_inner=True)
        else:
            self._nested(outer, 0, parallel_inner=False)

    def _flat_loop(self, outer: tuple[ix.Var, ...], begin: str, end: str, parallel_inner: bool) -> None:
        """One loop over all iterations of several, keeping each one's variable."""
        if len(outer) == 1:
            name = self._name(outer[0])
            self.open(f"for (i64 {name} = {begin}; {name} < {end}; ++{name})")
            self._inside_outer(parallel_inner)
            self.close()
            return
        rest = "flat"
        self.line(f"i64 rest = {begin};")
        for v in reversed(outer):
            self.line(f"i64 {self._name(v)} = rest % ({self._size(v)});")
            self.line(f"rest /= {self._size(v)};")
        self.open(f"for (i64 {rest} = {begin}; {rest} < {end}; ++{rest})")
        self._inside_outer(parallel_inner)
        step = ""
        for at, v in enumerate(reversed(outer)):
            name = self._name(v)
            step += f"if (++{name} == {self._size(v)}) {{ {name} = 0; " if at < len(outer) - 1 else f"++{name};"
        self.line(step + " }" * (len(outer) - 1))
        self.close()

    def _nested(self, outer: tuple[ix.Var, ...], at: int, parallel_inner: bool) -> None:
        if at == len(outer):
            self._inside_outer(parallel_inner)
            return
        name = self._name(outer[at])
        self.open(f"for (i64 {name} = 0; {name} < {self._size(outer[at])}; ++{name})")
        self._nested(outer, at + 1, parallel_inner)
        self.close()

    def _name(self, v: ix.Var) -> str:
        name = self.var_names.get(v)
        if name is None:
            name = self.var_names[v] = v.name
        return name

    def _size(self, v: ix.Var) -> str:
        return index_text(v.size, {})

    def _inside_outer(self, parallel_inner: bool) -> None:
        """The stages, for one iteration of the serial outer loops."""
        if not self.vector_outer:
            self._stages(parallel_inner)
            return
        v = self.kernel.vector
        assert v is not None
        name = self._name(v)
        if parallel_inner:
            self.open(f"parallel({self._size(v)}, L, threads, [&](i64 begin, i64 end, int)")
            self.open(f"for_lanes<L>(begin, end, [&](const i64 {name}, auto m) __attribute__((always_inline))")
        else:
            self.open(f"for_lanes<L>(0, {self._size(v)}, [&](const i64 {name}, auto m) __attribute__((always_inline))")
        self._vector_now = True
        self._stages(False)
        self._vector_now = False
        self.close("});")
        if parallel_inner:
            self.close("});")

    # ------------------------------------------------------------ stages
    def _stages(self, parallel_inner: bool) -> None:
        kept = dict(self.emitted)
        lanes = " * L" if self.vector_outer else ""
        for name, buffer in self.kernel.scratch.items():
            self.line(
                f"alignas(64) {STORAGE[buffer.dtype]} {self._pointer(name)}[{index_text(ix.product(buffer.size), {})}{lanes}];"
            )
        for stage in self.kernel.stages:
            if stage.inner:
                self._loop_stage(stage, parallel_inner and not self.kernel.scratch)
            else:
                self._emit_all(stage, frozenset())
                for s in stage.statements:
                    assert isinstance(s, Store)
                    self._store(s)
        self.emitted = kept

    def _loop_stage(self, stage: Stage, parallel: bool) -> None:
        inner = frozenset(stage.inner)
        # What doesn't depend on the inner loops.
        self._emit_all(stage, inner, outside=True)
        accumulators = [s for s in stage.statements if isinstance(s, Accumulate)]
        vector = not self.vector_outer and self.kernel.vector in inner
        outside = dict(self.emitted)
        if not parallel:
            self._accumulation(stage, accumulators, vector, None)
            for s in accumulators:
                self._finish(s, vector)
        else:
            self._parallel_stage(stage, accumulators, vector)
        self.emitted = outside
        for s in accumulators:
            self.emitted[self._acc_node(s)] = Emitted(f"{self._acc(s)}_result", self.vector_outer)

    def _acc_node(self, s: Accumulate) -> Node:
        for n in self.nodes:
            if n.op == "acc" and n.attr == s.acc:
                return n
        return s.value  # nobody reads the result

    def _parallel_stage(self, stage: Stage, accumulators: list[Accumulate], vector: bool) -> None:
        first = stage.inner[0]
        unit = "L" if vector and len(stage.inner) == 1 else "1"
        for s in accumulators:
            self.line(f"{self._scalar_type(s)} {self._acc(s)}_part[threads];")
            if s.kind.startswith("arg"):
                self.line(f"i64 {self._acc(s)}_part_at[threads];")
        if accumulators:
            # A thread that gets nothing to do leaves the value that changes nothing.
            self.open("for (int t = 0; t < threads; ++t)")
            for s in accumulators:
                self.line(f"{self._acc(s)}_part[t] = {reductions.start(s.kind, s.value.dtype)};")
                if s.kind.startswith("arg"):
                    self.line(f"{self._acc(s)}_part_at[t] = 0x7fffffffffffffffl;")
            self.close()
        self.open(f"parallel({self._size(first)}, {unit}, threads, [&](i64 begin, i64 end, int thread)")
        self._accumulation(stage, accumulators, vector, ("begin", "end"))
        for s in accumulators:
            self._finish(s, vector)
            self.line(
                f"{self._acc(s)}_part[thread] = {self._acc(s)}_{'best' if s.kind.startswith('arg') else 'result'};"
            )
            if s.kind.startswith("arg"):
                self.line(f"{self._acc(s)}_part_at[thread] = {self._acc(s)}_result;")
        self.close("});")
        for s in accumulators:
            self._join_parts(s)

    def _join_parts(self, s: Accumulate) -> None:
        kind, dtype = s.kind, s.value.dtype
        if kind.startswith("arg"):
            self.line(
                f"auto {self._acc(s)}_best = {self._acc(s)}_part[0]; i64 {self._acc(s)}_result = {self._acc(s)}_part_at[0];"
            )
            test = reductions.better(kind, dtype, f"{self._acc(s)}_part[t]", f"{self._acc(s)}_best")
            self.line(
                f"for (int t = 1; t < threads; ++t) if ({test}) {self._acc(s)}_best = {self._acc(s)}_part[t], "
                f"{self._acc(s)}_result = {self._acc(s)}_part_at[t];"
            )
            return
        self.line(f"{self._scalar_type(s)} {self._acc(s)}_result = {self._acc(s)}_part[0];")
        joined = reductions.join(kind, dtype, f"{self._acc(s)}_result", f"{self._acc(s)}_part[t]")
        self.line(f"for (int t = 1; t < threads; ++t) {self._acc(s)}_result = {joined};")

    def _scalar_type(self, s: Accumulate) -> str:
        return VALUE[s.value.dtype]

    # ------------------------------------------------------------ accumulation
    def _acc_type(self, s: Accumulate, vector: bool) -> str:
        kind = VALUE[s.value.dtype]
        if not vector and not self.vector_outer:
            return kind
        return f"vec<{'i32' if s.value.dtype is torch.bool else kind}, L>"

    def _accumulation(
        self, stage: Stage, accumulators: list[Accumulate], vector: bool, bounds: tuple[str, str] | None
    ) -> None:
        """The loops of a stage with their accumulators declared before them."""
        copies = 4 if vector and accumulators and self._is_light(stage) else 1
        lanes = vector or self.vector_outer
        volume = ix.product(v.size for v in stage.inner)
        chunked = [
            s
            for s in accumulators
            if s.kind == "sum" and s.value.dtype.is_floating_point and (not isinstance(volume, int) or volume > CHUNK)
        ]
        for s in accumulators:
            self._declare(s, f"{self._acc(s)}_v", copies, lanes)
            if s in chunked:
                self._declare(s, f"{self._acc(s)}_total", 1, lanes)
        self._inner_loops(stage, stage.inner, vector, copies, chunked, bounds)
        for s in accumulators:
            if copies == 4:
                dtype = s.value.dtype
                if s.kind.startswith("arg"):
                    for k in (1, 2, 3):
                        self._join_positions(s, f"{self._acc(s)}_v[{k}]", f"{self._acc(s)}_at[{k}]")
                else:
                    left = reductions.join(s.kind, dtype, f"{self._acc(s)}_v[0]", f"{self._acc(s)}_v[1]")
                    right = reductions.join(s.kind, dtype, f"{self._acc(s)}_v[2]", f"{self._acc(s)}_v[3]")
                    self.line(f"{self._acc(s)}_v[0] = {reductions.join(s.kind, dtype, f'({left})', f'({right})')};")
            if s in chunked:
                self.line(f"{self._acc(s)}_v[0] = {self._acc(s)}_v[0] + {self._acc(s)}_total[0];")

    def _join_positions(self, s: Accumulate, value: str, position: str) -> None:
        """A later accumulator's best into the first one's, the smaller position first among equals."""
        v, at = f"{self._acc(s)}_v[0]", f"{self._acc(s)}_at[0]"
        ahead = reductions.better(s.kind, s.value.dtype, value, v)
        behind = reductions.better(s.kind, s.value.dtype, v, value)
        self.line(
            f"{{ auto take = mask_or({ahead}, mask_and(mask_not({behind}), {position} < {at})); "
            f"{v} = sel(take, {value}, {v}); {at} = sel(take, {position}, {at}); }}"
        )

    def _declare(self, s: Accumulate, name: str, copies: int, lanes: bool) -> None:
        value = reductions.start(s.kind, s.value.dtype)
        value = f"bc<L>({value})" if lanes else value
        kind = self._acc_type(s, lanes)
        self.line(f"{kind} {name}[{copies}] = {{{', '.join([value] * copies)}}};")
        if s.kind.startswith("arg"):
            at = "bc<L>(0x7fffffffffffffffl)" if lanes else "0x7fffffffffffffffl"
            self.line(
                f"{'vec<i64, L>' if lanes else 'i64'} {self._acc(s)}_at[{copies}] = {{{', '.join([at] * copies)}}};"
            )

    def _is_light(self, stage: Stage) -> bool:
        nodes = walk([s.value for s in stage.statements])
        return sum(OPS[n.op].cost for n in nodes if n.op in OPS) <= MAX_UNROLLED_COST

    def _inner_loops(
        self,
        stage: Stage,
        loops: tuple[ix.Var, ...],
        vector: bool,
        copies: int,
        chunked: list[Accumulate],
        bounds: tuple[str, str] | None,
    ) -> None:
        v, rest = loops[0], loops[1:]
        begin, end = bounds or ("0", self._size(v))
        if rest:
            name = self._name(v)
            self.open(f"for (i64 {name} = {begin}; {name} < {end}; ++{name})")
            before = dict(self.emitted)
            self._emit_level(stage, loops[:1], rest)
            self._inner_loops(stage, rest, vector, copies, chunked, None)
            self.emitted = before
            self.close()
            return
        if chunked:
            piece = CHUNK if vector else CHUNK // 16
            self.open(f"for (i64 chunk = {begin}; chunk < {end}; chunk += {piece})")
            begin, end = "chunk", f"least(chunk + {piece}, {end})"
        self._last_loop(stage, v, vector, copies, begin, end)
        if chunked:
            for s in chunked:
                parts = [f"{self._acc(s)}_v[{k}]" for k in range(copies)]
                total = parts[0] if copies == 1 else f"(({parts[0]} + {parts[1]}) + ({parts[2]} + {parts[3]}))"
                zero = reductions.start(s.kind, s.value.dtype)
                zero = f"bc<L>({zero})" if vector or self.vector_outer else zero
                self.line(f"{self._acc(s)}_total[0] = {self._acc(s)}_total[0] + {total};")
                self.line(" ".join(f"{p} = {zero};" for p in parts))
            self.close()

    def _last_loop(self, stage: Stage, v: ix.Var, vector: bool, copies: int, begin: str, end: str) -> None:
        name = self._name(v)
        before = dict(self.emitted)
        if vector:
            if copies == 4:
                self.open(
                    f"for_lanes4<L>({begin}, {end}, [&](const i64 {name}, auto m, auto k) __attribute__((always_inline))"
                )
            else:
                self.open(f"for_lanes<L>({begin}, {end}, [&](const i64 {name}, auto m) __attribute__((always_inline))")
            self._vector_now = True
        else:
            self.open(f"for (i64 {name} = {begin}; {name} < {end}; ++{name})")
        self._emit_all(stage, frozenset())
        for s in stage.statements:
            if isinstance(s, Store):
                self._store(s)
            else:
                self._accumulate(s, vector, "k.n" if copies == 4 else "0")
        if vector:
            self._vector_now = False
            self.close("});")
        else:
            self.close()
        self.emitted = before

    def _accumulate(self, s: Accumulate, vector: bool, slot: str) -> None:
        lanes = vector or self.vector_outer
        value = self._as(s.value, lanes)
        target = f"{self._acc(s)}_v[{slot}]"
        if s.kind.startswith("arg"):
            at = f"{self._acc(s)}_at[{slot}]"
            position = self._position(s.position, lanes)
            test = reductions.better(s.kind, s.value.dtype, value, target)
            # The first element counts even if it is the worst there is.
            test = f"mask_or({test}, {at} == 0x7fffffffffffffffl)"
            if vector:
                test = f"keep(m, mask_for<vec<i64, L>>({test}), vec<i64, L>{{}})"
            self.line(
                f"{{ auto take = {test}; {target} = sel(take, {value}, {target}); {at} = sel(take, {position}, {at}); }}"
            )
            return
        joined = reductions.join(s.kind, s.value.dtype, target, value)
        self.line(f"{target} = keep(m, {joined}, {target});" if vector else f"{target} = {joined};")

    def _position(self, position: ix.Index, lanes: bool) -> str:
        text = index_text(position, self.var_names)
        if not lanes:
            return f"(i64)({text})"
        c = ix.coefficient(position, self.kernel.vector) if self.kernel.vector is not None else 0
        return f"bc<L>((i64)({text})) + iota<i64, L>() * {index_text(c if c is not None else 0, {})}l"

    def _finish(self, s: Accumulate, vector: bool) -> None:
        """The result of a reduction from its accumulator."""
        v = f"{self._acc(s)}_v[0]"
        if s.kind.startswith("arg"):
            if vector:
                kind = VALUE[s.value.dtype]
                test = reductions.better(s.kind, s.value.dtype, "a", "b")
                self.line(f"{kind} {self._acc(s)}_best;")
                self.line(
                    f"const i64 {self._acc(s)}_result = fold_position({v}, {self._acc(s)}_at[0], []({kind} a, {kind} b) {{ return {test}; }}, "
                    f"{self._acc(s)}_best);"
                )
            else:
                self.line(
                    f"const auto {self._acc(s)}_result = {self._acc(s)}_at[0]; const auto {self._acc(s)}_best = {v};"
                )
            return
        if vector:
            if s.value.dtype is torch.bool:
                self.line(
                    f"const bool {self._acc(s)}_result = fold({v}, [](i32 a, i32 b) {{ return a {'|' if s.kind == 'any' else '&'} b; }}) "
                    "!= 0;"
                )
                return
            kind = VALUE[s.value.dtype]
            joined = reductions.join(s.kind, s.value.dtype, "a", "b")
            self.line(
                f"const {kind} {self._acc(s)}_result = fold({v}, []({kind} a, {kind} b) {{ return ({kind})({joined}); }});"
            )
        else:
            self.line(f"const auto {self._acc(s)}_result = {v};")

    # ------------------------------------------------------------ nodes
    def _emit_all(self, stage: Stage, inner: frozenset[ix.Var], outside: bool = False) -> None:
        """Emits what the stage needs; only what is free of ``inner`` if ``outside``."""
        for n in walk([s.value for s in stage.statements]):
            if (
                n not in self.emitted
                and n.op not in ("const", "acc")
                and not (outside and not inner.isdisjoint(n.vars))
            ):
                self._emit_node(n)

    def _emit_level(self, stage: Stage, done: tuple[ix.Var, ...], rest: tuple[ix.Var, ...]) -> None:
        """Emits what the remaining loops don't change."""
        left = frozenset(rest)
        for n in walk([s.value for s in stage.statements]):
            if n not in self.emitted and n.op not in ("const", "acc") and left.isdisjoint(n.vars):
                self._emit_node(n)

    def _emit_node(self, n: Node) -> None:
        vector = self._in_vector(n)
        if n.op == "load":
            text = self._load(n, vector)
        elif n.op == "index":
            text = self._index(n, vector)
        else:
            text = operation_text(n, [self._as(a, vector) for a in n.args], vector)
        name = self.fresh("t")
        self.line(f"const auto {name} = {text};" if vector else f"const {VALUE[n.dtype]} {name} = {text};")
        self.emitted[n] = Emitted(name, vector)

    def _as(self, n: Node, vector: bool) -> str:
        """A node's value as a scalar or a vector."""
        if n.op == "const":
            text = const_text(n.attr, n.dtype)
            return f"bc<L>({text})" if vector else text
        have = self.emitted[n]
        assert vector or not have.vector, f"a vector where a scalar is needed: {n}"
        return f"bc<L>({have.name})" if vector and not have.vector else have.name

    def _pointer(self, buffer: str) -> str:
        return self.arguments[buffer]

    def _lane_index(self, index: ix.Index) -> str:
        """The index for lane ``l`` of the vector loop, as the body of a lambda."""
        v = self.kernel.vector
        assert v is not None
        names = {**self.var_names, v: f"({self.var_names[v]} + l)"}

        def indirect(node: Node) -> str:
            if node.op == "const":
                return const_text(node.attr, node.dtype)
            have = self.emitted[node]
            return f"(i64){have.name}[l]" if have.vector else f"(i64){have.name}"

        return f"[&](i64 l) {{ return {index_text(index, names, indirect)}; }}"

    def _scalar_index(self, index: ix.Index) -> str:
        return index_text(index, self.var_names, lambda node: f"(i64){self._as(node, False)}")

    def _load(self, n: Node, vector: bool) -> str:
        buffer, index = n.attr
        p = self._pointer(buffer)
        if not vector:
            if self.vector_outer and buffer in self.kernel.scratch:
                return f"load<L>({p} + ({self._scalar_index(index)}) * L, full())"
            return f"load1({p} + {self._scalar_index(index)})" if index != 0 else f"load1({p})"
        v = self.kernel.vector
        assert v is not None
        if self._plain(index, v):
            return f"load<L>({p} + {self._scalar_index(index)}, m)"
        return f"load_lanes<L>({p}, m, {self._lane_index(index)})"

    def _plain(self, index: ix.Index, v: ix.Var) -> bool:
        """Whether neighbours in the vector loop are neighbours in memory."""
        return ix.coefficient(index, v) == 1 and not any(
            isinstance(a, ix.Indirect) and self._in_vector(a.node) for a in ix.atoms_of(index)
        )

    def _index(self, n: Node, vector: bool) -> str:
        kind = VALUE[n.dtype]
        if not vector:
            return f"({kind})({self._scalar_index(n.attr)})"
        return f"index_lanes<{kind}, L>({self._lane_index(n.attr)})"

    def _store(self, s: Store) -> None:
        p = self._pointer(s.buffer)
        v = self.kernel.vector
        if self.vector_outer and s.buffer in self.kernel.scratch:
            self.line(f"store<L>({p} + ({self._scalar_index(s.index)}) * L, {self._as(s.value, True)}, full());")
            return
        if not self._vector_now or v is None:
            self.line(f"store1({p} + {self._scalar_index(s.index)}, {self._as(s.value, False)});")
            return
        value = self._as(s.value, True)
        if self._plain(s.index, v):
            self.line(f"store<L>({p} + {self._scalar_index(s.index)}, {value}, m);")
        else:
            self.line(f"store_lanes<L>({p}, {value}, m, {self._lane_index(s.index)});")
