"""A cache of whole calls on fake tensors, for one trace: a model's layers make the same calls on the same shapes.

``F.linear`` on fake tensors is four operations, each of which goes through torch's dispatcher and back to Python. In
contrast to ``fake.cache``, which caches single operations for the process, this cache lasts for one trace, so that it
can hold calls of torch's functions that are written in Python.

Invariant: an entry's key holds everything that a call's result can depend on: the arguments' sizes, strides, dtypes and
devices, this thread's state, and torch's switches for choosing kernels. Cached are calls that change nothing, draw no
random numbers, can't raise because of elements, and return new plain tensors without autograd history.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite._guards import current_global_state
from dynamo_lite.fake import cache

if TYPE_CHECKING:
    from dynamo_lite.fake.mode import TraceFakeMode

_MODULES = frozenset({"torch", "_operator"})


def key_of(mode: TraceFakeMode, op: str, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The cache key of a call; None if the call is of a kind that is not cached."""
    if mode.raises_seen or not (mode.cache_enabled and mode.static_shapes) or not _is_torchs(op, target):
        return None
    if mode.known and not any(type(argument) is FakeTensor for argument in args):
        return None  # a tensor that is made of numbers alone has known elements
    state = current_global_state()
    parts = [op, target, state, *cache.choices()]
    derived = torch.is_grad_enabled()
    if not cache.tell(mode, args, parts, derived) or not cache.tell(mode, kwargs.values(), parts, derived):
        return None
    return *parts, *kwargs


def _is_torchs(op: str, target: Any) -> bool:
    """Whether torch alone determines a call's result, and no function of the program takes part."""
    if op == "call_method":
        return True
    if isinstance(target, torch._ops.OpOverload):
        return bool(target.namespace == "aten")
    if isinstance(target, types.FunctionType):
        return vars(torch.nn.functional).get(target.__name__) is target
    # C functions of other extensions are called on fake tensors, too, where a user allows it.
    return isinstance(target, types.BuiltinFunctionType) and (target.__module__ or "").split(".")[0] in _MODULES


def remember(mode: TraceFakeMode, key: Any, result: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Caches the results of a call for the trace, if the call is of a kind that is cached."""
    if mode.effects_seen or mode.raises_seen or mode.written or mode.known.needed:
        return
    results = cache.results_of(result, (*args, *kwargs.values()))
    if results is not None and all(mode.known.of(t) is None for t in (result if type(result) is tuple else (result,))):
        mode.calls[key] = results


def remembered(mode: TraceFakeMode, key: Any) -> Any:
    """New fake tensors like those that the same call returned before; None if there was no such call."""
    found = mode.calls.get(key)
    return cache.made_again(mode, found) if found is not None else None
