"""Sizes of results for operators whose metadata rules in torch ask for sizes as numbers: Fourier transforms, im2col,
col2im, pinv, solve_triangular and affine_grid.

Such a result is dense. The order of its dimensions in memory depends on that of the operands, not on sizes, so that it
is the order of the result in the traced call. Invariant: symbols are asked nothing but whether a size is positive,
which eager asks, too.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import corresponding_complex_dtype, corresponding_real_dtype

from dynamo_lite.symbols.nodes import IntNode, hint_of

aten = torch.ops.aten
Layout = tuple[Sequence[Any], torch.dtype] | None  # sizes and dtype; None: they are not known, or eager refuses it


def is_known_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are the same number or expression; nothing is decided about symbols."""
    x, y = (n.node.expr if isinstance(n, torch.SymInt) and isinstance(n.node, IntNode) else n for n in (a, b))
    return bool(x == y)


def _real_to_complex(x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Layout:
    sizes = list(x.shape)
    if onesided:
        sizes[dim[-1]] = sizes[dim[-1]] // 2 + 1
    return sizes, corresponding_complex_dtype(x.dtype)


def _complex_to_real(x: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Layout:
    sizes = list(x.shape)
    sizes[dim[-1]] = last_dim_size
    return sizes, corresponding_real_dtype(x.dtype)


def _complex_to_complex(x: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Layout:
    return list(x.shape), x.dtype


def _places(
    size: Sequence[Any], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    """The number of windows; None if there is none."""
    count: Any = 1
    for n, k, d, p, s in zip(size, kernel, dilation, padding, stride):
        room = n + 2 * p - d * (k - 1) - 1
        if room < 0:
            return None
        count = count * (room // s + 1)
    return count


def _im2col(x: torch.Tensor, kernel_size: Sequence[int], *windows: Sequence[int]) -> Layout:
    count = _places(x.shape[-2:], kernel_size, *windows)
    return None if count is None else (
        [*x.shape[:-3], x.shape[-3] * kernel_size[0] * kernel_size[1], count], x.dtype)


def _col2im(x: torch.Tensor, output_size: Sequence[Any], kernel_size: Sequence[int], *windows: Sequence[int]) -> Layout:
    count = _places(output_size, kernel_size, *windows)
    if count is None or not is_known_equal(count, x.shape[-1]):
        return None  # eager refuses any other number of columns
    channels = x.shape[-2] // (kernel_size[0] * kernel_size[1])
    return [*x.shape[:-2], channels, *output_size], x.dtype


def _pinv(x: torch.Tensor, **_: Any) -> Layout:
    return [*x.shape[:-2], x.shape[-1], x.shape[-2]], x.dtype


def _solve_triangular(a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, **_: Any) -> Layout:
    rows = b.shape[-2 if left else -1]
    fits = a.dim() == b.dim() and all(map(is_known_equal, a.shape, (*b.shape[:-2], rows, rows)))
    return (list(b.shape), b.dtype) if fits and a.dtype is b.dtype else None


def _affine_grid(theta: torch.Tensor, size: Sequence[Any], align_corners: bool) -> Layout:
    if len(size) not in (4, 5) or theta.dim() != 3 or not is_known_equal(theta.shape[0], size[0]):
        return None
    return [size[0], *size[2:], len(size) - 2], theta.dtype


RULES: dict[Any, Callable[..., Layout]] = {
    aten.linalg_pinv.atol_rtol_tensor: _pinv, aten.linalg_solve_triangular.default: _solve_triangular,
    aten.affine_grid_generator.default: _affine_grid,
    aten._fft_r2c.default: _real_to_complex, aten._fft_c2r.default: _complex_to_real,
    aten._fft_c2c.default: _complex_to_complex, aten.im2col.default: _im2col, aten.col2im.default: _col2im,
}


_WITH_OPTIONS = frozenset({aten.linalg_pinv.atol_rtol_tensor, aten.linalg_solve_triangular.default})


def result(mode: Any, expected: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator's result for symbolic sizes; ``NotImplemented`` where it is not known.

    Args:
        mode: the fake mode of the result.
        expected: the operator's result for the sizes of the traced call.
    """
    rule = RULES.get(func)
    if rule is None or kwargs and func not in _WITH_OPTIONS:
        return NotImplemented
    if not isinstance(expected, torch.Tensor) or not _is_dense(args[0]):
        return NotImplemented
    layout = rule(*args, **kwargs)
    if layout is None:
        return NotImplemented
    sizes, dtype = layout
    strides = _dense(sizes, expected.stride())
    if tuple(map(hint_of, strides)) != expected.stride():
        return NotImplemented
    with mode:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=args[0].device)


def _dense(sizes: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Dense strides whose order is that of the given strides."""
    strides: list[Any] = [0] * len(sizes)
    dense: Any = 1
    for at in sorted(range(len(sizes)), key=lambda i: (hint_of(like[i]), -i)):
        strides[at] = dense
        dense = dense * sizes[at]
    return strides


def _is_dense(x: torch.Tensor) -> bool:
    """Whether a tensor is dense, in an order of its dimensions that does not depend on sizes."""
    return all(map(is_known_equal, x.stride(), _dense(x.shape, x.stride())))
