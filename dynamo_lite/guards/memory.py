"""Guards on which tensors share memory, for graphs that change some of it.

Invariant: with these guards, and those on sizes and strides, every element that is changed is an element of the same
inputs as when the graph was captured.
"""
from __future__ import annotations

from collections.abc import Sequence

import torch

from ..runtime.storage_extent import storage_extent
from .guard import GuardSet
from .source import Source

Input = tuple[Source, torch.Tensor]


def guard_memory(guards: GuardSet, changed: Sequence[Input], others: Sequence[Input]) -> None:
    """Requires that tensors overlap as they do now.

    Args:
        changed: inputs whose memory the graph changes.
        others: the other inputs.
    """
    pairs = ((a, b) for i, (_, a) in enumerate(changed) for _, b in [*changed[:i], *others])
    if not any(overlap(a, b) for a, b in pairs):
        _apart(guards, changed, others)
        return
    for i, (source, tensor) in enumerate(changed):
        apart = []
        for other_source, other in [*changed[:i], *others]:
            if overlap(tensor, other):
                guards.add(source, "memory_offset", other_source, other.data_ptr() - tensor.data_ptr())
            else:
                apart.append((other_source, other))
        _apart(guards, [(source, tensor)], apart)


def _apart(guards: GuardSet, changed: Sequence[Input], others: Sequence[Input]) -> None:
    sources = [source for source, _ in [*changed, *others]]
    if len(sources) > 1:
        guards.add(sources[0], "disjoint", len(changed), *sources[1:])


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors lie in the same memory, from the first to the last element of each."""
    (a_low, a_high), (b_low, b_high) = _span(a), _span(b)
    return a_low < b_high and b_low < a_high


def overlap_on_device(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same for tensors that may be on different devices, whose addresses have nothing to do with each other."""
    return a.device == b.device and overlap(a, b)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    if not tensor.numel():
        return 0, 0
    extent = storage_extent(tensor.shape, tensor.stride())
    return tensor.data_ptr(), tensor.data_ptr() + extent * tensor.itemsize
