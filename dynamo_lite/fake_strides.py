"""Strides that eager gives and torch's metadata rules get wrong: of dimensions with no second element.

Where a dimension has one element or none, its stride means nothing, and torch's Python rules choose another one than
its C++ operators do. Programs see it all the same (``Tensor.stride()``), so the rules here say what eager does.

Invariant: a rule is asked only where the result has such a dimension and all sizes are known; it changes nothing else.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
Strides = Sequence[int] | None
Rule = Callable[[Any, tuple[Any, ...], dict[str, Any], torch.Tensor], Strides]


def is_concerned(result: torch.Tensor) -> bool:
    """Whether some dimension's stride is free, and everything is known."""
    shape = result.shape
    if not all(type(n) is int for n in shape):
        return False
    return min(shape, default=2) < 2


def view_strides(shape: Sequence[int], stride: Sequence[int], new: Sequence[int]) -> Strides:
    """Of ``view``: from the last dimension to the first, runs of dimensions that lie in one piece are cut anew."""
    if not shape:
        return [1] * len(new)
    if 0 in shape:
        if tuple(shape) == tuple(new):
            return stride
        return contiguous(new)
    out = [0] * len(new)
    at = len(new) - 1
    step = stride[-1]
    have = made = 1
    for d in reversed(range(len(shape))):
        have *= shape[d]
        if d and (shape[d - 1] == 1 or stride[d - 1] == have * step):
            continue
        while at >= 0 and (made < have or new[at] == 1):
            out[at] = made * step
            made *= new[at]
            at -= 1
        if made != have:
            return None
        if d:
            step = stride[d - 1]
            have = made = 1
    return out if at < 0 else None


def contiguous(shape: Sequence[int]) -> list[int]:
    out = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        out[d] = out[d + 1] * max(shape[d + 1], 1)
    return out


def is_dense(x: torch.Tensor) -> bool:
    """As eager's ``is_non_overlapping_and_dense``."""
    if x.numel() == 0:
        return True
    expected = 1
    for s, n in sorted((s, n) for n, s in zip(x.shape, x.stride()) if n != 1):
        if s != expected:
            return False
        expected *= n
    return True


# ---------------------------------------------------------------- rules
def _of_view(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    return view_strides(args[0].shape, args[0].stride(), result.shape)


def _preserved(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """The first argument's, where it has no gaps."""
    if kwargs.get("memory_format") not in (None, torch.preserve_format) or not is_dense(args[0]):
        return None
    return args[0].stride()


def _contiguous(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    return contiguous(result.shape) if result.is_contiguous() else None


_LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
RULES: dict[Any, Rule] = {
    **{getattr(aten, name).default: _preserved for name in _LIKE},
    aten.randint_like.low_dtype: _preserved,
    aten.flip.default: _preserved,
    aten.sort.default: _preserved,
    aten.sort.stable: _preserved,
    aten.view.default: _of_view,
    aten._unsafe_view.default: _of_view,
    aten.native_layer_norm.default: _contiguous,
}
EVERY_RESULT = frozenset({aten.sort.default, aten.sort.stable})
"""Operations whose results all have the strides of the first."""
VIEWS = frozenset({aten.view.default, aten._unsafe_view.default})
