"""Size tables: small integer tensors from outside whose elements the program makes Python numbers of.

``grid.tolist()``, a branch on ``sizes[0, 1]``, ``repeat_interleave`` by lengths: the sizes of images and sequences come
to models as tensors, a row each. Where a trace needs the elements of a tensor that was computed from such tables,
integer buffers of modules and constants alone, it starts again with these guarded by value (``tensor_data``), and their
elements are known from the beginning (``known_values``). A table that is seen to change between calls is not fixed a
second time, unless the user wants one graph: the graph breaks there.

Invariant: a number taken from a tensor is covered by a guard on the elements of every tensor that it was computed from.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from ..exc import Unsupported
from ..source import Source
from .base import VariableTracker

if TYPE_CHECKING:
    from ..output_graph import OutputGraph

MOST_ELEMENTS = 64
# Longer rows are texts rather than sizes.
LONGEST_ROW = 4


class ValuesNeeded(Unsupported):
    """The elements of size tables are needed: the trace starts again with these guarded by value.

    Args:
        origins: the paths where they live.
    """

    def __init__(self, kind: str, detail: str, origins: frozenset[Any]) -> None:
        super().__init__(kind, detail)
        self.origins = origins


def is_size_table(value: torch.Tensor, is_buffer: bool) -> bool:
    """Whether a tensor may be guarded by its elements; a module's buffer of integers need not look like a table."""
    plain = type(value) is torch.Tensor or (is_buffer and type(value) is torch.nn.Buffer)
    return (
        plain and value.dtype in (torch.int32, torch.int64) and value.device.type == "cpu"
        and value.layout is torch.strided and value.is_contiguous() and 0 < value.numel() <= MOST_ELEMENTS
        and (is_buffer or (value.dim() >= 2 and value.shape[-1] <= LONGEST_ROW))
    )


def fix(output: OutputGraph, source: Source, fake: torch.Tensor, value: torch.Tensor) -> None:
    """Guards a size table by its elements, which are known from here on."""
    copy = value.detach().clone()
    output.guards.add(source, "tensor_data", bytes(copy.view(-1).view(torch.uint8).tolist()))
    output.fake_mode.known.add(fake, copy)


def refuse(tx: Any, kind: str, detail: str, tensors: Iterable[VariableTracker]) -> NoReturn:
    """Breaks the graph because elements are needed; or starts again, if they can be known."""
    raise needed(tx.output, Unsupported(kind, detail), [t.node for t in tensors if hasattr(t, "node")])


def needed(output: OutputGraph, error: Unsupported, nodes: Iterable[fx.Node]) -> Unsupported:
    """The break, or in its place the wish to start again with the tables guarded that these nodes come from."""
    origins = _tables_behind(output, nodes)
    return ValuesNeeded(error.kind, error.detail, origins) if origins else error


def _tables_behind(output: OutputGraph, nodes: Iterable[fx.Node]) -> frozenset[Any]:
    """The paths of the tables that this was computed from; empty if from something else too, or all are fixed."""
    inputs = {t.node: t for t in output.inputs}
    found: set[Any] = set()
    pending, seen = list(nodes), set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder":
            tensor = inputs.get(node)
            source, value = getattr(tensor, "source", None), getattr(tensor, "value", None)
            if source is None or value is None or not output.may_fix_table(source):
                return frozenset()
            if not is_size_table(value, node.meta["static"]):
                return frozenset()
            if source.key not in output.fixed_tables:
                found.add(source.key)
        pending += node.all_input_nodes
    return frozenset(found)


def known_tensor(tx: Any, result: Any) -> torch.Tensor | None:
    """The elements of a result, if they are known."""
    return tx.output.fake_mode.known.of(result) if isinstance(result, torch.Tensor) else None
