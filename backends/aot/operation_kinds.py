"""Kinds of aten operations: what the recorder does with a call, as its schema and the dispatcher tell.

Invariant: the kind of an operation depends on nothing but the operation, and an operation that changes which memory a
tensor uses is never called pure, a view or a mutation.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from dynamo_lite.backends.aot.functional import UNSAFE_VIEWS

aten = torch.ops.aten

_COMPOSITE = "CompositeImplicitAutograd"
LIFTS = frozenset({aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default})
_NO_OPS = frozenset({aten.detach_.default})


def _linear_result(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *_: Any
) -> torch.Tensor | None:
    """Of ``linear`` where eager takes one matrix product for it."""
    if x.dim() < 2 or weight.dim() != 2 or not x.is_contiguous() or x.numel() == 0 or x.dtype != weight.dtype:
        return None
    return aten.empty.memory_format([*x.shape[:-1], weight.shape[0]], dtype=x.dtype, device=x.device)


KEPT_COMPOSITES: dict[Any, Callable[..., torch.Tensor | None] | None] = {
    aten.linear.default: _linear_result,
    # On fake tensors these would choose another algorithm.
    aten.linalg_svdvals.default: None,
    aten.linalg_eigvalsh.default: None,
    # Eager has kernels of its own for these, which round 16-bit floats once. (The first has a rule for metadata, too.)
    aten.silu_backward.default: None,
    aten.mish_backward.default: lambda grad, x: aten.mul.Tensor(grad, x),
}
"""Composite operations that are recorded as they are: one library call each.

The function computes the result's metadata, or None where the operation is decomposed after all; without a function the
operation itself computes it.
"""


@functools.cache
def kind_of(func: Any) -> str:
    """What to do with a call: "lift", "no-op", "kept" (recorded whole though a composite), "composite" (decomposed by
    aten), "relayout" (writes metadata in place), "storage" (changes which memory a tensor uses), "mutating", "view" or
    "pure".
    """
    schema = func._schema
    if func in LIFTS:
        return "lift"
    if func in _NO_OPS:
        return "no-op"
    if func in KEPT_COMPOSITES:
        return "kept"
    # Asked of the dispatcher: the overload's own method also answers for Python decompositions, which are not eager's.
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE):
        return "composite"
    if torch.Tag.inplace_view in func.tags:
        name = schema.name.split("::")[1]
        return "storage" if name in ("set_", "resize_", "resize_as_", "_resize_output_") else "relayout"
    if schema.is_mutable:
        return "storage" if schema.name in ("aten::resize_", "aten::set_", "aten::resize_as_") else "mutating"
    if func in UNSAFE_VIEWS or any(a.alias_info is not None for a in schema.arguments):
        return "view"
    return "pure"


@functools.cache
def is_factory(target: Any) -> bool:
    """Whether an operation makes a tensor of sizes alone, its own arguments' or those of a tensor."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = target._schema.name.removesuffix("_like")
    return target._schema.name != name or not any("Tensor" in str(a.type) for a in target._schema.arguments)
