"""Backward passes that read incoming gradients ("tangents") in the layouts in which they come.

Autograd's own formulas give gradients of many layouts: that of a sum is one number, expanded; that of a concatenation
is a part of a larger tensor. A backward pass is recorded for gradients laid out like the results that they are of.
Copying one to that layout costs a pass over memory, and the way through Python that does so. So the backward pass of a
small graph is compiled for the layouts that first come.

Invariant: such a pass computes what the recorded one computes for copies of the gradients: each is copied at the
start of the graph, by a node that loops read through, and that is a real copy only for library calls.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.aot import ops
from dynamo_lite.backends.aot.graph import AtenGraph, InputOutput, OutputAlias, OutputRecipe

Strides = tuple["tuple[int, ...] | None", ...]
"""For each value of the forward graph the strides of its gradient, or None if they are those that were recorded, or if
no gradient comes in."""
MOST_CALLS = 30
"""Calls in the backward pass from which on one copy is little beside them, and compiling it twice is not."""


def can_read_as_they_come(recipes: Sequence[OutputRecipe], calls: int, differentiable: int) -> bool:
    """Whether a backward pass is worth compiling for the layouts in which gradients come.

    Args:
        recipes: how the gradients of the inputs are made. One that is a view of an incoming gradient is known by
            strides, which hold for the recorded layout alone.
        calls: number of calls in the backward pass.
        differentiable: number of values that gradients come in for.
    """
    views = any(isinstance(recipe, OutputAlias) and isinstance(recipe.base, InputOutput) for recipe in recipes)
    return 0 < calls <= MOST_CALLS and differentiable > 0 and not views


def as_they_come(grads: Sequence[Any], layouts: Sequence[tuple[Any, torch.dtype]]) -> Strides | None:
    """The layouts of incoming gradients that kernels read as well as those that were recorded; None if all are as
    recorded, or have to be copied.

    Args:
        grads: for each value of the forward graph its gradient, or None.
        layouts: strides and dtype of each value.
    """
    strides = tuple(_strides(grad, *layout) for grad, layout in zip(grads, layouts))
    return strides if any(own is not None for own in strides) else None


def _strides(grad: Any, recorded: Sequence[int], dtype: torch.dtype) -> tuple[int, ...] | None:
    if type(grad) is not torch.Tensor or grad.dtype != dtype or grad.layout != torch.strided:
        return None
    own = grad.stride()
    if own == recorded or grad.device.type != "cpu" or grad.is_conj() or grad.is_neg() or grad._is_zerotensor():
        return None
    # Loops run over elements in the recorded order, so memory has to be in the same order, as far as it is not one
    # element for many; and elements that vectors load together have to lie together.
    dims = sorted((d for d, n in enumerate(grad.shape) if n > 1), key=lambda d: -recorded[d])
    steps = [own[d] for d in dims if own[d]]
    together = all(own[d] <= 1 for d in dims if recorded[d] == 1)
    return own if together and steps == sorted(steps, reverse=True) else None


def read_as_they_come(backward: AtenGraph, strides: Strides, come: Sequence[bool]) -> None:
    """Makes a backward graph take its tangents in other layouts.

    Args:
        strides: as ``as_they_come`` returns them.
        come: for each value, whether the graph has a tangent for it.
    """
    own = [at for at, comes in enumerate(come) if comes]
    first = next(node for node in backward.graph.nodes if node.op in ("call_function", "output"))
    for node, at in zip(backward.placeholders[-len(own):], own):
        taken = strides[at]
        if taken is None:
            continue
        value = node.meta["val"]
        with backward.graph.inserting_before(first):
            copy = backward.graph.call_function(ops.copy_strided, (node, tuple(value.stride())))
        copy.meta.update(val=value, origin=None)
        node.replace_all_uses_with(copy, delete_user_cb=lambda user, made=copy: user is not made)
        node.meta["val"] = value.new_empty_strided(value.shape, taken)
