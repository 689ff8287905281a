"""Operations that write to memory which they also read elsewhere: eager refuses some of them, and computes the others
in an order of its own.

A graph computes first and writes afterwards, as if the operand had been cloned. Eager does not: it raises where it
detects that an operand partially overlaps the tensor that is written to (``x.copy_(x.t())``); where it does not detect
it, the result depends on the order in which it visits the elements. So such an operation fails on fake tensors, and
runs in eager.

Where sizes are symbols, the sizes of the traced call are looked at first. If no memory is shared there, that has to
hold for other sizes, too: the trace is asked for inequalities (:func:`is_apart`), which become guards.

Invariant: an operation that passes reads no element that it writes at another address or at another point of its order.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from dynamo_lite.symbols.nodes import hint_of

aten = torch.ops.aten
# Number of steps in the search for a common element after which two tensors are assumed to have one.
_MOST_STEPS = 2000
_READ = "some elements of the input tensor and the written-to tensor refer to a single memory location"
_WRITTEN = "more than one element of the written-to tensor refers to a single memory location"

# A tensor's memory layout: (stride in bytes, size) of each dimension, and the offset of the first element in bytes.
Layout = tuple[tuple[tuple[int, int], ...], int]


class MemoryOverlap(RuntimeError):
    """An operation writes to memory that it also reads elsewhere."""


def check(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Checks an operation that writes to arguments.

    Returns:
        whether the check holds for all calls that the guards let pass; where sizes are symbols, it may not.

    Raises:
        MemoryOverlap: an element is written that is also read elsewhere, or that is written twice.
    """
    for_all = True
    names, written, elementwise = _facts(func)
    values = {**dict(zip(names, args)), **kwargs}
    targets = [values[name] for name in written if name in values]
    if any(isinstance(value, (list, tuple)) for value in targets):
        sources = []  # the operation is one call for each tensor of the lists
    else:
        sources = list(_tensors(value for name, value in values.items() if name not in written))
    for target in _tensors(targets):
        place = layout(target)
        if place is None:
            continue
        if _overlaps_itself(place):
            raise MemoryOverlap(_WRITTEN)
        symbolic = target._has_symbolic_sizes_strides
        for_all = for_all and (not symbolic or _never_overlaps_itself(target))
        for source in sources:
            if source.untyped_storage()._cdata != target.untyped_storage()._cdata:
                continue
            other = layout(source)
            if other is None:
                continue
            symbolic = target._has_symbolic_sizes_strides or source._has_symbolic_sizes_strides
            if elementwise and other == place and source.dim() == target.dim() and (
                    symbolic or source.stride() == target.stride()):  # eager compares strides of single elements, too
                for_all = for_all and (not symbolic or _lies_alike(target, source))
            elif have_common_element(place, other):
                raise MemoryOverlap(_READ)
            else:
                for_all = for_all and (not symbolic or is_apart(target, source))
    return for_all


@functools.cache
def _facts(func: Any) -> tuple[tuple[str, ...], frozenset[str], bool]:
    """The names of an operation's arguments, the names of those that are written to, and whether it reads each element
    before it writes to the element's place.
    """
    arguments = func._schema.arguments
    written = frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
    namespace, name = func._schema.name.split("::")
    packets = [getattr(getattr(torch.ops, namespace), n, None) for n in {name, name.removesuffix("_")}]
    kin = [getattr(p, overload) for p in packets if p is not None for overload in p.overloads()]
    elementwise = func in _ELEMENTWISE or any(torch.Tag.pointwise in f.tags for f in kin)
    return tuple(a.name for a in arguments), written, elementwise


