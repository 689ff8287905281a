"""What is kept of a joint graph beside its compiled passes: what it takes to run them.

A process that finds a kept graph needs these records and none of the modules that make them: those are imported by
whoever records gradients. Invariant: a record holds no graph and no tensor, so that it can be written to a file.
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
    """How one result of the captured graph is made.

    Attributes:
        recipe: as in ``AtenGraph.outputs``, of the forward graph's values and the inputs.
        detached: whether it is no part of the autograd graph though what it is a view of is.
    """

    recipe: OutputRecipe
    detached: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """An input that is written after the forward pass, by a copy that autograd sees.

    Attributes:
        input: its index.
        value: the index of the forward graph's value that is copied to it.
        differentiable: whether the program has written to it with grad mode on, so that the copy is, too.
        writes: how often the program has written to it, but for writes through ``.data``.
    """

    input: int
    value: int
    differentiable: bool
    writes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Freed:
    """Of a result a part of whose history is of no use any more: freed, or what it needs has been written to.

    Attributes:
        error: eager's, of a backward pass that comes there.
        before_inputs: whether it lies between the result and an input; else only a backward pass to all leaves comes
            there, for the sake of one that the graph makes.
    """

    error: str
    before_inputs: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """What it takes to run the forward and the backward graph of a captured graph, beside what they are compiled to.

    Attributes:
        inputs: how many inputs the captured graph has.
        layouts: strides and dtype of each value of the forward graph.
        differentiable, results, mutated, written: as in ``JointGraph``.
        random: whether the forward pass draws random numbers.
        unreached: the inputs that require grad, but to which no result's gradient flows.
        requiring: whether there are inputs that require grad.
        freed: values whose backward pass needs what the graph itself has freed.
        sizes: what is read of the inputs; the backward graph takes these numbers behind what is saved, and layouts and
            recipes hold formulas over them.
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


@dataclasses.dataclass(slots=True)
class Saved:
    """What goes from the forward to the backward pass.

    Attributes:
        names: names of the nodes of the joint graph.
        inputs: for each the index of the input that it is, or None.
        values: for each its index among the forward graph's values, or None if it is no input.
        readers: for each the results whose gradients read it.
        together: for each result those whose gradients go with its own (``independence``).
    """

    names: tuple[str, ...]
    inputs: tuple[int | None, ...]
    values: tuple[int | None, ...]
    readers: tuple[tuple[int, ...], ...]
    together: tuple[tuple[int, ...], ...]


def with_formulas(results: Sequence[Result], sizes: CallSizes) -> tuple[Result, ...]:
    """Results whose recipes have formulas in place of symbols."""
    return _each_once(results, sizes.formulas) if sizes else tuple(results)


def at_call(results: Sequence[Result], sizes: Sequence[int]) -> tuple[Result, ...]:
    """Results whose recipes have formulas, for the sizes of one call."""
    return _each_once(results, lambda value: at_sizes(value, sizes))


def _each_once(results: Sequence[Result], number: Callable[[Any], Any]) -> tuple[Result, ...]:
    """One recipe object stays one: it is one tensor, however often it is returned."""
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
