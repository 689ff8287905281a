"""Numbers among the arguments of aten calls; and calls that eager refuses for some values of a symbolic number.

Invariant: a call that :func:`refuses_some_integer` does not name is valid for every 64-bit integer.
"""
from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from dynamo_lite.runtime import sized_operators

aten = torch.ops.aten

_WIDE = frozenset({torch.float32, torch.float64, torch.int64})
"""Types to which every 64-bit integer converts without overflow."""
_OF_ANY_INTEGER = frozenset({
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Scalar, aten.mul.Tensor,
    aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.full.default, aten.full_like.default,
    aten.new_full.default, aten.fill.Scalar, aten.masked_fill.Scalar, aten.scalar_tensor.default,
    aten.linspace.default,
})  # fmt: skip
_RANGES = frozenset({aten.arange.default, aten.arange.start, aten.arange.start_step})
"""Operations whose lowering checks the numbers itself."""
_COMPARISONS = frozenset(
    getattr(packet, overload)
    for packet in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge) for overload in ("Tensor", "Scalar"))


def numbers_of(node: Node, types: tuple[type, ...] = (int, float)) -> list[Any]:
    """The arguments for which the schema has a number (``Scalar``), if they have one of these types."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return []
    given = dict(zip((a.name for a in target._schema.arguments), node.args)) | dict(node.kwargs)
    scalars = {a.name for a in target._schema.arguments if isinstance(a.real_type, torch.NumberType)
               or (isinstance(a.real_type, torch.OptionalType)
                   and isinstance(a.real_type.getElementType(), torch.NumberType))}
    values = ((name, x.meta.get("val") if isinstance(x, Node) else x) for name, x in given.items())
    return [x for name, x in values if name in scalars and type(x) in types]


def refuses_some_integer(node: Node) -> bool:
    """Whether a symbol is passed where the schema has a number, and eager may refuse its value in some call."""
    if not isinstance(node.target, torch._ops.OpOverload) or _takes_any_integer(node):
        return False
    return bool(numbers_of(node, (torch.SymInt,))) or _stands_for_tensor(node)


def _stands_for_tensor(node: Node) -> bool:
    """Whether a symbol is passed where the schema has a tensor."""
    target: Any = node.target
    given = dict(zip((a.name for a in target._schema.arguments), node.args)) | dict(node.kwargs)
    values = {name: x.meta.get("val") if isinstance(x, Node) else x for name, x in given.items()}
    return any(isinstance(a.real_type, torch.TensorType) and isinstance(values.get(a.name), torch.SymInt)
               for a in target._schema.arguments)


def _takes_any_integer(node: Node) -> bool:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return False
    if node.target in _COMPARISONS:
        first = node.args[0].meta["val"] if isinstance(node.args[0], Node) else None
        return isinstance(first, torch.Tensor) and first.dtype in _WIDE
    target = sized_operators.original_of(node.target)
    return target in _RANGES or target in _OF_ANY_INTEGER and value.dtype in _WIDE
