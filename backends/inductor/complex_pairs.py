"""Complex numbers as pairs of real numbers, so that generated loops compute them.

Lowering knows real dtypes only; an operator with complex operands would be a library call. This pass rewrites an aten
graph: a complex value that a rule computes becomes two real values, the components. They are interleaved in memory
(``aten.stack`` along a new last dimension), and viewed as a complex tensor, only where a library call or an output
needs the complex tensor itself. ``view_as_real`` and ``view_as_complex`` at the borders are views that cost nothing
(``lowering.reinterpretation``).

The formulas are those of eager's vectorized kernels (``aten/src/ATen/cpu/vec/*/vec*_complex_float.h``): a product is
``(ac - bd, ad + bc)`` whatever is known of the operands, since a component of zero decides what becomes of infinities;
a sum multiplies its second operand by a factor, though it be 1. Operators that eager computes number by number with
the C library (exponentials, powers, logarithms) stay library calls.

Invariant: each rewritten value has the shape of the complex one and strides in the same proportions.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from dynamo_lite.backends.aot import ops, passes
from dynamo_lite.backends.aot.graph import copy_node
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.layouts import is_dense, strides_of

aten = torch.ops.aten

_PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The dtype of the components of a complex dtype."""
_VIEWS: frozenset[Any] = frozenset({
    aten.expand.default, aten.permute.default, aten.t.default, aten.transpose.int, aten.view.default,
    aten._unsafe_view.default, aten._reshape_alias.default, aten.reshape.default, aten.unsqueeze.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.slice.Tensor, aten.select.int, aten.alias.default,
    aten.detach.default, aten.diagonal.default, aten.unfold.default,
})
"""Views that are the same views of each component."""

Components = tuple[Node, Node]


def in_pairs(graph: Graph) -> Graph:
    """An aten graph with complex numbers as pairs; the graph itself if no rule applies to any of its nodes."""
    if not any(_is_complex(node.meta.get("val")) for node in graph.nodes):
        return graph
    copied: dict[Node, Node] = {}
    copy = Graph()
    for node in graph.nodes:
        copied[node] = copy_node(copy, node, copied.__getitem__)
    return copy if _Rewriting(copy).run() else graph


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _PARTS and value.layout is torch.strided


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
                    result = _RULES[node.target](self, *node.args, **node.kwargs)
                    if isinstance(result, Node):
                        node.replace_all_uses_with(result)
                    else:
                        self._components[node] = result
                elif not self._is_pair(node):
                    for operand in filter(self._is_pair, node.all_input_nodes):
                        node.replace_input_with(operand, self._as_complex(operand))
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
        return {node for node in able if node.target in _BORDERS or any(
            n in able for n in (*_readers(node), *map(_source, node.all_input_nodes)))}

    def _is_able(self, node: Node) -> bool:
        """Whether a rule applies to a node: it has strided tensors, none of them is memory that the graph writes."""
        if node.op != "call_function" or node.target not in _RULES:
            return False
        values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        if len(tensors) != len(values) or not any(map(_is_complex, tensors)):
            return False
        if not all(_is_complex(v) or _is_real(v) for v in tensors) or len({v.device for v in tensors}) > 1:
            return False
        if any(_source(n) in self._written for n in node.all_input_nodes):
            return False
        result = tensors[0]
        settled = node.target in _BORDERS or is_dense(tuple(map(index_of, result.shape)), strides_of(result))
        return settled and _CASES[node.target](node)

    def _is_pair(self, node: Node) -> bool:
        """Whether a node's complex value exists as components only: it is a chosen node's, or a view of one."""
        return _source(node) in self._chosen and _is_complex(node.meta.get("val"))

    # ------------------------------------------------------------ the forms of a value
    def components_of(self, x: Any) -> tuple[Any, Any]:
        """The real and the imaginary component of an operand: nodes, or numbers for a number and for a real tensor's
        imaginary component."""
        if not isinstance(x, Node):
            number = complex(x)
            return number.real, number.imag
        if not _is_complex(x.meta["val"]):
            return x, 0.0
        found = self._components.get(x)
        if found is None:
            found = self._views(x) if _is_view(x) else self.parts(self.packed_of(x), x.meta["val"])
            self._components[x] = found
        return found

    def has_components(self, x: Node) -> bool:
        """Whether an operand is computed as components; otherwise it is in memory."""
        return self._is_pair(x) and _source(x) not in self._packed

    def packed_of(self, x: Node) -> Node:
        """A complex value as a real tensor with a last dimension of 2."""
        found = self._packed.get(x)
        if found is None:
            value = x.meta["val"]
            if self._is_pair(x):
                found = self.call(aten.stack.default, list(self.components_of(x)), -1, like=_packed(value))
            else:
                if value.is_conj() or value.is_neg():
                    x = self.call(aten.clone.default, x, like=torch.empty_like(value))
                found = self.call(aten.view_as_real.default, x, like=_packed(x.meta["val"]))
            self._packed[x] = found
        return found

    def _as_complex(self, x: Node) -> Node:
        """A value that exists as components as a complex tensor."""
        found = self._complex.get(x)
        if found is None:
            packed = self.packed_of(x)
            found = self._complex[x] = self.call(aten.view_as_complex.default, packed, like=x.meta["val"])
        return found

    def adopt(self, packed: Node) -> Components:
        """The components of the result, which a real tensor holds interleaved."""
        self._packed[self.node] = packed
        return self.parts(packed, self.node.meta["val"])

    def parts(self, packed: Node, value: torch.Tensor) -> Components:
        """The components of a complex value that a real tensor holds interleaved."""
        like = _component(value, 2)
        return tuple(self.call(aten.select.int, packed, -1, at, like=like) for at in (0, 1))  # type: ignore[return-value]

    def _views(self, x: Node) -> Components:
        source, *rest = x.args
        like = _component(x.meta["val"])
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
        return self.call(target, *args, like=_component(self.node.meta["val"]), **kwargs)

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
        value, dtype = part.meta["val"], _component(self.node.meta["val"]).dtype
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
        value = _component(self.node.meta["val"])
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


