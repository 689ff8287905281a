"""Output aliasing: determines the values that a recorded graph computes, the values that it writes back to inputs, and
which of the program's results are values or inputs themselves and which are views of these.

Invariant: the resulting graph is as ``graph.AtenGraph`` requires: values have memory of their own and eager's strides,
writes to inputs come last, and nothing reads an input after it is written.
"""
from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from dynamo_lite import exc
from dynamo_lite.backends.aot import ops, passes
from dynamo_lite.backends.aot.functional import (
    CannotFunctionalize,
    Emit,
    Memory,
    Tracked,
    ViewStep,
    chain_to_root,
    offset_in,
)
from dynamo_lite.backends.aot.graph import AtenGraph, InputOutput, LiteralOutput, OutputAlias, OutputRecipe, ValueOutput

aten = torch.ops.aten


def alias_outputs(
    graph: Graph, memory: Memory, emit: Emit, inputs: list[Tracked | None], constants: dict[str, torch.Tensor],
    results: tuple[Any, ...],
) -> AtenGraph:
    """Adds the graph's outputs and its writes to inputs.

    Args:
        graph, memory, emit: the recorder's.
        inputs: for each placeholder its tensor, or None.
        constants: the recorder's.
        results: the results of the captured graph: fake tensors and other objects.
    """
    mutated = [i for i, t in enumerate(inputs) if t is not None and t.storage.version > 0]
    refuse_shared_inputs(inputs, mutated)
    values = Values(memory, emit, results)
    made: dict[int, OutputRecipe] = {}
    for result in results:
        if id(result) not in made:
            made[id(result)] = recipe(result, memory, inputs, values)
    recipes = tuple(made[id(result)] for result in results)
    write_back(graph, memory, emit, inputs, mutated)
    graph.output(tuple(values.nodes))
    graph.output_node().meta["val"] = tuple(node.meta["val"] for node in values.nodes)
    return AtenGraph(graph, constants, recipes, tuple(mutated))


class Values:
    """The values that a graph computes for its results; each has memory of its own.

    Args:
        results: the results of the captured graph.
    """

    def __init__(self, memory: Memory, emit: Emit, results: tuple[Any, ...] = ()) -> None:
        self.nodes: list[Node] = []
        self._memory = memory
        self._emit = emit
        self._reals = _seen_as_real(memory, results)
        self._indices: dict[int, int] = {}
        self._owners: set[Node] = set()

    def base_of(self, tracked: Tracked) -> Tracked:
        """The tensor that a result is a view of: the root of its storage, or the first view, if all results see complex
        numbers as real ones."""
        return self._reals.get(id(tracked.storage), tracked.storage.root)

    def index(self, root: Tracked) -> int:
        """The index of the value that holds the memory of ``root``."""
        found = self._indices.get(id(root.storage))
        if found is None:
            node = self._memory.read(root)
            owner = passes.owner(node)
            whole = node is owner or node.target is aten.view_as_real.default and node.args[0] is owner
            if owner.op != "call_function" or owner in self._owners or not whole:
                node = owner = self._emit(aten.clone.default, (node,))
                if node.meta["val"].stride() != root.fake.stride():
                    node = owner = self._emit(ops.copy_strided, (node.args[0], tuple(root.fake.stride())))
            self._owners.add(owner)
            found = self._indices[id(root.storage)] = len(self.nodes)
            self.nodes.append(node)
        return found


def _seen_as_real(memory: Memory, results: tuple[Any, ...]) -> dict[int, Tracked]:
    """For each storage that the graph has made for a complex tensor, and that the results show as real numbers alone,
    one view of the whole as these, by the storage's identity. Kernels compute with real numbers, so that the complex
    tensor need not be made."""
    found: dict[int, Tracked | None] = {}
    for result in results:
        tracked = memory.find(result) if isinstance(result, torch.Tensor) else None
        if tracked is None:
            continue
        view = tracked
        while view.parent is not None and view.parent.parent is not None:
            view = view.parent
        root, key = tracked.storage.root, id(tracked.storage)
        is_real = root.node.op == "call_function" and view.step is not None and (
            view.step.target is aten.view_as_real.default) and view.fake.requires_grad == root.fake.requires_grad
        found[key] = view if is_real and found.get(key, view) is not None else None
    return {key: view for key, view in found.items() if view is not None}


