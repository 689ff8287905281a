"""Facts about symbolic sizes that a lowering may rely on.

Invariant: an answer that a lowering has got holds for every call that the graph serves. A fact that the trace does not
know yet becomes a decision of the trace, and so a guard. Lowerings ask for inequalities only: an equality would replace
symbols in expressions that are already in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.symbolic import environment_of


class Sizes:
    """Answers questions about sizes by the environment of one trace; without symbols, it compares numbers only."""

    def __init__(self, env: Any):
        self.env = env

    def at_most(self, low: ix.Index, high: ix.Index, why: str = "") -> bool:
        """Whether ``low <= high`` in every call of the graph, by a new guard if need be. If it does not hold in the
        traced call, the answer is False and no guard is made: what a lowering does then is right for all calls.

        Args:
            why: the reason for the guard.
        """
        if isinstance(low, int) and isinstance(high, int):
            return low <= high
        return self.env is not None and bool(self.env.agrees(low, high, why))

    def below(self, low: ix.Index, high: ix.Index, why: str = "") -> bool:
        """Whether ``low < high`` in every call of the graph, by a new guard if need be."""
        return self.at_most(ix.add(low, 1), high, why)

    def are_known(self, shape: Sequence[ix.Index], behind: int, why: str = "") -> bool:
        """Whether the last ``behind`` sizes are numbers and no size is 0 in any call, by new guards if need be."""
        numbers = shape[len(shape) - behind :]
        return all(isinstance(n, int) for n in numbers) and all(self.at_most(1, n, why) for n in shape)

    def is_ordered(self, values: Iterable[ix.Index], why: str = "") -> bool:
        """Whether the values are in ascending order in every call, by new guards if need be."""
        found = list(values)
        return all(self.at_most(a, b, why) for a, b in zip(found, found[1:]))

    def is_certain(self, low: ix.Index, high: ix.Index) -> bool:
        """Whether ``low <= high`` is known without a guard."""
        if isinstance(low, int) and isinstance(high, int):
            return low <= high
        return self.env is not None and bool(self.env.certain(low, high))


def sizes_of(graph: torch.fx.Graph) -> Sizes:
    """The facts that are known about the sizes in a graph."""
    return Sizes(environment_of(leaf for n in graph.nodes for leaf in pytree.tree_leaves(n.meta.get("val"))))
