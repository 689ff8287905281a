"""Kinds of aten operations, by which the recorder decides how to record a call; derived from schemas and the
dispatcher.

Invariant: the kind of an operation depends only on the operation, and an operation that changes which memory a tensor
uses is never classified as pure, a view or mutating.
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
    """Metadata of the result of ``linear`` where eager computes it by one matrix product; else None."""
    if x.dim() < 2 or weight.dim() != 2 or not x.is_contiguous() or x.numel() == 0 or x.dtype != weight.dtype:
        return None
    return aten.empty.memory_format([*x.shape[:-1], weight.shape[0]], dtype=x.dtype, device=x.device)


KEPT_COMPOSITES: dict[Any, Callable[..., torch.Tensor | None] | None] = {
    aten.linear.default: _linear_result,
    # Their decomposition would choose another algorithm on fake tensors.
    aten.linalg_svdvals.default: None,
    aten.linalg_eigvalsh.default: None,
    # Eager has kernels for these, which round 16-bit floats only once. (The first has a rule for metadata, too.)
    aten.silu_backward.default: None,
    aten.mish_backward.default: lambda grad, x: aten.mul.Tensor(grad, x),
}
"""Composite operations that are recorded as they are: one library call each.

The function computes the result's metadata, or returns None if the operation is to be decomposed after all. Without a
function, the operation itself computes the metadata.
"""


@functools.cache
def kind_of(func: Any) -> str:
    """The kind of a call: "lift", "no-op", "kept" (a composite that is recorded whole), "composite" (decomposed by
    aten), "relayout" (changes metadata in place), "storage" (changes which memory a tensor uses), "mutating", "view" or
    "pure".
    """
    schema = func._schema
    if func in LIFTS:
        return "lift"
    if func in _NO_OPS:
        return "no-op"
    if func in KEPT_COMPOSITES:
        return "kept"
    # Asks the dispatcher: the overload's own method also counts Python decompositions, which eager does not use.
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
    """Whether an operation makes a tensor from sizes alone, given as arguments or taken from a tensor (``_like``)."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = target._schema.name.removesuffix("_like")
    return target._schema.name != name or not any("Tensor" in str(a.type) for a in target._schema.arguments)
