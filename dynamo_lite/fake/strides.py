"""Strides of eager's results that torch's Python metadata rules get wrong.

The stride of a dimension with at most one element has no meaning, and torch's Python rules choose another one than its
C++ operators do. For elementwise operations on operands of different layouts or shapes, the Python rules order
dimensions in another way. Programs see the strides (``Tensor.stride()``), and generated code relies on them, so the
rules here give eager's.

Invariant: a rule runs only where all sizes are known, and changes nothing but strides.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
Strides = Sequence[int] | None
# Largest number of elements of a real operand that is made to find out how eager lays out an empty result.
_MAX_STAND_IN = 1 << 20
Rule = Callable[[Any, tuple[Any, ...], dict[str, Any], torch.Tensor], Strides]


@functools.cache
def rule_of(func: Any) -> Rule | None:
    """The rule for an operation; None if it has none."""
    found = RULES.get(func)
    if found is None and is_elementwise(func) and not func._schema.is_mutable:
        return elementwise
    return found


@functools.cache
def is_elementwise(func: Any) -> bool:
    """Whether an operation lays out its result as ``TensorIterator`` does for its operands."""
    return torch.Tag.pointwise in func.tags and func not in _OTHERWISE


@functools.cache
def is_written_out(func: Any) -> bool:
    """Whether an operation writes to an ``out`` argument a result whose layout follows from its operands'."""
    if not any(a.is_out and a.name == "out" for a in func._schema.arguments):
        return False
    if func is aten.cat.out:
        return True
    packet = func.overloadpacket
    return any(torch.Tag.pointwise in getattr(packet, name).tags for name in packet.overloads())


def resized_strides(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: torch.Tensor) -> Strides:
    """The strides of an ``out`` argument that such an operation has resized: those of a new result."""
    if func is not aten.cat.out:
        return elementwise(func, args, kwargs, out) if is_known(args, out) else None
    parts = args[0]
    if not is_known((*parts, out), out):
        return None
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    return torch.cat([torch.empty_strided(x.shape, x.stride(), device="meta") for x in parts], dim).stride()


def is_known(args: tuple[Any, ...], result: torch.Tensor) -> bool:
    """Whether all sizes are known."""
    operands = [x for x in args if isinstance(x, torch.Tensor)]
    return all(type(n) is int for x in (*operands, result) for n in x.shape)


def is_concerned(func: Any, args: tuple[Any, ...], result: torch.Tensor) -> bool:
    """Whether torch's rule may be wrong for this call, and all sizes are known."""
    if not all(type(n) is int for n in result.shape):
        return False
    if func in RULES:
        return func in _ALWAYS or any(n < 2 for n in result.shape)
    if not is_known(args, result):
        return False
    operands = [x for x in args if isinstance(x, torch.Tensor)]
    plain = all(x.shape == result.shape and x.is_contiguous() for x in operands)
    return not plain or any(n < 2 for n in result.shape)


def view_strides(shape: Sequence[int], stride: Sequence[int], new: Sequence[int]) -> Strides:
    """The strides of a view: from the last dimension to the first, each run of dimensions that are contiguous to one
    another is divided into new dimensions. None if there is no such view."""
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
    """The strides of a contiguous tensor."""
    out = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        out[d] = out[d + 1] * max(shape[d + 1], 1)
    return out


def is_dense(x: torch.Tensor) -> bool:
    """Eager's ``is_non_overlapping_and_dense``."""
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
    """The first argument's strides, if it is dense."""
    if kwargs.get("memory_format") not in (None, torch.preserve_format) or not is_dense(args[0]):
        return None
    return args[0].stride()


def _zeros_of_integers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """``isinf``, which gives zeros for integers without looking at them."""
    looks = args[0].is_floating_point() or args[0].is_complex()
    return (elementwise if looks else _preserved)(func, args, kwargs, result)


