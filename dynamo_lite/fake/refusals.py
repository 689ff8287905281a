"""What eager's kernels refuse and metadata rules let pass: operations are tried on small real tensors before they run
on fake ones.

Metadata rules let pass what eager's kernels refuse: a result that is larger than what it is written to (the fake tensor
is resized, and a kernel would write past the end of the memory), or of a type that does not fit in it. So the operation
itself runs on small stand-ins first. Only what is raised of zeros and of ones alike counts: anything else depends on
elements.

Of other operations, metadata rules let pass types for which eager has no kernel (softmax of integers). Whether it has
one is asked once for each operation and types, unless all are float32 or all float64, which every kernel has.

Invariant: an operation that passes leaves every argument that it writes, but for ``out`` and what changes sizes by its
name, with the sizes that it had.
"""
from __future__ import annotations

import contextlib
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
# Of all stand-ins of a call: filling them takes some microseconds. Larger tensors of elementwise operations are shrunk,
# which leaves their sizes equal and different as they were; larger ones of others are left to the metadata rules.
_MOST_BYTES = 1 << 18
_MOST_ENTRIES = 4096

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)

Sizes = list[tuple[Any, tuple[int, ...]]]

# What eager raised of a call, by what `fake.cache.key_of` tells calls apart; None if nothing.
_answers: dict[Any, Exception | None] = {}
# What eager raised of operations and types for which it has no kernel; None where it has one. Not many: both are few.
_without_kernel: dict[tuple[Any, tuple[torch.dtype, ...]], Exception | None] = {}
# What such refusals say; others may be about sizes.
_ABOUT_TYPES = ("not implemented for", "dtype", "scalar type")
_COMMON = frozenset({torch.float32, torch.float64})

# Their rules are complete, or they take their arguments apart before anything is written.
_NOT_ASKED = frozenset({
    aten.zero_.default, aten.fill_.Scalar, aten.detach_.default, aten.requires_grad_.default,
    aten.set_.source_Tensor, aten.set_.source_Storage, aten.set_.source_Storage_storage_offset, aten.resize_.default,
})

OPAQUE = frozenset({aten.mkldnn_rnn_layer_backward.default})
"""Operations that read their own kind of record of the forward pass: of any other content they end the process."""


