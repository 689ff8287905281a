"""Results of operators for symbolic sizes, where torch has no rule, or one that asks for more than results depend on.

A rule takes the fake mode of the result and the operator's arguments, and returns the result, or ``NotImplemented`` for
calls that it does not cover. Invariant: a rule decides nothing about symbols but what eager's result or error depends
on; ``fake.symbolic`` compares the rule's result with the operator's result for the sizes of the traced call.
"""
from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import corresponding_complex_dtype, suggest_memory_format

from dynamo_lite.fake.dense_results import is_known_equal
from dynamo_lite.fake.plain_results import NotKnown, dense, exceeds, new, told
from dynamo_lite.fake.plain_views import view_of
from dynamo_lite.symbols.nodes import hint_of, is_symbolic


def _new(mode: Any, sizes: Sequence[Any], like: torch.Tensor) -> torch.Tensor:
    """A new contiguous tensor with the dtype and device of `like`."""
    try:
        env, known = mode.env, [told(n) for n in sizes]
    except NotKnown:
        pass
    else:
        if all(exceeds(env, n, 0) for n in known[1:]) and all(map(env.is_computable, (*known, *dense(known)))):
            return new(mode, known, like.dtype, like.device)
    with mode:
        return torch.empty(sizes, dtype=like.dtype, device=like.device)


