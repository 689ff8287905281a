"""Functionalization: memory becomes values. For each tensor of the traced program, tracks the node of the functional
graph that holds the tensor's value.

A tensor of the program is ``Tracked``. Tensors that share memory share a ``Storage``, whose ``root`` is the tensor that
owned the memory first (a graph input, or an operation's result). They form a tree in which a view points to the tensor
that it was taken of. Writing to a tensor gives a new node to it and, up the tree, to each tensor that it is a view of,
the root included; every other view of the storage is then stale and is recomputed from its parent when it is next read.

Invariant: ``Memory.read(t)`` is a node whose value equals the value that the program would read from ``t`` at this
point, with ``t``'s own strides; and no node ever changes its value.
"""
from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from dynamo_lite.backends.aot import ops
from dynamo_lite.runtime.storage_extent import is_surely_disjoint

aten = torch.ops.aten
Emit = Callable[..., Node]


class CannotCut(Exception):
    """Says why a graph can't be cut into parts."""


class CannotFunctionalize(Exception):
    """The program does something to memory that has no functional form here; the message says it."""


@dataclasses.dataclass(slots=True)
class Storage:
    """Memory shared by tensors.

    Attributes:
        root: the tensor that owned the memory first.
        version: number of writes.
        counted: number of writes that increment autograd's version counter, that is, that are not made through
            ``.data``.
    """

    root: "Tracked"
    version: int = 0
    counted: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ViewStep:
    """The operation that makes a view of its parent: ``target(parent, *args, **kwargs)``; if that returns several
    views, element ``item`` of them.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    item: int | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Tracked:
    """A tensor of the traced program. ``fake`` has the metadata that it has in eager."""

    fake: torch.Tensor
    node: Node
    storage: Storage = None  # type: ignore[assignment]
    version: int = 0
    parent: "Tracked | None" = None
    step: ViewStep | None = None


class Memory:
    """All tensors of one traced program.

    Args:
        emit: adds a call to the functional graph and computes its metadata from its arguments' nodes.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._tracked: dict[int, Tracked] = {}
        self._renamed: list[torch.Tensor] = []

    def find(self, fake: torch.Tensor) -> Tracked | None:
        return self._tracked.get(id(fake))

    def storages_of(self, chosen: Callable[[torch.Tensor], bool]) -> set[int]:
        """The identities of the storages of those tensors that ``chosen`` accepts."""
        return {id(t.storage) for t in self._tracked.values() if chosen(t.fake)}

    def add(self, fake: torch.Tensor, node: Node) -> Tracked:
        """Adds a tensor with memory of its own."""
        tracked = Tracked(fake, node)
        tracked.storage = Storage(tracked)
        self._tracked[id(fake)] = tracked
        return tracked

    def add_resized(self, fake: torch.Tensor, node: Node) -> None:
        """Gives a tensor new memory, with the value of ``node``; in the tensor's own layout if the sizes agree."""
        self.add(fake, self._exact(node, fake) if fake.shape == node.meta["val"].shape else node)

    def is_seen_by_others(self, t: Tracked) -> bool:
        """Whether another tensor is known to share the memory of ``t``."""
        return any(other.storage is t.storage and other is not t for other in self._tracked.values())

    def add_view(self, fake: torch.Tensor, node: Node, parent: Tracked, step: ViewStep) -> Tracked:
        """Adds a tensor that is a view of ``parent``."""
        tracked = Tracked(fake, node, parent.storage, parent.storage.version, parent, step)
        self._tracked[id(fake)] = tracked
        return tracked

    def replace(self, fake: torch.Tensor, tracked: Tracked) -> None:
        """Makes ``fake`` stand for ``tracked``, after an operation that changed a tensor's metadata."""
        self._tracked[id(fake)] = tracked

    def rename(self, tracked: Tracked, fake: torch.Tensor) -> None:
        """Makes ``fake`` stand for ``tracked``, in place of its fake tensor so far."""
        self._renamed.append(tracked.fake)  # kept alive, so that no other tensor gets its id
        tracked.fake = fake
        self._tracked[id(fake)] = tracked

    def read(self, t: Tracked) -> Node:
        """The node that holds the current value of ``t``."""
        if t.version != t.storage.version:
            assert t.parent is not None and t.step is not None, "a root is always current"
            t.node = self._exact(self._replay(self.read(t.parent), t.step, t.fake), t.fake)
            t.version = t.storage.version
        return t.node

    def write(self, t: Tracked, node: Node) -> None:
        """Gives ``t`` the value of ``node``, and updates everything that shares its memory."""
        written = t
        try:
            node = self._exact(node, t.fake)
            chain = [(t, node)]
            while (parent := t.parent) is not None:
                assert t.step is not None
                node = self._exact(self._scatter(self.read(parent), node, t, parent), parent.fake)
                chain.append((parent, node))
                t = parent
        except RuntimeError as error:
            fakes = [part.fake for part in (t, t.parent) if part is not None]
            if all(is_surely_disjoint(fake.shape, fake.stride()) for fake in fakes):
                raise
            # Other elements of the tensor change as well, which its value with a part replaced does not show.
            raise CannotFunctionalize("a write to a tensor, or a part of it, whose elements share memory") from error
        t.storage.counted += _shares_version(written)
        t.storage.version += 1
        for tracked, value in chain:
            tracked.node, tracked.version = value, t.storage.version

    # ------------------------------------------------------------ from a parent to its views
    def _replay(self, parent: Node, step: ViewStep, fake: torch.Tensor) -> Node:
        if step.target in _RESHAPES:
            return self.view_as(parent, tuple(fake.shape))
        result = self._emit(step.target, (parent, *step.args), step.kwargs)
        return result if step.item is None else self._emit_item(result, step.item)

    def _emit_item(self, node: Node, item: int) -> Node:
        return self._emit(operator.getitem, (node, item))

    def view_as(self, node: Node, shape: tuple[Any, ...]) -> Node:
        """``node`` in another shape, copied first if its strides do not allow a view."""
        if tuple(node.meta["val"].shape) == shape:
            return node
        try:
            return self._emit(aten.view.default, (node, list(shape)))
        except (RuntimeError, ValueError):
            dense = self._emit(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
            return self._emit(aten.view.default, (dense, list(shape)))

    def _exact(self, node: Node, fake: torch.Tensor) -> Node:
        """``node`` in the dtype, shape and strides of ``fake``."""
        value = node.meta["val"]
        if value.dtype != fake.dtype:
            node = self._emit(aten._to_copy.default, (node,), {"dtype": fake.dtype})
        if node.meta["val"].shape != fake.shape:
            node = self._emit(aten.expand.default, (node, list(fake.shape)))
        if not _same_layout(node.meta["val"], fake):
            node = self._emit(ops.copy_strided, (node, tuple(fake.stride())))
        return node

    # ------------------------------------------------------------ from a view to its parent
    def _scatter(self, whole: Node, part: Node, t: Tracked, parent: Tracked) -> Node:
        """The value of ``parent`` after its view ``t`` was overwritten with ``part``."""
        assert t.step is not None
        step, emit = t.step, self._emit
        if step.target in _RESHAPES or step.target in _SQUEEZES:
            return self.view_as(part, tuple(parent.fake.shape))
        if step.target in _IDENTITIES:
            return part
        inverse = _INVERSES.get(step.target)
        if inverse is not None:
            target, args = inverse(parent.fake, *step.args, **step.kwargs)
            if target is None:
                return part
            return emit(target, (part, *args))
        scatter = _SCATTERS.get(step.target)
        if scatter is not None:
            target, args = scatter(parent.fake, step.item, *step.args, **step.kwargs)
            return emit(target, (whole, part, *args))
        if t.fake.dtype == parent.fake.dtype and t.fake.is_conj() == parent.fake.is_conj():
            offset = t.fake.storage_offset() - parent.fake.storage_offset()
            layout = (tuple(t.fake.shape), tuple(t.fake.stride()), offset)
            return emit(ops.as_strided_scatter, (whole, part, *layout))
        raise CannotFunctionalize(f"a write through {step.target}")


def offset_in(t: Tracked, base: Tracked) -> Any:
    """Number of elements from the first element of ``base`` to that of ``t``."""
    return t.fake.storage_offset() - base.fake.storage_offset()


def _shares_version(t: Tracked) -> bool:
    """Whether a write to a tensor also increments the version of the memory's first tensor. ``.data`` has a version
    counter of its own, which distinguishes it from ``detach()``; a dispatch mode sees the same operation in both."""
    fake, root = t.fake, t.storage.root.fake
    if fake.is_inference() or not any(step.target is aten.detach.default for step in chain_to_root(t)):
        return True
    before = root._version
    torch._C._increment_version((fake,))
    return root._version != before


def chain_to_root(t: Tracked) -> list[ViewStep]:
    """The view steps that lead from the root of the storage to ``t``."""
    steps = []
    while t.parent is not None:
        assert t.step is not None
        steps.append(t.step)
        t = t.parent
    return steps[::-1]


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether strides agree in all dimensions where they matter."""
    if 0 in b.shape:
        return True
    return all(n == 1 or s == t for n, s, t in zip(b.shape, a.stride(), b.stride()))


def normalize_dim(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


# ---------------------------------------------------------------- the view operations
_RESHAPES = {aten.view.default, aten._reshape_alias.default, aten._unsafe_view.default}
_SQUEEZES = {aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default}
_IDENTITIES = {aten.alias.default, aten.detach.default, aten.lift_fresh.default}

Inverse = Callable[..., tuple[Any, tuple[Any, ...]]]


def _inverse_permute(parent: torch.Tensor, dims: list[int]) -> tuple[Any, tuple[Any, ...]]:
    inverse = [0] * len(dims)
    for i, d in enumerate(dims):
        inverse[normalize_dim(d, len(dims))] = i
    return aten.permute.default, (inverse,)


def _inverse_expand(parent: torch.Tensor, size: list[int], *, implicit: bool = False) -> tuple[Any, tuple[Any, ...]]:
    if math.prod(parent.shape) != math.prod(n if n != -1 else 1 for n in size):
        if -1 not in size:
            raise CannotFunctionalize("a write to an expanded tensor, whose elements share memory")
    return aten.view.default, (list(parent.shape),)


UNSAFE_VIEWS = frozenset({aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default})
"""Operations whose results are views, although their schemas do not say so."""

_INVERSES: dict[Any, Inverse] = {
    aten.t.default: lambda parent: (aten.t.default, ()),
    aten.transpose.int: lambda parent, a, b: (aten.transpose.int, (a, b)),
    aten.permute.default: _inverse_permute,
    aten.expand.default: _inverse_expand,
    aten.view.dtype: lambda parent, dtype: (aten.view.dtype, (parent.dtype,)),
    aten._conj.default: lambda parent: (aten._conj.default, ()),
    aten._neg_view.default: lambda parent: (aten.neg.default, ()),
    aten.view_as_real.default: lambda parent: (aten.view_as_complex.default, ()),
    aten.view_as_complex.default: lambda parent: (aten.view_as_real.default, ()),
}


def _scatter_slice(
    parent: torch.Tensor, item: int | None, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> tuple[Any, tuple[Any, ...]]:
    return aten.slice_scatter.default, (dim, start, end, step)


def _scatter_select(parent: torch.Tensor, item: int | None, dim: int, index: Any) -> tuple[Any, tuple[Any, ...]]:
    return aten.select_scatter.default, (dim, index)


def _scatter_diagonal(
    parent: torch.Tensor, item: int | None, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> tuple[Any, tuple[Any, ...]]:
    return aten.diagonal_scatter.default, (offset, dim1, dim2)


def _scatter_unbind(parent: torch.Tensor, item: int, dim: int = 0) -> tuple[Any, tuple[Any, ...]]:
    return aten.select_scatter.default, (dim, item)


def _scatter_split(parent: torch.Tensor, item: int, size: int, dim: int = 0) -> tuple[Any, tuple[Any, ...]]:
    extent = parent.shape[dim]
    return aten.slice_scatter.default, (dim, item * size, min((item + 1) * size, extent), 1)


def _scatter_split_sizes(
    parent: torch.Tensor, item: int, sizes: list[int], dim: int = 0
) -> tuple[Any, tuple[Any, ...]]:
    start = sum(sizes[:item])
    return aten.slice_scatter.default, (dim, start, start + sizes[item], 1)


_SCATTERS: dict[Any, Inverse] = {
    aten.slice.Tensor: _scatter_slice,
    aten.select.int: _scatter_select,
    aten.diagonal.default: _scatter_diagonal,
    aten.unbind.int: _scatter_unbind,
    aten.split.Tensor: _scatter_split,
    aten.split_with_sizes.default: _scatter_split_sizes,
    aten.unsafe_split.Tensor: _scatter_split,
    aten.unsafe_split_with_sizes.default: _scatter_split_sizes,
}
