"""Uses of the nodes of an aten graph, which decide whether a value is realized in memory. Uses of a view count as uses
of the value that it is a view of.

Invariant: the counts affect where a value is computed, never its elements.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir.contraction import MAX_LANES
from dynamo_lite.backends.inductor.lowering_registry import lowering_of
from dynamo_lite.symbols.nodes import hint_of

aten = torch.ops.aten
# Length of a loop of which at most a fifth of the lanes of vectors are idle, whatever the remainder.
LONG = 4 * MAX_LANES


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


def find_uses(graph: torch.fx.Graph, lowered: Any, few: int) -> dict[torch.fx.Node, Uses]:
    """The uses of every node.

    Args:
        lowered: ``lowered(node)`` says whether generated code will compute the node.
        few: largest size of a loop that the target unrolls (``Abilities.few``).
    """
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
                    theirs.widened |= wider and not _joined_as_well(node, few)
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


def _joined_as_well(user: torch.fx.Node, few: int) -> bool:
    """Whether the user joins tensors and computes each of their elements once, in vectors: its loops are split at the
    borders of the parts, and they are long along the last dimension, or so few parts lie there that the loop over them
    is unrolled. Targets that unroll no loops do not split them either: they compute all parts everywhere."""
    if few < 2 or user.target not in (aten.cat.default, aten.stack.default):
        return False
    parts = [node.meta["val"] for node in user.all_input_nodes]
    return hint_of(user.meta["val"].shape[-1]) <= few or all(v.ndim > 0 and hint_of(v.shape[-1]) >= LONG for v in parts)


def _is_view(node: torch.fx.Node) -> bool:
    lowering = lowering_of(node.target)
    return lowering is not None and lowering.view
