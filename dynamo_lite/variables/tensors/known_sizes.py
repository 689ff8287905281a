"""Operations whose results' shapes follow from elements that the trace knows: nodes with these shapes made explicit.

Invariant: a backend, which does not know the elements, computes results of the shapes that the trace has seen.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.nn.functional import one_hot

from ...exc import Unsupported
from ...fake.elements import MOST_IN_GRAPH
from .graph_nodes import fake_of
from .learned_elements import known_tensor

if TYPE_CHECKING:
    from ..protocols import Tracer


def fits_in_graph(tx: Tracer, result: Any, given: set[int]) -> bool:
    """Whether a result's elements are known, few enough for a constant of the graph, and in memory of its own.

    Args:
        given: the storages of the operation's arguments.
    """
    known = known_tensor(tx, result)
    if known is None or known.numel() > MOST_IN_GRAPH:
        return False
    return result.untyped_storage()._cdata not in given


def with_known_sizes(
    tx: Tracer, target: Any, node_args: tuple[Any, ...], node_kwargs: dict[str, Any], result: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a node whose result's shape depends on known elements, with that shape made explicit."""
    if target in (torch.repeat_interleave, "repeat_interleave"):
        dim = node_kwargs.get("dim", node_args[2] if len(node_args) > 2 else None)
        return node_args, {**node_kwargs, "output_size": result.numel() if dim is None else result.shape[dim]}
    if target is one_hot:
        return node_args[:1], {"num_classes": result.shape[-1]}  # stays in the graph, to refuse negative numbers
    if target is operator.getitem:
        key = node_args[1] if isinstance(node_args[1], tuple) else (node_args[1],)
        return (node_args[0], tuple(index for part in key for index in _as_indices(tx, part))), node_kwargs
    return fx.node.map_arg((node_args, node_kwargs), lambda node: _number_or_node(tx, node))


def _number_or_node(tx: Tracer, node: fx.Node) -> Any:
    """A node; the number in its tensor in its place, where that is known and so can serve as a size."""
    known = known_tensor(tx, fake_of(node))
    return known.item() if known is not None and known.dim() == 0 else node


def _as_indices(tx: Tracer, part: Any) -> list[Any]:
    """A part of an index. A known mask becomes the positions of its true elements, one vector for each dimension."""
    fake = fake_of(part) if isinstance(part, fx.Node) else None
    if not isinstance(fake, torch.Tensor) or fake.dtype is not torch.bool:
        return [fx.node.map_arg(part, lambda node: _number_or_node(tx, node))]
    known = known_tensor(tx, fake)
    if known is None or known.dim() == 0:
        raise Unsupported("dynamic_output_shape", "an index of truths that are not known")
    nodes = []
    for positions in known.nonzero(as_tuple=True):
        if positions.numel() > MOST_IN_GRAPH:
            raise Unsupported("dynamic_output_shape", f"an index of {positions.numel()} elements that a guard knows")
        with tx.output.fake_mode:
            twin = torch.empty(positions.shape, dtype=positions.dtype, device=positions.device)
        tx.output.fake_mode.known.add(twin, positions)
        nodes.append(tx.output.create_node(tx, "call_function", torch.tensor, (positions.tolist(),),
                                           {"dtype": positions.dtype, "device": positions.device}, twin, False))
    return nodes
