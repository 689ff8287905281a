"""Expressions of loop bodies: immutable, hash-consed nodes.

A ``Node`` is an operation with a dtype, operands, and an attribute. The attribute is, for ``load``, the buffer's name
and the index; for ``const``, the value; for ``index``, the index expression whose value the node has; for ``inside``,
an index and the range that is tested; for ``acc``, the name of a reduction's result. Nodes are made by a ``Builder``,
one for each compiled graph, which gives equal nodes one identity: nodes are compared as objects, and a value that
several outputs need is computed once. Two compilations share no table of nodes.

Invariants: a node's operands have smaller ids than the node, so that the order of ids is an order of evaluation;
``node.vars`` are the loop variables that its value depends on, including those that indirect indices depend on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.ops import HALF, OPS
from dynamo_lite.backends.inductor.ir.substitution import substitute

# Operations whose result is one of their operands, up to its sign: if the operands have been rounded to a narrower
# dtype, rounding the result again changes nothing.
_SELECTIONS = frozenset({"where", "maximum", "minimum", "neg", "abs"})
_NO_VARS: frozenset[ix.Var] = frozenset()


class Node:
    """An expression; see the module's docstring. Only a ``Builder`` makes nodes."""

    __slots__ = ("op", "dtype", "args", "attr", "id", "vars")

    def __init__(
        self, op: str, dtype: torch.dtype, args: tuple[Node, ...], attr: Any, id: int, vars: frozenset[ix.Var]
    ):
        self.op = op
        self.dtype = dtype
        self.args = args
        self.attr = attr
        self.id = id
        self.vars = vars

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        if self.op == "load":
            return f"n{self.id}: {dtype} = {self.attr[0]}[{self.attr[1]}]"
        operands = ", ".join(f"n{a.id}" for a in self.args)
        attr = "" if self.attr is None else f"{self.attr}"
        return f"n{self.id}: {dtype} = {self.op}({operands or attr})"


def wrapped(value: int, dtype: torch.dtype) -> int:
    """The value that an integer of the dtype has after ``value`` wraps around."""
    bits = 8 * dtype.itemsize
    value %= 1 << bits
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


# Largest constant that is folded into an index. No program has enough such additions for int64 to overflow.
_SMALL = 1 << 31


