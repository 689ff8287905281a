"""The limit on the number of instructions that a trace evaluates.

Loops are unrolled while they are captured, at some microseconds an instruction. So a trace ends after
``config.max_trace_instructions``, and sooner if it evaluates plain Python and nothing reaches the graph:
after ``config.max_plain_instructions`` without an operation, and after fewer if earlier compiles of the code gave no
graph. Invariant: the limit is counted in instructions, not in seconds, so that the same program breaks at the same
place each time.
"""
from __future__ import annotations

from typing import Any

from .. import config
from ..variables.base import unsupported

_FEWER = 16  # divisor of the limit on plain instructions for each compile without a graph; the least limit is
_LEAST_PLAIN = 1000


class Budget:
    """Counts the instructions that the root frame and its inlined calls have evaluated.

    Args:
        fullgraph: whether a break is an error; long plain Python that ends is no reason for one.
        graphless: number of compiles of the same code that gave no graph.
    """

    def __init__(self, fullgraph: bool = False, graphless: int = 0) -> None:
        self.most = config.max_trace_instructions
        self.most_plain = self.most if fullgraph else config.max_plain_instructions
        if graphless and not fullgraph:
            self.most_plain = min(self.most_plain, max(_LEAST_PLAIN, self.most_plain // _FEWER**graphless))
        self.evaluated = 0
        self.look_at = min(self.most, self.most_plain)
        self.operations = 0  # number of operations in the graph at the last check
        self._visits = 0  # visits of the root at the last check
        self._evaluated = 0

    def note_operations(self, root: Any) -> None:
        """Records that the graph has grown since the last check."""
        self.operations, self._visits, self._evaluated = root.output.operations, root.visits, self.evaluated
        self.look_at = min(self.most, self.evaluated + self.most_plain)

    def look(self, root: Any) -> None:
        """Extends the limit if the graph has grown since the last check.

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
        """Whether most instructions evaluated since the last operation are the root's own, not those of inlined
        calls."""
        return 2 * (root.visits - self._visits) > self.evaluated - self._evaluated

    def after_operations(self) -> int:
        """The visit of the root before which the last operation was; -1 if there has been none, or they go on."""
        return self._visits if self.operations and self.evaluated <= self.most else -1
