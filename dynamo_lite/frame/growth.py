"""Sizes and numbers that a trace itself changes, storing another value where it has read one, as a growing cache does.

A value that differs afterwards differs in the next call, if that call meets the same object. So a size that grows is
symbolic before the frame is compiled for the first time, with a lower bound of 1, from which a cache grows. A function
that has such state, or counts its inputs, presumably gets pieces of a stream of data. Therefore the sizes of its
integer and bool tensors (tokens, masks), and all sizes equal to them, become symbolic, too.

Invariant: this module decides only what is symbolic.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .. import config
from ..guards.source import SizeSource, Source
from ..output.output_graph import OutputGraph
from ..symbols.nodes import hint_of
from ..variables.base import VariableTracker
from ..variables.constant import ConstantVariable
from ..variables.tensors.symbolic_sizes import FROM_ONE, SizesLearned
from ..variables.tensors.tensor import TensorVariable
from .request import Settings, TraceRequest

_LEAST = 2  # counts start at 0 or 1


def with_growing_sizes(settings: Settings, request: TraceRequest, output: OutputGraph) -> TraceRequest | None:
    """The request to trace a frame again, with symbols for the values that its trace has changed; None: no need."""
    if settings.dynamic is False or not config.automatic_dynamic_sizes or request.fits_all:
        return None
    given = [(source, dim, n) for source, layout in _integers(output) for dim, n in enumerate(map(hint_of, layout))]
    pieces = {n for _, _, n in given if n >= _LEAST}
    found: set[Any] = set()
    grows = counts = False
    for source, before, now in output.effects.stored():
        if type(before) is int:
            step = now.value - before if type(now) is ConstantVariable and type(now.value) is int else 0
            counts |= step in pieces
            if step and before >= _LEAST:
                found.add(source.key)
        elif isinstance(before, torch.Tensor) and isinstance(now, TensorVariable):
            sizes = _other_sizes(output, source, before, now)
            grows |= bool(sizes)
            found |= sizes
    if not grows and not counts:
        return None
    found.update(SizeSource(source, dim).key for source, dim, _ in given)
    if found <= request.dynamic:
        return None
    return request._replace(
        dynamic=request.dynamic | found, learned=SizesLearned(request.learned.changed | pieces, request.learned.known))


def _integers(output: OutputGraph) -> Iterable[tuple[Source, tuple[Any, ...]]]:
    """Tensors of integers and bools from outside that are not buffers, and their sizes at entry."""
    for tensor in output.inputs:
        if not isinstance(tensor, TensorVariable) or tensor.source is None or tensor.node.meta["static"]:
            continue
        if not (tensor.fake.is_floating_point() or tensor.fake.is_complex()):
            yield tensor.source, tensor.node.meta["layout"][0]


def _other_sizes(output: OutputGraph, source: Source, before: torch.Tensor, now: VariableTracker) -> set[Any]:
    """The paths of constant sizes of a tensor from outside that differ in the tensor that replaces it."""
    known = output.effects.tracker_of(before)
    if not isinstance(known, TensorVariable) or not isinstance(now, TensorVariable) or known.source != source:
        return set()
    layout = known.node.meta.get("layout")
    if layout is None or known is now or len(layout[0]) != now.fake.dim():
        return set()
    found: set[Any] = set()
    for dim, (n, m) in enumerate(zip(layout[0], now.fake.shape)):
        if type(n) is int and n and hint_of(m) not in (0, n):
            where = SizeSource(source, dim).key
            found |= {where, (FROM_ONE, where)}
    return found
