"""Recognizes calls that eager rejects because of an operand's dtype or a number's size, in some or all torch versions.

torch's shape inference on fake tensors accepts such calls, so the graph contains them. Generated code would compute
some result, but the program has to see eager's exception, which the library call raises.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from dynamo_lite.backends.aot.numbers import numbers_of, refuses_some_integer
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.sizes import Sizes
from dynamo_lite.runtime import sized_operators

aten = torch.ops.aten

_SUBTRACTIONS = frozenset({
    aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
})  # fmt: skip
_WITH_FACTOR = frozenset({
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
})  # fmt: skip
"""Operators whose ``alpha`` is converted to the result's dtype."""
_CONVERTED = frozenset({
    aten.masked_fill.Scalar, aten.full.default, aten.full_like.default, aten.new_full.default, aten.fill.Scalar,
    aten.constant_pad_nd.default, aten.index_fill.int_Scalar, aten.scatter.value, aten.threshold.default,
    aten.pow.Tensor_Scalar, aten.scalar_tensor.default, aten.linspace.default,
})  # fmt: skip
"""Operators whose numeric arguments are converted to the result's dtype before anything is computed."""
_BOUNDED = frozenset({
    aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default, aten.hardtanh.default,
})  # fmt: skip
"""Operators with bounds. Up to torch 2.14, a bound is converted to the result's dtype as above, and a negative bound
wraps around in an unsigned dtype. From 2.15 on, a bound outside of the dtype's range is ignored or rejected. So calls
with bounds that the dtype cannot represent are left to the library."""

_OF_REAL_NUMBERS = frozenset({aten._softmax.default, aten._log_softmax.default})
"""Operators that take floating-point tensors only."""
_OF_NUMBERS = frozenset({
    aten.abs.default, aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default,
})  # fmt: skip
"""Operators that do not accept bools."""
_BITWISE = frozenset(
    getattr(packet, overload)
    for packet in (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor, aten.bitwise_left_shift,
                   aten.bitwise_right_shift)
    for overload in packet.overloads())  # fmt: skip
_EXTREMES = frozenset({
    aten.max.default, aten.min.default, aten.max.dim, aten.min.dim, aten.amax.default, aten.amin.default,
    aten.aminmax.default, aten.argmax.default, aten.argmin.default,
})  # fmt: skip
"""Reductions that raise if they reduce no elements."""


def is_refused(node: torch.fx.Node, sizes: Sizes) -> bool:
    """Whether eager would raise, or its result depends on the version of torch. To be called for nodes that have a
    lowering."""
    target = sized_operators.original_of(node.target)
    if refuses_some_integer(node):
        return True
    if target in _OF_NUMBERS and node.meta["val"].dtype is torch.bool:
        return True
    if target in _CONVERTED:
        return not all(fits(x, node.meta["val"].dtype) for x in numbers_of(node))
    if target in _BOUNDED:
        return not all(_holds(node.meta["val"].dtype, x) for x in numbers_of(node))
    if target in _SUBTRACTIONS and any(
        _dtype(a) is torch.bool if isinstance(a, torch.fx.Node) else isinstance(a, bool) for a in node.args[:2]
    ):
        return True
    if target in _WITH_FACTOR:
        alpha = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
        dtype = node.meta["val"].dtype
        whole = not dtype.is_floating_point and isinstance(alpha, float)
        whole |= isinstance(alpha, bool) and dtype is not torch.bool
        factor = -alpha if target in _SUBTRACTIONS and isinstance(alpha, (int, float)) else alpha  # eager adds -alpha
        return whole or (isinstance(factor, (int, float)) and not fits(factor, dtype))
    if target in _OF_REAL_NUMBERS:
        return not _first(node).dtype.is_floating_point
    if target in _BITWISE:
        return node.meta["val"].dtype.is_floating_point
    return target in _EXTREMES and _may_be_empty(_first(node), sizes) and not _is_empty(node.meta["val"])


def fits(number: int | float, dtype: torch.dtype) -> bool:
    """Whether eager converts the number to the dtype without an overflow error."""
    if dtype is torch.bool or dtype.is_complex:
        return True
    if dtype.is_floating_point:
        return not math.isfinite(number) or abs(number) <= torch.finfo(dtype).max
    bounds = torch.iinfo(dtype)
    low = bounds.min if bounds.min or isinstance(number, float) else -bounds.max  # negative integers wrap around
    return not math.isnan(number) and low <= number <= bounds.max


def _holds(dtype: torch.dtype, number: int | float) -> bool:
    """Whether the number is within the dtype's range."""
    unsigned = not dtype.is_floating_point and not dtype.is_complex and not dtype.is_signed
    return fits(number, dtype) and not (unsigned and number < 0)


def _first(node: torch.fx.Node) -> torch.Tensor:
    """The fake tensor of the node's first argument."""
    argument = node.args[0]
    assert isinstance(argument, torch.fx.Node)
    value: torch.Tensor = argument.meta["val"]
    return value


def _may_be_empty(tensor: torch.Tensor, sizes: Sizes) -> bool:
    """Whether a tensor may have no elements; if its sizes are symbols, in any call of the graph."""
    return not all(sizes.at_most(1, index_of(n), "what is the largest of no elements") for n in tensor.shape)


def _is_empty(value: Any) -> bool:
    """Whether a result, or the first of several, is known to have no elements."""
    tensor = value if isinstance(value, torch.Tensor) else value[0]
    return any(type(n) is int and n == 0 for n in tensor.shape)


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None
