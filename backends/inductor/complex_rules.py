"""Rules for operators on complex numbers: the same by operators on real ones, see ``complex_pairs``.

A rule gets the rewriting in progress and the operator's arguments, and returns the components of the result, or the
result itself if that is real. The formulas are those of eager's kernels (aten/src/ATen/cpu/vec/vec256/
vec256_complex_float.h and its relatives, c10/util/complex.h): a product is ``(ac - bd, ad + bc)`` whatever is known of
the operands, since a component of zero decides what becomes of infinities; a sum multiplies its second operand by a
factor, though it be 1. Operators that eager computes number by number with the C library (exponentials, powers,
logarithms) have no rule.

Invariant: a rule's calls round where eager rounds.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from dynamo_lite.backends.aot import ops

aten = torch.ops.aten

PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The dtype of the components of a complex dtype."""

Components = tuple[Node, Node]
Rule = Callable[..., "Components | Node"]
RULES: dict[Any, Rule] = {}
CASES: dict[Any, Callable[[Node], bool]] = {}
"""For each operator with a rule, whether the rule applies to a call."""
BORDERS = frozenset({
    aten.view_as_real.default, aten.view_as_complex.default, aten.complex.default, aten.polar.default})
"""Operators between real and complex values: each would be a library call."""


def is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in PARTS and value.layout is torch.strided


def packed_like(value: torch.Tensor) -> torch.Tensor:
    """The layout of a complex value's components, interleaved."""
    stride = (*(2 * n for n in value.stride()), 1)
    return value.new_empty_strided((*value.shape, 2), stride, dtype=PARTS[value.dtype])


def component_like(value: torch.Tensor, step: int = 1) -> torch.Tensor:
    """The layout of one component of a complex value, with so many elements' distance; of a real value its own."""
    stride = tuple(step * n for n in value.stride())
    return value.new_empty_strided(tuple(value.shape), stride, dtype=PARTS.get(value.dtype, value.dtype))


def _has_numbers(node: Node) -> bool:
    """Whether a call's operands that are no tensors are numbers, not symbols."""
    numbers = [*(a for a in node.args if not isinstance(a, Node)), *node.kwargs.values()]
    return all(type(n) in (bool, int, float, complex) for n in numbers)


def _are_complex(node: Node) -> bool:
    """Whether the result and all operands but a condition are complex, and no other dtype is asked for."""
    operands = node.all_input_nodes[node.target is aten.where.self:]
    values = [n.meta["val"] for n in (node, *operands)]
    return all(map(is_complex, values)) and node.kwargs.get("dtype") is None


def _stays_complex(node: Node) -> bool:
    """Whether operand and result are complex, in memory of any kind."""
    operand: Any = node.args[0]
    return is_complex(node.meta["val"]) and is_complex(operand.meta["val"]) and not node.kwargs.get("pin_memory")


def _gives_complex(node: Node) -> bool:
    """Whether the result is complex, too."""
    return is_complex(node.meta["val"])


def _selects(node: Node) -> bool:
    """Whether a complex tensor is indexed by integers."""
    operand, *rest = node.all_input_nodes
    return is_complex(operand.meta["val"]) and all(n.meta["val"].dtype in (torch.int64, torch.int32) for n in rest)


def _always(node: Node) -> bool:
    return True


def _rule(*targets: Any, case: Callable[[Node], bool] = _always) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for target in targets:
            RULES[target], CASES[target] = rule, case
        return rule

    return register


@_rule(aten.mul.Tensor, aten.mul.Scalar, case=_has_numbers)
def _mul(r: Any, a: Any, b: Any) -> Components:
    x, y = r.broadcast(a, b)
    return r.product(x, y)


@_rule(aten.add.Tensor, aten.add.Scalar, case=_has_numbers)
def _add(r: Any, a: Any, b: Any, alpha: Any = 1) -> Components:
    x, y = r.broadcast(a, b)
    return _sum(r, x, y, complex(alpha))


@_rule(aten.sub.Tensor, aten.sub.Scalar, case=_has_numbers)
def _sub(r: Any, a: Any, b: Any, alpha: Any = 1) -> Components:
    x, y = r.broadcast(a, b)
    return _sum(r, x, y, complex(-alpha))


@_rule(aten.rsub.Tensor, aten.rsub.Scalar, case=_has_numbers)
def _rsub(r: Any, a: Any, b: Any, alpha: Any = 1) -> Components:
    x, y = r.broadcast(b, a)
    return _sum(r, x, y, complex(-alpha))


def _sum(r: Any, a: tuple[Any, Any], b: tuple[Any, Any], factor: complex) -> Components:
    """``a + factor * b``, a product of complex numbers even if the factor is 1 or -1."""
    re, im = r.product(b, (factor.real, factor.imag))
    return r.sum(a[0], re), r.sum(a[1], im)


@_rule(aten.div.Tensor, aten.div.Scalar, case=_has_numbers)
def _div(r: Any, a: Any, b: Any) -> Components:
    x, y = r.broadcast(a, b)
    return _quotient(r, x, (r.tensor(y[0]), r.tensor(y[1])))


