"""Who uses a node of the aten graph, looking through views: what decides whether its value is put in memory."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch

from dynamo_lite.backends.inductor.lowering.registry import LOWERINGS


@dataclasses.dataclass(slots=True)
class Uses:
    """How one value is used.

    Attributes:
        computed: how many lowered operations read it.
        library: a library operation reads it, or it is an output.
        widened: a reader has more elements than it has, so that computing it there would compute it repeatedly.
    """

    computed: int = 0
    library: bool = False
    widened: bool = False


def numel_of(value: Any) -> Any:
    return value.numel() if isinstance(value, torch.Tensor) else 0


def find_uses(graph: torch.fx.Graph, lowered: Any) -> dict[torch.fx.Node, Uses]:
    """Uses by node. ``lowered(node)`` says whether a node will be computed by generated code."""
    uses: dict[torch.fx.Node, Uses] = {}
    for node in reversed(graph.nodes):
        mine = uses.setdefault(node, Uses())
        if node.op == "output":
            for arg in node.all_input_nodes:
                uses.setdefault(arg, Uses()).library = True
            continue
        if node.op != "call_function":
            continue
        through = node.target is operator.getitem or _is_view(node)
        is_lowered = through or lowered(node)
        size = numel_of(node.meta.get("val"))
        for arg in node.all_input_nodes:
            theirs = uses.setdefault(arg, Uses())
            if through:
                theirs.computed += mine.computed
                theirs.library |= mine.library
                theirs.widened |= mine.widened
            elif is_lowered:
                theirs.computed += 1
            else:
                theirs.library = True
            if is_lowered and isinstance(size, int):
                theirs.widened |= size > numel_of(arg.meta.get("val"))
    return uses


def _is_view(node: torch.fx.Node) -> bool:
    lowering = LOWERINGS.get(node.target)
    return lowering is not None and lowering.view
