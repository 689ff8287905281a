"""A cache of the results of operators on symbolic sizes, for one trace: a model's layers run the same operators on the
same sizes, and a backend records again the operators that the trace has run.

Torch's rules ask each question about symbols through several layers of Python, and an operator on symbols runs twice,
so that it takes 50 times as long as one without. Entries belong to the environment: decisions of the first run are
guards of the trace from then on.

Invariant: an entry's key holds everything that the operator's result can depend on: expressions for sizes, strides,
offsets and the extent of viewed memory, dtypes, devices, this thread's state, and torch's switches for choosing
kernels. Cached are new plain tensors, and plain views of the first argument that have its dtype.
"""
from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, no_dispatch

from dynamo_lite._guards import current_global_state
from dynamo_lite.fake import cache
from dynamo_lite.fake.meta_kernels import symbolic_part
from dynamo_lite.symbols.nodes import IntNode, expression_of, symbolic_int


@functools.cache
def is_remembered(func: Any) -> bool:
    """Whether an operator returns new tensors, or a view of its first argument, that follow from its arguments'
    metadata."""
    if cache.is_remembered_view(func):
        return True
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return False
    if func._schema.is_mutable or cache.EXCLUDED_TAGS & set(func.tags) or func in cache.NOT_DISPATCHED:
        return False
    if any(a.alias_info is not None for a in (*func._schema.arguments, *func._schema.returns)):
        return False
    return not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def key_of(mode: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The cache key of a call; None if the call is of a kind that is not cached."""
    if not is_remembered(func) or torch.is_inference_mode_enabled():
        return None
    parts: list[Any] = [func, current_global_state(), *cache.choices()]
    if not _tell(mode, args, parts):
        return None
    for name, value in kwargs.items():
        parts.append(name)
        if not _tell(mode, (value,), parts):
            return None
    if cache.is_remembered_view(func):
        if type(args[0]) is not FakeTensor:
            return None
        parts += (_told(args[0].storage_offset()), _told(args[0].untyped_storage().nbytes()))
    return None if None in parts else tuple(parts)


class _Nothing:
    """Stands for the argument None in a key, where None itself stands for a number without an expression."""


def _tell(mode: Any, values: Any, parts: list[Any]) -> bool:
    for value in values:
        cls = type(value)
        if cls is FakeTensor:
            if value.fake_mode is not mode or value.constant is not None or value.layout is not torch.strided:
                return False
            if value.is_conj() or value.is_neg() or mode.known.of(value) is not None:
                return False
            layout = (*map(_told, value.shape), *map(_told, value.stride()))
            if None in layout:
                return False
            parts += (FakeTensor, value.dim(), layout, value.dtype, value.fake_device)
        elif value is None:
            parts.append(_Nothing)
        elif cls is torch.SymInt:
            parts += (int, _told(value))
        elif cls in cache.PLAIN:
            # 0.0 and -0.0 are equal, and a NaN equals no NaN.
            parts += (cls, repr(value) if cls is float or cls is complex else value)
        elif cls is list or cls is tuple or cls is torch.Size:
            parts += (list, len(value))
            if not _tell(mode, value, parts):
                return False
        else:
            return False
    return True


def _told(number: Any) -> Any:
    """A number's expression; None if it has none."""
    if type(number) is int:
        return number
    node = number.node if type(number) is torch.SymInt else None
    return node.expr if type(node) is IntNode else None


def remembered(mode: Any, key: Any, args: Any) -> Any:
    """New fake tensors like those that the same call returned before; None if there was no such call."""
    found = mode.env.results.get(key)
    if found is None:
        return None
    single, made, offset = found
    env = mode.env
    if offset is not None:
        ((size, strides, _, device),) = made
        view = symbolic_part(args[0], _numbers(env, size), _numbers(env, strides), _numbers(env, (offset,))[0])
        return FakeTensor(mode, view, device)
    with no_dispatch():
        metas = [torch.empty_strided(_numbers(env, size), _numbers(env, strides), dtype=dtype, device="meta")
                 for size, strides, dtype, _ in made]
        fakes = [FakeTensor(mode, meta, device) for meta, (_, _, _, device) in zip(metas, made)]
    return fakes[0] if single else tuple(fakes)


def _numbers(env: Any, expressions: Any) -> list[Any]:
    return [symbolic_int(env, env.simplified(x)) if type(x) is not int else x for x in expressions]


def remember(mode: Any, key: Any, func: Any, args: Any, result: Any) -> None:
    """Caches the results of a call, if they are plain tensors with memory of their own, or a single plain view."""
    single = type(result) is FakeTensor
    results = (result,) if single else result
    if not isinstance(results, tuple) or not results or not all(type(r) is FakeTensor for r in results):
        return
    for r in results:
        if r.constant is not None or r.layout is not torch.strided or r.is_conj() or r.is_neg() or r.requires_grad:
            return
    places = {r.untyped_storage()._cdata for r in results}
    offset: Any = None
    if cache.is_remembered_view(func):
        if not single or result is args[0] or result.dtype is not args[0].dtype:
            return
        if places != {args[0].untyped_storage()._cdata}:
            return
        offset = expression_of(result.storage_offset())
    elif len(places) < len(results) or any(cache.lies_in(places, a) for a in args):
        return
    elif any(type(r.storage_offset()) is not int or r.storage_offset() for r in results):
        return
    made = tuple((tuple(map(expression_of, r.shape)), tuple(map(expression_of, r.stride())), r.dtype, r.fake_device)
                 for r in results)
    mode.env.results[key] = single, made, offset
