"""Enables ``torch.autocast`` inside a dispatch mode.

An operation that autocast does not cast itself runs with autocast enabled, so operations that its kernel calls through
the dispatcher are cast. A dispatch mode lies below autocast in the dispatcher, and torch disables autocast in it; a
mode that decomposes such an operation therefore has to enable it again. Without gradients, in particular under
``inference_mode``, operations reach the mode undecomposed.

Invariant: the parts of an operation that autocast casts itself are not cast again.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

aten = torch.ops.aten
Key = torch._C.DispatchKey
_COMPOSITE = Key.CompositeImplicitAutograd

_KEYS = {"cpu": Key.AutocastCPU, "cuda": Key.AutocastCUDA}
_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key

OPAQUE = frozenset({aten._transformer_encoder_layer_fwd.default, aten.linalg_pinv.atol_rtol_tensor})
"""Operations with kernels of their own, which are not decomposed and call other operations that are cast: under
autocast their results have a dtype that a mode can't know. Found by ``tests/fake/test_casts_inside.py`` and by reading
the kernels."""


def keys() -> tuple[Key, ...]:
    """Autocast's dispatch keys of the devices for which it is enabled. To be called outside dispatch modes."""
    if not torch._C._is_any_autocast_enabled():
        return ()
    return tuple(key for device, key in _KEYS.items() if torch.is_autocast_enabled(device))


def are_cast(func: torch._ops.OpOverload, operands: Any) -> bool:
    """Whether autocast has a kernel of its own for an operation on the devices of its operands."""
    devices = {value.device.type for value in pytree.tree_leaves(operands) if isinstance(value, torch.Tensor)}
    return any(_has_kernel(func.name(), key.name) for device, key in _KEYS.items() if device in devices)


def has_python_kernel(func: torch._ops.OpOverload) -> bool:
    """Whether torch also has a decomposition of a composite operation in Python."""
    return _COMPOSITE in func.py_kernels


def take_apart(func: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any], in_python: bool) -> Any:
    """Decomposes a composite operation, by aten's kernel or, if `in_python`, by torch's decomposition in Python."""
    kernel = func.py_kernels.get(_COMPOSITE) if in_python else None
    return kernel(*args, **kwargs) if kernel is not None else func._op_dk(_COMPOSITE, *args, **kwargs)


@contextlib.contextmanager
def on(keys: Sequence[Key]) -> Iterator[None]:
    """A context in which autocast is enabled for dispatched operations."""
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in keys]
    exclude = torch._C._dispatch_tls_set_dispatch_key_excluded
    for key in keys:
        exclude(key, False)
    try:
        yield
    finally:
        for key, was in zip(keys, before):
            exclude(key, was)
