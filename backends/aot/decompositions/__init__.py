"""Operations in terms of others: tables from an operator to a function of its arguments.

A decomposition runs under the recorder, so it may call any operator, in-place ones included. It returns
``NotImplemented`` for a case that it leaves to the library. Invariant: it computes what eager computes, and rounds
where eager rounds.
``REQUIRED`` ones say what a schema leaves out and are always applied, as are those of lists of tensors (`foreach`);
``FOR_KERNELS`` adds those that pay if what comes out is fused into kernels, and would cost if it ran by library calls.

A part of `aot`: what may be imported is said there.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynamo_lite.backends.aot.decompositions import classes, losses, masks, normalization

REQUIRED: dict[Any, Callable[..., Any]] = {**normalization.REQUIRED, **classes.REQUIRED}
FOR_KERNELS: dict[Any, Callable[..., Any]] = {
    **REQUIRED, **normalization.FOR_KERNELS, **masks.FOR_KERNELS, **losses.FOR_KERNELS}


def register_decomposition(target: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a function of the operator's arguments that computes it by torch operations, which then join kernels.

    It holds from the next compile on. ``NotImplemented`` leaves a case to the operator itself.

    Args:
        target: an ``OpOverload``, or what ``torch.library.custom_op`` returned.
    """
    if isinstance(target, torch.library.CustomOpDef):
        target = target._opoverload
    if not isinstance(target, torch._ops.OpOverload):
        raise TypeError(f"a decomposition is registered for an OpOverload, not {target!r}")

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        FOR_KERNELS[target] = fn
        return fn

    return register
