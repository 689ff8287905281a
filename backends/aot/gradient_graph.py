"""Makes the gradients of a captured graph a captured graph of their own, which is compiled like any other.

Its one call runs the captured graph and has autograd compute gradients that can be differentiated
(``create_graph=True``). Recording it gives the aten operations of the forward and the backward pass, and autograd's
history of both gives the gradients of the gradients. Its inputs are those of the captured graph, followed by the
incoming gradients; its results are the gradients of some inputs.

Invariant: autograd's own graph is differentiated, never a recording of it, which would not contain where gradients
stop.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from dynamo_lite.backends.aot.functional import CannotFunctionalize
from dynamo_lite.backends.aot.gradients import twin
from dynamo_lite.backends.aot.record import fake_mode_of

Differentiate = Callable[[list[Any], Sequence[Any], Sequence[int]], "tuple[Any, ...] | None"]
"""A function that takes a captured graph's inputs, the incoming gradients of its values, and the indices of some
inputs, and returns the gradients of these inputs."""


class _Gradients:
    """The one call of a gradient graph."""

    __name__ = "gradients"

    def __init__(self, differentiate: Differentiate, given: tuple[bool, ...], count: int, wanted: tuple[int, ...]):
        self._differentiate = differentiate
        self._given = given
        self._count = count
        self._wanted = wanted

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        incoming = iter(operands[self._count:])
        with torch.enable_grad():
            grads = [next(incoming) if given else None for given in self._given]
            found = self._differentiate(list(operands[:self._count]), grads, self._wanted)
        if found is None:
            raise CannotFunctionalize("a value of the forward pass is not to be had")
        return found


def gradient_graph(
    gm: GraphModule, example_inputs: list[Any], differentiate: Differentiate, grads: Sequence[torch.Tensor | None],
    wanted: tuple[int, ...],
) -> tuple[GraphModule, list[Any]]:
    """The graph that computes the gradients of a captured graph, and fake tensors of its inputs.

    Args:
        gm, example_inputs: the captured graph, whose inputs have no symbols.
        differentiate: computes the gradients; the new graph calls it.
        grads: for each value of the forward pass, a tensor like its incoming gradient, or None.
        wanted: indices of the inputs whose gradients are the results.
    """
    mode = fake_mode_of(gm, example_inputs)
    examples = [twin(mode, x) if isinstance(x, torch.Tensor) else x for x in example_inputs]
    count = len(examples)
    for grad in grads:
        if grad is not None:
            with mode, torch.no_grad():
                like = torch.empty_strided(grad.shape, grad.stride(), dtype=grad.dtype, device=grad.device)
            examples.append(like.requires_grad_(grad.requires_grad))
    graph = Graph()
    operands = tuple(graph.placeholder(f"operand_{at}") for at in range(len(examples)))
    call = _Gradients(differentiate, tuple(g is not None for g in grads), count, wanted)
    made = graph.call_function(call, operands)
    graph.output(tuple(graph.call_function(operator.getitem, (made, at)) for at in range(len(wanted))))
    return GraphModule({}, graph), examples
