"""Reads of tensors of which parts were written: a read of a written part is what was written there, and a read beside
it does not depend on the write.

A write to a part of a tensor has become a tensor with that part replaced (``slice_scatter``, ``select_scatter``), and
every later read of any part would depend on it. A chain of such writes, as of the gates of a recurrent cell or of the
columns of a matrix, would be one copy of the tensor for each write.

Invariant: values are the same. Layouts are those that the readers were recorded with, except that gaps between rows may
be gone.
"""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from dynamo_lite.backends.aot import ops

aten = torch.ops.aten
_OF_MEMORY: frozenset[Any] = frozenset({
    ops.as_strided, ops.as_strided_scatter, ops.copy_strided, aten.as_strided.default, aten.as_strided_scatter.default})
"""Operations that read the memory behind a tensor, not its elements alone."""
# A read goes back over so many writes at most, so that the pass takes linear time.
_MOST_WRITES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """The elements ``low`` to ``high`` along a dimension; ``kept``: whether the part has that dimension."""

    dim: int
    low: int
    high: int
    kept: bool

    def is_beside(self, other: _Part) -> bool:
        return self.dim == other.dim and (self.high <= other.low or other.high <= self.low)

    def is_inside(self, other: _Part) -> bool:
        return self.dim == other.dim and other.low <= self.low and self.high <= other.high


def read_through_writes(graph: Graph) -> None:
    """Lets each read of a part use the written part, or the tensor as it was before writes beside what it reads."""
    for node in list(graph.nodes):
        read = node
        for _ in range(_MOST_WRITES):
            before = _read_before(graph, read)
            if before is None:
                break
            read = before
        written = _written_part(node)
        if written is not None:
            _leave_out_overwritten(node, written)


def _read_before(graph: Graph, node: Node) -> Node | None:
    """Moves a read of a part before the last write to the tensor. Returns the read that has to be looked at next, if
    any."""
    part = _read_part(node)
    source = None if part is None else _source(node)
    written = None if source is None else _written_part(source)
    if part is None or source is None or written is None or any(map(_depends_on_memory, node.users)):
        return None
    base, value = source.args[:2]
    assert isinstance(base, Node) and isinstance(value, Node)
    if part == written:
        return _replaced(node, value) if _has_layout(value, node) else None
    if part.is_beside(written):
        if not _has_strides(base, source):
            return None
        if node.target is not operator.getitem:
            node.replace_input_with(source, base)
            return node
        return _replaced(node, _read(graph, node, base, part))
    if not (written.kept and part.is_inside(written) and _has_order(value, source)):
        return None
    inside = dataclasses.replace(part, low=part.low - written.low, high=part.high - written.low)
    return _replaced(node, _read(graph, node, value, inside))


def _leave_out_overwritten(node: Node, written: _Part) -> None:
    """Lets a write use the tensor as it was before earlier writes to what it overwrites."""
    while isinstance(earlier := node.args[0], Node):
        part = _written_part(earlier)
        if part is None or not part.is_inside(written):
            return
        base = earlier.args[0]
        assert isinstance(base, Node)
        if not _has_strides(base, earlier):
            return
        node.args = (base, *node.args[1:])


def _read(graph: Graph, node: Node, source: Node, part: _Part) -> Node:
    """A new node that reads a part of ``source``, in place of ``node``."""
    with graph.inserting_before(node):
        if part.kept:
            new = graph.call_function(aten.slice.Tensor, (source, part.dim, part.low, part.high))
        else:
            new = graph.call_function(aten.select.int, (source, part.dim, part.low))
    new.meta = dict(node.meta)
    return new


def _replaced(node: Node, by: Node) -> Node | None:
    """Replaces a read by another node of the same value, unless it is a result, whose layout is fixed."""
    if any(user.op == "output" for user in node.users):
        return None
    node.replace_all_uses_with(by)
    return by


def _depends_on_memory(user: Node) -> bool:
    """Whether a call reads more of a tensor's memory than its elements, or chooses by their alignment, as random fills
    and dropout do on a GPU: in which order they draw numbers. A view hands this on."""
    target = user.target
    if target in _OF_MEMORY or isinstance(target, (ops.RandomFill, ops.Functionalized)):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem and any(map(_depends_on_memory, user.users))
    if torch.Tag.nondeterministic_seeded in target.tags:
        return True
    first = target._schema.arguments[:1]
    is_view = target in _SPLITS or any(a.alias_info is not None and not a.alias_info.is_write for a in first)
    return is_view and any(map(_depends_on_memory, user.users))


