"""Calls that eager refuses because of an operand's dtype or a number's size.

Their metadata rules in torch let them pass, so the graph has them. Generated code would compute something; what the
program is to see is eager's exception, which the library call raises.
"""

from __future__ import annotations

import math
from typing import Any

import torch

aten = torch.ops.aten

_SUBTRACTIONS = frozenset({
    aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
})  # fmt: skip
_WITH_FACTOR = frozenset({
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
})  # fmt: skip
"""Operators whose ``alpha`` becomes a number of the result's dtype."""
_CONVERTED = frozenset({
    aten.masked_fill.Scalar, aten.full.default, aten.full_like.default, aten.new_full.default, aten.fill.Scalar,
    aten.constant_pad_nd.default, aten.index_fill.int_Scalar, aten.scatter.value, aten.clamp.default,
    aten.clamp_min.default, aten.clamp_max.default, aten.hardtanh.default, aten.threshold.default,
    aten.pow.Tensor_Scalar,
})  # fmt: skip
"""Operators whose numbers become numbers of the result's dtype before anything is computed."""


def is_refused(node: torch.fx.Node) -> bool:
    """Whether eager would raise: asked of nodes that have a lowering."""
    target: Any = node.target
    if target in _CONVERTED:
        return not all(fits(x, node.meta["val"].dtype) for x in _numbers(node))
    if target in _SUBTRACTIONS and any(
        isinstance(a, torch.fx.Node) and _dtype(a) is torch.bool for a in node.args[:2]
    ):
        return True
    if target in _WITH_FACTOR:
        alpha = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
        dtype = node.meta["val"].dtype
        whole = not dtype.is_floating_point and isinstance(alpha, float)
        return whole or (isinstance(alpha, (int, float)) and not fits(alpha, dtype))
    return False


def fits(number: int | float, dtype: torch.dtype) -> bool:
    """Whether eager converts the number to the dtype without an overflow."""
    if dtype is torch.bool or dtype.is_complex:
        return True
    if dtype.is_floating_point:
        return not math.isfinite(number) or abs(number) <= torch.finfo(dtype).max
    bounds = torch.iinfo(dtype)
    low = bounds.min if bounds.min else -bounds.max  # negative numbers wrap around
    return not math.isnan(number) and low <= number <= bounds.max


def _numbers(node: torch.fx.Node) -> list[int | float]:
    """What the schema calls a number, where it is no bool."""
    target: Any = node.target
    given = dict(zip((a.name for a in target._schema.arguments), node.args)) | dict(node.kwargs)
    scalars = {a.name for a in target._schema.arguments if isinstance(a.real_type, torch.NumberType)
               or (isinstance(a.real_type, torch.OptionalType)
                   and isinstance(a.real_type.getElementType(), torch.NumberType))}
    return [x for name, x in given.items() if name in scalars and type(x) in (int, float)]  # type: ignore[misc]


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None
