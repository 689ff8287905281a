"""Writes loop bodies in C++: values, loads and stores of one kernel, at the current position of its text.

Invariant: a node is emitted once in each scope, before its uses; ``emitted`` holds the nodes that are visible in the
current scope.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch

from dynamo_lite.backends.inductor.codegen.cpp.accumulate import Accumulator
from dynamo_lite.backends.inductor.codegen.cpp.expressions import ROUND, VALUE, const_text, index_text, operation_text
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.scheduler.empty_memory import held_back
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel, Stage, Store
from dynamo_lite.backends.inductor.scheduler.short_loops import SHORT


@dataclasses.dataclass(frozen=True, slots=True)
class Emitted:
    """A node's value in the text.

    Attributes:
        name: the C++ variable.
        vector: whether it is a vector, not a scalar.
        paired: whether it has a twin, named with an underscore behind, for the next ``L`` elements (``Body._paired``).
    """

    name: str
    vector: bool
    paired: bool = False


# Largest stride at which elements are loaded as whole vectors and picked from these by shuffles. Measured on a Zen 4 at
# strides of 2, 3, 4, 5, 6 and 8: 6.2, 4.9, 1.8, 2.4, 1.2 and 1.0 times as fast as loads of single elements with 16
# lanes, 3.7, 11, 1.0, 3.9, 1.0 and 1.0 times with 8 lanes.
EVERY = 5


class Body:
    """The text of a kernel while it is written. ``CppKernel`` adds the loops."""

    emitted: dict[Node, Emitted]
    _vectors: set[int]

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.arguments = {
            **{b: f"p{k}" for k, b in enumerate(kernel.buffers)},
            **{b: f"row{k}" for k, b in enumerate(kernel.scratch)},
        }
        self.nodes = walk([s.value for s in kernel.statements()])
        self.held_back = held_back(kernel)
        self.vector_outer = kernel.vector_outer
        self._vectors = self._find_vectors(kernel.stages)
        self.lines: list[str] = []
        self.indent = 1
        self.emitted = {}
        self.var_names: dict[ix.Var, str] = {}
        self._counter = 0
        self._v: ix.Var | None = None  # the vector loop around the current position of the text
        # Two vectors at a time: every vector value has a twin, for the next L elements.
        self._paired = False
        self._twin = ""
        self.tables: dict[int, str] = {}  # by the ids of nodes that are read from tables: the tables' names

    def _find_vectors(self, stages: Sequence[Stage]) -> set[int]:
        """Ids of the nodes whose values differ between lanes in one of the stages. Stages may have different vector
        loops: where a loop is divided into parts, a part of a single iteration has no loop, and the loop around it is
        the vector loop there."""
        loops = {v for v in map(self.kernel.vector, stages) if v is not None}
        found: set[int] = set()
        for n in self.nodes:
            per_lane = self.vector_outer and n.op == "load" and n.attr[0] in self.kernel.scratch
            if per_lane or not loops.isdisjoint(n.vars) or any(a.id in found for a in n.args):
                found.add(n.id)
        return found

    def _in_vector(self, node: Node) -> bool:
        return node.id in self._vectors

    # ------------------------------------------------------------ text
    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def open(self, text: str) -> None:
        self.line(text + " {")
        self.indent += 1

    def close(self, text: str = "}") -> None:
        self.indent -= 1
        self.line(text)

    def open_lanes(self, call: str, parameters: str) -> None:
        """Opens a loop over vectors whose body is a lambda with these parameters. ``call``: the loop's function and all
        of its arguments but the last, without the closing parenthesis."""
        self.open(f"{call}, [&]({parameters}) __attribute__((always_inline))")

    def text(self, lines: list[str]) -> None:
        for line in lines:
            self.line(line)

    def scope(self) -> dict[Node, Emitted]:
        """A copy of ``emitted`` at the beginning of a scope, to be restored at its end."""
        return dict(self.emitted)

    def fresh(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def _name(self, v: ix.Var) -> str:
        name = self.var_names.get(v)
        if name is None:
            name = self.var_names[v] = v.name
        return name

    def _size(self, v: ix.Var) -> str:
        return index_text(v.size, {})

    # ------------------------------------------------------------ nodes
    def _emit(self, stage: Stage, changing: frozenset[ix.Var], given: Mapping[int, Node] | None = None) -> None:
        """Emits the nodes of a stage that can be computed at the current position.

        Args:
            stage: whose statements need the nodes.
            changing: variables of loops that open further in. Nodes that depend on them are left out, as are those that
                must not be computed before one of these loops has an iteration (``held_back``).
            given: nodes, by id, whose values exist already; their operands are not emitted for their sake.
        """
        for n in walk([s.value for s in stage.statements], {**self.tables, **given} if given else self.tables):
            if n in self.emitted or n.op in ("const", "acc", "update") or not changing.isdisjoint(n.vars):
                continue
            if changing.isdisjoint(self.held_back.get(n.id, ())):
                self._emit_node(n)

    def _emit_node(self, n: Node) -> None:
        """Declares a C++ variable for a node's value, and one for its twin if two vectors are computed at a time."""
        vector = self._in_vector(n)
        name = self.fresh("t")
        if vector and self._paired:
            self.line(f"const auto {name} = {self._text_of(n, True)};")
            self._twins(lambda: self.line(f"const auto {name}_ = {self._text_of(n, True)};"))
            self.emitted[n] = Emitted(name, True, True)
            return
        self.line(f"const {'auto' if vector else VALUE[n.dtype]} {name} = {self._text_of(n, vector)};")
        self.emitted[n] = Emitted(name, vector)

    def _twins(self, write: Callable[[], None]) -> None:
        """Calls ``write`` for the second of two vectors, the twin."""
        assert self._v is not None
        name = self.var_names[self._v]
        self.var_names[self._v] = f"({name} + L)"
        self._twin = "_"
        write()
        self._twin = ""
        self.var_names[self._v] = name

    def _text_of(self, n: Node, vector: bool) -> str:
        if n.id in self.tables:
            assert self._v is not None
            return f"load<L>({self.tables[n.id]} + {self._name(self._v)}, m{self._twin})"
        if n.op == "load":
            return self._load(n, vector)
        if n.op == "index":
            return self._index(n, vector)
        if n.op == "bounded":
            size, wraps, fault = n.attr
            lanes = f"m{self._twin}, " if vector else ""
            value = self._as(n.args[0], vector)
            return f"bounded<{'true' if wraps else 'false'}>({value}, {index_text(size, {})}, {lanes}fault, {fault})"
        return operation_text(n, [self._as(a, vector) for a in n.args], vector)

    def _as(self, n: Node, vector: bool) -> str:
        """A node's value as C++: as a vector if ``vector``, else as a scalar."""
        if n.op == "const":
            text = const_text(n.attr, n.dtype)
            return f"bc<L>({text})" if vector else text
        have = self.emitted[n]
        assert vector or not have.vector, f"a vector where a scalar is needed: {n}"
        if not have.vector:
            return f"bc<L>({have.name})" if vector else have.name
        return have.name + self._twin if have.paired else have.name

    def _pointer(self, buffer: str) -> str:
        return self.arguments[buffer]

    def _lane_index(self, index: ix.Index) -> str:
        """A C++ lambda that computes the index for lane ``l`` of the vector loop."""
        v = self._v
        assert v is not None
        names = {**self.var_names, v: f"({self.var_names[v]} + l)"}

        def indirect(node: Node) -> str:
            if node.op == "const":
                return const_text(node.attr, node.dtype)
            have = self.emitted[node]
            return f"(i64){self._as(node, have.vector)}[l]" if have.vector else f"(i64){have.name}"

        return f"[&](i64 l) {{ return {index_text(index, names, indirect)}; }}"

    def _scalar_index(self, index: ix.Index) -> str:
        return index_text(index, self.var_names, lambda node: f"(i64){self._as(node, False)}")

    def _load(self, n: Node, vector: bool) -> str:
        buffer, index = n.attr
        p = self._pointer(buffer)
        if self.vector_outer and buffer in self.kernel.scratch:
            return f"load<L>({p} + ({self._scalar_index(index)}) * L, full())"
        if not vector:
            return f"load1({p} + {self._scalar_index(index)})" if index != 0 else f"load1({p})"
        v = self._v
        assert v is not None
        if self._plain(index, v):
            return f"load<L>({p} + {self._scalar_index(index)}, m{self._twin})"
        step = ix.coefficient(index, v)
        if isinstance(step, int) and 2 <= step <= EVERY and self._plain(index, v, step):
            return f"load_every<L, {step}>({p} + {self._scalar_index(index)}, m{self._twin})"
        return f"load_lanes<L>({p}, m{self._twin}, {self._lane_index(index)})"

    def _plain(self, index: ix.Index, v: ix.Var, step: int = 1) -> bool:
        """Whether neighbors in the vector loop are ``step`` elements apart in memory."""
        return ix.coefficient(index, v) == step and not any(
            isinstance(a, ix.Indirect) and self._in_vector(a.node) for a in ix.atoms_of(index)
        )

    def _index(self, n: Node, vector: bool) -> str:
        """The value of an ``index`` node."""
        kind = VALUE[n.dtype]
        if not vector:
            return f"({kind})({self._scalar_index(n.attr)})"
        v = self._v
        assert v is not None
        step = ix.coefficient(n.attr, v)
        if step is not None and not any(
            isinstance(a, ix.Indirect) and self._in_vector(a.node) for a in ix.atoms_of(n.attr)
        ):
            return f"counted<{kind}, L>(({kind})({self._scalar_index(n.attr)}), ({kind})({self._scalar_index(step)}))"
        return f"index_lanes<{kind}, L>({self._lane_index(n.attr)})"

    def _store(self, s: Store) -> None:
        self._store_one(s)
        if self._paired:
            self._twins(lambda: self._store_one(s))

    def _store_one(self, s: Store) -> None:
        if not s.buffer:
            return  # the statement is a check, which only computes
        if s.value.op == "update":
            self._update(s.buffer, s.value)
            return
        p = self._pointer(s.buffer)
        v = self._v
        if self.vector_outer and s.buffer in self.kernel.scratch:
            self.line(f"store<L>({p} + ({self._scalar_index(s.index)}) * L, {self._as(s.value, True)}, full());")
            return
        if v is None:
            self.line(f"store1({p} + {self._scalar_index(s.index)}, {self._as(s.value, False)});")
            return
        if not self._plain(s.index, v):
            self.line(f"store_lanes<L>({p}, {self._as(s.value, True)}, m{self._twin}, {self._lane_index(s.index)});")
            return
        exact = self._before_rounding(s.value)
        store, value = ("store", s.value) if exact is None else ("store_rounded", exact)
        self.line(f"{store}<L>({p} + {self._scalar_index(s.index)}, {self._as(value, True)}, m{self._twin});")

    def _side_by_side(self, stage: Stage, at: int) -> list[Store]:
        """The store at position ``at`` of the stage's statements, and the stores after it that can be done together
        with it: those to all elements between two neighbors in the vector loop. Only the store itself if there is no
        such group."""
        first, v = stage.statements[at], self._v
        assert isinstance(first, Store)
        step = None if v is None else ix.coefficient(first.index, v)
        if v is None or not isinstance(step, int) or not 2 <= step <= SHORT or not self._plain(first.index, v, step):
            return [first]
        together = [s for s in stage.statements[at:at + step] if isinstance(s, Store)]
        places = [(first.buffer, ix.add(first.index, k)) for k in range(step)]
        plain = all(s.value.op != "update" and s.value.dtype is not torch.bool for s in together)
        return together if plain and [(s.buffer, s.index) for s in together] == places else [first]

    def _store_side_by_side(self, together: list[Store]) -> None:
        """Writes the stores of a group of ``_side_by_side``."""
        def write() -> None:
            p, index = self._pointer(together[0].buffer), self._scalar_index(together[0].index)
            values = ", ".join(self._as(s.value, True) for s in together)
            self.line(f"store_side_by_side<L>({p} + {index}, {{{values}}}, m{self._twin});")

        write()
        if self._paired:
            self._twins(write)

    def _before_rounding(self, n: Node) -> Node | None:
        """The float32 value of which ``n`` is the value rounded to 16 bits, if it is emitted as a vector here."""
        if n.op != "cast" or n.dtype not in ROUND or n.args[0].dtype is not torch.float32:
            return None
        (exact,) = n.args
        return exact if exact in self.emitted and self._in_vector(exact) else None

    def _take_in(self, stage: Stage, accumulators: Sequence[Accumulator], slot: str) -> None:
        """Stores and accumulates the values of an iteration. ``slot``: the accumulators' copy to use, as C++."""
        following = iter(accumulators)
        stored = 0  # number of statements that are written already
        for at, s in enumerate(stage.statements):
            if at < stored:
                continue
            if isinstance(s, Store):
                together = self._side_by_side(stage, at)
                stored = at + len(together)
                if len(together) > 1:
                    self._store_side_by_side(together)
                else:
                    self._store(s)
            else:
                a = next(following)
                position = self._position(s.position, a.lanes, a.place) if a.positions else ""
                value = self._as(s.value if a.square is None else a.square, a.lanes)
                self.line(a.take(value, position, slot))

    def _position(self, position: ix.Index, lanes: bool, kind: str) -> str:
        """The position of the current element in an argmax or argmin, as a scalar or a vector of type ``kind``."""
        text = f"({kind})({index_text(position, self.var_names)})"
        if not lanes:
            return text
        v = self._v
        c = ix.coefficient(position, v) if v is not None else 0
        assert c is not None
        return f"bc<L>({text}) + iota<{kind}, L>() * ({kind})({index_text(c, {})})" if c != 0 else f"bc<L>({text})"

    def _update(self, buffer: str, n: Node) -> None:
        """Writes an update: stores a value at an index that may have been loaded from memory, or combines it with the
        element there."""
        p, (index, mode), v = self._pointer(buffer), n.attr, self._v
        joins = mode != "set"
        value = self._as(n.args[0], v is not None)
        if v is None:
            place = f"{p} + {self._scalar_index(index)}"
            self.line(f"store1({place}, {self._sum(n, f'load1({place})', value) if joins else value});")
        elif self._plain(index, v):
            place, m = f"{p} + {self._scalar_index(index)}", f"m{self._twin}"
            value = self._sum(n, f"load<L>({place}, {m})", value) if joins else value
            self.line(f"store<L>({place}, {value}, {m});")
        elif joins:
            total = f"[](auto a, auto b) {{ return {self._sum(n, 'a', 'b')}; }}"
            self.line(f"update_lanes<L>({p}, {value}, m{self._twin}, {self._lane_index(index)}, {total});")
        else:
            self.line(f"store_lanes<L>({p}, {value}, m{self._twin}, {self._lane_index(index)});")

    @staticmethod
    def _sum(n: Node, a: str, b: str) -> str:
        """The values ``a`` and ``b`` combined by the mode of the update ``n``, rounded to the buffer's type."""
        mode = n.attr[1]
        if mode in ("maximum", "minimum"):
            return f"decltype({a})({mode[:3]}_({a}, {b}))"
        joined = f"({a} {'+' if mode == 'add' else '*'} {b})"
        return f"{ROUND[n.dtype]}{joined}" if n.dtype in ROUND else f"decltype({a}){joined}"
