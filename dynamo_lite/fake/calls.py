"""Calls of a trace on fake tensors, remembered whole: a model's layers make the same calls on the same shapes.

``F.linear`` on fake tensors is four operations, each of which goes through torch's dispatcher and back to Python.
Beside ``fake.cache``, which remembers single operations for the process, this lasts for one trace, so that functions of
torch's that are written in Python are remembered too.

Invariant: an entry's key holds all that a call's result can depend on: the arguments' sizes, strides, dtypes and
devices, this thread's state, and which kernels torch is to choose. Remembered are new plain tensors of calls that
change nothing, draw nothing, can't raise because of elements, and whose results have no derivative.
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
    """What tells this call from others of the trace; None if it is not one that is remembered."""
    if mode.raises_seen or not (mode.cache_enabled and mode.static_shapes) or not _is_torchs(op, target):
        return None
    if mode.known and not any(type(argument) is FakeTensor for argument in args):
        return None  # what is made of numbers alone has known elements
    state = current_global_state()
    parts = [op, target, state, *cache.choices()]
    derived = torch.is_grad_enabled()
    if not cache.tell(mode, args, parts, derived) or not cache.tell(mode, kwargs.values(), parts, derived):
        return None
    return *parts, *kwargs


def _is_torchs(op: str, target: Any) -> bool:
    """Whether torch alone says what a call gives, and no function of the program's."""
    if op == "call_method":
        return True
    if isinstance(target, torch._ops.OpOverload):
        return bool(target.namespace == "aten")
    if isinstance(target, types.FunctionType):
        return vars(torch.nn.functional).get(target.__name__) is target
    # Functions in C of other extensions are called on fake tensors where a user allows it.
    return isinstance(target, types.BuiltinFunctionType) and (target.__module__ or "").split(".")[0] in _MODULES


def remember(mode: TraceFakeMode, key: Any, result: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Keeps what a call has made, for the trace, if it is one that is remembered."""
    if mode.effects_seen or mode.raises_seen or mode.written or mode.known.needed:
        return
    results = cache.results_of(result, (*args, *kwargs.values()))
    if results is not None and all(mode.known.of(t) is None for t in (result if type(result) is tuple else (result,))):
        mode.calls[key] = results


def remembered(mode: TraceFakeMode, key: Any) -> Any:
    """New fake tensors as the same call has made them before; None if there was none."""
    found = mode.calls.get(key)
    return cache.made_again(mode, found) if found is not None else None
