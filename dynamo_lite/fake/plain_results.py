"""New results of the most frequent operators on symbolic sizes, computed without torch's rules.

torch's rules ask each question about a symbol through several layers of Python, so that one operator takes 10 ms, which
was most of the time of a first call. For operands whose dimensions lie in the order of a contiguous tensor, the results
of the most frequent operators are contiguous, and their sizes follow from the operands' by a line of arithmetic.

Invariant: nothing is decided. Where a rule would need a fact about symbols that is not known without a guard, it gives
up, and torch's rule runs. Dtypes and devices are those of the result for the sizes of the traced call, whose sizes and
strides are compared with those that the rule gives.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, no_dispatch

from dynamo_lite.fake import strides as stride_rules
from dynamo_lite.symbols import integers as ints
from dynamo_lite.symbols.environment import Environment
from dynamo_lite.symbols.integers import Index
from dynamo_lite.symbols.nodes import IntNode, symbolic_int
from dynamo_lite.symbols.relations import compare

aten = torch.ops.aten
Sizes = tuple[Index, ...]
_NUMBERS = (int, float, complex, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
_IN_ORDER = (None, torch.preserve_format, torch.contiguous_format)


class NotKnown(Exception):
    """Raised where a rule does not cover a call."""


class _OutOfOrder(Exception):
    """Raised with the operands and shape of an elementwise result whose dimensions may lie in another order."""


def told(number: Any) -> Index:
    """The expression of a size.

    Raises:
        NotKnown: it has none.
    """
    if type(number) is int:
        return number
    node = number.node if type(number) is torch.SymInt else None
    if type(node) is not IntNode:
        raise NotKnown
    return node.expr


def sizes_of(x: Any) -> Sizes:
    """The sizes of a plain tensor.

    Raises:
        NotKnown: the tensor is not plain.
    """
    if type(x) is not FakeTensor or x.layout is not torch.strided or x.is_conj() or x.is_neg():
        raise NotKnown
    return tuple(map(told, x.shape))


def strides_of(x: torch.Tensor) -> Sizes:
    return tuple(map(told, x.stride()))


def dense(sizes: Sequence[Index]) -> Sizes:
    """The strides of a contiguous tensor that has elements."""
    strides: list[Index] = [1] * len(sizes)
    for d in reversed(range(len(sizes) - 1)):
        strides[d] = ints.mul(strides[d + 1], sizes[d + 1])
    return tuple(strides)


def exceeds(env: Environment, a: Index, b: Index) -> bool:
    """Whether ``a > b`` is known."""
    if isinstance(a, int) and isinstance(b, int):
        return a > b
    return env.known(compare(">", a, b)) is True


def require(condition: bool) -> None:
    if not condition:
        raise NotKnown


def contiguous(x: Any) -> Sizes:
    """The sizes of a contiguous tensor.

    Raises:
        NotKnown: the tensor is not contiguous.
    """
    sizes = sizes_of(x)
    require(strides_of(x) == dense(sizes))
    return sizes


def new(mode: Any, sizes: Sequence[Any], dtype: torch.dtype, device: Any, strides: Sequence[Any] | None = None) -> Any:
    """A new contiguous fake tensor as the mode would make it, but made without the dispatcher.

    Args:
        sizes: expressions, or torch's numbers; all of them are positive.
        strides: the strides, if they are not those of a contiguous tensor.
    """
    shape = [told(n) for n in sizes] if not all(type(n) is int or isinstance(n, ints.Expr) for n in sizes) else sizes
    steps = dense(shape) if strides is None else strides
    with no_dispatch():
        meta = torch.empty_strided(
            [symbolic_int(mode.env, n) for n in shape], [symbolic_int(mode.env, n) for n in steps], dtype=dtype,
            device="meta")
        return FakeTensor(mode, meta, device)


# ---------------------------------------------------------------- layouts
def _in_order(env: Environment, sizes: Sizes, strides: Sizes, shape: Sizes) -> bool:
    """Whether an operand keeps the dimensions of an elementwise result in order, in the way ``TensorIterator`` orders
    them: its strides grow from the last dimension to the first, except for dimensions along which it is broadcast."""
    before: tuple[Index, Index] | None = None
    for size, stride, target in zip(reversed(sizes), reversed(strides), reversed(shape)):
        if stride == 0 or size == 1 and exceeds(env, target, 1):
            continue
        if before is not None and not exceeds(env, stride, before[0]) and not (
                stride == before[0] and before[1] == 1):
            return False
        before = stride, size
    return True


def _in_order_of(expected: torch.Tensor, env: Environment, tensors: Sequence[torch.Tensor], out: Sizes) -> Sizes:
    """The strides of an elementwise result whose dimensions do not lie in order (a transposed one): they lie in the
    order of the traced call, if that follows from the operands."""
    require(len(out) == expected.dim())
    found = expected.stride()
    order = sorted(range(len(out)), key=lambda d: -found[d])
    operands = [_broadcast_strides(env, x, out) for x in tensors]
    require(all(_is_outer(env, operands, a, b) for at, a in enumerate(order) for b in order[at + 1:]))
    return _dense_in(order, out)


def _broadcast_strides(env: Environment, x: torch.Tensor, out: Sizes) -> Sizes:
    """An operand's strides, with 0 for the dimensions along which it is broadcast."""
    missing = len(out) - x.dim()
    strides: list[Index] = [0] * missing
    for size, stride, target in zip(sizes_of(x), strides_of(x), out[missing:]):
        if size == 1 and target != 1:
            require(exceeds(env, target, 1))
            stride = 0
        strides.append(stride)
    return tuple(strides)