def check(func: Any, args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> None:
    """Of an operation that writes to arguments; raises what eager does.

    Args:
        key: tells this call from others; None if nothing does.
    """
    if func.namespace != "aten" or func in _NOT_ASKED or torch.Tag.inplace_view in func.tags:
        return
    if func is aten.copy_.default and args[0].shape == args[1].shape:
        return
    _raise_as_eager(func, args, kwargs, key)


def _raise_as_eager(func: Any, args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> None:
    """Raises what eager does of such arguments; asks it once for each key."""
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

# They take numbers of rows, from 1 on; for others torch 2.11 writes outside of its memory.
_WITH_PIVOTS = frozenset({aten.linalg_ldl_solve, aten.linalg_lu_solve, aten.lu_unpack})

# What puts a part into a copy, and what the part is: the metadata rules broadcast it, eager does not.
_SCATTERS = {
    aten.select_scatter.default: aten.select.int, aten.slice_scatter.default: aten.slice.Tensor,
    aten.diagonal_scatter.default: aten.diagonal.default, aten.as_strided_scatter.default: aten.as_strided.default,
}


def _check_bounds(whole: torch.Tensor, size: Sequence[int], stride: Sequence[int], start: int | None = None) -> None:
    """The metadata rule enlarges the memory instead."""
    first = whole.storage_offset() if start is None else start
    held = whole.untyped_storage().nbytes()
    if any(isinstance(n, _SYMBOLS) for n in (*size, *stride, first, held)) or not all(size):
        return
    needed = (first + storage_extent(size, stride)) * whole.itemsize
    if needed > held:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {first}, and itemsize "
            f"{whole.itemsize} requiring a storage size of {needed} are out of bounds for storage of size {held}")


# Whose metadata rules let pass dimensions, empty operands, or floats that eager refuses.
_LENIENT = frozenset({
    getattr(getattr(aten, name), overload) for name in (
        "sort", "argsort", "msort", "max", "min", "aminmax", "_aminmax", "median", "nanmedian", "index_select",
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift",
        "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "gcd", "lcm", "_softmax", "_log_softmax",
        "bucketize",
    ) for overload in getattr(aten, name).overloads() if not overload.endswith("out")
})


# Whose metadata rules let pass operands and results without elements.
_RESAMPLINGS = frozenset({aten.upsample_linear1d.default, aten.upsample_bilinear2d.default,
                          aten.upsample_trilinear3d.default, aten.upsample_bicubic2d.default})


def _check_part(func: Any, whole: torch.Tensor, src: torch.Tensor, *place: Any, **named: Any) -> None:
    with no_dispatch():
        part = _SCATTERS[func](torch.empty(whole.shape, device="meta"), *place, **named)
    if part.shape != src.shape:
        raise RuntimeError("expected src to have a size equal to the slice of self. "
                           f"src size = {list(src.shape)}, slice size = {list(part.shape)}")


def is_lenient(func: Any) -> bool:
    """Whether the metadata rule of an operation that writes to nothing lets pass what :func:`check_rule` refuses."""
    return func in _LENIENT or func in _SCATTERS or func in _RESAMPLINGS or func is aten.as_strided.default


def check_rule(func: Any, args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> None:
    """Of an operation whose metadata rule is lenient; raises what eager does.

    Args:
        key: tells this call from others; None if nothing does.
    """
    if func in _LENIENT:
        _raise_as_eager(func, args, kwargs, key)
    elif func in _RESAMPLINGS:
        if len(args) < 2 or not args[0].numel() or not all(args[1]):
            _raise_as_eager(func, args, kwargs, key)
    elif func is aten.as_strided.default:
        _check_bounds(*args, **kwargs)
    elif len(args) > 1 and not any(isinstance(n, _SYMBOLS) for n in args[0].shape):
        _check_part(func, *args, **kwargs)


def check_types(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Of an operation that writes to nothing; raises what eager does if it has no kernel for the types."""
    types = _types_of(args, kwargs)
    if len(set(types)) <= 1 and _COMMON.issuperset(types) or func.namespace != "aten" or func in OPAQUE:
        return
    if (func, types) not in _without_kernel:
        raised = _ask(func, args, kwargs)
        lacks = isinstance(raised, RuntimeError) and any(words in str(raised) for words in _ABOUT_TYPES)
        _without_kernel[func, types] = raised if lacks else None
    raised = _without_kernel[func, types]
    if raised is not None:
        raise type(raised)(*raised.args)


def _types_of(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[torch.dtype, ...]:
    """Of the tensors that an operator gets; its arguments are no deeper than lists of them."""
    types = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            types.append(value.dtype)
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
    """Raises if one of the tensors has other sizes now."""
    for value, size in written:
        if tuple(value.shape) != size and func not in _NOT_ASKED:
            raise exc.InternalError(f"{func} without data turned a tensor of sizes {size} into {tuple(value.shape)}")


def _ask(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception | None:
    leaves = pytree.tree_leaves((args, kwargs))
    fakes = [t for t in leaves if isinstance(t, torch.Tensor)]
    if not all(is_plain(t) for t in fakes) or any(isinstance(n, _SYMBOLS) for n in leaves):
        return None
    sizes: dict[int, int] | None = None
    if are_large(fakes):
        if not overlap.is_elementwise(func):
            return None
        sizes = shrunk(fakes)
    with no_dispatch(), torch._C._AutoDispatchBelowAutograd(), unnoticed(func):
        content, *others = contents(func)
        first = _raised(func, args, kwargs, sizes, content)
        if first is None:
            return None
        again = [_raised(func, args, kwargs, sizes, other) for other in others]
    return first if all(type(e) is type(first) and str(e) == str(first) for e in again) else None


def contents(func: Any) -> tuple[int, ...]:
    """What the elements of stand-ins may be, one after the other."""
    return (1,) if func.overloadpacket in _WITH_PIVOTS else (0, 1)


def are_large(fakes: Sequence[torch.Tensor]) -> bool:
    """Whether stand-ins of the same sizes would take too long."""
    return sum(storage_extent(t.shape, t.stride()) * t.itemsize for t in fakes) > _MOST_BYTES


def shrunk(fakes: Sequence[torch.Tensor]) -> dict[int, int]:
    """Smaller sizes for those of some tensors, as equal and in the same order."""
    several = sorted({n for t in fakes for n in t.shape if n > 1})
    return {0: 0, 1: 1, **{n: 2 + i for i, n in enumerate(several)}}


def stand_ins(
    args: Sequence[Any], kwargs: dict[str, Any], sizes: dict[int, int] | None, content: int
) -> tuple[Any, Any]:
    """The arguments with real tensors, all of whose elements are `content`, in place of the fake ones.

    Args:
        sizes: their sizes by those of the fake ones, which then are expanded from few elements; None: the same layouts.
    """
    made: dict[int, torch.Tensor] = {}

    def stand_in(fake: torch.Tensor) -> torch.Tensor:
        if id(fake) not in made:
            made[id(fake)] = _stand_in(fake, sizes, content)
        return made[id(fake)]

    return pytree.tree_map_only(torch.Tensor, stand_in, (tuple(args), kwargs))


def _raised(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], sizes: dict[int, int] | None, content: int
) -> Exception | None:
    real_args, real_kwargs = stand_ins(args, kwargs, sizes, content)
    try:
        func(*real_args, **real_kwargs)
    except Exception as error:
        signal_handlers.pass_on(error)
        return error.with_traceback(None)
    return None


def _stand_in(fake: torch.Tensor, sizes: dict[int, int] | None, content: int) -> torch.Tensor:
    if sizes is None:
        flat = torch.full((storage_extent(fake.shape, fake.stride()),), content, dtype=fake.dtype)
        return flat.as_strided(fake.shape, fake.stride())
    size = [sizes[n] for n in fake.shape]
    distinct = [1 if stride == 0 else n for n, stride in zip(size, fake.stride())]
    return torch.full(distinct, content, dtype=fake.dtype).expand(size)


def is_plain(value: torch.Tensor) -> bool:
    """Whether a tensor on the CPU of known sizes can stand for it."""
    return value.device.type == "cpu" and value.layout is torch.strided and (
        all(type(n) is int for n in (*value.shape, *value.stride())))


@contextlib.contextmanager
def unnoticed(func: Any) -> Iterator[None]:
    """Keeps from the program that something runs: random numbers, the warning that an `out` argument is resized."""
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
