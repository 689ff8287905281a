"""Guards on the overlap of tensors in memory, for graphs that mutate some of them.

Invariant: if these guards and those on sizes and strides hold, every element that is mutated is an element of the same
inputs as when the graph was captured.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..runtime.storage_extent import storage_extent
from .guard import GuardSet
from .source import Source

Input = tuple[Source, torch.Tensor]


def guard_memory(guards: GuardSet, changed: Sequence[Input], others: Sequence[Input]) -> None:
    """Requires that tensors overlap in memory as they do in the traced call.

    Args:
        changed: inputs that the graph mutates.
        others: the other inputs.
    """
    if not _any_overlap(changed, others):
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


def writes_are_hidden(
    changed: Sequence[tuple[torch.Tensor, torch.Tensor]], others: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> bool:
    """Whether the graph mutates memory of another input without the fake tensors showing it: the tensors have different
    dtypes, or storages of their own (two made of one array).

    Args:
        changed: the fake and the real tensor of each input that the graph mutates.
        others: the same of the other inputs.
    """
    if not _any_overlap(changed, others):
        return False
    return any(
        fake.untyped_storage()._cdata != other_fake.untyped_storage()._cdata and overlap_on_device(tensor, other)
        for i, (fake, tensor) in enumerate(changed) for other_fake, other in [*changed[:i], *others])


def _any_overlap(changed: Sequence[tuple[Any, torch.Tensor]], others: Sequence[tuple[Any, torch.Tensor]]) -> bool:
    """Whether one of the mutated tensors overlaps another tensor. Found by sorting all tensors by address and sweeping
    over them once."""
    spans = [(*_span(tensor), at < len(changed)) for at, (_, tensor) in enumerate([*changed, *others])]
    end_of_all = end_of_changed = 0
    for low, high, is_changed in sorted(s for s in spans if s[0] < s[1]):
        if low < (end_of_all if is_changed else end_of_changed):
            return True
        end_of_all = max(end_of_all, high)
        if is_changed:
            end_of_changed = max(end_of_changed, high)
    return False


def _apart(guards: GuardSet, changed: Sequence[Input], others: Sequence[Input]) -> None:
    sources = [source for source, _ in [*changed, *others]]
    if len(sources) > 1:
        guards.add(sources[0], "disjoint", len(changed), *sources[1:])


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the address ranges of two tensors overlap, each from its first to its last element."""
    (a_low, a_high), (b_low, b_high) = _span(a), _span(b)
    return a_low < b_high and b_low < a_high


def overlap_on_device(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Like :func:`overlap`, for tensors that may be on different devices, whose addresses are not comparable."""
    return a.device == b.device and overlap(a, b)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    if not tensor.numel():
        return 0, 0
    extent = storage_extent(tensor.shape, tensor.stride())
    return tensor.data_ptr(), tensor.data_ptr() + extent * tensor.itemsize
