"""What a lowering may take for granted about symbolic sizes.

Invariant: whatever a lowering has been told holds for every call that the graph serves. What the trace doesn't know yet
becomes a decision of the trace, and so a guard. Only inequalities are asked for: an equality would replace symbols in
expressions that are in use already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.symbolic import environment_of


class Sizes:
    """Answers of one trace's environment; of numbers alone where there are no symbols."""

    def __init__(self, env: Any):
        self.env = env

    def at_most(self, low: ix.Index, high: ix.Index, why: str = "") -> bool:
        """Whether ``low <= high`` in every call of the graph, because of a new guard if need be. What is not so in this
        call is no reason for a guard: the lowering does something else then, which is right for all calls."""
        if isinstance(low, int) and isinstance(high, int):
            return low <= high
        return self.env is not None and bool(self.env.agrees(low, high, why))

    def below(self, low: ix.Index, high: ix.Index, why: str = "") -> bool:
        """Whether ``low < high``, likewise."""
        return self.at_most(ix.add(low, 1), high, why)

    def are_known(self, shape: Sequence[ix.Index], behind: int, why: str = "") -> bool:
        """Whether the last ``behind`` sizes are numbers, and nothing is empty; likewise."""
        numbers = shape[len(shape) - behind :]
        return all(isinstance(n, int) for n in numbers) and all(self.at_most(1, n, why) for n in shape)

    def is_ordered(self, values: Iterable[ix.Index], why: str = "") -> bool:
        """Whether none of the values is below the one before, likewise."""
        found = list(values)
        return all(self.at_most(a, b, why) for a, b in zip(found, found[1:]))

    def is_certain(self, low: ix.Index, high: ix.Index) -> bool:
        """Whether ``low <= high`` is known without a guard."""
        if isinstance(low, int) and isinstance(high, int):
            return low <= high
        return self.env is not None and bool(self.env.certain(low, high))


def sizes_of(graph: torch.fx.Graph) -> Sizes:
    """What is known about the sizes in a graph."""
    return Sizes(environment_of(leaf for n in graph.nodes for leaf in pytree.tree_leaves(n.meta.get("val"))))
