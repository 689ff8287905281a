"""The short way through a backward pass: for gradients that come in as they nearly always do.

Invariant: it is taken only where the long way (``training``) would do the same: gradients come in for all
differentiable results, in the layouts that the backward pass was compiled for, they are not to be differentiated
themselves, and no mode or transform is on that the long way has to respect.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo_lite.backends.aot import ambient
from dynamo_lite.runtime.tensor_layouts import Check, check_like

_transforms_are_active = torch._C._are_functorch_transforms_active
_MOST = 2  # layouts: those that came first, and those that the backward pass was recorded for
_NOTHING: dict[str, Any] = {}


class UsualBackward:
    """A graph's backward pass for the usual gradients, once such gradients have been seen.

    Args:
        reads_saved: whether the backward pass reads saved values.
    """

    def __init__(self, reads_saved: bool) -> None:
        self._reads_saved = reads_saved
        self._known: list[tuple[Check, Callable[[list[Any]], tuple[Any, ...]], bool]] = []

    def run(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The gradients of the inputs; None if the long way has to be taken."""
        known = next((one for one in self._known if one[0](grads, None, _NOTHING, _NOTHING)[0]), None)
        if known is None:
            return None
        _, call, all_come = known
        if torch.is_grad_enabled() or ambient.casts() or _transforms_are_active():
            return None
        values = [*grads] if all_come else [g for g in grads if g is not None]
        if self._reads_saved:
            try:
                values[:0] = ctx.saved_tensors
            except RuntimeError:
                return None  # the long way raises it again, or finds that the value written to is not needed
            ctx.maybe_clear_saved_tensors()
        return call(values)

    def learn(
        self, grads: Sequence[Any], given: Sequence[Any], call: Callable[[list[Any]], tuple[Any, ...]]
    ) -> None:
        """Takes note of a backward pass that has gone the long way.

        Args:
            grads: the incoming gradients of all differentiable results.
            given: those that are not None, in the layouts that ``call`` was compiled for.
            call: takes the saved values and ``given`` in a list, which it empties.
        """
        come = [g for g in grads if g is not None]
        if len(self._known) < _MOST and all(a is b for a, b in zip(come, given)):
            check = check_like(grads)
            if check is not None:
                self._known = [*self._known, (check, call, len(come) == len(grads))]