def written_by(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that an operation writes to according to its schema."""
    names, written, _ = _facts(func)
    return _tensors(value for name, value in (*zip(names, args), *kwargs.items()) if name in written)


def is_elementwise(func: Any) -> bool:
    """Whether an operation reads each element before it writes to the element's place, and needs no others for that."""
    return _facts(func)[2]


def layout(tensor: torch.Tensor) -> Layout | None:
    """The layout of a strided tensor; None if it has no elements, or a size that is not known."""
    if tensor.layout is not torch.strided:
        return None
    sizes, strides = [_known(n) for n in tensor.shape], [_known(n) for n in tensor.stride()]
    start = _known(tensor.storage_offset())
    if start is None or None in sizes or None in strides or 0 in sizes:
        return None
    size = tensor.itemsize
    dims = [(s * size, n) for s, n in zip(strides, sizes) if n != 1]  # type: ignore[operator]
    return (*dims, (1, size)), start * size  # type: ignore[arg-type]


def _known(n: Any) -> int | None:
    """A size; for a symbol, the size in the traced call."""
    return n if type(n) is int else n.node.hint


def have_common_element(a: Layout, b: Layout) -> bool:
    """Whether two layouts in the same memory share a byte; also True where the search takes too long."""
    (dims_a, start_a), (dims_b, start_b) = a, b
    # sum(s * i) - sum(t * j) = distance: counting j from the other end makes all terms positive.
    distance = start_b - start_a + sum(t * (n - 1) for t, n in dims_b)
    most: dict[int, int] = {}
    for step, n in (*dims_a, *dims_b):
        if step:
            most[step] = most.get(step, 0) + n - 1
    return _can_sum(sorted(most.items(), reverse=True), distance)


def _can_sum(terms: list[tuple[int, int]], total: int) -> bool:
    """Whether ``total`` is a sum of the steps, each taken between zero and its largest number of times."""
    reach = [0] * (len(terms) + 1)
    common = [0] * (len(terms) + 1)
    for k in reversed(range(len(terms))):
        reach[k] = reach[k + 1] + terms[k][0] * terms[k][1]
        common[k] = math.gcd(common[k + 1], terms[k][0])
    steps = 0
    stack = [(0, total)]
    while stack:
        k, left = stack.pop()
        steps += 1
        if steps > _MOST_STEPS:
            return True
        if left == 0:
            return True
        if left < 0 or left > reach[k] or k == len(terms) or left % common[k]:
            continue
        step, most = terms[k]
        # The remaining steps reach only so far, so only a few counts of the largest step are possible.
        least = max(0, -(-(left - reach[k + 1]) // step))
        for count in range(least, min(most, left // step) + 1):
            stack.append((k + 1, left - count * step))
            if len(stack) > _MOST_STEPS:
                return True
    return False


def _overlaps_itself(place: Layout) -> bool:
    """Whether two elements of a layout may share memory."""
    reached = 0
    for stride, n in sorted(place[0]):
        if stride <= reached:
            return True
        reached += stride * (n - 1)
    return False


# ---------------------------------------------------------------- symbolic sizes
def _dims(tensor: torch.Tensor) -> list[tuple[Any, Any]]:
    """Strides and sizes of the dimensions that have more than one element in some call: a symbolic size may be 1 in the
    traced call only."""
    return [(stride, size) for stride, size in zip(tensor.stride(), tensor.shape)
            if not (type(size) is int and size == 1)]


def _lies_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors that have the same elements of one memory in the traced call have the same ones in all."""
    pairs = zip((*a.shape, *a.stride(), a.storage_offset()), (*b.shape, *b.stride(), b.storage_offset()))
    return a.dtype == b.dtype and a.dim() == b.dim() and all(_holds(operator.eq, m, n) for m, n in pairs)


def is_apart(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors in the same memory have no common element in any call; also False where that can't be shown.

    It is shown if one lies behind the other, either as a whole or within each period of a stride: for example, they are
    different columns of the same rows of a matrix.
    """
    if a.dtype != b.dtype:
        return False
    first, second = (a, b) if hint_of(a.storage_offset()) < hint_of(b.storage_offset()) else (b, a)
    distance = second.storage_offset() - first.storage_offset()
    dims = [*_dims(first), *_dims(second)]
    periods = {hint_of(stride): stride for stride, _ in dims if hint_of(stride)}
    for known, period in sorted(periods.items(), key=lambda item: item[0], reverse=True):
        if all(hint_of(s) % known == 0 for s, _ in dims if hint_of(s) >= known) and _lie_within(
                first, second, distance, period):
            return True
    return _lie_within(first, second, distance, None)


def _lie_within(first: torch.Tensor, second: torch.Tensor, distance: Any, period: Any) -> bool:
    """Whether in every call two tensors lie one behind the other within each period, or as a whole if it is None."""
    ends = []
    for tensor in (first, second):
        end = 0
        for stride, size in _dims(tensor):
            if period is None or hint_of(stride) < hint_of(period):
                end = end + stride * (size - 1)
            elif not _holds(operator.eq, stride % period, 0):
                return False
        ends.append(end)
    if not _holds(operator.gt, distance, ends[0]):
        return False
    return period is None or _holds(operator.gt, period, distance + ends[1])


def _holds(compare: Callable[[Any, Any], Any], a: Any, b: Any) -> bool:
    """Whether a comparison holds in the traced call; if it does, a guard ensures that it holds in every call."""
    return bool(compare(hint_of(a), hint_of(b))) and bool(compare(a, b))


def _never_overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether a tensor whose elements don't overlap in the traced call has no overlapping elements in any call."""
    reached: Any = 0
    for stride, size in sorted(_dims(tensor), key=lambda dim: hint_of(dim[0])):
        if not _holds(operator.gt, stride, reached):
            return False
        reached = reached + stride * (size - 1)
    return True


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


_ELEMENTWISE = frozenset({aten.copy_.default, aten.masked_fill_.Scalar, aten.masked_fill_.Tensor})
"""Operations without torch's tag for pointwise ones that read each element before they write to its place."""