# ---------------------------------------------------------------- what calls read and write
def _of_slice(node: Node, shape: torch.Size, args: tuple[Any, ...]) -> _Part | None:
    given: list[Any] = [0, None, None, 1]
    given[: len(args)] = args
    dim, start, end, step = given
    dim = dim % max(len(shape), 1)
    size = shape[dim]
    if type(size) is not int or step != 1 or not all(x is None or type(x) is int for x in (start, end)):
        return None
    low, high, _ = slice(start, end).indices(size)
    return _Part(dim, low, max(low, high), True)


def _of_select(node: Node, shape: torch.Size, args: tuple[Any, ...]) -> _Part | None:
    dim, index = args
    dim = dim % max(len(shape), 1)
    if type(shape[dim]) is not int or type(index) is not int:
        return None
    return _Part(dim, index % shape[dim], index % shape[dim] + 1, False)


def _of_split(node: Node, shape: torch.Size, args: tuple[Any, ...]) -> _Part | None:
    """The part that one of the results of a split is; ``node`` reads that result."""
    sizes, dim, item = args[0], args[1] if len(args) > 1 else 0, node.args[1]
    dim = dim % max(len(shape), 1)
    assert isinstance(item, int)
    if isinstance(sizes, (list, tuple)):
        if not all(type(n) is int for n in sizes):
            return None
        low = sum(sizes[:item])
        return _Part(dim, low, low + sizes[item], True)
    if type(sizes) is not int or type(shape[dim]) is not int:
        return None
    return _Part(dim, item * sizes, min((item + 1) * sizes, shape[dim]), True)


def _of_unbind(node: Node, shape: torch.Size, args: tuple[Any, ...]) -> _Part:
    dim, item = args[0] if args else 0, node.args[1]
    assert isinstance(item, int)
    return _Part(dim % len(shape), item, item + 1, False)


Rule = Callable[[Node, torch.Size, tuple[Any, ...]], "_Part | None"]
_READS: dict[Any, Rule] = {aten.slice.Tensor: _of_slice, aten.select.int: _of_select}
_SPLITS: dict[Any, Rule] = {
    aten.split.Tensor: _of_split, aten.split_with_sizes.default: _of_split, aten.unsafe_split.Tensor: _of_split,
    aten.unsafe_split_with_sizes.default: _of_split, aten.unbind.int: _of_unbind}
_WRITES: dict[Any, Rule] = {aten.slice_scatter.default: _of_slice, aten.select_scatter.default: _of_select}


def _source(node: Node) -> Node:
    """The tensor that a read takes a part of."""
    source = node.args[0]
    assert isinstance(source, Node)
    if node.target is operator.getitem:
        source = source.args[0]
        assert isinstance(source, Node)
    return source


def _read_part(node: Node) -> _Part | None:
    """The part of its operand that a node is; None if it is none, or not known as numbers."""
    if node.target is operator.getitem:
        split = node.args[0]
        assert isinstance(split, Node)
        rule = _SPLITS.get(split.target)
        return None if rule is None or split.kwargs else rule(node, _source(node).meta["val"].shape, split.args[1:])
    rule = _READS.get(node.target)
    return None if rule is None or node.kwargs else rule(node, _source(node).meta["val"].shape, node.args[1:])


def _written_part(node: Node) -> _Part | None:
    rule = _WRITES.get(node.target)
    if rule is None or node.kwargs or not isinstance(node.args[1], Node):
        return None
    return rule(node, node.meta["val"].shape, node.args[2:])


# ---------------------------------------------------------------- layouts
def _has_layout(value: Node, node: Node) -> bool:
    """Whether a value has the size and dtype of a part, and its strides, or dense ones in the same order. What was
    recorded with the part's strides is then valid for the value, and operations that preserve the order of strides
    give the same layouts."""
    a, b = value.meta["val"], node.meta["val"]
    if a.dtype is not b.dtype or _texts(a.shape) != _texts(b.shape):
        return False
    return _has_strides(value, node) or _has_order(value, node)


def _has_strides(a: Node, b: Node) -> bool:
    return _texts(a.meta["val"].stride()) == _texts(b.meta["val"].stride())


def _texts(sizes: Sequence[Any]) -> list[Any]:
    """Sizes for comparisons that make no guards about symbols."""
    return [n if type(n) is int else str(n.node) for n in sizes]


def _has_order(value: Node, node: Node) -> bool:
    """Whether a value is of a tensor's dtype and dense, with its dimensions in the same order in memory."""
    a, b = value.meta["val"], node.meta["val"]
    if a.dtype is not b.dtype or not all(type(n) is int for n in (*a.shape, *b.shape, *a.stride(), *b.stride())):
        return False
    return bool(aten.is_non_overlapping_and_dense.default(a)) and _order(a) == _order(b)


def _order(x: torch.Tensor) -> list[int]:
    strides = x.stride()
    return sorted((d for d, n in enumerate(x.shape) if n != 1), key=lambda d: (-strides[d], d))
