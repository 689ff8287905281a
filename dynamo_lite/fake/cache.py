"""A cache of the results of operations on fake tensors: a model's layers run the same operations on the same shapes.

torch's fake tensor mode has a cache, too, whose keys and entries cost 100 us a call. This one is limited to the most
frequent and simplest operations: their results are new tensors that follow from their arguments' sizes, strides, dtypes
and devices alone, or views of the first argument.
Invariant: an entry's key holds everything that the operation's metadata rule can see; calls with arguments that a key
can't hold are not cached.
"""
from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager, no_dispatch

from dynamo_lite.runtime.storage_extent import storage_extent

_MOST_ENTRIES = 8192
_aten = torch.ops.aten
# Operators of TorchScript that the dispatcher does not know.
NOT_DISPATCHED = frozenset({_aten.size.default, _aten.stride.default})
# Cached operations besides pointwise ones. None of them chooses a layout by a switch of torch's that is not in the key.
_OTHERS = frozenset({
    _aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default, _aten.embedding.default,
    _aten.native_layer_norm.default, _aten._softmax.default, _aten._log_softmax.default, _aten.cat.default,
    _aten.mean.dim, _aten.mean.default, _aten.sum.dim_IntList, _aten.sum.default, _aten.var_mean.correction,
    _aten.amax.default, _aten.cumsum.default, _aten.gather.default, _aten.index_select.default,
    _aten.clone.default, _aten._to_copy.default,
})
EXCLUDED_TAGS = frozenset({
    torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.nondeterministic_seeded,
    torch.Tag.inplace_view,
})
# Switches by which convolutions and attention choose the memory layout of a result. The program may change them.
_CHOICES = [getter for name in (
    "_get_math_sdp_enabled", "_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_cudnn_sdp_enabled",
    "_get_overrideable_sdp_enabled", "_get_mkldnn_enabled", "_get_cudnn_enabled", "_get_cudnn_benchmark",
    "_get_cudnn_deterministic", "_get_cudnn_allow_tf32",
) if (getter := getattr(torch._C, name, None)) is not None]
PLAIN = frozenset({
    int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
})

# Metadata of one result: sizes, strides, dtype, device.
Made = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]
# Whether a call returns a single tensor and not a tuple, and the metadata of its results.
Results = tuple[bool, tuple[Made, ...]]
_entries: dict[Any, Results] = {}


def choices() -> tuple[Any, ...]:
    """The present values of torch's switches for choosing kernels."""
    return (*(getter() for getter in _CHOICES), *torch._C._get_sdp_priority_order())


@functools.cache
def is_remembered(func: Any) -> bool:
    """Whether the results of an operation are cached."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return False
    if func._schema.is_mutable or EXCLUDED_TAGS & set(func.tags):
        return False
    if any(a.alias_info is not None for a in (*func._schema.arguments, *func._schema.returns)):
        return False
    if func in NOT_DISPATCHED or torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), "CompositeImplicitAutograd"):
        return False
    return torch.Tag.pointwise in func.tags or func in _OTHERS


@functools.cache
def is_remembered_view(func: Any) -> bool:
    """Whether an operation returns a view of its first argument that is cached."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten" or not func.is_view:
        return False
    arguments, returns = func._schema.arguments, func._schema.returns
    if func._schema.is_mutable or EXCLUDED_TAGS & set(func.tags) or len(returns) != 1 or not arguments:
        return False
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        return False
    aliased = [a.alias_info is not None for a in arguments]
    return aliased == [True] + [False] * (len(arguments) - 1) and returns[0].alias_info is not None


