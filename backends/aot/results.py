"""The results of a captured graph, made from the values of its forward pass, under autograd.

Invariant: a result that is a view is made by the program's own view operations, so that autograd knows it as a view of
the right base; views that one operation makes (``unbind``) are made by one call; results that are one tensor stay one.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

from dynamo_lite.backends.aot import ops, passes
from dynamo_lite.backends.aot.graph import InputOutput, LiteralOutput, OutputAlias, ValueOutput
from dynamo_lite.backends.aot.interface import Result, Written

aten = torch.ops.aten

Call = Callable[..., tuple[Any, ...]]
_Place = tuple[int, int]  # where a tensor is: in one of these, and its index there
_VALUES, _INPUTS, _MADE, _LITERALS = range(4)

_AS_METHODS: dict[Any, Callable[..., Any]] = {
    aten.view.default: torch.Tensor.view, aten.view.dtype: torch.Tensor.view, aten.t.default: torch.Tensor.t,
    aten.transpose.int: torch.Tensor.transpose, aten.permute.default: torch.Tensor.permute,
    aten.unsqueeze.default: torch.Tensor.unsqueeze, aten.squeeze.dim: torch.Tensor.squeeze,
    aten.select.int: torch.Tensor.select, aten.unbind.int: torch.Tensor.unbind,
    aten.detach.default: torch.Tensor.detach, aten.diagonal.default: torch.Tensor.diagonal,
    aten.unfold.default: torch.Tensor.unfold,
    aten.split.Tensor: torch._VF.split,  # type: ignore[attr-defined]
    aten.split_with_sizes.default: torch.Tensor.split_with_sizes,
}
"""Operators with the methods that do the same in a third of the time of a call through ``torch.ops``."""


class Results:
    """Writes to the captured graph's inputs, and makes its results from the forward pass's values, under autograd."""

    def __init__(self, results: tuple[Result, ...], values: Call, written: tuple[Written, ...] = ()) -> None:
        self._written = written
        self._values = values
        self._literals: list[Any] = []
        self._steps: list[tuple[_Place, Callable[[Any], Any], bool]] = []
        self._of_several: dict[Any, _Place] = {}
        made: dict[int, _Place] = {}
        for result in results:
            # Each recipe object stands for one tensor, however often that is returned.
            if id(result.recipe) not in made:
                made[id(result.recipe)] = self._place(result)
        self._places = [made[id(result.recipe)] for result in results]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        values = self._values(*inputs)
        for written in self._written:
            _write(inputs[written.input], values[written.value], written)
        made: list[Any] = []
        known = values, inputs, made, self._literals
        before = now = torch.is_grad_enabled()
        try:
            for (where, index), make, with_grad in self._steps:
                if with_grad is not now:
                    torch._C._set_grad_enabled(with_grad)
                    now = with_grad
                made.append(make(known[where][index]))
        finally:
            if now is not before:
                torch._C._set_grad_enabled(before)
        return tuple([known[where][index] for where, index in self._places])

    def _place(self, result: Result) -> _Place:
        """The place of a result, for which steps are added if it is a view."""
        recipe = result.recipe
        if isinstance(recipe, ValueOutput):
            return _VALUES, recipe.index
        if isinstance(recipe, InputOutput):
            return _INPUTS, recipe.index
        if isinstance(recipe, LiteralOutput):
            self._literals.append(recipe.value)
            return _LITERALS, len(self._literals) - 1
        return self._view(recipe, result.detached)

    def _view(self, recipe: OutputAlias, detached: bool) -> _Place:
        chain = recipe.chain or ()
        # A result that has no history, but is a view for autograd, was taken with grad mode off.
        with_grad = not detached or bool(recipe.detach)
        keys = {at: (recipe.base, recipe.detach, detached, passes.freeze((chain[:at], chain[at][:3])))
                for at, step in enumerate(chain) if step[3] is not None}
        known = [at for at, key in keys.items() if key in self._of_several]
        place = _VALUES if isinstance(recipe.base, ValueOutput) else _INPUTS, recipe.base.index
        if not known:
            if recipe.detach == "before":
                place = self._step(place, torch.Tensor.detach, with_grad)
            if recipe.chain is None:
                place = self._step(place, functools.partial(_strided, recipe), with_grad)
        for at in range(known[-1] if known else 0, len(chain)):
            target, args, kwargs, item = chain[at]
            if item is None:
                place = self._step(place, _operation(target, args, kwargs), with_grad)
                continue
            if keys[at] not in self._of_several:
                self._of_several[keys[at]] = self._step(place, _operation(target, args, kwargs), with_grad)
            place = self._step(self._of_several[keys[at]], operator.itemgetter(item), with_grad)
        return self._step(place, torch.Tensor.detach, with_grad) if recipe.detach == "after" else place

    def _step(self, place: _Place, make: Callable[[Any], Any], with_grad: bool) -> _Place:
        self._steps.append((place, make, with_grad))
        return _MADE, len(self._steps) - 1


def _operation(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], Any]:
    """A view operation as a function of its base."""
    function = _AS_METHODS.get(target, target)
    if not args and not kwargs:
        return function
    if not kwargs:
        return lambda base: function(base, *args)
    return lambda base: function(base, *args, **kwargs)


def _strided(recipe: OutputAlias, base: torch.Tensor) -> torch.Tensor:
    return base.as_strided(recipe.size, recipe.stride, base.storage_offset() + recipe.offset)


def _write(tensor: torch.Tensor, value: torch.Tensor, written: Written) -> None:
    """Writes an input's final value in place of the program's own writes, of which autograd needs only the last."""
    with torch.set_grad_enabled(written.differentiable):
        ops.overwrite(tensor, value, written.writes)