def _log_sigmoid(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """The CPU kernel makes contiguous results, whatever the operand's layout is."""
    return contiguous(result.shape) if result.device.type == "cpu" else None


def _contiguous(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    return contiguous(result.shape) if result.is_contiguous() else None


def _of_nothing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """An empty result of a reduction is contiguous, whatever the operand's layout is."""
    return contiguous(result.shape) if 0 in result.shape else None


def elementwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """The strides that ``TensorIterator`` gives for operands of these layouts, found by calling an elementwise
    operation whose rule is in C++."""
    # If the result is empty, the strides for broadcast operands on a CPU differ from those on "meta".
    if 1 in result.shape and 0 not in result.shape:
        return _of_small(func, args, result)
    empty = 0 in result.shape and all(x.numel() < _MAX_STAND_IN for x in args if isinstance(x, torch.Tensor))
    device = "cpu" if empty else "meta"
    operands = []
    converted = _converted(func, args, result)
    for at, (given, argument) in enumerate(zip(args, func._schema.arguments)):
        if isinstance(given, torch.Tensor):
            stand_in = torch.empty_strided(given.shape, given.stride(), device=device)
            operands.append(torch.empty_like(stand_in) if at in converted else stand_in)
        elif argument.name in ("self", "other"):
            operands.append(torch.empty((), device=device))  # a number that becomes a tensor
    if not empty and operands and (same := _of_same_layout(operands)) is not None:
        return same
    proxy = _PROXIES.get(len(operands))
    return proxy(*operands).stride() if proxy is not None else None


def _converted(func: Any, args: tuple[Any, ...], result: torch.Tensor) -> set[int]:
    """The positions of the operands that eager copies first, because the operation computes in another dtype: the copy
    of an operand with gaps is dense (``TensorIteratorBase::compute_types``; on CPUs only)."""
    tensors = [(at, x) for at, x in enumerate(args) if isinstance(x, torch.Tensor)]
    if func is aten.where.self:
        del tensors[0]
    if func in _CONVERSIONS or result.device.type != "cpu" or all(is_dense(x) for _, x in tensors):
        return set()
    stand_ins = [torch.empty([1] * x.dim(), dtype=x.dtype, device="meta") for _, x in tensors]
    while len(stand_ins) > 1:
        a, b = stand_ins.pop(), stand_ins.pop()
        common = torch.result_type(a, b)
        stand_ins.append(torch.empty([1] * max(a.dim(), b.dim()), dtype=common, device="meta"))
    common = stand_ins[0].dtype
    if result.is_floating_point() and not (common.is_floating_point or common.is_complex):
        common = result.dtype
    return {at for at, x in tensors if x.dtype is not common and not is_dense(x)}


def _of_small(func: Any, args: tuple[Any, ...], result: torch.Tensor) -> Strides:
    """Like :func:`elementwise`, for a result with dimensions of one element, whose strides on a CPU differ from those
    on "meta". The operation runs on operands with the same strides and fewer elements; equal sizes stay equal, and the
    order of sizes stays the same."""
    known = [x for x in args if isinstance(x, torch.Tensor)]
    sizes = {n: 2 + i for i, n in enumerate(sorted({n for x in known for n in x.shape if n > 1}))} | {1: 1}
    operands, same = [], []
    converted = _converted(func, args, result)
    for at, (given, argument) in enumerate(zip(args, func._schema.arguments)):
        if isinstance(given, torch.Tensor):
            stride = given.stride()
            if at in converted:
                stride = torch.empty_like(torch.empty_strided(given.shape, stride, device="meta")).stride()
            same.append(torch.empty_strided(given.shape, stride, device="meta"))
            size = [sizes[n] for n in given.shape]
            operands.append(torch.empty_strided(size, stride, dtype=torch.uint8, device="cpu"))
        elif argument.name in ("self", "other"):
            operands.append(torch.empty((), dtype=torch.uint8, device="cpu"))
    if len(same) == len(operands) and (strides := _of_same_layout(same)) is not None:
        return strides
    proxy = _PROXIES.get(len(operands))
    if proxy is None:
        return None
    small = proxy(*operands).stride()
    # The result is dense: a stride is the product of the sizes of the dimensions further in.
    return [math.prod(n for n, s in zip(result.shape, small) if n > 1 and s < stride) for stride in small]


def _of_same_layout(operands: list[torch.Tensor]) -> Strides:
    """For operands of the same layout, the strides that eager gives on a CPU, but not on "meta": the strides of the
    memory format, or the operands' own. None for other operands."""
    shape, stride = operands[0].shape, operands[0].stride()
    if any(x.shape != shape for x in operands):
        return None
    for rank, known in ((0, torch.contiguous_format), (4, torch.channels_last), (5, torch.channels_last_3d)):
        if rank in (0, len(shape)) and all(x.is_contiguous(memory_format=known) for x in operands):
            return torch.empty(shape, device="meta", memory_format=known).stride()
    return stride if is_dense(operands[0]) and all(x.stride() == stride for x in operands) else None


def _copied(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    return contiguous(result.shape)


def _scaled(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """Elementwise in the first argument and the weight, which is the third argument."""
    weight = args[2] if len(args) > 2 else kwargs.get("weight")
    return None if weight is None else elementwise(aten.mul.Tensor, (args[0], weight), {}, result)


def _rolled(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """Eager concatenates two parts, for each dimension in turn."""
    x, shifts = args[:2]
    dims = args[2] if len(args) > 2 else kwargs.get("dims", ())
    if not dims:
        return contiguous(result.shape)
    if result.numel() == 0:
        return _preserved(func, args, {}, result)
    part = torch.empty_strided(x.shape, x.stride(), device="meta")
    for shift, dim in zip(shifts, dims):
        n = x.shape[dim]
        start = (n - shift) % n
        part = torch.cat((part.narrow(dim, start, n - start), part.narrow(dim, 0, start)), dim)
    return part.stride()


def _rearranged(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """For an empty operand, eager makes a copy."""
    return args[0].stride() if result.numel() == 0 and args[0].shape == result.shape and is_dense(args[0]) else None


def _memory_format(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Strides:
    """Dense strides in the memory format that the first argument's strides suggest, also for a part of a tensor."""
    x = args[0]
    if x.dim() != result.dim() or not is_known((x,), result):
        return None
    if x.is_contiguous():
        return contiguous(result.shape)
    return torch.empty(result.shape, device="meta", memory_format=suggest_memory_format(x)).stride()


_IN_MEMORY_FORMAT = frozenset({
    aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats,
    aten.reflection_pad2d.default, aten.reflection_pad3d.default, aten.replication_pad2d.default,
    aten.replication_pad3d.default, aten.max_unpool2d.default, aten.channel_shuffle.default,
    aten.native_channel_shuffle.default})


_PROXIES: dict[int, Callable[..., torch.Tensor]] = {
    1: aten.neg.default, 2: aten.add.Tensor, 3: aten.addcmul.default}
_CONVERSIONS = frozenset({aten._to_copy.default, torch.ops.prims.convert_element_type.default})
_OTHERWISE = frozenset({
    aten.clone.default, aten.native_dropout_backward.default, aten.mvlgamma.default, aten._conj_physical.default,
    aten.frexp.Tensor})
"""Operations that have the tag of pointwise ones, but choose the layout of their results themselves."""
_REDUCTIONS = frozenset({
    aten.sum.dim_IntList, aten.prod.dim_int, aten.amax.default, aten.amin.default, aten.var.correction,
    aten.std.correction, aten.var_mean.correction, aten.std_mean.correction})
_LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
RULES: dict[Any, Rule] = {
    **{getattr(aten, name).default: _preserved for name in _LIKE},
    aten.randint_like.low_dtype: _preserved,
    aten.fill.Scalar: _preserved,
    aten.fill.Tensor: _preserved,
    aten.flip.default: _preserved,
    aten.nan_to_num.default: _preserved,
    aten.hardtanh.default: _preserved,
    aten.isinf.default: _zeros_of_integers,
    aten.deg2rad.default: _preserved,
    aten.rad2deg.default: _preserved,
    aten.frexp.Tensor: _preserved,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.sort.default: _preserved,
    aten.sort.stable: _preserved,
    aten.view.default: _of_view,
    aten._unsafe_view.default: _of_view,
    aten.native_layer_norm.default: _contiguous,
    aten._to_copy.default: _preserved,
    aten._fused_rms_norm.default: _scaled,
    aten.pixel_unshuffle.default: _rearranged,
    aten.pow.Scalar: _copied,
    aten.roll.default: _rolled,
    aten.tril.default: _copied,
    aten.triu.default: _copied,
    aten.rrelu_with_noise.default: _copied,
    aten.masked_fill.Scalar: _copied,
    aten.masked_fill.Tensor: _copied,
    **dict.fromkeys(_IN_MEMORY_FORMAT, _memory_format),
    **dict.fromkeys(_REDUCTIONS, _of_nothing),
}
_ALWAYS = frozenset({
    *_IN_MEMORY_FORMAT, aten.isinf.default, aten.log_sigmoid_forward.default, aten.masked_fill.Scalar,
    aten.masked_fill.Tensor, aten.pow.Scalar, aten.roll.default, aten.rrelu_with_noise.default})
"""Operations for which torch's rule is wrong also if no dimension has fewer than two elements."""
EVERY_RESULT = frozenset({
    aten.sort.default, aten.sort.stable, aten.frexp.Tensor, aten.log_sigmoid_forward.default,
    aten.var_mean.correction, aten.std_mean.correction})
"""Operations whose results all have the strides of the first result."""
VIEWS = frozenset({aten.view.default, aten._unsafe_view.default})