class Builder:
    """Makes nodes, and copies of nodes with loop variables or operands replaced."""

    def __init__(self) -> None:
        self._nodes: dict[Any, Node] = {}
        # For each symbolic bound of a guard, the bounds that are known to be at least as large.
        self._after: dict[ix.Index, list[ix.Index]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def _node(
        self,
        op: str,
        dtype: torch.dtype,
        args: tuple[Node, ...],
        attr: Any = None,
        key: Any = None,
        vars: frozenset[ix.Var] = _NO_VARS,
    ) -> Node:
        full = (op, dtype, tuple([a.id for a in args]), key)
        node = self._nodes.get(full)
        if node is None:
            for a in args:
                vars = a.vars if not vars or vars is a.vars else (vars | a.vars if a.vars else vars)
            node = self._nodes[full] = Node(op, dtype, args, attr, len(self._nodes), vars)
        return node

    # ------------------------------------------------------------ leaves
    def const(self, value: bool | int | float | ix.Expr, dtype: torch.dtype) -> Node:
        """A constant, rounded or wrapped to the dtype; or the cast of a symbolic size to it."""
        if isinstance(value, ix.Expr):
            return self.cast(self.index(value), dtype)
        if dtype is torch.bool:
            value = bool(value)
            key: Any = value
        elif dtype.is_floating_point:
            value = _rounded(float(value), dtype)
            key = struct.pack("d", value)  # as a key, bytes distinguish -0.0 from 0.0, and a NaN equals itself
        else:
            key = value = wrapped(int(value), dtype)
        return self._node("const", dtype, (), value, key)

    def load(self, buffer: str, index: ix.Index, dtype: torch.dtype) -> Node:
        """The element of a buffer at an index. Nodes of indirect indices are operands."""
        args = tuple(dict.fromkeys(a.node for a in ix.atoms_of(index) if isinstance(a, ix.Indirect)))
        return self._node("load", dtype, args, (buffer, index), (buffer, index), frozenset(ix.free_vars(index)))

    def index(self, value: ix.Index, dtype: torch.dtype = torch.int64) -> Node:
        """The value of an index expression."""
        if isinstance(value, int):
            return self.const(value, dtype)
        args = tuple(dict.fromkeys(a.node for a in ix.atoms_of(value) if isinstance(a, ix.Indirect)))
        return self._node("index", dtype, args, value, value, frozenset(ix.free_vars(value)))

    def inside(self, value: ix.Index, low: ix.Index, high: ix.Index) -> Node:
        """A guard: whether ``low <= value < high``. A ``where`` that it controls evaluates an operand only where it
        selects it."""
        if not ix.free_vars(value) or self.is_at_most(high, low):
            above, below = ix.add(value, 1), self.is_at_most(low, value)
            if below and self.is_at_most(above, high):
                return self.const(True, torch.bool)
            if self.is_at_most(high, low) or self.is_at_most(above, low) or self.is_at_most(high, value):
                return self.const(False, torch.bool)
        attr = _in_fewest_loops(value, low, high)
        value = attr[0]
        return self._node("inside", torch.bool, (), attr, attr, frozenset(ix.free_vars(value)))

    def know_order(self, edges: Sequence[ix.Index]) -> None:
        """Records that the edges are in non-descending order, for later comparisons of symbolic bounds of guards."""
        for low, high in zip(edges, edges[1:]):
            if not (isinstance(low, int) and isinstance(high, int)):
                self._after.setdefault(low, []).append(high)

    def is_at_most(self, low: ix.Index, high: ix.Index) -> bool:
        """Whether ``low <= high`` follows from the recorded order, or from the lower bounds of the symbols."""
        if isinstance(low, int) and isinstance(high, int):
            return low <= high
        if low == high or ix.always_positive(ix.add(ix.add(high, 1), ix.mul(low, -1))):
            return True
        seen: set[ix.Index] = set()
        waiting = [low]
        while waiting:
            here = waiting.pop()
            if here == high or isinstance(here, int) and isinstance(high, int) and here <= high:
                return True
            if here not in seen:
                seen.add(here)
                waiting += self._after.get(here, ())
                if isinstance(here, int):  # the order of ints among each other is not recorded
                    waiting += [edge for edge in self._after if isinstance(edge, int) and edge > here]
        return False

    def in_order(self, edges: Iterable[ix.Index]) -> list[ix.Index] | None:
        """The distinct edges in ascending order, or None if their order is not known."""
        out: list[ix.Index] = []
        for edge in dict.fromkeys(edges):
            at = sum(self.is_at_most(other, edge) for other in out)
            if not all(self.is_at_most(edge, other) for other in out[at:]):
                return None
            if not all(self.is_at_most(other, edge) for other in out[:at]):
                return None
            out.insert(at, edge)
        return out

    def bounded(self, value: Node, size: ix.Index, wraps: bool, fault: int) -> Node:
        """An index read from memory, restricted to ``range(size)``. With ``wraps``, negative values count from the end.
        A value out of bounds is reported as the fault with the given number (``LoweredGraph.faults``) and replaced by
        0."""
        if value.op == "const" and isinstance(size, int) and (-size if wraps else 0) <= value.attr < size:
            return self.const(value.attr % size, torch.int64)
        attr = (size, wraps, fault)
        return self._node("bounded", torch.int64, (value,), attr, attr)

    def update(self, value: Node, index: ix.Index, mode: str) -> Node:
        """The write of a nest with an ``Update``: ``value`` is stored at ``index``, which may be indirect. The mode is
        "set", which replaces the element, or the name of an operation, such as "add", that combines element and value.
        """
        inner = dict.fromkeys(a.node for a in ix.atoms_of(index) if isinstance(a, ix.Indirect))
        attr = (index, mode)
        return self._node("update", value.dtype, (value, *inner), attr, attr, frozenset(ix.free_vars(index)))

    def acc(self, name: str, dtype: torch.dtype, vars: frozenset[ix.Var]) -> Node:
        """The result of a reduction, or a value that a scan carries."""
        return self._node("acc", dtype, (), name, (name, vars), vars)

    # ------------------------------------------------------------ operations
    def op(self, name: str, *args: Node) -> Node:
        """A node of an operation in the table, with a few exact constant foldings."""
        info = OPS[name]
        if name == "where":
            condition, a, b = args
            if a is b:
                return a
            if condition.op == "const":
                return a if condition.attr else b
            return self._node(name, a.dtype, args)
        dtype = torch.bool if info.result == "bool" else args[0].dtype
        if args[0].dtype is torch.bool:
            folded = self._fold_bool(name, args)
            if folded is not None:
                return folded
        if name in ("add", "sub") and dtype is torch.int64:
            folded = self._fold_sum(args, 1 if name == "add" else -1)
            if folded is not None:
                return folded
        return self._node(name, dtype, args)

    def _fold_sum(self, args: tuple[Node, ...], sign: int) -> Node | None:
        """``args[0] + sign * args[1]`` folded, or None. Folded are the addition of 0, and the sum of an index node and
        a small constant: this remains an index node, so that loads at it need no gather."""
        a, b = args if args[1].op == "const" or sign < 0 else args[::-1]
        if b.op != "const":
            return None
        if b.attr == 0:
            return a
        return self.index(ix.add(a.attr, sign * b.attr)) if a.op == "index" and abs(b.attr) <= _SMALL else None

    def _fold_bool(self, name: str, args: tuple[Node, ...]) -> Node | None:
        if name == "not" and args[0].op == "not":
            return args[0].args[0]
        if name in ("and", "or"):
            for x, y in (args, args[::-1]):
                if x.op == "const":
                    return y if x.attr == (name == "and") else x
        return None

    def cast(self, x: Node, dtype: torch.dtype) -> Node:
        """``x`` converted to a dtype; constants and conversions back to a narrower dtype are folded where exact."""
        if x.dtype is dtype:
            return x
        if x.op == "const" and (dtype.is_floating_point or not x.dtype.is_floating_point) and dtype is not torch.bool:
            value = x.attr
            if (
                dtype in (torch.float64, torch.int64)
                or isinstance(value, bool)
                or (dtype is torch.float32 and abs(value) < 2**24 and float(value).is_integer())
            ):
                return self.const(value, dtype)
        if x.op == "cast" and x.args[0].dtype is dtype and widens(dtype, x.dtype):
            return x.args[0]
        return self._selected(x, dtype) or self._node("cast", dtype, (x,))

    def _selected(self, x: Node, dtype: torch.dtype) -> Node | None:
        """``x`` computed in a 16-bit dtype, if it is a selection among widened values of that dtype; None if not."""
        if dtype not in HALF or x.op not in _SELECTIONS or x.dtype is torch.bool:
            return None
        narrow = [a if a.dtype is torch.bool else self._narrowed(a, dtype) for a in x.args]
        return None if None in narrow else self.op(x.op, *narrow)  # type: ignore[arg-type]

    def _narrowed(self, x: Node, dtype: torch.dtype) -> Node | None:
        """The value of a 16-bit dtype that ``x`` is the widened form of, or None if ``x`` is no such value."""
        if x.op == "cast" and x.args[0].dtype is dtype and widens(dtype, x.dtype):
            return x.args[0]
        if x.op == "const":
            narrow = self.const(x.attr, dtype)
            return narrow if narrow.attr == x.attr else None
        return None

    # ------------------------------------------------------------ copies
    def substitute(
        self, node: Node, mapping: Mapping[ix.Var, ix.Index], replace: Mapping[Node, Node] | None = None
    ) -> Node:
        """``node`` with loop variables replaced.

        Args:
            mapping: the indices that replace loop variables.
            replace: nodes that are replaced as a whole; loop variables in their replacements are not replaced.
        """
        return self.substitute_all((node,), mapping, replace)[0]

    def substitute_all(
        self, roots: Sequence[Node], mapping: Mapping[ix.Var, ix.Index], replace: Mapping[Node, Node] | None = None
    ) -> list[Node]:
        """The same as ``substitute``, for several nodes at once."""
        done: dict[int, Node] = {old.id: new for old, new in replace.items()} if replace else {}

        def moved(n: Node) -> Node:
            return done[n.id]

        for node in walk(roots, stop=done if replace else None):
            if node.id in done:
                continue
            if not replace and not any(v in mapping for v in node.vars):
                done[node.id] = node
            elif node.op == "load":
                done[node.id] = self.load(node.attr[0], substitute(node.attr[1], mapping, moved), node.dtype)
            elif node.op == "index":
                done[node.id] = self.index(substitute(node.attr, mapping, moved), node.dtype)
            elif node.op == "update":
                place = substitute(node.attr[0], mapping, moved)
                done[node.id] = self.update(done[node.args[0].id], place, node.attr[1])
            elif node.op == "inside":
                done[node.id] = self.inside(substitute(node.attr[0], mapping), *node.attr[1:])
            else:
                done[node.id] = self.rebuild(node, tuple([done[a.id] for a in node.args]))
        return [done[root.id] for root in roots]

    def rebuild(self, node: Node, args: tuple[Node, ...]) -> Node:
        """The operation of ``node``, applied to other operands."""
        if node.op in ("const", "acc") or args == node.args:
            return node
        if node.op == "cast":
            return self.cast(args[0], node.dtype)
        if node.op == "bounded":
            return self.bounded(args[0], *node.attr)
        return self.op(node.op, *args)


def _rounded(value: float, dtype: torch.dtype) -> float:
    """``value`` rounded to the dtype."""
    if dtype is torch.float64:
        return value
    if dtype is torch.float32 and abs(value) < 3e38:
        return struct.unpack("f", struct.pack("f", value))[0]
    # Eager converts a double to a 16-bit type through float32.
    return torch.tensor(value, dtype=torch.float32).to(dtype).item()


def widens(narrow: torch.dtype, wide: torch.dtype) -> bool:
    """Whether ``wide`` represents every value of ``narrow``, so that a cast to it and back changes nothing."""
    if narrow is torch.bool:
        return True
    if narrow.is_floating_point:
        return wide.is_floating_point and (wide is torch.float64 or (wide is torch.float32 and narrow.itemsize == 2))
    if wide.is_floating_point:
        return narrow.itemsize * 8 <= {torch.float64: 32, torch.float32: 16}.get(wide, 0)
    return wide is not torch.bool and (wide.itemsize > narrow.itemsize and (wide.is_signed or not narrow.is_signed))


def _in_fewest_loops(value: ix.Index, low: ix.Index, high: ix.Index) -> tuple[ix.Index, ix.Index, ix.Index]:
    """A guard's index and range without the loop variables that don't affect the result. For example, with ``y`` below
    16, ``16 * x + y >= 32`` exactly if ``x >= 2``."""
    if not isinstance(value, ix.Expr) or not isinstance(low, int) or not isinstance(high, int):
        return value, low, high
    for step in sorted({c for c in value.terms.values() if c > 1 and low % c == 0 and high % c == 0}, reverse=True):
        steps = ix.floordiv(value, step)
        if not any(isinstance(a, ix.FloorDiv) for a in ix.atoms_of(steps)):
            return steps, low // step, high // step
    return value, low, high


def walk(roots: Iterable[Node], stop: Mapping[int, Any] | None = None) -> list[Node]:
    """The roots and all nodes that they depend on, in an order of evaluation. Nodes whose ids are in ``stop`` are
    listed, but their operands are not visited."""
    seen: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.id in seen:
            continue
        seen[node.id] = node
        if stop is None or node.id not in stop:
            stack.extend(node.args)
    return [seen[i] for i in sorted(seen)]


def loads(roots: Iterable[Node]) -> list[Node]:
    """All loads that the roots depend on."""
    return [n for n in walk(roots) if n.op == "load"]
