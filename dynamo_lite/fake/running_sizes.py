"""Operators whose result sizes depend on elements: ``nonzero``, masks as indices, ``unique``.

Such a size is a symbol that only the running graph knows (``symbols.environment``). The caller that runs an operation
gives the mode a list for the sizes that the operation defines, and makes the graph check their limits. These begin at
2: a result with no elements, or one, has another layout, broadcasts or raises, and is left to plain Python.

Invariant: a result has the dtype, layout and device of eager's result, for every number within the size's limits.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite.fake.dense_results import is_known_equal
from dynamo_lite.symbols.environment import HIGHEST
from dynamo_lite.symbols.integers import Expr
from dynamo_lite.symbols.nodes import expression_of, symbolic_int
from dynamo_lite.symbols.relations import compare

aten = torch.ops.aten
LEAST = 2
_MASKS = (torch.bool, torch.uint8)


def defines_size(mode: Any, func: Any, args: Any) -> bool:
    """Whether an operator has a rule in this module, and the elements that it needs are not known."""
    if func not in RULES:
        return False
    if func is aten.index.Tensor and not any(t is not None and t.dtype in _MASKS for t in args[1]):
        return False
    decides = [t for t in args[1] if t is not None] if func is aten.index.Tensor else [args[0]]
    decides += args[1:] if func is aten.masked_select.default else []
    tensors = [t for t in decides if isinstance(t, torch.Tensor)]
    if mode.known and all(mode.known.of(t) is not None for t in tensors):
        return False
    return all(type(t) is FakeTensor and t.device.type == "cpu" and t.layout is torch.strided for t in tensors)


def run(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The operator's result; NotImplemented where its elements have to be known after all."""
    return RULES[func](mode, *args, **kwargs)


def _define(mode: Any, most: Any, least: int = LEAST) -> Any:
    """A new size that is at least `least` and at most `most`; NotImplemented if there is no such size."""
    highest = most if type(most) is int else HIGHEST
    if highest < least:
        return NotImplemented
    expr: Expr = mode.symbols().define(least, highest)
    mode.defined.append(expr)
    return symbolic_int(mode.env, expr)


def _numel(x: torch.Tensor) -> Any:
    return math.prod(x.shape)


def _nonzero(mode: Any, x: torch.Tensor) -> Any:
    size = _define(mode, _numel(x)) if x.dim() else NotImplemented
    if size is NotImplemented:
        return NotImplemented
    with mode:
        return torch.empty_strided((size, x.dim()), (1, size), dtype=torch.int64, device=x.device)


def _masked_select(mode: Any, x: torch.Tensor, mask: torch.Tensor) -> Any:
    with mode:
        both = torch.broadcast_tensors(x, mask)[0]
    if mask.dtype is not torch.bool or not both.dim():
        return NotImplemented
    size = _define(mode, _numel(both))
    if size is NotImplemented:
        return NotImplemented
    with mode:
        return torch.empty((size,), dtype=x.dtype, device=x.device)


def _index(mode: Any, x: torch.Tensor, indices: Any) -> Any:
    """Indexing with masks, by the positions of their true elements."""
    places: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in _MASKS:
            places.append(index)
            continue
        at = len(places)
        if index.dim() + at > x.dim() or not all(
                is_known_equal(a, b) for a, b in zip(index.shape, x.shape[at:])):
            return NotImplemented  # eager refuses it, or the sizes would have to be known
        found = _nonzero(mode, index)
        if found is NotImplemented:
            return NotImplemented
        with mode:
            places += found.unbind(1)
    with mode:
        return aten.index.Tensor(x, places)


def _unique(mode: Any, x: torch.Tensor, inverse: bool, counts: bool, dim: int | None, always: bool) -> Any:
    """Unique elements, or unique slices along a dimension. Results that are not asked for are empty unless `always`."""
    if dim is not None and not -x.dim() <= dim < x.dim():
        return NotImplemented
    shape = list(x.shape)
    most = _numel(x) if dim is None else shape[dim]
    size = _define(mode, most)
    if size is NotImplemented:
        return NotImplemented
    of_inverse = tuple(x.shape) if dim is None else (most,)
    with mode:
        if dim is None:
            found = torch.empty((size,), dtype=x.dtype, device=x.device)
        else:
            del shape[dim]
            found = torch.empty((size, *shape), dtype=x.dtype, device=x.device).moveaxis(0, dim).detach()
        return (found, *(torch.empty(n if wanted or always else (0,), dtype=torch.int64, device=x.device)
                         for n, wanted in ((of_inverse, inverse), ((size,), counts))))


def _unique2(mode: Any, x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return _unique(mode, x, return_inverse, return_counts, None, always=False)


def _unique_consecutive(
    mode: Any, x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    return _unique(mode, x, return_inverse, return_counts, dim, always=dim is not None)


def _unique_dim(
    mode: Any, x: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return _unique(mode, x, return_inverse, return_counts, dim, always=True)


def _repeat_interleave(mode: Any, repeats: torch.Tensor, *, output_size: Any = None) -> Any:
    size = _define(mode, HIGHEST) if output_size is None and repeats.dim() == 1 else NotImplemented
    if size is NotImplemented:
        return NotImplemented
    with mode:
        return torch.empty((size,), dtype=repeats.dtype, device=repeats.device)


def _bincount(mode: Any, x: torch.Tensor, weights: torch.Tensor | None = None, minlength: Any = 0) -> Any:
    if x.dim() != 1 or minlength < 0:
        return NotImplemented
    size = _define(mode, HIGHEST, max(LEAST, minlength) if type(minlength) is int else LEAST)
    if size is NotImplemented:
        return NotImplemented
    mode.env.check(compare(">=", expression_of(size), expression_of(minlength)))
    dtype = torch.int64 if weights is None else weights.dtype if weights.dtype is torch.float32 else torch.float64
    with mode:
        return torch.empty((size,), dtype=dtype, device=x.device)


RULES: dict[Any, Callable[..., Any]] = {
    aten.nonzero.default: _nonzero, aten.masked_select.default: _masked_select, aten.index.Tensor: _index,
    aten._unique2.default: _unique2, aten.unique_consecutive.default: _unique_consecutive,
    aten.unique_dim.default: _unique_dim, aten.repeat_interleave.Tensor: _repeat_interleave,
    aten.bincount.default: _bincount,
}
