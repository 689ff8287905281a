"""Tensors guarded by their elements: masks, ids and sizes from outside that numbers or shapes of the program come from.

``grid.tolist()``, ``x[mask]``, a branch on ``lengths[0]``, ``repeat_interleave`` by lengths. Where a trace needs the
elements of a tensor that was computed from integers and truths from outside and constants alone, it starts again with
these guarded by value (``tensor_data``), and their elements are known from the beginning (``known_values``). What is
seen to change between calls is not fixed a second time, here or where else it is read (``changed_values``), unless the
user wants one graph: the graph breaks there, so that a mask that changes with every call costs one compile more.

Invariant: a number taken from a tensor is covered by a guard on the elements of every tensor that it was computed from,
and these are the elements at that point of the program, whatever shares memory with them.
"""
from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from ..exc import Unsupported
from ..source import Source
from .base import VariableTracker

if TYPE_CHECKING:
    from ..output_graph import OutputGraph

# The guard compares all elements at every call.
MOST_ELEMENTS = 16384
_DTYPES = frozenset({
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32,
    torch.uint64,
})
_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
# Functions whose results have elements that follow from their arguments without a tensor's elements.
_FACTORIES = frozenset({
    "arange", "full", "zeros", "ones", "tensor", "as_tensor", "asarray", "scalar_tensor", "eye", "linspace", "empty",
})
_OF_METADATA = frozenset({
    "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
})
_OF_ANOTHERS_METADATA = frozenset({"expand_as", "view_as", "reshape_as", "type_as"})


class ValuesNeeded(Unsupported):
    """The elements of tensors from outside are needed: the trace starts again with these guarded by value.

    Args:
        origins: the paths where they live.
        readers: the functions that the evaluator was in, but for the frame's own.
    """

    def __init__(self, kind: str, detail: str, origins: frozenset[Any], readers: frozenset[CodeType]) -> None:
        super().__init__(kind, detail)
        self.origins = origins
        self.readers = readers


def may_be_guarded(value: torch.Tensor) -> bool:
    """Whether a tensor may be guarded by its elements: integers or truths in the CPU's memory, and not too many."""
    return (
        type(value) in _TYPES and value.dtype in _DTYPES and value.device.type == "cpu" and not value.is_neg()
        and value.layout is torch.strided and value.numel() <= MOST_ELEMENTS
    )


def is_size_table(value: torch.Tensor) -> bool:
    """Whether a tensor is likely to hold sizes, which differ less than other elements."""
    return value.dim() >= 2 and value.shape[-1] <= 4 and value.numel() <= 64


def fix(output: OutputGraph, source: Source, fake: torch.Tensor, value: torch.Tensor) -> None:
    """Guards a tensor by its elements, which are known from here on.

    They stay unknown where the program may have changed them already, or may change them unseen: by another input that
    lies in the same memory, but whose fake twin does not.
    """
    storage = fake.untyped_storage()._cdata
    if any(t.fake.untyped_storage()._cdata == storage for t in output.mutated_inputs()):
        return
    if any(t.fake.untyped_storage()._cdata != storage for t in output.inputs_over(value)):
        return
    with torch.no_grad():
        copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        if copy.untyped_storage().nbytes() > 4 * MOST_ELEMENTS * value.itemsize:
            copy = torch.empty(value.shape, dtype=value.dtype, device=value.device)  # few elements, far apart
        if all(stride for size, stride in zip(value.shape, value.stride()) if size > 1):
            copy.copy_(value)
        else:
            copy = value.clone()
        packed = value.clone(memory_format=torch.contiguous_format).reshape(value.numel())
    output.guards.add(source, "tensor_data", bytes(packed.view(torch.uint8).tolist()))
    output.fake_mode.known.add(fake, copy)


def forget_alias(output: OutputGraph, fake: torch.Tensor, value: torch.Tensor) -> None:
    """A new input makes the elements of those unknown that lie in its memory without its fake twin's telling so."""
    storage = fake.untyped_storage()._cdata
    known = output.fake_mode.known
    known.forget([t.fake for t in output.inputs_over(value)
                  if t.fake.untyped_storage()._cdata != storage and known.of(t.fake) is not None])


def refuse(tx: Any, kind: str, detail: str, tensors: Iterable[VariableTracker]) -> NoReturn:
    """Breaks the graph because elements are needed; or starts again, if they can be known."""
    raise needed(tx, Unsupported(kind, detail), [t.node for t in tensors if hasattr(t, "node")])


def needed(tx: Any, error: Unsupported, nodes: Iterable[fx.Node]) -> Unsupported:
    """The break, or in its place the wish to start again with the tensors guarded that these nodes come from."""
    origins = _inputs_behind(tx.output, nodes)
    if not origins or not tx.output.may_fix:
        return error
    changing = sorted(s.name for s, value in origins.values() if not tx.output.may_fix_table(s, value))
    if changing:
        names = ", ".join(changing)
        detail = f"{error.detail}, for which the elements of {names} matter, and these change from call to call"
        return Unsupported(error.kind, detail)
    readers = set()
    frame = tx
    while frame.parent is not None:
        readers.add(frame.code)
        frame = frame.parent
    return ValuesNeeded(error.kind, error.detail, frozenset(origins), frozenset(readers))


def _inputs_behind(output: OutputGraph, nodes: Iterable[fx.Node]) -> dict[Any, tuple[Source, torch.Tensor]]:
    """The inputs that this was computed from, and whose elements have not been asked for; empty if it was computed
    from something else too whose elements can't be known."""
    inputs = {t.node: t for t in output.inputs}
    found: dict[Any, tuple[Source, torch.Tensor]] = {}
    pending, seen = list(nodes), set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.op == "placeholder":
            tensor = inputs.get(node)
            source, value = getattr(tensor, "source", None), getattr(tensor, "value", None)
            if source is None or value is None or not may_be_guarded(value):
                return {}
            if source.key not in output.fixed_tables:
                found[source.key] = source, value
        elif name in _OF_ANOTHERS_METADATA:
            pending += node.all_input_nodes[:1]
            continue
        elif name in _OF_METADATA or output.fake_mode.known.of(node.meta.get("example_value")) is not None:
            continue
        elif not node.all_input_nodes and name not in _FACTORIES:
            return {}
        pending += node.all_input_nodes
    return found


def known_elements(tx: Any, value: Any) -> Any:
    """What is to be put in a tensor: numbers in place of the tensors among them, whose elements have to be known."""
    if isinstance(value, (list, tuple)):
        return type(value)([known_elements(tx, item) for item in value])
    if not isinstance(value, fx.Node) or not isinstance(value.meta["example_value"], torch.Tensor):
        return value
    known = known_tensor(tx, value.meta["example_value"])
    if known is None:
        raise needed(tx, Unsupported("tensor_to_python", "a tensor made of tensors"), [value])
    return known


def known_tensor(tx: Any, result: Any) -> torch.Tensor | None:
    """The elements of a result, if they are known."""
    return tx.output.fake_mode.known.of(result) if isinstance(result, torch.Tensor) else None