@_rule(aten.reciprocal.default)
def _reciprocal(r: Any, a: Node) -> Components:
    ((c, d),) = r.broadcast(a)
    return _quotient(r, (1.0, 0.0), (c, d))


def _quotient(r: Any, x: tuple[Any, Any], y: tuple[Node, Node]) -> Components:
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
def _angle(r: Any, a: Node) -> Node:
    re, im = r.components_of(a)
    return r.real(aten.atan2.default, im, re)


@_rule(aten.sgn.default)
def _sgn(r: Any, a: Node) -> Components:
    re, im = r.components_of(a)
    length = r.real(aten.hypot.default, re, im)
    is_zero, zero = r.truth(aten.eq.Scalar, length, 0), r.zero()
    re, im = (r.real(aten.where.self, is_zero, zero, r.real(aten.div.Tensor, part, length)) for part in (re, im))
    return re, im


@_rule(aten.neg.default)
def _neg(r: Any, a: Node) -> Components:
    return r.each(aten.neg.default, r.components_of(a))


@_rule(aten._conj.default, aten.conj_physical.default, aten._conj_physical.default)
def _conj(r: Any, a: Node) -> Components:
    re, im = r.components_of(a)
    return re, r.real(aten.neg.default, im)


@_rule(aten.clone.default)
def _clone(r: Any, a: Node, *, memory_format: Any = None) -> Components:
    re, im = r.components_of(a)
    return re, im


@_rule(aten._to_copy.default, case=_stays_complex)
def _to_copy(r: Any, a: Node, **kwargs: Any) -> Components:
    re, im = map(r.cast, r.components_of(a))
    return re, im


@_rule(aten.complex.default)
def _complex(r: Any, real: Node, imag: Node) -> Components:
    (re, _), (im, _) = r.broadcast(real, imag)
    return re, im


@_rule(aten.polar.default)
def _polar(r: Any, abs: Node, angle: Node) -> Components:
    (length, _), (angle, _) = r.broadcast(abs, angle)
    return r.times(length, r.real(aten.cos.default, angle)), r.times(length, r.real(aten.sin.default, angle))


@_rule(aten.abs.default)
def _abs(r: Any, a: Node) -> Node:
    return r.real(aten.hypot.default, *r.components_of(a))


@_rule(aten.cat.default, aten.stack.default, case=_are_complex)
def _join(r: Any, tensors: Sequence[Node], dim: int = 0) -> Components:
    parts = [tuple(map(r.cast, r.components_of(t))) for t in tensors]
    re, im = (r.real(r.node.target, list(several), dim) for several in zip(*parts))
    return re, im


@_rule(aten.where.self, case=_are_complex)
def _where(r: Any, condition: Node, a: Node, b: Node) -> Components:
    return r.each(aten.where.self, (condition, condition), *r.broadcast(a, b))


@_rule(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, case=_are_complex)
def _reduce(r: Any, a: Node, *args: Any, **kwargs: Any) -> Components:
    return r.each(r.node.target, r.components_of(a), *((arg, arg) for arg in args), **kwargs)


@_rule(aten.index.Tensor, case=_selects)
def _index(r: Any, a: Node, indices: Sequence[Any]) -> Components:
    if r.has_components(a):
        return r.each(aten.index.Tensor, r.components_of(a), (indices, indices))
    like = packed_like(r.node.meta["val"])
    return r.adopt(r.call(aten.index.Tensor, r.packed_of(a), indices, like=like))


@_rule(aten.new_zeros.default, case=_gives_complex)
def _new_zeros(r: Any, a: Node, size: Any, **kwargs: Any) -> Components:
    return r.zero(), r.zero()


@_rule(ops.copy_strided)
def _copy_strided(r: Any, a: Node, stride: Any) -> Components:
    re, im = r.components_of(a)
    return re, im


@_rule(aten.slice_scatter.default, aten.select_scatter.default, case=_are_complex)
def _write_part(r: Any, a: Node, part: Node, *args: Any, **kwargs: Any) -> Components:
    return r.each(r.node.target, r.components_of(a), r.components_of(part), *((arg, arg) for arg in args), **kwargs)


@_rule(aten.view_as_complex.default)
def _view_as_complex(r: Any, a: Node) -> Components:
    last = (-1, a.meta["val"].ndim - 1)
    if a.target is aten.select_backward.default and a.args[2] in last:  # the gradient of one component
        part, _, _, at = a.args
        return (r.zero(), part) if at in (1, -1) else (part, r.zero())  # type: ignore[return-value]
    if a.target is aten.stack.default and len(a.args) > 1 and a.args[1] in last:
        re, im = map(r.cast, a.args[0])  # type: ignore[arg-type]
        return re, im
    return r.adopt(a)


@_rule(aten.view_as_real.default)
def _view_as_real(r: Any, a: Node) -> Node:
    return r.node if r.select_parts() else r.packed_of(a)
