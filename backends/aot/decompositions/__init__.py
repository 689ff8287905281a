"""Decompositions of operators into other operators: tables from an operator to a function of its arguments.

A decomposition runs under the recorder, so it may call any operator, in-place ones included. It returns
``NotImplemented`` for a case that it leaves to the library. Invariant: it computes what eager computes, and rounds
where eager rounds.
The decompositions in ``REQUIRED`` make explicit what an operator's schema does not tell: effects, or results that
kernels can't read. They are always applied, as are those of operators on lists of tensors (`foreach`). ``FOR_KERNELS``
adds decompositions that pay if the resulting operators are fused into kernels, but would cost time if they ran as
library calls.

A part of `aot`: what may be imported is said there.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynamo_lite.backends.aot.decompositions import activations, classes, losses, masks, normalization, zeros

REQUIRED: dict[Any, Callable[..., Any]] = {**normalization.REQUIRED, **classes.REQUIRED, **zeros.REQUIRED}
FOR_KERNELS: dict[Any, Callable[..., Any]] = {
    **REQUIRED, **normalization.FOR_KERNELS, **masks.FOR_KERNELS, **losses.FOR_KERNELS, **activations.FOR_KERNELS}


def register_decomposition(target: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that registers a function of an operator's arguments as the operator's decomposition: it computes the
    result by torch operations, which can then be fused into kernels.

    The registration takes effect from the next compilation on. The function returns ``NotImplemented`` for a case that
    it leaves to the operator itself.

    Args:
        target: an ``OpOverload``, or the result of ``torch.library.custom_op``.

    Raises:
        TypeError: if ``target`` is anything else.
    """
    if isinstance(target, torch.library.CustomOpDef):
        target = target._opoverload
    if not isinstance(target, torch._ops.OpOverload):
        raise TypeError(f"a decomposition is registered for an OpOverload, not {target!r}")

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        FOR_KERNELS[target] = fn
        return fn

    return register
