"""Checks of operations that eager's kernels refuse but metadata rules accept: such operations run on small real tensors
before they run on fake ones.

A metadata rule may accept a result that is larger than the tensor it is written to (the rule resizes the fake tensor,
whereas a kernel would write past the end of the memory), or a result whose dtype does not fit. So the operation itself
first runs on small stand-ins. An exception counts only if it is raised both for zeros and for ones: any other depends
on elements.

For other operations, metadata rules accept dtypes for which eager has no kernel (softmax of integers), and numbers
(``x - True``, ``whole ** -1``). Whether it has one is tried once for each operation, dtypes and kinds of numbers,
unless all tensors are float32 or all float64 and no number is a bool or complex, which every kernel supports.

Invariant: an operation that passes keeps the sizes of every argument that it writes, except ``out`` arguments and
operators whose purpose is to change sizes.
"""
from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import no_dispatch
from torch.utils import _pytree as pytree

from dynamo_lite import exc
from dynamo_lite.fake import overlap
from dynamo_lite.runtime import signal_handlers
from dynamo_lite.runtime.storage_extent import storage_extent

aten = torch.ops.aten
# Limit for all stand-ins of a call: filling them takes some microseconds. If they are larger, those of elementwise
# operations are shrunk, keeping equal sizes equal and different ones different; others are left to the metadata rules.
_MOST_BYTES = 1 << 18
_MOST_ENTRIES = 4096

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)

Sizes = list[tuple[Any, tuple[int, ...]]]

# The exception that eager raised for a call, by the call's key (`fake.cache.key_of`); None if it raised none.
_answers: dict[Any, Exception | None] = {}
# The exception for operations, dtypes and kinds of numbers without a kernel; None if there is a kernel.
_without_kernel: dict[tuple[Any, ...], Exception | None] = {}
# Parts of the messages of such exceptions. An exception with another message is about types, too, if it is not raised
# for float32 in place of all dtypes, or for 1 in place of the numbers; otherwise it may be about sizes.
_ABOUT_TYPES = ("not implemented for", "dtype", "scalar type")
_COMMON = frozenset({torch.float32, torch.float64})

# Operations that are not tried: their rules are complete, or they decompose before anything is written.
_NOT_ASKED = frozenset({
    aten.zero_.default, aten.detach_.default, aten.requires_grad_.default,
    aten.set_.source_Tensor, aten.set_.source_Storage, aten.set_.source_Storage_storage_offset, aten.resize_.default,
})

# Operations on numbers alone that are tried, with one element: a number may not fit the dtype.
_OF_NUMBERS = frozenset({aten.full.default, aten.scalar_tensor.default})

OPAQUE = frozenset({aten.mkldnn_rnn_layer_backward.default})
"""Operations that read an opaque record of the forward pass: any other contents crash the process."""