def key_of(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The cache key of a call; None if a key can't hold one of the arguments."""
    parts: list[Any] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    if not tell(mode, args, parts):
        return None
    for name, value in kwargs.items():
        parts.append(name)
        if not tell(mode, (value,), parts):
            return None
    return tuple(parts)


def tell(mode: Any, values: Any, parts: list[Any], derived: bool = False) -> bool:
    """Adds to `parts` the parts of a key that describe these arguments; False if a key can't hold one of them.

    Args:
        derived: whether results of tensors that require grad do so, too, which a key can't express.
    """
    for value in values:
        cls = type(value)
        if cls is FakeTensor:
            if value.fake_mode is not mode or value.constant is not None or value.layout is not torch.strided:
                return False
            if value._has_symbolic_sizes_strides or value.is_conj() or value.is_neg():
                return False
            if derived and value.requires_grad or mode.known.of(value) is not None:
                return False
            parts += (tuple(value.shape), value.stride(), value.dtype, value.fake_device)
        elif cls in PLAIN:
            parts += (cls, value)
        elif cls is list or cls is tuple or cls is torch.Size:
            parts += (list, len(value))
            if not tell(mode, value, parts, derived):
                return False
        else:
            return False
    return True


def remembered(mode: Any, key: Any) -> Any:
    """New fake tensors like those that the same call returned before; None if there was no such call."""
    found = _entries.get(key)
    return made_again(mode, found) if found is not None else None


def made_again(mode: Any, results: Results) -> Any:
    """New fake tensors with the metadata that :func:`results_of` has returned."""
    single, made = results
    with no_dispatch():
        fakes = [FakeTensor(mode, torch.empty_strided(size, strides, dtype=dtype, device="meta"), device)
                 for size, strides, dtype, device in made]
    return fakes[0] if single else tuple(fakes)


def remember(key: Any, result: Any, args: Any) -> None:
    """Caches the results of a call, if they are plain tensors with memory of their own."""
    results = results_of(result, args)
    if results is None:
        return
    if len(_entries) >= _MOST_ENTRIES:
        _entries.clear()
    _entries[key] = results


def results_of(result: Any, args: Any) -> Results | None:
    """The metadata of a call's results; None unless they are plain tensors with memory of their own."""
    single = type(result) is FakeTensor
    results = (result,) if single else result
    if type(results) is not tuple or not all(type(r) is FakeTensor and r.layout is torch.strided for r in results):
        return None
    places = {r.untyped_storage()._cdata for r in results}
    if len(places) < len(results) or any(lies_in(places, a) for a in args):
        return None
    for r in results:
        extent = storage_extent(r.shape, r.stride())
        if r.constant is not None or r.storage_offset() or r.is_conj() or r.is_neg():
            return None
        if r.requires_grad or r.untyped_storage().nbytes() != extent * r.itemsize:
            return None
    return single, tuple((tuple(r.shape), r.stride(), r.dtype, r.fake_device) for r in results)


# ---------------------------------------------------------------- views
# Metadata of a view, and its storage offset.
View = tuple[Made, int]
_views: dict[Any, View] = {}


def key_of_view(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Like :func:`key_of`, for an operation whose result lies in the memory of the first argument."""
    if not args or type(args[0]) is not FakeTensor or torch.is_inference_mode_enabled():
        return None
    key = key_of(mode, func, args, kwargs)
    base = args[0]
    return None if key is None else (key, base.storage_offset(), base.untyped_storage().nbytes())


def view_again(mode: Any, key: Any, base: FakeTensor) -> FakeTensor | None:
    """A new view of `base` like the one that the same operation returned before; None if there was no such call."""
    found = _views.get(key)
    if found is None:
        return None
    (size, strides, dtype, device), offset = found
    with in_kernel_invocation_manager(mode):
        view = torch.empty(0, dtype=dtype, device="meta")
        view.set_(base.untyped_storage(), offset, size, strides)
    return FakeTensor(mode, view, device)


def remember_view(key: Any, result: Any, base: FakeTensor) -> None:
    """Caches the result of an operation, if it is a plain view of `base`."""
    if type(result) is not FakeTensor or result is base or result.constant is not None:
        return
    if result.layout is not torch.strided or result.is_conj() or result.is_neg() or result.requires_grad:
        return
    if result.untyped_storage()._cdata != base.untyped_storage()._cdata:
        return
    if len(_views) >= _MOST_ENTRIES:
        _views.clear()
    made = tuple(result.shape), result.stride(), result.dtype, result.fake_device
    _views[key] = made, int(result.storage_offset())


def lies_in(places: set[int], value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(lies_in(places, item) for item in value)
    return (isinstance(value, FakeTensor) and value.layout is torch.strided
            and value.untyped_storage()._cdata in places)


def forget() -> None:
    """Clears the cache."""
    _entries.clear()
    _views.clear()
