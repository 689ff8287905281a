"""Uses of the nodes of an aten graph, which decide whether a value is realized in memory. Uses of a view count as uses
of the value that it is a view of.

Invariant: the counts affect where a value is computed, never its elements.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch

from dynamo_lite.backends.inductor.lowering_registry import LOWERINGS
from dynamo_lite.symbols.nodes import hint_of


@dataclasses.dataclass(slots=True)
class Uses:
    """How one value is used.

    Attributes:
        computed: number of lowered operations that read the value in their innermost loop.
        library: whether a library operation reads the value, or it is an output.
        widened: whether one of the lowered operations has more elements than the value (it is broadcast), so that the
            value would be computed repeatedly there.
    """

    computed: int = 0
    library: bool = False
    widened: bool = False


def numel_of(value: Any) -> int:
    """Number of elements of a tensor in the traced call; 0 for any other value."""
    return hint_of(value.numel()) if isinstance(value, torch.Tensor) else 0


def find_uses(graph: torch.fx.Graph, lowered: Any) -> dict[torch.fx.Node, Uses]:
    """The uses of every node. ``lowered(node)`` says whether generated code will compute the node."""
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
                wider = size > numel_of(arg.meta.get("val"))
                if not (wider and _once_a_row(arg, node)):
                    theirs.computed += 1
                    theirs.widened |= wider
            else:
                theirs.library = True
    return uses


def _once_a_row(arg: torch.fx.Node, user: torch.fx.Node) -> bool:
    """Whether the user's innermost loop reads a single element of ``arg``, which is broadcast along it."""
    mine, theirs = arg.meta.get("val"), user.meta.get("val")
    return (
        isinstance(mine, torch.Tensor)
        and isinstance(theirs, torch.Tensor)
        and mine.ndim > 0
        and mine.shape[-1] == 1
        and theirs.ndim > 0
        and theirs.shape[-1] != 1
    )


def _is_view(node: torch.fx.Node) -> bool:
    lowering = LOWERINGS.get(node.target)
    return lowering is not None and lowering.view