def check(func: Any, args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> None:
    """Raises eager's exception, if any, for an operation that writes to arguments.

    Args:
        key: identifies this call; None if nothing does.
    """
    if func.namespace != "aten" or func in _NOT_ASKED or torch.Tag.inplace_view in func.tags:
        return
    if func is aten.copy_.default and args[0].shape == args[1].shape:
        return
    if func is aten.fill_.Scalar and (isinstance(args[1], _SYMBOLS) or _fits_every_dtype(args[1])):
        return
    _raise_as_eager(func, args, kwargs, key)


def _raise_as_eager(func: Any, args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> None:
    """Raises eager's exception, if any, for a call; eager runs once for each key."""
    if key is not None and key in _answers:
        raised = _answers[key]
    else:
        raised = _ask(func, args, kwargs)
        if key is not None:
            if len(_answers) >= _MOST_ENTRIES:
                _answers.clear()
            _answers[key] = raised
    if raised is not None:
        raise type(raised)(*raised.args)

# Operations that take row numbers, counted from 1; for other values, torch 2.11 writes outside of its memory.
_WITH_PIVOTS = frozenset({aten.linalg_ldl_solve, aten.linalg_lu_solve, aten.lu_unpack})

# Operations that write a part into a copy, and views that select the part. Metadata rules broadcast it, eager does not.
_SCATTERS = {
    aten.select_scatter.default: aten.select.int, aten.slice_scatter.default: aten.slice.Tensor,
    aten.diagonal_scatter.default: aten.diagonal.default, aten.as_strided_scatter.default: aten.as_strided.default,
}


_STRIDED = frozenset({aten.as_strided.default, aten.as_strided_copy.default})


def _check_bounds(whole: torch.Tensor, size: Sequence[int], stride: Sequence[int], start: int | None = None) -> None:
    """Refuses a view that exceeds its memory, which the metadata rule would enlarge."""
    first = whole.storage_offset() if start is None else start
    held = whole.untyped_storage().nbytes()
    if any(isinstance(n, _SYMBOLS) for n in (*size, *stride, first, held)) or not all(size):
        return
    needed = (first + storage_extent(size, stride)) * whole.itemsize
    if needed > held:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {first}, and itemsize "
            f"{whole.itemsize} requiring a storage size of {needed} are out of bounds for storage of size {held}")


# Operations whose metadata rules accept dimensions, empty operands or floats that eager refuses.
_LENIENT = frozenset({
    getattr(getattr(aten, name), overload) for name in (
        "sort", "argsort", "msort", "max", "min", "aminmax", "_aminmax", "median", "nanmedian", "index_select",
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift",
        "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "gcd", "lcm", "_softmax", "_log_softmax",
        "bucketize",
    ) for overload in getattr(aten, name).overloads() if not overload.endswith("out")
})


# Operations whose metadata rules accept operands and results without elements.
_RESAMPLINGS = frozenset({aten.upsample_linear1d.default, aten.upsample_bilinear2d.default,
                          aten.upsample_trilinear3d.default, aten.upsample_bicubic2d.default})


def _check_part(func: Any, whole: torch.Tensor, src: torch.Tensor, *place: Any, **named: Any) -> None:
    with no_dispatch():
        part = _SCATTERS[func](torch.empty(whole.shape, device="meta"), *place, **named)
    if part.shape != src.shape:
        raise RuntimeError("expected src to have a size equal to the slice of self. "
                           f"src size = {list(src.shape)}, slice size = {list(part.shape)}")
    if func is aten.as_strided_scatter.default and 0 not in whole.stride():  # else it writes to a compact copy
        _check_bounds(whole, *place, **named)


def is_lenient(func: Any) -> bool:
    """Whether the metadata rule of an operation that writes to no argument accepts calls that :func:`check_rule`
    refuses."""
    return func in _LENIENT or func in _SCATTERS or func in _RESAMPLINGS or func in _STRIDED


def check_rule(func: Any, args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> None:
    """Raises eager's exception, if any, for an operation whose metadata rule is lenient.

    Args:
        key: identifies this call; None if nothing does.
    """
    if func in _LENIENT:
        _raise_as_eager(func, args, kwargs, key)
    elif func in _RESAMPLINGS:
        if len(args) < 2 or not args[0].numel() or not all(args[1]):
            _raise_as_eager(func, args, kwargs, key)
    elif func in _STRIDED:
        _check_bounds(*args, **kwargs)
    elif len(args) > 1 and not any(isinstance(n, _SYMBOLS) for n in args[0].shape):
        _check_part(func, *args, **kwargs)


def check_types(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raises eager's exception for an operation that writes to no argument, if there is no kernel for the dtypes."""
    types = _types_of(args, kwargs)
    numbers = _numbers_of(func, args, kwargs)
    if func.namespace != "aten" or func in OPAQUE or (
            len(set(types)) <= 1 and _COMMON.issuperset(types) and {int, float}.issuperset(n for n, _ in numbers)):
        return
    key = func, types, numbers
    if key not in _without_kernel:
        if func is aten.full.default:
            args = [1], *args[1:]
        raised = _ask(func, args, kwargs)
        if raised is not None and not _is_about_types(raised, func, args, kwargs):
            return  # the sizes are wrong: for others there may be no kernel either
        if len(_without_kernel) >= _MOST_ENTRIES:
            _without_kernel.clear()
        _without_kernel[key] = raised
    known = _without_kernel[key]
    if known is not None:
        raise type(known)(*known.args)


def _is_about_types(raised: Exception, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    if not isinstance(raised, RuntimeError):
        return False
    if any(words in str(raised) for words in _ABOUT_TYPES):
        return True
    plain_args, plain_kwargs = list(args), dict(kwargs)
    for place, name in _places_of_numbers(func):
        holder: Any = plain_args if place < len(args) else plain_kwargs
        at: Any = place if place < len(args) else name
        if place < len(args) or name in kwargs:
            holder[at] = 1 if isinstance(holder[at], (int, float, complex)) else holder[at]
    return any(_ask(func, plain_args, plain_kwargs, dtype) is None for dtype in (torch.float32, None))


@functools.cache
def _places_of_numbers(func: Any) -> tuple[tuple[int, str], ...]:
    """Arguments that are tensors or numbers, whose types decide about the dtype in which an operation computes."""
    return tuple((place, argument.name) for place, argument in enumerate(func._schema.arguments)
                 if str(argument.type).removeprefix("Optional[").removesuffix("]") in ("Tensor", "number"))


def _numbers_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[type, str], ...]:
    """The kinds of the numbers among an operator's arguments: the type, and the text of the number if a dtype may be
    unable to hold it, or if it is zero, by which whole numbers cannot be divided. A symbol has no kind."""
    kinds: list[tuple[type, str]] = []
    for place, name in _places_of_numbers(func):
        value: Any = args[place] if place < len(args) else kwargs.get(name)
        kind = type(value)
        if kind in (int, float, bool, complex):
            kinds.append((kind, "" if value and (kind is complex or _fits_every_dtype(value)) else str(value)))
    return tuple(kinds)


def _fits_every_dtype(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < 128


def _types_of(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[torch.dtype, ...]:
    """The dtypes of an operator's tensor arguments, including those in lists, and the dtype that is asked for."""
    types = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            types.append(value.dtype)
        elif isinstance(value, torch.dtype):
            types.append(value)
        elif isinstance(value, (list, tuple)):
            types += [part.dtype for part in value if isinstance(part, torch.Tensor)]
    return tuple(types)


def sizes_written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Sizes:
    """The tensors that an operation writes and may not resize, with their sizes."""
    if torch.Tag.inplace_view in func.tags:
        return []
    written: Sizes = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write or argument.is_out:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if isinstance(value, torch.Tensor):
            written.append((value, tuple(value.shape)))
    return written


def compare_sizes(func: Any, written: Sizes) -> None:
    """Raises an internal error if one of the tensors has other sizes now."""
    for value, size in written:
        if tuple(value.shape) != size and func not in _NOT_ASKED:
            raise exc.InternalError(f"{func} without data turned a tensor of sizes {size} into {tuple(value.shape)}")


def _ask(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], dtype: torch.dtype | None = None
) -> Exception | None:
    """The exception that eager raises for a call; with a `dtype`, for tensors of that dtype in place of their own."""
    leaves = pytree.tree_leaves((args, kwargs))
    fakes = [t for t in leaves if isinstance(t, torch.Tensor)]
    if not fakes and func not in _OF_NUMBERS:
        return None  # it may make a tensor of any size
    if not all(is_plain(t) for t in fakes) or any(isinstance(n, _SYMBOLS) for n in leaves):
        return None
    sizes: dict[int, int] | None = None
    if are_large(fakes):
        if not overlap.is_elementwise(func):
            return None
        sizes = shrunk(fakes)
    with no_dispatch(), torch._C._AutoDispatchBelowAutograd(), unnoticed(func):
        content, *others = contents(func)
        first = _raised(func, args, kwargs, sizes, content, dtype)
        if first is None:
            return None
        again = [_raised(func, args, kwargs, sizes, other, dtype) for other in others]
    return first if all(type(e) is type(first) and str(e) == str(first) for e in again) else None


def contents(func: Any) -> tuple[int, ...]:
    """The values with which stand-ins are filled, one after the other."""
    return (1,) if func.overloadpacket in _WITH_PIVOTS else (0, 1)


def are_large(fakes: Sequence[torch.Tensor]) -> bool:
    """Whether stand-ins of the same sizes would take too long."""
    return sum(storage_extent(t.shape, t.stride()) * t.itemsize for t in fakes) > _MOST_BYTES


def shrunk(fakes: Sequence[torch.Tensor]) -> dict[int, int]:
    """A map from the sizes of some tensors to smaller ones. Equal sizes stay equal, and the order is kept."""
    several = sorted({n for t in fakes for n in t.shape if n > 1})
    return {0: 0, 1: 1, **{n: 2 + i for i, n in enumerate(several)}}


def stand_ins(
    args: Sequence[Any], kwargs: dict[str, Any], sizes: dict[int, int] | None, content: int,
    dtype: torch.dtype | None = None,
) -> tuple[Any, Any]:
    """The arguments with real tensors, all of whose elements are `content`, in place of the fake ones.

    Args:
        sizes: a map from sizes of fake tensors to those of stand-ins, which are then expanded from few elements; None:
            stand-ins have the same layouts.
        dtype: the dtype of all stand-ins; None: each has its fake tensor's.
    """
    made: dict[int, torch.Tensor] = {}

    def stand_in(fake: torch.Tensor) -> torch.Tensor:
        if id(fake) not in made:
            made[id(fake)] = _stand_in(fake, sizes, content, dtype or fake.dtype)
        return made[id(fake)]

    return pytree.tree_map_only(torch.Tensor, stand_in, (tuple(args), kwargs))


def _raised(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], sizes: dict[int, int] | None, content: int,
    dtype: torch.dtype | None,
) -> Exception | None:
    real_args, real_kwargs = stand_ins(args, kwargs, sizes, content, dtype)
    try:
        func(*real_args, **real_kwargs)
    except Exception as error:
        signal_handlers.pass_on(error)
        return error.with_traceback(None)
    return None


def _stand_in(
    fake: torch.Tensor, sizes: dict[int, int] | None, content: int, dtype: torch.dtype
) -> torch.Tensor:
    if sizes is None:
        flat = torch.full((storage_extent(fake.shape, fake.stride()),), content, dtype=dtype)
        return flat.as_strided(fake.shape, fake.stride())
    size = [sizes[n] for n in fake.shape]
    distinct = [1 if stride == 0 else n for n, stride in zip(size, fake.stride())]
    return torch.full(distinct, content, dtype=dtype).expand(size)


def is_plain(value: torch.Tensor) -> bool:
    """Whether a CPU tensor of known sizes can stand in for this one."""
    return value.device.type == "cpu" and value.layout is torch.strided and (
        all(type(n) is int for n in (*value.shape, *value.stride())))


@contextlib.contextmanager
def unnoticed(func: Any) -> Iterator[None]:
    """Hides a trial run from the program: its use of random numbers, the warning that an `out` argument is resized."""
    draws = torch.Tag.nondeterministic_seeded in func.tags
    state = torch.default_generator.get_state() if draws else None
    try:
        if any(a.is_out for a in func._schema.arguments):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        else:
            yield
    finally:
        if state is not None:
            torch.default_generator.set_state(state)