def _packed(value: torch.Tensor) -> torch.Tensor:
    """The layout of a complex value's components, interleaved."""
    stride = (*(2 * n for n in value.stride()), 1)
    return value.new_empty_strided((*value.shape, 2), stride, dtype=_PARTS[value.dtype])


def _component(value: torch.Tensor, step: int = 1) -> torch.Tensor:
    """The layout of one component of a complex value, with so many elements' distance; of a real value its own."""
    stride = tuple(step * n for n in value.stride())
    return value.new_empty_strided(tuple(value.shape), stride, dtype=_PARTS.get(value.dtype, value.dtype))


# ---------------------------------------------------------------- the rules
# A rule gets the operator's arguments and returns the components of the result, or the result itself if that is real.
Rule = Callable[..., "Components | Node"]
_RULES: dict[Any, Rule] = {}
_CASES: dict[Any, Callable[[Node], bool]] = {}
"""For each operator with a rule, whether the rule applies to a call."""
_BORDERS = frozenset({
    aten.view_as_real.default, aten.view_as_complex.default, aten.complex.default, aten.polar.default})
"""Operators between real and complex values: each would be a library call."""


def _has_numbers(node: Node) -> bool:
    """Whether a call's operands that are no tensors are numbers, not symbols."""
    numbers = [*(a for a in node.args if not isinstance(a, Node)), *node.kwargs.values()]
    return all(type(n) in (bool, int, float, complex) for n in numbers)


def _are_complex(node: Node) -> bool:
    """Whether the result and all operands but a condition are complex, and no other dtype is asked for."""
    operands = node.all_input_nodes[node.target is aten.where.self:]
    values = [n.meta["val"] for n in (node, *operands)]
    return all(map(_is_complex, values)) and node.kwargs.get("dtype") is None


def _is_conversion(node: Node) -> bool:
    """Whether a call converts from one complex dtype to another."""
    operand: Any = node.args[0]
    return set(node.kwargs) <= {"dtype", "memory_format"} and all(
        _is_complex(n.meta["val"]) for n in (node, operand))


