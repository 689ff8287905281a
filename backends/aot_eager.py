"""Backends that run a recorded graph operation by operation, in order to tell a fault of the recorder, of gradients or
of decompositions from a fault of the kernels.

    eager                         runs the captured graph
    aot_eager                     ... recorded as functional aten operations, with its own backward pass
    aot_eager_decomp_partition    ... and decomposed as kernels need it
    inductor_lite                 ... and compiled

Invariant: each backend does all that those above it do, and adds one step; no code here is shared with the kernels'
wrapper.
"""
from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from dynamo_lite.backends.aot import ops
from dynamo_lite.backends.aot.call_sizes import at_sizes, sizes_of
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS, REQUIRED
from dynamo_lite.backends.aot.graph import (
    AtenGraph,
    InputOutput,
    LiteralOutput,
    OutputAlias,
    OutputRecipe,
    ValueOutput,
)
from dynamo_lite.backends.aot.interface import Result, at_call, with_formulas
from dynamo_lite.backends.aot.record import record
from dynamo_lite.backends.aot.results import Results
from dynamo_lite.backends.inductor.compile import compile_graph, run_otherwise
from dynamo_lite.backends.inductor.route import Route


def aot_eager(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Records a graph as ``inductor_lite`` does and runs its operations one by one."""
    return _run(gm, example_inputs, aot_eager, REQUIRED)


def aot_eager_decomp_partition(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Does the same with the decompositions that are made for kernels."""
    return _run(gm, example_inputs, aot_eager_decomp_partition, FOR_KERNELS)


def _run(
    gm: GraphModule, example_inputs: list[Any], backend: Callable[..., Any], decompositions: dict[Any, Any]
) -> Callable[..., Any]:
    otherwise = run_otherwise(gm, example_inputs, backend)
    return otherwise or compile_graph(gm, example_inputs, Route(decompositions, lambda *given: (_Run(*given), None)))


def as_module(gm: GraphModule, example_inputs: list[Any]) -> GraphModule:
    """The graph as a module of aten operations with the same inputs and results, for export.

    Writes to inputs come last, followed only by views that make results. Each node has its fake result in
    ``meta["val"]`` and the user's stack in ``meta["stack_trace"]``.

    Raises:
        CannotFunctionalize: the graph has no such form.
    """
    aten = record(gm, example_inputs, REQUIRED)
    graph, values = aten.graph, aten.values
    inputs = aten.placeholders
    output = graph.output_node()
    made: dict[int, Any] = {}
    with graph.inserting_before(output):
        for recipe in aten.outputs:
            if id(recipe) not in made:
                made[id(recipe)] = _result(graph, recipe, inputs, values)
    output.args = (tuple(made[id(recipe)] for recipe in aten.outputs),)
    output.meta.pop("val", None)
    root = torch.nn.Module()
    for name, constant in aten.constants.items():
        root.register_buffer(name, constant)
    for node in graph.nodes:
        origin = node.meta.pop("origin", None)
        if isinstance(origin, Node) and origin.stack_trace:
            node.stack_trace = origin.stack_trace
    return GraphModule(root, graph)


def _result(graph: Graph, recipe: OutputRecipe, inputs: list[Node], values: tuple[Node, ...]) -> Any:
    """A result of the captured graph, as a node or a constant; adds the nodes that make it."""
    if isinstance(recipe, LiteralOutput):
        return recipe.value
    if isinstance(recipe, (InputOutput, ValueOutput)):
        return (inputs if isinstance(recipe, InputOutput) else values)[recipe.index]
    node = _result(graph, recipe.base, inputs, values)
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    if recipe.detach == "before":
        calls.append((torch.ops.aten.detach.default, (), {}))
    if recipe.chain is None:
        calls.append((ops.as_strided, (recipe.size, recipe.stride, recipe.offset), {}))
    for target, args, kwargs, item in recipe.chain or ():
        calls.append((target, args, kwargs))
        if item is not None:
            calls.append((operator.getitem, (item,), {}))
    if recipe.detach == "after":
        calls.append((torch.ops.aten.detach.default, (), {}))
    for target, args, kwargs in calls:
        value = node.meta["val"]
        node = graph.call_function(target, (node, *args), kwargs)
        node.meta["val"] = target(value, *args, **kwargs)
    return node


aot_eager.as_module = as_module  # type: ignore[attr-defined]


class _Run:
    """A function that interprets an aten graph.

    Args:
        scopes: the scopes that the graph runs in: "no_grad", "no_autocast", "inference"; and "boxed": the function
            takes a list, which it empties.
    """

    raises_before_writes = True  # writes to inputs come last, after everything that may raise

    def __init__(self, aten: AtenGraph, scopes: dict[str, bool]) -> None:
        self.generated_code = (aten.describe(),)
        self.mutated_inputs = aten.mutated
        self._aten = aten
        self._scopes = scopes
        self._dying = _dying(aten)
        self._versions = aten.versions
        detach = scopes.get("no_grad", False)
        results = [Result(r, detach and isinstance(r, OutputAlias) and isinstance(r.base, InputOutput))
                   for r in aten.outputs]
        self._sizes = sizes_of([node.meta["val"] for node in aten.placeholders])
        self._results = with_formulas(results, self._sizes)
        self._arguments = {node: self._sizes.formulas((node.args, node.kwargs)) for node in aten.graph.nodes
                           if node.op == "call_function"}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if self._scopes.get("boxed"):
            (box,) = inputs
            inputs = tuple(box)
            box.clear()
        sizes = self._sizes.of(inputs)
        results = at_call(self._results, sizes) if sizes else self._results
        with torch.inference_mode() if self._scopes.get("inference") else contextlib.nullcontext():
            return Results(results, functools.partial(self._values, sizes))(*inputs)

    def _values(self, sizes: tuple[int, ...], *inputs: Any) -> tuple[Any, ...]:
        no_grad = torch.no_grad() if self._scopes.get("no_grad") else contextlib.nullcontext()
        no_autocast = torch._C._DisableAutocast() if self._scopes.get("no_autocast") else contextlib.nullcontext()
        with no_grad, no_autocast:
            return self._interpret(dict(zip(self._aten.placeholders, inputs)), sizes)

    def _interpret(self, values: dict[Node, Any], sizes: tuple[int, ...]) -> tuple[Any, ...]:
        """Runs the nodes in order and frees each value after its last use; returns the graph's values."""
        for node in self._aten.graph.nodes:
            if node.op == "get_attr":
                values[node] = self._aten.constants[node.target]
            elif node.op == "call_function":
                given = self._arguments[node]
                args, kwargs = map_arg(at_sizes(given, sizes) if sizes else given, values.__getitem__)
                if node.target is torch.ops.aten.copy_.default:  # a write to an input
                    values[node] = ops.overwrite(*args, self._versions[node.args[0].name])
                else:
                    values[node] = node.target(*args, **kwargs)
            for dead in self._dying.get(node, ()):
                del values[dead]
        return tuple(values[node] for node in self._aten.values)


def _dying(aten: AtenGraph) -> dict[Node, list[Node]]:
    """For each node, the nodes whose values nobody needs after it."""
    last: dict[Node, Node] = {}
    for node in aten.graph.nodes:
        last[node] = node
        for read in node.all_input_nodes:
            last[read] = node
    dying: dict[Node, list[Node]] = {}
    for node, user in last.items():
        if user.op != "output":
            dying.setdefault(user, []).append(node)
    return dying
