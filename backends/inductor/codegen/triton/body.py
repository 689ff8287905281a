"""The statements of a Triton kernel: IR nodes as assignments, masked loads and masked stores.

A value is a block that has those axes of the tile on which it depends, or a scalar if it depends on none. A load is
masked only where a loop's end or a guard (an "inside" node) excludes iterations.

Invariant: nothing is read or written for an iteration that does not exist, or that a guard excludes.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import torch

from dynamo_lite.backends.inductor.codegen.triton.expressions import (
    VALUE,
    const_text,
    index_text,
    operation_text,
)
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.scheduler.empty_memory import sizes_to_ask
from dynamo_lite.backends.inductor.scheduler.kernel import Store

Axes = frozenset[int]
_NONE: Axes = frozenset()
_ALWAYS = frozenset({frozenset[tuple[Node, bool]]()})


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A node's value in the kernel: its text, and the axes that it has."""

    text: str
    axes: Axes


@dataclasses.dataclass(slots=True)
class Axis:
    """One axis of the tile: the name of its block size, and the mask of its existing iterations."""

    size: str
    mask: str = ""


class Body:
    """Writes statements at a given indentation.

    Attributes:
        axes: the axes of the tile.
        names: the text of each loop variable; ``spread`` has the axes on which it depends.
        pointers: the parameter of each buffer.
        gpu: whether the kernel runs on a GPU, where an index out of bounds stops it as it does in eager.
        hosts: buffers whose elements are separate parameters.
        buffers: the buffers that kernels read, by name.
    """

    def __init__(
        self, pointers: dict[str, str], wide: bool, gpu: bool = False, hosts: frozenset[str] = frozenset(),
        buffers: Mapping[str, Buffer] | None = None,
    ) -> None:
        self.lines: list[str] = []
        self.indent = 1
        self.axes: list[Axis] = []
        self.names: dict[ix.Var, str] = {}
        self.spread: dict[ix.Var, Axes] = {}
        self.pointers = pointers
        self.gpu = gpu
        self.hosts = hosts
        self.buffers = buffers or {}
        self.integer = "tl.int64" if wide else "tl.int32"
        self.values: dict[Node, Value] = {}
        self.results: dict[str, Value] = {}
        self._needs: dict[Node, frozenset[frozenset[tuple[Node, bool]]]] = {}
        self._fresh = 0

    # ------------------------------------------------------------ text
    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self) -> str:
        self._fresh += 1
        return f"t{self._fresh - 1}"

    def shape(self, axes: Axes) -> str:
        """The shape of a value with these axes."""
        return "[" + ", ".join(a.size if k in axes else "1" for k, a in enumerate(self.axes)) + "]"

    def along(self, k: int) -> str:
        """The subscript that makes a vector axis `k` of the tile."""
        if len(self.axes) == 1:
            return ""
        return "[" + ", ".join(":" if k == other else "None" for other in range(len(self.axes))) + "]"

    def axes_of(self, variables: Iterable[ix.Var]) -> Axes:
        return _NONE.union(*(self.spread[v] for v in variables))

    def mask(self, axes: Axes, guard: str = "") -> str:
        """The mask of the iterations along some axes that exist, and that a guard admits."""
        parts = [self.axes[k].mask for k in sorted(axes) if self.axes[k].mask]
        return " & ".join([*parts, *([f"({guard})"] if guard else [])])

    def _guarded(self, axes: Axes, guard: Value | None) -> str:
        """The mask of the iterations that exist and for which the guard, if there is one, holds."""
        return self.mask(axes, "" if guard is None else self._spread_test(guard, torch.bool, axes))

    # ------------------------------------------------------------ values
    def prepare(self, roots: Sequence[Node]) -> None:
        """Finds the guards under which each node is needed. To be called before the roots' values are requested."""
        nodes = walk(roots)
        self._needs = {}
        if not any(n.op == "inside" for n in nodes):
            return
        needs: dict[Node, set[frozenset[tuple[Node, bool]]]] = {root: set(_ALWAYS) for root in roots}
        for node in reversed(nodes):
            mine = _fewest(needs[node])
            self._needs[node] = mine
            guarded = node.op == "where" and _is_guard(node.args[0])
            for position, arg in enumerate(node.args):
                there: Iterable[frozenset[tuple[Node, bool]]] = mine
                if guarded and position:
                    there = (case | {(node.args[0], position == 1)} for case in mine)
                needs.setdefault(arg, set()).update(there)

    def value(self, root: Node) -> Value:
        """A node's value, which is computed now if it is not available yet."""
        if root.op == "const":
            return Value(const_text(root.attr, root.dtype), _NONE)
        if root not in self.values:
            for node in walk((root,), {n.id: n for n in self.values}):
                if node.op != "const" and node not in self.values:
                    self.values[node] = self._compute(node)
        return self.values[root]

    def text(self, node: Node) -> str:
        return self.value(node).text

    def _compute(self, node: Node) -> Value:
        if node.op == "acc":
            return self.results[node.attr]
        if node.op == "load":
            return self._load(node)
        if node.op == "bounded":
            return self._bounded(node)
        axes = _NONE.union(*(self.value(a).axes for a in node.args))
        if node.op == "index":
            axes |= self._index_axes(node.attr)
            index, dtype = self.index(node.attr), VALUE[node.dtype]
            # Of sizes alone it is a plain number in the interpreter.
            text = f"({index}).to({dtype})" if axes or self.gpu else f"tl.full((), {index}, {dtype})"
        elif node.op == "inside":
            axes = self._index_axes(node.attr[0])
            text = self._inside(*node.attr)
        else:
            text = operation_text(node, [self._spread_test(self.value(a), a.dtype, axes) for a in node.args], self.gpu)
        return self.assign(text, axes)

    def _spread_test(self, value: Value, dtype: torch.dtype, axes: Axes) -> str:
        """The text of an operand. A scalar bool is broadcast explicitly: Triton's interpreter gives the broadcast
        result of a comparison the type of the compared operands."""
        if dtype is not torch.bool or value.axes or not axes:
            return value.text
        return f"(tl.broadcast_to({value.text}.to(tl.int32), {self.shape(axes)}) != 0)"

    def _inside(self, value: ix.Index, low: ix.Index, high: ix.Index) -> str:
        """The text of the test ``low <= value < high``."""
        return " & ".join(self._tests(value, low, high)) or const_text(True, torch.bool)

    def _tests(self, value: ix.Index, low: ix.Index, high: ix.Index) -> list[str]:
        """Those parts of ``low <= value < high`` that are not always true."""
        least, most = ix.value_range(value) or (None, None)
        tests = []
        if not (isinstance(least, int) and isinstance(low, int) and least >= low):
            tests.append(f"({self.index(value)} >= {self.index(low)})")
        if not (isinstance(most, int) and isinstance(high, int) and most < high):
            tests.append(f"({self.index(value)} < {self.index(high)})")
        return tests

    def assign(self, text: str, axes: Axes) -> Value:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return Value(name, axes)

    def index(self, x: ix.Index) -> str:
        return index_text(x, self.names, self.text)

    def _index_axes(self, x: ix.Index) -> Axes:
        inner = [self.value(a.node).axes for a in ix.atoms_of(x) if isinstance(a, ix.Indirect)]
        return self.axes_of(ix.free_vars(x)).union(*inner)

    def _guard(self, node: Node) -> Value | None:
        """Whether the guards allow the node to be needed; None if they have no influence."""
        needs = self._cases(node)
        if frozenset() in needs:
            return None
        values = {guard: self.value(guard) for case in needs for guard, _ in sorted(case, key=lambda pair: pair[0].id)}
        axes = _NONE.union(*(value.axes for value in values.values()))
        cases = []
        for case in needs:
            tests = []
            for guard, holds in sorted(case, key=lambda pair: pair[0].id):
                text = self._spread_test(values[guard], torch.bool, axes)
                tests.append(text if holds else f"({text} == 0)")
            cases.append(" & ".join(tests))
        return Value(" | ".join(f"({c})" for c in cases) if len(cases) > 1 else cases[0], axes)

    def _cases(self, node: Node) -> frozenset[frozenset[tuple[Node, bool]]]:
        """The cases in which the node is needed, without guards that always hold; empty: it never is."""
        needs = self._needs.get(node, _ALWAYS)
        if frozenset() in needs:
            return needs
        return frozenset(
            frozenset(pair for pair in case if not self._holds(pair[0])) for case in needs
            if all(holds for guard, holds in case if self._holds(guard)))

    def _holds(self, guard: Node) -> bool:
        """Whether a guard holds in every iteration."""
        return guard.op == "inside" and not self._tests(*guard.attr)

    def _load(self, node: Node) -> Value:
        """A load, converted to the type that arithmetic uses."""
        if not self._cases(node) or 0 in self._sizes_to_ask(node):
            return Value(const_text(0, node.dtype), _NONE)
        return self.loaded(node, ".to(tl.float32)" if node.dtype in HALF else "")

    def _sizes_to_ask(self, node: Node) -> list[ix.Index]:
        """The sizes of a load's buffer that may be 0 even though the iterations that its index uses exist: a program
        may process a row without elements."""
        buffer = self.buffers.get(node.attr[0])
        return [] if buffer is None else sizes_to_ask(buffer, node.vars)

    def loaded(self, node: Node, widened: str = "") -> Value:
        """A load in the type that it has in memory, 0 where it is masked; ``widened`` is the text of a conversion."""
        buffer, index = node.attr
        if buffer in self.hosts:
            return self.assign(f"{self.pointers[buffer]}_{index}.to(tl.int64)", _NONE)
        axes, place = self._index_axes(index), self.index(index)
        guard = self._guard(node)
        if guard is not None and not guard.axes <= axes:
            axes |= guard.axes
            place = f"{place} + tl.zeros({self.shape(axes)}, tl.int32)"
        exist = [f"({self.index(n)} > 0)" for n in self._sizes_to_ask(node)]
        mask = " & ".join(filter(None, [self._guarded(axes, guard), *exist]))
        rest = f", mask={mask}, other=0" if mask else ""
        return self.assign(f"tl.load({self._place(buffer, place)}{rest}){widened}", axes)

    def _place(self, buffer: str, place: str) -> str:
        return self.pointers[buffer] if place == "0" else f"{self.pointers[buffer]} + {place}"

    def _bounded(self, node: Node) -> Value:
        size, wraps, fault = node.attr
        if not self._cases(node):
            return Value(const_text(0, node.dtype), _NONE)
        x = self.value(node.args[0])
        limit = self.index(size)
        y = self.assign(f"tl.where({x.text} < 0, {x.text} + {limit}, {x.text})", x.axes) if wraps else x
        wrong = self.assign(f"({y.text} < 0) | ({y.text} >= {limit})", x.axes)
        guard = self._guard(node)
        axes = x.axes if guard is None else x.axes | guard.axes
        mask = self._guarded(axes, guard)
        seen = f"{self._spread_test(wrong, torch.bool, axes)} & {mask}" if mask else wrong.text
        if self.gpu:
            self.line(f'tl.device_assert(({seen}) == 0, "an operand is out of bounds")')
        elif axes:
            order = f"tl.zeros({self.shape(axes)}, tl.int64)"
            order += "".join(f" * {self.axes[k].size} + tl.arange(0, {self.axes[k].size}){self.along(k)}"
                             for k in sorted(axes))
            self.line(f"report(fault, {seen}, {x.text}, {order}, {fault})")
        else:
            self.line(f"report_one(fault, {seen}, {x.text}, {fault})")
        return self.assign(f"tl.where({wrong.text}, 0, {y.text})", x.axes)

    # ------------------------------------------------------------ stores
    def store(self, s: Store, axes: Axes) -> None:
        """Writes a store statement, for the iterations along some axes."""
        value = self.text(s.value)
        if not s.buffer:
            return  # a check
        mask = self.mask(axes)
        rest = f", mask={mask}" if mask else ""
        self.line(f"tl.store({self._place(s.buffer, self.index(s.index))}, {value}{rest})")

    def add_or_set(self, buffer: str, node: Node, axes: Axes) -> None:
        """Sets an element, or adds to it atomically. Other threads may write the same element at the same time."""
        index, mode = node.attr
        value, place = self.value(node.args[0]), self.index(index)
        mask = self.mask(axes)
        rest = f", mask={mask}" if mask else ""
        if mode == "set":
            self.line(f"tl.store({self._place(buffer, place)}, {value.text}{rest})")
            return
        assert mode == "add", mode
        shape = self.shape(axes)
        text = value.text
        if axes:
            # Every iteration adds once, even where the element does not depend on the iteration.
            if self._index_axes(index) != axes:
                place = f"{place} + tl.zeros({shape}, tl.int32)"
            if value.axes != axes:
                text = f"tl.broadcast_to({text}, {shape})"
        self.line(f'tl.atomic_add({self._place(buffer, place)}, {text}{rest}, sem="relaxed")')

    def update(self, buffer: str, node: Node, axes: Axes) -> None:
        """Sets an element whose index may come from memory, or joins a value with it."""
        index, mode = node.attr
        value, place = self.text(node.args[0]), self._place(buffer, self.index(index))
        mask = self.mask(axes)
        rest = f", mask={mask}" if mask else ""
        if mode != "set":
            there = self.assign(f"tl.load({place}{rest}{', other=0' if mask else ''})", axes).text
            if node.dtype in HALF:
                there = f"{there}.to(tl.float32)"
            if mode in ("maximum", "minimum"):
                nan = ", propagate_nan=tl.PropagateNan.ALL" if node.dtype.is_floating_point else ""
                value = f"tl.{mode}({there}, {value}{nan})"
            elif node.dtype is torch.bool:
                value = f"{there} {'|' if mode == 'add' else '&'} {value}"
            else:
                value = f"{there} {'+' if mode == 'add' else '*'} {value}"
        self.line(f"tl.store({place}, {value}{rest})")


def _is_guard(condition: Node) -> bool:
    """Whether a condition consists of guards only, so that it is known before anything is read."""
    nodes = walk((condition,))
    return any(n.op == "inside" for n in nodes) and all(
        n.op in ("inside", "and", "or", "not", "const") for n in nodes)


def _fewest(cases: Iterable[frozenset[tuple[Node, bool]]]) -> frozenset[frozenset[tuple[Node, bool]]]:
    """The cases without those that are supersets of another case."""
    cases = set(cases)
    return frozenset(c for c in cases if not any(other < c for other in cases))