def _selects(node: Node) -> bool:
    """Whether a complex tensor is indexed by integers."""
    operand, *rest = node.all_input_nodes
    return _is_complex(operand.meta["val"]) and all(n.meta["val"].dtype in (torch.int64, torch.int32) for n in rest)


def _always(node: Node) -> bool:
    return True


def _rule(*targets: Any, case: Callable[[Node], bool] = _always) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for target in targets:
            _RULES[target], _CASES[target] = rule, case
        return rule

    return register


@_rule(aten.mul.Tensor, aten.mul.Scalar, case=_has_numbers)
def _mul(r: _Rewriting, a: Any, b: Any) -> Components:
    x, y = r.broadcast(a, b)
    return r.product(x, y)


@_rule(aten.add.Tensor, aten.add.Scalar, case=_has_numbers)
def _add(r: _Rewriting, a: Any, b: Any, alpha: Any = 1) -> Components:
    x, y = r.broadcast(a, b)
    return _sum(r, x, y, complex(alpha))


@_rule(aten.sub.Tensor, aten.sub.Scalar, case=_has_numbers)
def _sub(r: _Rewriting, a: Any, b: Any, alpha: Any = 1) -> Components:
    x, y = r.broadcast(a, b)
    return _sum(r, x, y, complex(-alpha))


@_rule(aten.rsub.Tensor, aten.rsub.Scalar, case=_has_numbers)
def _rsub(r: _Rewriting, a: Any, b: Any, alpha: Any = 1) -> Components:
    x, y = r.broadcast(b, a)
    return _sum(r, x, y, complex(-alpha))


def _sum(r: _Rewriting, a: tuple[Any, Any], b: tuple[Any, Any], factor: complex) -> Components:
    """``a + factor * b``, a product of complex numbers even if the factor is 1 or -1."""
    re, im = r.product(b, (factor.real, factor.imag))
    return r.sum(a[0], re), r.sum(a[1], im)


@_rule(aten.div.Tensor, aten.div.Scalar, case=_has_numbers)
def _div(r: _Rewriting, a: Any, b: Any) -> Components:
    x, y = r.broadcast(a, b)
    return _quotient(r, x, (r.tensor(y[0]), r.tensor(y[1])))


@_rule(aten.reciprocal.default)
def _reciprocal(r: _Rewriting, a: Node) -> Components:
    ((c, d),) = r.broadcast(a)
    return _quotient(r, (1.0, 0.0), (c, d))


def _quotient(r: _Rewriting, x: tuple[Any, Any], y: tuple[Node, Node]) -> Components:
    """A quotient by Smith's method (Algorithm 116, 1962), as in c10/util/complex.h."""
    (a, b), (c, d) = x, y
    far, near = r.real(aten.abs.default, c), r.real(aten.abs.default, d)
    wide = r.truth(aten.ge.Tensor, far, near)

    def choose(one: Any, other: Any) -> Node:
        return r.real(aten.where.self, wide, one, other)

    ratio = r.real(aten.div.Tensor, choose(d, c), choose(c, d))
    scale = r.real(aten.reciprocal.default, r.sum(choose(c, d), r.times(choose(d, c), ratio)))
    re = choose(r.tensor(r.sum(a, r.times(b, ratio))), r.tensor(r.sum(r.times(a, ratio), b)))
    im = choose(r.tensor(r.difference(b, r.times(a, ratio))), r.tensor(r.difference(r.times(b, ratio), a)))
    is_zero = r.truth(aten.logical_and.default, wide, r.truth(aten.eq.Scalar, far, 0))
    by_zero = (r.real(aten.div.Tensor, r.tensor(part), zero) for part, zero in ((a, far), (b, near)))
    re, im = (r.real(aten.where.self, is_zero, own, r.times(part, scale)) for own, part in zip(by_zero, (re, im)))
    return re, im


@_rule(aten.angle.default)
def _angle(r: _Rewriting, a: Node) -> Node:
    re, im = r.components_of(a)
    return r.real(aten.atan2.default, im, re)


@_rule(aten.sgn.default)
def _sgn(r: _Rewriting, a: Node) -> Components:
    re, im = r.components_of(a)
    length = r.real(aten.hypot.default, re, im)
    is_zero, zero = r.truth(aten.eq.Scalar, length, 0), r.zero()
    re, im = (r.real(aten.where.self, is_zero, zero, r.real(aten.div.Tensor, part, length)) for part in (re, im))
    return re, im


