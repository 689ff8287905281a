"""The aten graph: the result of recording a captured graph, and the input of lowering.

``AtenGraph.graph`` is an ordinary ``torch.fx.Graph``:

- ``placeholder`` nodes, one for each input of the captured graph, in order; then one ``get_attr`` node for each
  constant tensor, whose target is the key of ``AtenGraph.constants``;
- ``call_function`` nodes whose target is an ``OpOverload`` without mutated arguments (or ``operator.getitem`` on a
  node with several results, or another callable for an operation that has no functional form in aten);
- as the last of these, one ``aten.copy_.default(placeholder, value)`` for each input that the graph mutates, in the
  order of the inputs. Nothing reads a mutated placeholder after its ``copy_``;
- ``output``, whose one argument is a tuple of nodes: the values to compute, each with memory of its own and with
  exactly the strides of its ``meta["val"]``. No value is listed twice, none is a placeholder or a constant.

Every node has ``meta["val"]``, a fake tensor (or a tuple of them, or a number), and call nodes have
``meta["origin"]``, the node of the captured graph that they come from.

The results of the captured graph are made from these values and the inputs by ``AtenGraph.outputs``, one recipe for
each, so that they are views of inputs, views of each other, or inputs themselves exactly where they are in eager.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Union

import torch
import torch.fx


@dataclasses.dataclass(frozen=True, slots=True)
class ValueOutput:
    """An output that is a value of the graph: its ``graph`` output number ``index``."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class InputOutput:
    """An output that is input number ``index`` itself."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class LiteralOutput:
    """An output that is not a tensor and does not depend on the inputs."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class OutputAlias:
    """An output that is a view.

    Attributes:
        base: ``ValueOutput`` or ``InputOutput``.
        size, stride: layout of the view.
        offset: number of elements from the first element of the base.
        chain: view operations (target, args after the tensor, kwargs, item) to replay on the base instead of
            ``as_strided``; used where dtype or conjugation differ.
        detach: where the view loses its autograd history: the base is detached "before" the view is taken, the view is
            detached "after" it, or neither ("").
    """

    base: Union[ValueOutput, InputOutput]
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any
    chain: tuple[tuple[Any, tuple[Any, ...], dict[str, Any], int | None], ...] | None = None
    detach: str = ""


OutputRecipe = Union[ValueOutput, InputOutput, LiteralOutput, OutputAlias]


@dataclasses.dataclass(slots=True)
class AtenGraph:
    """A functional aten graph; see the module's docstring.

    Attributes:
        graph: the functional graph.
        constants: the tensors that ``get_attr`` nodes name.
        outputs: recipes for the results of the captured graph.
        mutated: indices of the inputs that are overwritten.
        inference: whether the outputs are inference tensors although the caller is not in inference mode.
    """

    graph: torch.fx.Graph
    constants: dict[str, torch.Tensor]
    outputs: tuple[OutputRecipe, ...]
    mutated: tuple[int, ...]
    inference: bool = False

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @property
    def versions(self) -> dict[str, int]:
        """For each input that is written, by how much autograd's version counter is to rise."""
        return {node.name: node.meta["versions"] for node in self.placeholders if "versions" in node.meta}

    @property
    def values(self) -> tuple[torch.fx.Node, ...]:
        """The nodes of the values to compute."""
        return tuple(self.graph.output_node().args[0])  # type: ignore[arg-type]

    def describe(self) -> str:
        """The graph as text, one line per operation, with layouts."""
        lines = []
        for node in self.graph.nodes:
            if node.op == "output":
                lines.append(f"return {node.args[0]}  # results: {list(self.outputs)}")
                continue
            text = node.op
            if node.op == "call_function":
                arguments = [*map(str, node.args), *(f"{k}={v}" for k, v in node.kwargs.items())]
                text = f"{node.target}({', '.join(arguments)})"
            lines.append(f"{node.name}: {_layout(node.meta.get('val'))} = {text}")
        return "\n".join(lines)


_SHORT = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
          torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
          torch.complex64: "c64", torch.complex128: "c128"}


def _layout(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{_SHORT.get(value.dtype, value.dtype)}{list(value.shape)}/{list(value.stride())}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(_layout, value)) + ")"
    return type(value).__name__


def copy_node(
    graph: torch.fx.Graph, node: torch.fx.Node, env: Callable[[torch.fx.Node], torch.fx.Node]
) -> torch.fx.Node:
    """Appends a copy of a node of another graph. Unlike ``Graph.node_copy``, it does not warn of arguments that are
    symbolic numbers.
    """
    copy = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
    copy.args, copy.kwargs = torch.fx.node.map_arg((node.args, node.kwargs), env)
    copy.meta = dict(node.meta)
    return copy
