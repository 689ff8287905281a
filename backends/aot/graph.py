"""The aten graph: what the recorder makes of a captured graph and what lowerings read.

``AtenGraph.graph`` is an ordinary ``torch.fx.Graph``:

- ``placeholder`` nodes, one for each input of the captured graph, in order; then one ``get_attr`` node for each
  constant tensor, whose target is the key of ``AtenGraph.constants``;
- ``call_function`` nodes whose target is an ``OpOverload`` without mutated arguments (or ``operator.getitem`` on a
  node with several results, or another callable for an operation that aten has no functional form of);
- as the last nodes, one ``aten.copy_.default(placeholder, value)`` for each input that the graph mutates, in the
  order of the inputs. Nothing reads a mutated placeholder after its ``copy_``;
- ``output``, whose one argument is a tuple of nodes: the values to compute, each with memory of its own and with
  exactly the strides of its ``meta["val"]``. No value is listed twice, none is a placeholder or a constant.

Every node carries ``meta["val"]``, a fake tensor (or a tuple of them, or a number), and call nodes
``meta["origin"]``, the node of the captured graph that they come from.

What the captured graph returns is made of those values and the inputs by ``AtenGraph.outputs``, one recipe for each
output, so that outputs are views of inputs, of each other, or the very inputs exactly where they are in eager.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Union

import torch
import torch.fx


@dataclasses.dataclass(frozen=True, slots=True)
class ValueOutput:
    """The value itself: ``graph`` output number ``index``."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class InputOutput:
    """The very input number ``index``."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class LiteralOutput:
    """Something that is no tensor and does not depend on the inputs."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class OutputAlias:
    """A view, as eager returns one.

    Attributes:
        base: ``ValueOutput`` or ``InputOutput``.
        size, stride: of the view.
        offset: in elements, from the first element of the base.
        chain: view operations (target, args after the tensor, kwargs, item) to replay on the base in place of
            ``as_strided``; used where dtype or conjugation differ.
        detach: where autograd loses the base: "before" the view is taken, "after" it, or nowhere ("").
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
    """See the module's docstring.

    Attributes:
        graph: the functional graph.
        constants: tensors that ``get_attr`` nodes name.
        outputs: how the results of the captured graph are made.
        mutated: indices of the inputs that are overwritten.
        inference: whether the outputs are inference tensors though the caller is not in inference mode.
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
        """How many new versions autograd is to see of each input that is written."""
        return {node.name: node.meta["versions"] for node in self.placeholders if "versions" in node.meta}

    @property
    def values(self) -> tuple[torch.fx.Node, ...]:
        """The nodes to compute."""
        return tuple(self.graph.output_node().args[0])  # type: ignore[arg-type]

    def describe(self) -> str:
        """The graph as text, one line an operation, with layouts."""
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
    """The node at the end of another graph, as ``Graph.node_copy`` copies it; arguments may be symbolic numbers, which
    that would warn of.
    """
    copy = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
    copy.args, copy.kwargs = torch.fx.node.map_arg((node.args, node.kwargs), env)
    copy.meta = dict(node.meta)
    return copy
