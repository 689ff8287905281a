"""Independent results: determines which results of a graph may each have a backward pass, and which saved values are
retained for those that have not had theirs yet.

In eager, a backward pass without ``retain_graph`` frees only what the nodes that it runs through have saved: two losses
that share no such node, such as those of two heads or of a GAN's two networks, may each have a backward pass. Here all
of them belong to one node of autograd, which frees everything after the first pass.

Invariant: the retained values are those that eager retains: the saved values that are read only by gradients which
could still come in. If the gradients of several results read a saved value in the same operation, they stand for a node
that both backward passes run through; after one of them the other is an error, as in eager.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from dynamo_lite.backends.aot.joint import JointGraph

WRITTEN = ("one of the variables needed for gradient computation has been modified by an inplace operation: it was "
           "saved by a graph that dynamo_lite compiled, and written to since")
Places = tuple[tuple[int, ...], ...]


class WrittenSince:
    """Takes the place of a saved value that has been written to since: the error for the results that need it."""

    def __init__(self, error: RuntimeError) -> None:
        self.error = error


def unwritten(ctx: Any, readers: Sequence[Sequence[int]], given: Sequence[bool], own: Sequence[bool]) -> list[Any]:
    """The saved values one by one, for when ``ctx.saved_tensors`` refuses them all because one has been written to.

    Args:
        readers: the first result of :func:`readers_of`.
        given: for each result, whether a gradient comes in.
        own: for each saved value, whether it is a result of the node itself.

    Raises:
        RuntimeError: eager's error, if the gradients of these results read the value.
    """
    results = {i for i, is_given in enumerate(given) if is_given}
    found: list[Any] = []
    # A result was new when it was saved, so its version was 0.
    versions = getattr(ctx, "versions", None) or [0 if is_own else None for is_own in own]
    for saved, read_by, version in zip(ctx._raw_saved_tensors, readers, versions, strict=True):
        try:
            found.append(saved.unpack() if version is None else _at_version(saved, version))
        except RuntimeError as error:
            if results.intersection(read_by):
                raise
            found.append(WrittenSince(error))
    return found


def _at_version(saved: Any, version: int) -> torch.Tensor:
    """A saved value, which must still have this version. Autograd does not check values that a hook has packed."""
    if saved.unpack_hook is not None:
        unpacked: torch.Tensor = saved.unpack_hook(saved.data)
        return unpacked
    value: torch.Tensor = saved.data
    if value._version != version:
        raise RuntimeError(WRITTEN)
    return value


def given_to_kernels(tensors: Sequence[Any]) -> list[torch.Tensor]:
    """The values, with empty tensors in place of those that are not read: a run of kernels needs an address for each
    input."""
    return [t if isinstance(t, torch.Tensor) else torch.empty(0, device="cpu") for t in tensors]


def readers_of(joint: JointGraph, saved: Sequence[Node]) -> tuple[Places, Places]:
    """For each saved value, the results whose gradients read it; for each result, the results whose gradients share an
    operation that reads a saved value with its own.
    """
    places = {node: i for i, node in enumerate(saved)}
    readers: list[set[int]] = [set() for _ in saved]
    together: list[set[int]] = [{i} for i in range(len(joint.tangents))]
    reached: dict[Node, frozenset[int]] = {n: frozenset({i}) for i, n in enumerate(joint.tangents) if n is not None}
    for node in joint.graph.nodes:
        if node in joint.forward or node in reached:
            continue
        results = frozenset().union(*(reached.get(read, frozenset()) for read in node.all_input_nodes))
        reached[node] = results
        read = {places[n] for n in _saved_behind(node, reached, places)} if results else set()
        for place in read:
            readers[place] |= results
        if read:
            for i in results:
                together[i] |= results
    return tuple(tuple(sorted(r)) for r in readers), tuple(tuple(sorted(t)) for t in together)


def _saved_behind(node: Node, reached: dict[Node, frozenset[int]], places: dict[Node, int]) -> set[Node]:
    """The saved values from which an operation of the backward pass computes its operands that are not gradients."""
    found, seen = set(), set()
    todo = list(node.all_input_nodes)
    while todo:
        read = todo.pop()
        if read in seen or reached.get(read):
            continue
        seen.add(read)
        if read in places:
            found.add(read)
        else:
            todo.extend(read.all_input_nodes)
    return found


class IndependentResults:
    """The readers of saved values in a graph in which some results' gradients are independent of others'."""

    def __init__(self, readers: Sequence[Sequence[int]], together: Sequence[Sequence[int]]) -> None:
        self.readers, self.together = readers, together

    def rest(
        self, tensors: Sequence[torch.Tensor | WrittenSince | None], given: Sequence[bool], left: set[int]
    ) -> RetainedValues | None:
        """The values to retain after a backward pass of the results `given`; None if no other gradient can come in."""
        gone = {j for i, is_given in enumerate(given) if is_given for j in self.together[i]}
        left = left - gone
        kept = [t if left.intersection(r) else None for t, r in zip(tensors, self.readers)]
        return RetainedValues(self, kept, left) if left and any(t is not None for t in kept) else None


class RetainedValues:
    """Saved values that are retained for the gradients that could still come in."""

    def __init__(
        self, known: IndependentResults, tensors: list[torch.Tensor | WrittenSince | None], left: set[int]
    ) -> None:
        self._known, self._tensors, self._left = known, tensors, left
        self._versions = [t._version if isinstance(t, torch.Tensor) else 0 for t in tensors]

    def serves(self, given: Sequence[bool]) -> bool:
        """Whether gradients of these results can still be computed; if not, eager would visit a node twice, too."""
        return all(i in self._left for i, is_given in enumerate(given) if is_given)

    def tensors(self, given: Sequence[bool]) -> list[torch.Tensor]:
        """The saved values for a run of kernels; empty tensors where these results' gradients don't read them."""
        results = {i for i, is_given in enumerate(given) if is_given}
        read = [t if results.intersection(r) else None for t, r in zip(self._tensors, self._known.readers)]
        for value, version in zip(read, self._versions):
            if isinstance(value, WrittenSince):
                raise value.error
            if value is not None and value._version != version:
                raise RuntimeError(WRITTEN)
        return given_to_kernels(read)

    def after(self, given: Sequence[bool]) -> RetainedValues | None:
        """The values to retain after a backward pass of these results."""
        return self._known.rest(self._tensors, given, self._left)


def independent(
    differentiable: Sequence[bool], readers: Sequence[Sequence[int]], together: Sequence[Sequence[int]]
) -> IndependentResults | None:
    """The readers of saved values; None if all results' gradients belong together, so that nothing is retained."""
    results = {i for i, is_differentiable in enumerate(differentiable) if is_differentiable}
    if all(results.issubset(together[i]) for i in results):
        return None
    return IndependentResults(readers, together)
