"""``torch.autocast`` inside of a dispatch mode.

An operation that autocast does not cast runs with autocast on: what its kernel calls through the dispatcher is cast. A
dispatch mode stands below autocast, and torch turns that off in it, so that a mode which takes such an operation apart
has to turn it on again. Without gradients, in particular under ``inference_mode``, operations arrive there whole.

Invariant: within an operation that autocast casts itself, its parts are not cast once more.
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
"""Operations with kernels of their own, not taken apart, which call others that are cast: their results have another
dtype under autocast than a mode can know. Found by ``tests/fake/test_casts_inside.py`` and by reading the kernels."""


def keys() -> tuple[Key, ...]:
    """The dispatch keys of autocast for those devices for which it is on. To be asked outside of modes."""
    if not torch._C._is_any_autocast_enabled():
        return ()
    return tuple(key for device, key in _KEYS.items() if torch.is_autocast_enabled(device))


def are_cast(func: torch._ops.OpOverload, operands: Any) -> bool:
    """Whether autocast has a kernel of its own for an operation on the devices of its operands."""
    devices = {value.device.type for value in pytree.tree_leaves(operands) if isinstance(value, torch.Tensor)}
    return any(_has_kernel(func.name(), key.name) for device, key in _KEYS.items() if device in devices)


def has_python_kernel(func: torch._ops.OpOverload) -> bool:
    """Whether torch takes a composite operation apart in Python, too."""
    return _COMPOSITE in func.py_kernels


def take_apart(func: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any], in_python: bool) -> Any:
    """Runs a composite operation as the operations that it is made of: aten's kernel, or torch's one in Python."""
    kernel = func.py_kernels.get(_COMPOSITE) if in_python else None
    return kernel(*args, **kwargs) if kernel is not None else func._op_dk(_COMPOSITE, *args, **kwargs)


@contextlib.contextmanager
def on(keys: Sequence[Key]) -> Iterator[None]:
    """Turns autocast on for what is dispatched inside."""
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in keys]
    exclude = torch._C._dispatch_tls_set_dispatch_key_excluded
    for key in keys:
        exclude(key, False)
    try:
        yield
    finally:
        for key, was in zip(keys, before):
            exclude(key, was)
