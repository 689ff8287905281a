"""Complex numbers as pairs of real numbers, so that generated loops compute them.

Lowering knows real dtypes only; an operator with complex operands would be a library call. This pass rewrites an aten
graph: a complex value that a rule (``complex_rules``) computes becomes two real values, the components. They are
interleaved in memory (``aten.stack`` along a new last dimension), and viewed as a complex tensor, only where a library
call or an output needs the complex tensor itself. ``view_as_real`` and ``view_as_complex`` at the borders are views
that cost nothing (``lowering.reinterpretation``).

Invariant: each rewritten value has the shape of the complex one and strides in the same proportions.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from dynamo_lite.backends.aot import passes
from dynamo_lite.backends.aot.graph import copy_node
from dynamo_lite.backends.inductor.complex_rules import (
    BORDERS,
    CASES,
    RULES,
    Components,
    component_like,
    is_complex,
    packed_like,
)
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.layouts import is_dense, strides_of

aten = torch.ops.aten

_VIEWS: frozenset[Any] = frozenset({
    aten.expand.default, aten.permute.default, aten.t.default, aten.transpose.int, aten.view.default,
    aten._unsafe_view.default, aten._reshape_alias.default, aten.reshape.default, aten.unsqueeze.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.slice.Tensor, aten.select.int, aten.alias.default,
    aten.detach.default, aten.diagonal.default, aten.unfold.default,
})
"""Views that are the same views of each component."""


def in_pairs(graph: Graph) -> Graph:
    """An aten graph with complex numbers as pairs; the graph itself if no rule applies to any of its nodes."""
    if not any(is_complex(node.meta.get("val")) for node in graph.nodes):
        return graph
    copied: dict[Node, Node] = {}
    copy = Graph()
    for node in graph.nodes:
        copied[node] = copy_node(copy, node, copied.__getitem__)
    return copy if _Rewriting(copy).run() else graph


class _Rewriting:
    """The rewriting of one graph, in the order of its nodes. Rules compute the result of ``node``."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._components: dict[Node, Components] = {}
        self._packed: dict[Node, Node] = {}  # components interleaved: a real tensor with a last dimension of 2
        self._complex: dict[Node, Node] = {}  # that tensor viewed as a complex one
        self.node: Node = next(iter(graph.nodes))
        self._written = {node.args[0] for node in graph.nodes if node.target is aten.copy_.default}
        self._chosen = self._choose()

    def run(self) -> bool:
        """Rewrites the chosen nodes, and gives the others complex tensors as operands. Returns whether there was one
        to rewrite."""
        for node in list(self._graph.nodes) if self._chosen else ():
            self.node = node
            with self._graph.inserting_before(node):
                if node in self._chosen:
                    result = RULES[node.target](self, *node.args, **node.kwargs)
                    if isinstance(result, Node):
                        node.replace_all_uses_with(result)
                    else:
                        re, im = map(self.tensor, result)
                        self._components[node] = re, im
                elif not self._is_pair(node):
                    for operand in filter(self._is_pair, node.all_input_nodes):
                        node.replace_input_with(operand, self._as_complex(operand))
        passes.remove_dead_code(self._graph)
        for node in reversed(list(self._graph.nodes)):
            # What replaces a node raises what it would raise.
            if (node in self._chosen or self._is_pair(node)) and not node.users:
                self._graph.erase_node(node)
        passes.remove_dead_code(self._graph)
        return bool(self._chosen)

    # ------------------------------------------------------------ what is rewritten
    def _choose(self) -> set[Node]:
        """The nodes to rewrite: those that a rule applies to, except for single ones between library calls, which eager
        computes as fast."""
        able = {node for node in self._graph.nodes if self._is_able(node)}
        return {node for node in able if node.target in BORDERS or any(
            n in able for n in (*_readers(node), *map(_source, node.all_input_nodes)))}

    def _is_able(self, node: Node) -> bool:
        """Whether a rule applies to a node: it has strided tensors, none of them is memory that the graph writes."""
        if node.op != "call_function" or node.target not in RULES:
            return False
        values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        if len(tensors) != len(values) or not any(map(is_complex, tensors)):
            return False
        if not all(is_complex(v) or _is_real(v) for v in tensors) or len({v.device for v in tensors}) > 1:
            return False
        if any(passes.root(n) in self._written for n in node.all_input_nodes):
            return False
        result = tensors[0]
        settled = node.target in BORDERS or is_dense(tuple(map(index_of, result.shape)), strides_of(result))
        return settled and CASES[node.target](node)

    def _is_pair(self, node: Node) -> bool:
        """Whether a node's complex value exists as components only: it is a chosen node's, or a view of one."""
        return _source(node) in self._chosen and is_complex(node.meta.get("val"))

    # ------------------------------------------------------------ the forms of a value
    def components_of(self, x: Any) -> tuple[Any, Any]:
        """The real and the imaginary component of an operand: nodes, or numbers for a number and for a real tensor's
        imaginary component."""
        if not isinstance(x, Node):
            number = complex(x)
            return number.real, number.imag
        if not is_complex(x.meta["val"]):
            return x, 0.0
        found = self._components.get(x)
        if found is None:
            found = self._views(x) if _is_view(x) else self.parts(self.packed_of(x), x.meta["val"])
            self._components[x] = found
        return found

    def has_components(self, x: Node) -> bool:
        """Whether an operand is computed as components; otherwise it is in memory, interleaved."""
        return self._is_pair(x) and x not in self._packed

    def packed_of(self, x: Node) -> Node:
        """A complex value as a real tensor with a last dimension of 2."""
        found = self._packed.get(x)
        if found is None:
            value = x.meta["val"]
            if self._is_pair(x):
                found = self.call(aten.stack.default, list(self.components_of(x)), -1, like=packed_like(value))
            else:
                if value.is_conj() or value.is_neg():
                    x = self.call(aten.clone.default, x, like=torch.empty_like(value))
                found = self.call(aten.view_as_real.default, x, like=packed_like(x.meta["val"]))
            self._packed[x] = found
        return found

    def _as_complex(self, x: Node) -> Node:
        """A value that exists as components as a complex tensor."""
        found = self._complex.get(x)
        if found is None:
            packed = self.packed_of(x)
            found = self._complex[x] = self.call(aten.view_as_complex.default, packed, like=x.meta["val"])
        return found

    def select_parts(self) -> bool:
        """Where the result is interleaved components of which one is selected, gives the readers that component itself.
        Returns whether nobody reads the result otherwise."""
        operand: Any = self.node.args[0]
        last = (-1, self.node.meta["val"].ndim - 1)
        for user in list(self.node.users):
            at = user.args[2] if user.target is aten.select.int and user.args[1] in last else None
            if isinstance(at, int):
                part = self.components_of(operand)[at]
                user.replace_all_uses_with(part, delete_user_cb=lambda reader: reader.op != "output")
        return not any(user.users or user.target is not aten.select.int for user in self.node.users)

    def adopt(self, packed: Node) -> Components:
        """The components of the result, which a real tensor holds interleaved."""
        self._packed[self.node] = packed
        return self.parts(packed, self.node.meta["val"])

    def parts(self, packed: Node, value: torch.Tensor) -> Components:
        """The components of a complex value that a real tensor holds interleaved."""
        like = component_like(value, 2)
        return tuple(self.call(aten.select.int, packed, -1, at, like=like) for at in (0, 1))

    def _views(self, x: Node) -> Components:
        source, *rest = x.args
        like = component_like(x.meta["val"])
        re, im = (self.call(x.target, part, *rest, like=like, **x.kwargs) for part in self.components_of(source))
        return re, im

    # ------------------------------------------------------------ what rules are written with
    def call(self, target: Any, *args: Any, like: torch.Tensor, **kwargs: Any) -> Node:
        """Adds a call whose result has the layout of ``like``."""
        made = self._graph.create_node("call_function", target)
        made.args, made.kwargs = args, kwargs
        made.meta = {**self.node.meta, "val": like}
        return made

    def real(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Adds a call whose result has the layout of a component of the result."""
        return self.call(target, *args, like=component_like(self.node.meta["val"]), **kwargs)

    def each(self, target: Any, *pairs: tuple[Any, Any], **kwargs: Any) -> Components:
        """The same operator on the real and on the imaginary components."""
        re, im = (self.real(target, *parts, **kwargs) for parts in zip(*pairs))
        return re, im

    def broadcast(self, *given: Any) -> list[tuple[Any, Any]]:
        """The components of operands, with the shape and the dtype of the result's; numbers as they are."""
        out = []
        for x in given:
            re, im = map(self._as_result, self.components_of(x))
            out.append((re, im))
        return out

    def _as_result(self, part: Any) -> Any:
        if not isinstance(part, Node):
            return part
        part, result = self.cast(part), self.node.meta["val"]
        if tuple(map(index_of, part.meta["val"].shape)) != tuple(map(index_of, result.shape)):
            part = self.real(aten.expand.default, part, list(result.shape))
        return part

    def cast(self, part: Node) -> Node:
        """A component in the dtype of the result's."""
        value, dtype = part.meta["val"], component_like(self.node.meta["val"]).dtype
        if value.dtype is dtype:
            return part
        like = value.new_empty_strided(tuple(value.shape), value.stride(), dtype=dtype)
        return self.call(aten._to_copy.default, part, like=like, dtype=dtype)

    def truth(self, target: Any, *args: Any) -> Node:
        """Adds a call whose result is a bool for each element of a component of the result."""
        value = self.node.meta["val"]
        like = value.new_empty_strided(tuple(value.shape), value.stride(), dtype=torch.bool)
        return self.call(target, *args, like=like)

    def zero(self) -> Node:
        """A component of zeros."""
        return self.tensor(0.0)

    def tensor(self, part: Any) -> Node:
        """A component as a tensor, if it is a number."""
        if isinstance(part, Node):
            return part
        value = component_like(self.node.meta["val"])
        return self.call(
            aten.full.default, list(value.shape), part, like=value, dtype=value.dtype, device=value.device)

    def product(self, a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
        """A product of two complex values; its components are numbers if both values are."""
        (ar, ai), (br, bi) = a, b
        return self.difference(self.times(ar, br), self.times(ai, bi)), self.sum(self.times(ar, bi), self.times(ai, br))

    def times(self, a: Any, b: Any) -> Any:
        """A product of two components; a number if both are numbers."""
        if isinstance(b, Node):
            a, b = b, a
        return self.real(aten.mul.Tensor, a, b) if isinstance(a, Node) else a * b

    def sum(self, a: Any, b: Any) -> Any:
        """A sum of two components."""
        if isinstance(b, Node) and not isinstance(a, Node):
            a, b = b, a
        return self.real(aten.add.Tensor, a, b) if isinstance(a, Node) else a + b

    def difference(self, a: Any, b: Any) -> Any:
        """A difference of two components."""
        if isinstance(b, Node) and not isinstance(a, Node):
            return self.real(aten.rsub.Scalar, b, a)
        return self.real(aten.sub.Tensor, a, b) if isinstance(a, Node) else a - b


def _is_real(value: torch.Tensor) -> bool:
    return value.layout is torch.strided and not value.dtype.is_complex


def _is_view(node: Node) -> bool:
    return node.op == "call_function" and node.target in _VIEWS


def _source(node: Node) -> Node:
    """The node that a node's value is a view of."""
    while _is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _readers(node: Node) -> Iterator[Node]:
    """The nodes that read a value or views of it."""
    for user in node.users:
        if _is_view(user):
            yield from _readers(user)
        else:
            yield user
