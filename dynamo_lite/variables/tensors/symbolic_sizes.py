"""The choice of the sizes of a tensor from outside that are symbols, and the tensor's layout in terms of them.

A size becomes a symbol where it has changed between calls (``recompiles``), where the program says that it will
(``mark_dynamic``, ``config.dynamic_sources``), or everywhere under ``compile(dynamic=True)``. In a tensor that no entry
knows, a size that equals one that has changed becomes a symbol as well: the cache that a decoder has filled is as long
as its prompt. The sizes 0 and 1 stay numbers, as tensors broadcast along such dimensions. The exception is a size that
a trace has changed (``frame/growth.py``): its symbol may be 1, and whether it is 1 is decided where the program or
torch asks for it.

Invariant: every part of a layout that the guard of the kind "tensor" leaves open is a symbol, or computed from symbols.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx

from ... import config
from ...guards.source import ChildSource, ComputedSource, ConstSource, SizeSource, Source, StrideSource
from ...symbols.environment import HIGHEST
from ...symbols.integers import Index, mul
from ...symbols.nodes import symbolic_int
from ..functions.cached_calls import CachedCall

if TYPE_CHECKING:
    from ..protocols import Tracer

APART = "apart"  # paired with a size's path: the size shares no symbol with others
FROM_ONE = "from one"  # paired with a size's path: the size's symbol may be 1
MARKS = "_dynamo_lite_sizes"  # attribute of a tensor: dimension -> SizeMark
_LEAST = 2


class SizesLearned(NamedTuple):
    """Information from a function's cache entries about tensors and ints that none of them knows yet.

    Attributes:
        changed: the old and new values of sizes that have been seen to change.
        known: the paths of tensors that an entry guards, and pairs of the path and the value of ints.
    """

    changed: frozenset[int] = frozenset()
    known: frozenset[Any] = frozenset()

    def is_likely(self, source: Source, number: Any) -> bool:
        """Whether a number at a path is likely to change with a size. A number in the result of a cached call is not:
        where the function computes it from a size it is an expression already, and else it is a constant, such as a
        dimension, that is equal by chance."""
        return (type(number) is int and number in self.changed and number >= _LEAST
                and source.key not in self.known and (source.key, number) not in self.known
                and not _is_of_cached_call(source))


def _is_of_cached_call(source: Source) -> bool:
    """Whether a path begins at, or passes through, the result of a cached call."""
    while isinstance(source, ChildSource):
        if isinstance(source, ComputedSource) and isinstance(source.function, CachedCall):
            return True
        source = source.base
    made_by = source.value if isinstance(source, ConstSource) else getattr(source, "function", None)
    return isinstance(made_by, CachedCall)


class SizeMark(NamedTuple):
    """A mark that the program has set on a size.

    Attributes:
        how: "dynamic", "maybe dynamic", "unbacked" (nothing is to be decided about it) or "static".
        least, most: its bounds; None: no bound is given.
    """

    how: str
    least: int | None = None
    most: int | None = None


class SymbolicLayout(NamedTuple):
    """The layout of a tensor, some of whose sizes are symbols.

    Attributes:
        size, strides: sizes and strides of its fake tensor, as ints and ``torch.SymInt``.
        guarded_size, guarded_strides: operands of the guard of the kind "tensor".
    """

    size: tuple[Any, ...]
    strides: tuple[Any, ...]
    guarded_size: tuple[int | None, ...]
    guarded_strides: tuple[Any, ...]


def symbolic_dims(tx: Tracer, value: torch.Tensor, source: Source, static: bool) -> list[int]:
    """The dimensions whose sizes are symbols.

    Args:
        static: whether the tensor is a parameter or a buffer, whose sizes are symbols only where they have changed.
    """
    output = tx.output
    # A guard on the elements also fixes their number.
    if output.dynamic_sizes is False or source.key in output.value_guards.paths:
        return []
    marks = _marks(value)
    follows = output.dynamic and (output.dynamic_sizes or config.automatic_dynamic_sizes)
    found = []
    for dim, size in enumerate(value.shape):
        mark = marks.get(dim)
        if size < _lowest(output.dynamic, SizeSource(source, dim)) or mark is not None and mark.how == "static":
            continue
        wanted = mark is not None or output.dynamic_sizes and not static or _is_named(source, dim)
        if wanted or follows and (SizeSource(source, dim).key in output.dynamic
                                  or not static and _equals_a_changed_one(output.learned, value, source, size)):
            found.append(dim)
    return found


def _lowest(dynamic: Collection[Any], where: SizeSource) -> int:
    """The lowest value that the symbol of a size may have."""
    return 1 if dynamic and (FROM_ONE, where.key) in dynamic else _LEAST


def _equals_a_changed_one(learned: SizesLearned, value: torch.Tensor, source: Source, size: int) -> bool:
    """Whether a size is likely to change along with one that has changed. If a tensor has two equal sizes, it can't be
    told which of them would, so the answer is no."""
    return learned.is_likely(source, size) and list(value.shape).count(size) == 1


def _marks(value: torch.Tensor) -> dict[int, SizeMark]:
    """The marks on a tensor's sizes, set by our functions or by those of torch's compiler."""
    own = value.__dict__ if hasattr(value, "__dict__") else {}
    if not own:
        return {}
    marks = dict.fromkeys(own.get("_dynamo_static_indices", ()), SizeMark("static"))
    for name in ("_dynamo_weak_dynamic_indices", "_dynamo_dynamic_indices"):
        marks.update(dict.fromkeys(own.get(name, ()), SizeMark("dynamic")))
    marks.update(dict.fromkeys(own.get("_dynamo_unbacked_indices", ()), SizeMark("unbacked")))
    for bounded in own.get("_dynamo_dynamic_range", ()):
        marks[bounded.dim] = SizeMark("dynamic", bounded.min, bounded.max)
    marks.update(own.get(MARKS, {}))
    return marks


def _is_named(source: Source, dim: int) -> bool:
    names = config.dynamic_sources
    return bool(names) and (source.name in names or f"{source.name}.shape[{dim}]" in names)


def symbolic_layout(tx: Tracer, value: torch.Tensor, source: Source, dims: list[int]) -> SymbolicLayout:
    """The layout of a tensor whose sizes at `dims` are symbols."""
    symbols, dynamic, marks = tx.output.symbols, tx.output.dynamic, _marks(value)
    shape, strides = tuple(value.shape), value.stride()
    size: list[Index] = list(shape)
    for dim in dims:
        where = SizeSource(source, dim)
        mark = marks.get(dim) or SizeMark("dynamic")
        least, most = max(_lowest(dynamic, where), mark.least or 0), HIGHEST if mark.most is None else mark.most
        size[dim] = symbols.add(tx, where, shape[dim], least, _asking("size", source, dim), most)
        if mark.how == "unbacked":
            symbols.env.set_unbacked(size[dim])
        elif (APART, where.key) not in dynamic:
            grows = (FROM_ONE, where.key) in dynamic
            size[dim] = symbols.share(size[dim], shape[dim], tx.output.guards, grows)  # type: ignore[arg-type]
    guarded: list[Any] = list(strides)
    made: list[Index] = list(strides)
    order = sorted(range(len(shape)), key=lambda d: (strides[d], -d))
    for at, dim in enumerate(order):
        inner = _inner(dim, shape, strides, [d for d in order[:at] if shape[d] >= _LEAST or d in dims])
        stride = StrideSource(source, dim)
        if inner is not None and (not isinstance(size[inner], int) or not isinstance(made[inner], int)):
            guarded[dim], made[dim] = (inner,), mul(size[inner], made[inner])
        elif stride.key in dynamic and strides[dim] >= _LEAST:
            guarded[dim] = None
            made[dim] = symbols.add(tx, stride, strides[dim], _LEAST, _asking("stride", source, dim))
    env = symbols.env
    return SymbolicLayout(
        tuple(symbolic_int(env, n) for n in size), tuple(symbolic_int(env, n) for n in made),
        tuple(None if dim in dims else n for dim, n in enumerate(shape)), tuple(guarded))


def _inner(dim: int, shape: tuple[int, ...], strides: tuple[int, ...], among: Sequence[int]) -> int | None:
    """The dimension over which `dim` is dense (its stride is that dimension's size times its stride). If several fit,
    the outermost of those that are further in."""
    fitting = [d for d in among if strides[d] > 0 and shape[d] * strides[d] == strides[dim]]
    return min(fitting, key=lambda d: (d < dim, d)) if fitting else None


def _asking(method: str, source: Source, dim: int) -> Callable[[Tracer], fx.Node]:
    return lambda tx: tx.output.measure(tx, source, method, dim)