def _is_outer(env: Environment, operands: Sequence[Sizes], a: int, b: int) -> bool:
    """Whether dimension `a` becomes the outer one of two: the first operand that is broadcast along neither decides. If
    there is none, the dimensions keep their order."""
    for strides in operands:
        if strides[a] != 0 and strides[b] != 0:
            return exceeds(env, strides[a], strides[b])
    return a < b


def _dense_in(order: Sequence[int], sizes: Sizes) -> Sizes:
    """The strides of a dense tensor whose dimensions are given from the outermost to the innermost."""
    steps: list[Index] = [1] * len(sizes)
    for outer, inner in zip(reversed(order[:-1]), reversed(order)):
        steps[outer] = ints.mul(steps[inner], sizes[inner])
    return tuple(steps)


def _broadcast(shapes: Sequence[Sizes]) -> Sizes:
    out: list[Index] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for at, size in enumerate(reversed(shape), 1):
            if size != 1 and size != out[-at]:
                require(out[-at] == 1)
                out[-at] = size
    return tuple(out)


def _operands(args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    for value in (*args, *kwargs.values()):
        require(isinstance(value, (torch.Tensor, str, torch.dtype, torch.device, torch.memory_format, torch.layout,
                                   type(None), *_NUMBERS)))
    require(kwargs.get("memory_format") in _IN_ORDER)
    require(not any(isinstance(value, torch.Tensor) for value in kwargs.values()))
    return [a for a in args if isinstance(a, torch.Tensor)]


def _elementwise(env: Environment, *args: Any, **kwargs: Any) -> list[Sizes]:
    tensors = _operands(args, kwargs)
    shapes = [sizes_of(x) for x in tensors]
    out = _broadcast(shapes)
    if not all(_in_order(env, shape, strides_of(x), out) for x, shape in zip(tensors, shapes)):
        raise _OutOfOrder(tensors, out)
    return [out]


def _written(env: Environment, *args: Any, **kwargs: Any) -> list[Sizes]:
    """The rule for an elementwise operation that writes to its first operand."""
    shapes = [sizes_of(x) for x in _operands(args, kwargs)]
    require(_broadcast(shapes) == shapes[0] and args[0].constant is None)
    return shapes[:1]


def _same(env: Environment, x: torch.Tensor, *args: Any, **kwargs: Any) -> list[Sizes]:
    """The rule for results with the first operand's layout; other operands have no influence on it."""
    require(kwargs.get("memory_format") in _IN_ORDER)
    return [contiguous(x)]


def _copy(env: Environment, x: torch.Tensor, *args: Any, **kwargs: Any) -> list[Sizes]:
    if kwargs.get("memory_format") is torch.contiguous_format:
        return [sizes_of(x)]
    require(kwargs.get("memory_format") in _IN_ORDER)
    return _elementwise(env, x)


def _made(env: Environment, size: Sequence[Any], *args: Any, **kwargs: Any) -> list[Sizes]:
    require(kwargs.get("memory_format") in _IN_ORDER and kwargs.get("layout") in (None, torch.strided))
    return [tuple(map(told, size))]


def _made_like(env: Environment, x: torch.Tensor, size: Sequence[Any], *args: Any, **kwargs: Any) -> list[Sizes]:
    return _made(env, size, **kwargs)


# ---------------------------------------------------------------- reductions, products, normalizations
def _reduced(sizes: Sizes, dim: Any, keepdim: bool) -> Sizes:
    given = [dim] if isinstance(dim, int) else list(dim or range(len(sizes)))
    require(all(type(d) is int for d in given))
    gone = {d % len(sizes) for d in given} if sizes else set()
    return tuple(1 if d in gone else n for d, n in enumerate(sizes) if keepdim or d not in gone)


def _reduction(env: Environment, x: torch.Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> list[Sizes]:
    return [_reduced(contiguous(x), dim, keepdim)]


def _whole_reduction(env: Environment, x: torch.Tensor, **_: Any) -> list[Sizes]:
    sizes_of(x)
    return [()]


def _with_places(env: Environment, x: torch.Tensor, dim: int, keepdim: bool = False) -> list[Sizes]:
    return _reduction(env, x, dim, keepdim) * 2


def _moments(env: Environment, x: torch.Tensor, dim: Any = None, **options: Any) -> list[Sizes]:
    return _reduction(env, x, dim, options.get("keepdim", False)) * 2


def _mm(env: Environment, a: torch.Tensor, b: torch.Tensor) -> list[Sizes]:
    (n, k), (m, p) = sizes_of(a), sizes_of(b)
    require(k == m)
    return [(n, p)]


def _addmm(env: Environment, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **_: Any) -> list[Sizes]:
    (out,) = _mm(env, a, b)
    require(_broadcast((sizes_of(x), out)) == out)
    return [out]


def _bmm(env: Environment, a: torch.Tensor, b: torch.Tensor) -> list[Sizes]:
    (n, i, k), (m, j, p) = sizes_of(a), sizes_of(b)
    require(n == m and k == j)
    return [(n, i, p)]


def _layer_norm(
    env: Environment, x: torch.Tensor, shape: Sequence[Any], weight: Any, bias: Any, eps: float
) -> list[Sizes]:
    sizes, over = contiguous(x), tuple(map(told, shape))
    require(0 < len(over) <= len(sizes) and sizes[-len(over):] == over)
    require(all(p is None or sizes_of(p) == over for p in (weight, bias)))
    means = (*sizes[:-len(over)], *(1 for _ in over))
    return [sizes, means, means]


def _batch_norm(env: Environment, x: torch.Tensor, weight: Any, bias: Any, *others: Any) -> list[Sizes]:
    sizes, training = contiguous(x), others[-3]
    require(len(sizes) > 1 and type(training) is bool and all(p is None or sizes_of(p) == sizes[1:2] for p in (
        weight, bias, *(o for o in others if isinstance(o, torch.Tensor)))))
    of_channels = sizes[1:2] if training else (0,)
    return [sizes, of_channels, of_channels]


def _embedding(env: Environment, weight: torch.Tensor, at: torch.Tensor, *_: Any) -> list[Sizes]:
    rows, width = sizes_of(weight)
    return [(*sizes_of(at), width)]


def _is_channels_first(env: Environment, x: torch.Tensor) -> bool:
    """Whether torch does not take a tensor for a channels-last one: the last stride of images is below that of the
    channels, or the tensor is contiguous."""
    strides = strides_of(x)
    return len(strides) not in (4, 5) or exceeds(env, strides[1], strides[-1]) or strides == dense(sizes_of(x))


def _cat(env: Environment, tensors: Sequence[torch.Tensor], dim: int = 0) -> list[Sizes]:
    """The rule for ``cat``, which ignores one-dimensional tensors without elements, such as empty caches."""
    shapes = [shape for shape in map(sizes_of, tensors) if shape != (0,)]
    require(bool(shapes) and bool(shapes[0]) and all(len(s) == len(shapes[0]) for s in shapes))
    require(all(_is_channels_first(env, x) for x in tensors))
    at = dim % len(shapes[0])
    for shape in shapes:
        require(all(exceeds(env, n, 0) for n in shape))
        require((*shape[:at], *shape[at + 1:]) == (*shapes[0][:at], *shapes[0][at + 1:]))
    return [(*shapes[0][:at], ints.sum_of(s[at] for s in shapes), *shapes[0][at + 1:])]


def _index(env: Environment, x: torch.Tensor, indices: Sequence[Any]) -> list[Sizes]:
    """The rule for indexing with integer tensors at consecutive dimensions."""
    sizes = contiguous(x)
    given = [d for d, i in enumerate(indices) if i is not None]
    first, behind = given[0], given[-1] + 1
    tensors = indices[first:behind]
    require(all(isinstance(i, torch.Tensor) and i.dtype in (torch.int64, torch.int32) for i in tensors))
    shapes = [sizes_of(i) for i in tensors]
    at = _broadcast(shapes)
    require(all(_in_order(env, shape, strides_of(i), at) for i, shape in zip(tensors, shapes)))
    return [(*sizes[:first], *at, *sizes[behind:])]


def _attention(env: Environment, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any) -> list[Sizes]:
    sizes = sizes_of(q)
    require(len(sizes) == 4)
    return [(*sizes[:3], sizes_of(v)[3]), sizes[:3]]


Rule = Callable[..., list[Sizes]]
# New tensors whose dimensions lie in an order that only the operator decides, whatever the operands and sizes are.
_OF_OWN_ORDER: frozenset[Rule] = frozenset({_attention})
_NAMED: dict[Rule, tuple[str, ...]] = {
    _same: ("cumsum.default", "cumprod.default", "_softmax.default", "_log_softmax.default", "tril.default",
            "triu.default", "flip.default", "zeros_like.default", "ones_like.default", "empty_like.default",
            "full_like.default", "logical_not.default"),
    _copy: ("clone.default", "_to_copy.default"),
    _made: ("empty.memory_format", "zeros.default", "ones.default", "full.default"),
    _made_like: ("new_empty.default", "new_zeros.default", "new_ones.default", "new_full.default"),
    _reduction: ("sum.dim_IntList", "mean.dim", "amax.default", "amin.default", "any.dim", "all.dim", "prod.dim_int",
                 "argmax.default", "argmin.default"),
    _whole_reduction: ("sum.default", "mean.default", "any.default", "all.default", "max.default", "min.default",
                       "prod.default"),
    _with_places: ("max.dim", "min.dim"), _moments: ("var_mean.correction",),
    _mm: ("mm.default",), _addmm: ("addmm.default",), _bmm: ("bmm.default",),
    _layer_norm: ("native_layer_norm.default",),
    _batch_norm: ("native_batch_norm.default", "_native_batch_norm_legit.default", "_native_batch_norm_legit.no_stats"),
    _embedding: ("embedding.default",), _cat: ("cat.default",),
    _index: ("index.Tensor",), _attention: ("_scaled_dot_product_flash_attention_for_cpu.default",),
}
RULES: dict[Any, Rule] = {}
for _rule, _names in _NAMED.items():
    for _name in _names:
        _packet, _, _overload = _name.partition(".")
        RULES[getattr(getattr(aten, _packet), _overload)] = _rule


@functools.cache
def _rule_of(func: Any) -> Rule | None:
    if func in RULES:
        return RULES[func]
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten" or torch.Tag.pointwise not in func.tags:
        return None
    schema = func._schema
    if len(schema.returns) != 1 or not stride_rules.is_elementwise(func):
        return None
    if not schema.is_mutable:
        return _elementwise
    first, *others = schema.arguments
    writes = first.alias_info is not None and first.alias_info.is_write
    return _written if writes and all(a.alias_info is None for a in others) else None


def result(mode: Any, expected: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The operator's result for symbolic sizes; ``NotImplemented`` where no rule here knows it.

    Args:
        mode: the fake mode of the result.
        expected: the operator's result for the sizes of the traced call.
    """
    rule = _rule_of(func)
    parts = (expected,) if isinstance(expected, torch.Tensor) else expected
    if rule is None or not isinstance(parts, tuple) or not all(isinstance(p, torch.Tensor) for p in parts):
        return NotImplemented
    env: Environment = mode.env
    layout: Sizes | None = None
    try:
        try:
            found = rule(env, *args, **kwargs)
        except _OutOfOrder as error:
            tensors, out = error.args
            found, layout = [out], _in_order_of(parts[0], env, tensors, out)
    except (NotKnown, TypeError, ValueError):  # arguments that the rule does not take are left to torch
        return NotImplemented
    if rule is _written:
        return args[0] if expected.shape == tuple(map(env.value, found[0])) else NotImplemented
    if len(found) != len(parts):
        return NotImplemented
    made = []
    for sizes, part in zip(found, parts):
        strides = dense(sizes) if layout is None else layout
        if rule in _OF_OWN_ORDER:
            order = part.stride()
            strides = _dense_in(sorted(range(len(sizes)), key=lambda d: -order[d]), sizes)
        if tuple(map(env.value, sizes)) != tuple(part.shape) or tuple(map(env.value, strides)) != part.stride():
            return NotImplemented
        if not all(exceeds(env, n, 0) for n in sizes[1:]) or not all(map(env.is_computable, (*sizes, *strides))):
            return NotImplemented
        made.append((sizes, strides, part))
    tensors = tuple(new(mode, sizes, part.dtype, part.device, strides) for sizes, strides, part in made)
    return tensors[0] if isinstance(expected, torch.Tensor) else tensors
