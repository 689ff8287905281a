"""How many instructions a trace may take.

Loops are unrolled while they are captured, at some microseconds an instruction. So a trace ends after
``config.max_trace_instructions``, and sooner where it is plain Python that goes round and nothing reaches the graph:
after ``config.max_plain_instructions`` without an operation, and after fewer where the code has been compiled before
and nothing came of it. Invariant: counted in instructions, not in seconds, so that the same program breaks at the same
place each time.
"""
from __future__ import annotations

from typing import Any

from .. import config
from ..variables.base import unsupported

_FEWER = 16  # times fewer plain instructions for each compile of the same code in vain, but not fewer than
_LEAST_PLAIN = 1000


class Budget:
    """What the root and all that it calls have evaluated so far.

    Args:
        fullgraph: whether a break is an error, which plain Python that ends at some time is no reason for.
        graphless: how many compiles of the same code have given no graph.
    """

    def __init__(self, fullgraph: bool = False, graphless: int = 0) -> None:
        self.most = config.max_trace_instructions
        self.most_plain = self.most if fullgraph else config.max_plain_instructions
        if graphless and not fullgraph:
            self.most_plain = min(self.most_plain, max(_LEAST_PLAIN, self.most_plain // _FEWER**graphless))
        self.evaluated = 0
        self.look_at = min(self.most, self.most_plain)
        self.operations = 0  # in the graph, when that was asked last
        self._visits = 0  # of the root, then
        self._evaluated = 0

    def note_operations(self, root: Any) -> None:
        """The graph has grown since this was asked last."""
        self.operations, self._visits, self._evaluated = root.output.operations, root.visits, self.evaluated
        self.look_at = min(self.most, self.evaluated + self.most_plain)

    def look(self, root: Any) -> None:
        """Goes on if the graph has grown.

        Raises:
            Unsupported: trace_too_long.
        """
        if self.evaluated > self.most:
            unsupported("trace_too_long", f"more than {self.most} instructions")
        if root.output.operations == self.operations:
            unsupported("trace_too_long", f"{self.most_plain} instructions without an operation on tensors",
                        hint="call what loops outside of the compiled function, or raise config.max_plain_instructions")
        self.note_operations(root)

    def is_own_loop(self, root: Any) -> bool:
        """Whether most of what has been evaluated since the last operation is the root's own code, not that of what it
        calls."""
        return 2 * (root.visits - self._visits) > self.evaluated - self._evaluated

    def after_operations(self) -> int:
        """The visit of the root before which the last operation was; -1 if there has been none, or they go on."""
        return self._visits if self.operations and self.evaluated <= self.most else -1
