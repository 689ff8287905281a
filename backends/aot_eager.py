"""Backends that run what the recorder makes of a graph, operation by operation: to tell a fault of the recorder, of
gradients or of decompositions from one of the kernels.

    eager                         the captured graph
    aot_eager                     ... recorded as aten operations without effects, with gradients of its own
    aot_eager_decomp_partition    ... and decomposed, as kernels want it
    inductor_lite                 ... and compiled

Invariant: each takes in what those above it do, and adds one step; nothing here shares code with the kernels' wrapper.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from dynamo_lite.backends.aot.decompositions import FOR_KERNELS, REQUIRED
from dynamo_lite.backends.aot.graph import AtenGraph, InputOutput, OutputAlias
from dynamo_lite.backends.aot.joint import Result
from dynamo_lite.backends.aot.training import Results
from dynamo_lite.backends.inductor.compile import Target, compile_graph, run_otherwise


def aot_eager(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Records a graph as ``inductor_lite`` does and runs its operations one by one."""
    return _run(gm, example_inputs, aot_eager, REQUIRED)


def aot_eager_decomp_partition(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The same with the decompositions that are made for kernels."""
    return _run(gm, example_inputs, aot_eager_decomp_partition, FOR_KERNELS)


def _run(
    gm: GraphModule, example_inputs: list[Any], backend: Callable[..., Any], decompositions: dict[Any, Any]
) -> Callable[..., Any]:
    otherwise = run_otherwise(gm, example_inputs, backend)
    return otherwise or compile_graph(gm, example_inputs, Target(decompositions, lambda *given: (_Run(*given), None)))


class _Run:
    """An aten graph, interpreted.

    Args:
        scopes: in which it runs: "no_grad", "no_autocast", "inference"; "boxed": it takes a list, which it empties.
    """

    raises_before_writes = True  # writes to inputs come last, and copy what is computed by then

    def __init__(self, aten: AtenGraph, scopes: dict[str, bool]) -> None:
        self.generated_code = (aten.describe(),)
        self.mutated_inputs = aten.mutated
        self._aten = aten
        self._scopes = scopes
        self._dying = _dying(aten)
        detach = scopes.get("no_grad", False)
        recipes = (Result(r, detach and isinstance(r, OutputAlias) and isinstance(r.base, InputOutput))
                   for r in aten.outputs)
        self._results = Results(tuple(recipes), self._values)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if self._scopes.get("boxed"):
            (box,) = inputs
            inputs = tuple(box)
            box.clear()
        with torch.inference_mode() if self._scopes.get("inference") else contextlib.nullcontext():
            return self._results(*inputs)

    def _values(self, *inputs: Any) -> tuple[Any, ...]:
        no_grad = torch.no_grad() if self._scopes.get("no_grad") else contextlib.nullcontext()
        no_autocast = torch._C._DisableAutocast() if self._scopes.get("no_autocast") else contextlib.nullcontext()
        with no_grad, no_autocast:
            return self._interpret(dict(zip(self._aten.placeholders, inputs)))

    def _interpret(self, values: dict[Node, Any]) -> tuple[Any, ...]:
        for node in self._aten.graph.nodes:
            if node.op == "get_attr":
                values[node] = self._aten.constants[node.target]
            elif node.op == "call_function":
                args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)
            for dead in self._dying.get(node, ()):
                del values[dead]
        return tuple(values[node] for node in self._aten.values)


def _dying(aten: AtenGraph) -> dict[Node, list[Node]]:
    """For each node those whose values nobody needs any more after it."""
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