def _pad(mode: Any, x: torch.Tensor, pad: Sequence[Any], value: Any = 0) -> torch.Tensor:
    """``constant_pad_nd``, for which torch has a kernel but no metadata rule. Where nothing is added, it copies a part
    of the operand."""
    size = list(x.shape)
    for at in range(len(pad) // 2):
        size[-1 - at] = size[-1 - at] + pad[2 * at] + pad[2 * at + 1]
        if size[-1 - at] < 0:
            raise NotImplementedError("a size is negative")
    if any(n > 0 for n in sorted(pad, key=hint_of, reverse=True)):
        with mode:
            return torch.empty(size, dtype=x.dtype, device=x.device, memory_format=suggest_memory_format(x))
    with mode:
        for at in range(len(pad) // 2):
            if pad[2 * at] != 0 or pad[2 * at + 1] != 0:
                x = x.narrow(-1 - at, -pad[2 * at], size[-1 - at])
        return x.clone()


def _convolution(
    mode: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[Any],
    padding: Sequence[Any], dilation: Sequence[Any], transposed: bool, output_padding: Sequence[Any], groups: int,
) -> Any:
    """``convolution`` of contiguous tensors, whose result is contiguous for every implementation. Torch's rule first
    finds out which implementation runs, which depends on the batch size and more; each question would be a guard."""
    spatial = x.dim() - 2
    if transposed or x.device.type != "cpu" or weight.dim() != x.dim() or x.layout is not torch.strided:
        return NotImplemented
    if not (_is_contiguous(x) and _is_contiguous(weight)) or _is_empty(x) or _is_empty(weight):
        return NotImplemented
    if x.shape[1] != weight.shape[1] * groups:
        return NotImplemented
    size = [x.shape[0], weight.shape[0]]
    steps, pads, gaps = (list(v) * spatial if len(v) == 1 else list(v) for v in (stride, padding, dilation))
    for n, k, s, p, d in zip(x.shape[2:], weight.shape[2:], steps, pads, gaps):
        room = n + 2 * p - d * (k - 1) - 1
        if room < 0:
            return NotImplemented
        size.append(room // s + 1)
    return _new(mode, size, x)


def _convolution_backward(
    mode: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Sequence[Any] | None,
    stride: Sequence[Any], padding: Sequence[Any], dilation: Sequence[Any], transposed: bool,
    output_padding: Sequence[Any], groups: int, output_mask: Sequence[bool],
) -> Any:
    """The gradients of ``convolution``, which are contiguous where the operands are."""
    sizes = (x.shape, weight.shape, bias_sizes if bias_sizes is not None else (grad.shape[1],))
    if transposed or x.device.type != "cpu" or x.layout is not torch.strided or weight.dim() != x.dim():
        return NotImplemented
    if not (_is_contiguous(x) and _is_contiguous(weight)):
        return NotImplemented
    return tuple(_new(mode, tuple(n), x) if on else None for n, on in zip(sizes, output_mask))


def _baddbmm(
    mode: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: Any = 1, alpha: Any = 1
) -> Any:
    """``baddbmm``, whose rule in torch refuses symbols. The result is contiguous."""
    if a.dim() != 3 or b.dim() != 3 or x.dim() > 3 or a.dtype is not b.dtype or x.dtype is not a.dtype:
        return NotImplemented
    size = (a.shape[0], a.shape[1], b.shape[2])
    if b.shape[0] != a.shape[0] or b.shape[1] != a.shape[2]:
        return NotImplemented
    if not all(mine == 1 or mine == theirs for mine, theirs in zip(reversed(x.shape), reversed(size))):
        return NotImplemented
    return _new(mode, size, a)


def _is_empty(x: torch.Tensor) -> bool:
    return any(type(n) is int and n == 0 for n in x.shape)


def _is_contiguous(x: torch.Tensor) -> bool:
    """Whether all strides, also in dimensions of one element, are those of a contiguous tensor; decides nothing about
    symbols."""
    dense: Any = 1
    for n, s in zip(reversed(x.shape), reversed(x.stride())):
        if not is_known_equal(s, dense):
            return False
        dense = dense * n
    return True


def _slice(
    mode: Any, x: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """``slice``, which decides only facts that the result depends on. ``x[-15:]`` of 15 rows gives all rows, as for
    fewer, so the border case belongs to that outcome; torch's rule would put it with that of more than 15 rows."""
    if not -x.dim() <= dim < x.dim() or is_symbolic(step) or step < 1:
        return NotImplemented
    size = x.shape[dim]
    first = _clamped(0 if start is None else start, size)
    last = size if end is None or not is_symbolic(end) and end == sys.maxsize else _clamped(end, size)
    length = 0 if last <= first else last - first
    sizes, strides = list(x.shape), list(x.stride())
    sizes[dim], offset = (length + step - 1) // step, x.storage_offset() + first * strides[dim]
    strides[dim] = strides[dim] * step
    try:
        place = [told(n) for n in (*sizes, *strides, offset)]
    except NotKnown:
        place = []
    if place and all(map(mode.env.is_computable, place)) and not torch.is_inference_mode_enabled():
        return view_of(mode, x, place[:x.dim()], place[x.dim():-1], place[-1])
    with mode:
        return x.as_strided(sizes, strides, offset)


def _clamped(at: Any, size: Any) -> Any:
    """A slice bound as a position. At the border where both outcomes agree, a negative bound becomes 0."""
    if at < 0:
        return 0 if at + size <= 0 else at + size
    return size if at > size else at


def _complex(mode: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    """``complex`` and ``polar``: the result has the layout of a sum."""
    if a.dtype is not b.dtype or not a.dtype.is_floating_point:
        return NotImplemented
    with mode:
        like = a + b
        return torch.empty_strided(
            like.shape, like.stride(), dtype=corresponding_complex_dtype(a.dtype), device=like.device)


def _addcmul(mode: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: Any = 1) -> Any:
    """``addcmul`` and ``addcdiv``: the layout is that of the first operand plus the product of the others."""
    if not x.dtype is a.dtype is b.dtype:
        return NotImplemented
    with mode:
        return x + a * b


def _addbmm(mode: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``addbmm``: the same result as ``addmm`` with two of the matrices."""
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0] or not a.shape[0] > 0:
        return NotImplemented
    with mode:
        return torch.addmm(x, a[0], b[0])


def _diagonal_copy(mode: Any, x: torch.Tensor, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Any:
    with mode:
        return x.diagonal(offset, dim1, dim2).clone(memory_format=torch.contiguous_format)


def _trace(mode: Any, x: torch.Tensor) -> Any:
    if x.dim() != 2:
        return NotImplemented
    with mode:
        return x.new_empty((), dtype=x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64)


def _arange(mode: Any, start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """``arange`` with integral steps and ends, also as floats and also descending; and with steps of 1/2, 1/4, ..."""
    floats = any(type(n) is float for n in (start, end, step))
    numbers = [int(n) if type(n) is float and n.is_integer() else n for n in (start, end, step)]
    whole = all(type(n) is not float for n in numbers[:2])
    if whole and type(step) is float and step < 1 and math.frexp(step)[0] == 0.5:
        if numbers[1] < numbers[0]:
            return NotImplemented
        with mode:
            return torch.empty((numbers[1] - numbers[0]) * int(1 / step), dtype=dtype or torch.get_default_dtype(),
                               device=options.get("device") or "cpu")
    if not all(type(n) in (int, torch.SymInt) for n in numbers) or type(numbers[2]) is not int or not numbers[2]:
        return NotImplemented
    first, last, by = numbers if numbers[2] > 0 else (-numbers[0], -numbers[1], -numbers[2])
    if last < first:
        return NotImplemented  # eager refuses it
    if dtype is None:
        dtype = torch.get_default_dtype() if floats else torch.int64
    with mode:
        return torch.empty((last - first + by - 1) // by, dtype=dtype, device=options.get("device") or "cpu")


def _solved(mode: Any, x: torch.Tensor, a: torch.Tensor, upper: bool = False) -> Any:
    """``cholesky_solve``: the result is column-major."""
    if x.dim() != 2 or a.dim() != 2 or a.shape[0] != a.shape[1] or x.shape[0] != a.shape[0]:
        return NotImplemented
    with mode:
        return torch.empty((x.shape[1], x.shape[0]), dtype=x.dtype, device=x.device).t()


def _trilinear(
    mode: Any, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> Any:
    """``_trilinear``, which ``bilinear`` calls (ATen/native/Linear.cpp): a new tensor of the dimensions that are not
    summed over."""
    operands = [(list(t.shape), set(at)) for t, at in ((a, expand1), (b, expand2), (c, expand3))]
    size: list[Any] = []
    for dim in range(a.dim() + len(expand1)):
        sizes = [shape.pop(0) for shape, expanded in operands if dim not in expanded]
        if not sizes or not all(is_known_equal(n, sizes[0]) for n in sizes):
            return NotImplemented
        if dim not in sumdim:
            size.append(sizes[0])
    return _new(mode, size, a)


def _encoder_layer(mode: Any, src: torch.Tensor, *others: Any, **named: Any) -> Any:
    """The fast path of ``nn.TransformerEncoderLayer``, for which torch 2.11 has no rule, and later versions a rule that
    keeps the order of dimensions."""
    return _new(mode, src.shape, src)


RULES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._trilinear.default: _trilinear,
    torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    torch.ops.aten.complex.default: _complex, torch.ops.aten.polar.default: _complex,
    torch.ops.aten.addcmul.default: _addcmul, torch.ops.aten.addcdiv.default: _addcmul,
    torch.ops.aten.addbmm.default: _addbmm, torch.ops.aten.diagonal_copy.default: _diagonal_copy,
    torch.ops.aten.arange.start_step: _arange, torch.ops.aten.trace.default: _trace,
    torch.ops.aten.cholesky_solve.default: _solved,
    torch.ops.aten.slice.Tensor: _slice,
    torch.ops.aten.constant_pad_nd.default: _pad, torch.ops.aten.convolution.default: _convolution,
    torch.ops.aten.convolution_backward.default: _convolution_backward, torch.ops.aten.baddbmm.default: _baddbmm,
}
