"""The data of a joint graph that is kept beside its compiled passes in order to run them.

A process that finds a kept graph needs these records, but not the modules that make them, which are imported only where
gradients are recorded. Invariant: a record contains no graph and no tensor, so that it can be written to a file.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo_lite.backends.aot.call_sizes import CallSizes, SizeFormula, at_sizes
from dynamo_lite.backends.aot.graph import LiteralOutput, OutputAlias, OutputRecipe


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The way in which one result of the captured graph is made.

    Attributes:
        recipe: as in ``AtenGraph.outputs``; refers to the forward graph's values and the inputs.
        detached: whether it has no autograd history although its base has one.
    """

    recipe: OutputRecipe
    detached: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """An input that is written after the forward pass, by a copy that autograd sees.

    Attributes:
        input: index of the input.
        value: index of the forward graph's value that is copied to it.
        differentiable: whether the program has written to it with grad mode on, so that the copy is made so, too.
        writes: number of times that the program has written to it, except through ``.data``.
    """

    input: int
    value: int
    differentiable: bool
    writes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Freed:
    """Describes a result a part of whose history can't be used any more: it was freed, or a tensor that it needs has
    been written to.

    Attributes:
        error: eager's error for a backward pass that reaches that part.
        before_inputs: whether the part lies between the result and an input. Otherwise it leads only to a leaf that
            the graph makes, and is reached only by a backward pass to all leaves.
    """

    error: str
    before_inputs: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """The data that is needed to run a captured graph's forward and backward graph, beside their compiled form.

    Attributes:
        inputs: number of inputs of the captured graph.
        layouts: strides and dtype of each value of the forward graph.
        differentiable, results, mutated, written: as in ``JointGraph``.
        random: whether the forward pass draws random numbers.
        unreached: indices of the inputs that require grad, but that no result's gradient flows to.
        requiring: whether there are inputs that require grad.
        freed: indices of values whose backward pass needs something that the graph itself has freed.
        sizes: the numbers that are read from the inputs. The backward graph takes them after the saved values; layouts
            and recipes contain formulas over them.
        adapts: whether the backward pass is compiled for the layouts in which gradients come (``tangent_layouts``).
    """

    inputs: int
    layouts: tuple[tuple[tuple[int | SizeFormula, ...], torch.dtype], ...]
    differentiable: tuple[bool, ...]
    results: tuple[Result, ...]
    mutated: tuple[int, ...]
    written: tuple[Written, ...]
    random: bool
    unreached: tuple[int, ...]
    requiring: bool = True
    freed: tuple[tuple[int, Freed], ...] = ()
    sizes: CallSizes = CallSizes()
    adapts: bool = False


@dataclasses.dataclass(slots=True)
class Saved:
    """The values that are saved in the forward pass for the backward pass.

    Attributes:
        names: names of their nodes in the joint graph.
        inputs: for each value, the index of the input that it is, or None.
        values: for each value, its index among the forward graph's values, or None if it is an input.
        readers: for each value, the results whose gradients read it.
        together: for each result, the results whose gradients belong together with its own (``independence``).
    """

    names: tuple[str, ...]
    inputs: tuple[int | None, ...]
    values: tuple[int | None, ...]
    readers: tuple[tuple[int, ...], ...]
    together: tuple[tuple[int, ...], ...]


def with_formulas(results: Sequence[Result], sizes: CallSizes) -> tuple[Result, ...]:
    """Results whose recipes have formulas instead of symbols."""
    return _each_once(results, sizes.formulas) if sizes else tuple(results)


def at_call(results: Sequence[Result], sizes: Sequence[int]) -> tuple[Result, ...]:
    """Results whose recipes have numbers instead of formulas, for the sizes of one call."""
    return _each_once(results, lambda value: at_sizes(value, sizes))


def _each_once(results: Sequence[Result], number: Callable[[Any], Any]) -> tuple[Result, ...]:
    """Replaces each recipe object once, since one object stands for one tensor, however often that is returned."""
    made = {id(r.recipe): r.recipe for r in results}
    made = {key: _with_numbers(recipe, number) for key, recipe in made.items()}
    return tuple(Result(made[id(r.recipe)], r.detached) for r in results)


def _with_numbers(recipe: OutputRecipe, number: Callable[[Any], Any]) -> OutputRecipe:
    if isinstance(recipe, LiteralOutput):
        return LiteralOutput(number(recipe.value))
    if isinstance(recipe, OutputAlias):
        return dataclasses.replace(recipe, size=number(recipe.size), stride=number(recipe.stride),
                                   offset=number(recipe.offset), chain=number(recipe.chain))
    return recipe