@_rule(aten.neg.default)
def _neg(r: _Rewriting, a: Node) -> Components:
    return r.each(aten.neg.default, r.components_of(a))


@_rule(aten._conj.default, aten.conj_physical.default, aten._conj_physical.default)
def _conj(r: _Rewriting, a: Node) -> Components:
    re, im = r.components_of(a)
    return re, r.real(aten.neg.default, im)


@_rule(aten.clone.default)
def _clone(r: _Rewriting, a: Node, *, memory_format: Any = None) -> Components:
    re, im = r.components_of(a)
    return re, im


@_rule(aten._to_copy.default, case=_is_conversion)
def _to_copy(r: _Rewriting, a: Node, **kwargs: Any) -> Components:
    re, im = map(r.cast, r.components_of(a))
    return re, im


@_rule(aten.complex.default)
def _complex(r: _Rewriting, real: Node, imag: Node) -> Components:
    (re, _), (im, _) = r.broadcast(real, imag)
    return re, im


@_rule(aten.polar.default)
def _polar(r: _Rewriting, abs: Node, angle: Node) -> Components:
    (length, _), (angle, _) = r.broadcast(abs, angle)
    return r.times(length, r.real(aten.cos.default, angle)), r.times(length, r.real(aten.sin.default, angle))


@_rule(aten.abs.default)
def _abs(r: _Rewriting, a: Node) -> Node:
    return r.real(aten.hypot.default, *r.components_of(a))


@_rule(aten.cat.default, aten.stack.default, case=_are_complex)
def _join(r: _Rewriting, tensors: Sequence[Node], dim: int = 0) -> Components:
    parts = [tuple(map(r.cast, r.components_of(t))) for t in tensors]
    re, im = (r.real(r.node.target, list(several), dim) for several in zip(*parts))
    return re, im


@_rule(aten.where.self, case=_are_complex)
def _where(r: _Rewriting, condition: Node, a: Node, b: Node) -> Components:
    return r.each(aten.where.self, (condition, condition), *r.broadcast(a, b))


@_rule(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, case=_are_complex)
def _reduce(r: _Rewriting, a: Node, *args: Any, **kwargs: Any) -> Components:
    return r.each(r.node.target, r.components_of(a), *((arg, arg) for arg in args), **kwargs)


@_rule(aten.index.Tensor, case=_selects)
def _index(r: _Rewriting, a: Node, indices: Sequence[Any]) -> Components:
    if r.has_components(a):
        return r.each(aten.index.Tensor, r.components_of(a), (indices, indices))
    like = _packed(r.node.meta["val"])
    return r.adopt(r.call(aten.index.Tensor, r.packed_of(a), indices, like=like))


@_rule(aten.new_zeros.default)
def _new_zeros(r: _Rewriting, a: Node, size: Any, **kwargs: Any) -> Components:
    return r.zero(), r.zero()


@_rule(ops.copy_strided)
def _copy_strided(r: _Rewriting, a: Node, stride: Any) -> Components:
    re, im = r.components_of(a)
    return re, im


@_rule(aten.slice_scatter.default, aten.select_scatter.default, case=_are_complex)
def _write_part(r: _Rewriting, a: Node, part: Node, *args: Any, **kwargs: Any) -> Components:
    return r.each(r.node.target, r.components_of(a), r.components_of(part), *((arg, arg) for arg in args), **kwargs)


@_rule(aten.view_as_complex.default)
def _view_as_complex(r: _Rewriting, a: Node) -> Components:
    last = a.meta["val"].ndim - 1
    if a.target is aten.select_backward.default and a.args[2] in (-1, last):  # the gradient of one component
        part, _, _, at = a.args
        return (r.zero(), part) if at in (1, -1) else (part, r.zero())  # type: ignore[return-value]
    return r.adopt(a)


@_rule(aten.view_as_real.default)
def _view_as_real(r: _Rewriting, a: Node) -> Node:
    return r.packed_of(a)