def recipe(result: Any, memory: Memory, inputs: list[Tracked | None], values: Values) -> OutputRecipe:
    """The recipe that makes one result from values and inputs; adds a value to ``values`` if necessary."""
    if not isinstance(result, torch.Tensor):
        return LiteralOutput(result)
    tracked = memory.find(result)
    if tracked is None:
        raise CannotFunctionalize("a result that was not made by this graph")
    root = values.base_of(tracked)
    for i, known in enumerate(inputs):
        if known is root:
            base: InputOutput | ValueOutput = InputOutput(i)
            break
    else:
        base = ValueOutput(values.index(root))
    # In a dimension of size 1 the value may have another stride than the tensor that was written.
    exact = isinstance(base, InputOutput) or values.nodes[base.index].meta["val"].stride() == root.fake.stride()
    if tracked is root and exact:
        return base
    fake, origin = tracked.fake, root.fake
    plain = fake.dtype == origin.dtype and fake.is_conj() == origin.is_conj() and fake.is_neg() == origin.is_neg()
    steps = chain_to_root(tracked)[len(chain_to_root(root)) :]
    # The gradient of ``as_strided`` is copied twice, or, if elements of the base overlap in memory, shared out among
    # them; gradients of the program's own views are views.
    if fake.requires_grad and all(isinstance(step.target, torch._ops.OpOverload) for step in steps):
        plain = False
    plain = plain and not (origin.requires_grad and torch._debug_has_internal_overlap(origin) != 0)
    chain = None if plain else tuple((s.target, s.args, s.kwargs, s.item) for s in steps)
    offset = offset_in(tracked, root) if plain else 0
    return OutputAlias(base, tuple(fake.shape), tuple(fake.stride()), offset, chain, _detached(steps))


def _detached(steps: list[ViewStep]) -> str:
    """Where a result that shares a tensor's memory was detached, as ``OutputAlias.detach`` says."""
    cut = [step.target is aten.detach.default for step in steps]
    return "after" if cut[-1:] == [True] else "before" if any(cut) else ""


def write_back(
    graph: Graph, memory: Memory, emit: Emit, inputs: list[Tracked | None], mutated: list[int]
) -> None:
    """Adds a ``copy_`` to the graph for each mutated input."""
    pairs: list[tuple[Node, Node]] = []
    for i in mutated:
        tracked = inputs[i]
        assert tracked is not None
        place = next(node for n, node in enumerate(graph.nodes) if n == i)
        place.meta["versions"] = tracked.storage.counted
        value = memory.read(tracked)
        if value is not place:
            pairs.append((place, value))
    written = {place for place, _ in pairs}
    for n, (place, value) in enumerate(pairs):
        # A value that is a view of an input is copied before that input is overwritten.
        if passes.root(value) in written:
            pairs[n] = (place, emit(aten.clone.default, (value,)))
    for place, value in pairs:
        have, fits = value.meta["val"], place.meta["val"]
        if (have.shape, have.dtype) != (fits.shape, fits.dtype):
            raise exc.InternalError(f"{place} of {tuple(fits.shape)} would be overwritten with {tuple(have.shape)}")
        node = graph.create_node("call_function", aten.copy_.default, (place, value))
        node.meta["val"] = place.meta["val"]


def refuse_shared_inputs(inputs: list[Tracked | None], mutated: list[int]) -> None:
    """Refuses graphs that write to an input whose memory another input shares: that one would have to change, too."""
    if not mutated:
        return
    users: dict[int, int] = {}
    for t in inputs:
        if t is not None:
            key = t.fake.untyped_storage()._cdata
            users[key] = users.get(key, 0) + 1
    for i in mutated:
        tracked = inputs[i]
        assert tracked is not None
        if users[tracked.fake.untyped_storage()._cdata] > 1:
            raise CannotFunctionalize("an input is written whose memory another input shares")
