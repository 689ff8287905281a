"""Conversions between tensors of classes derived from torch.Tensor and plain tensors, for guards and generated code.

Invariant: no function of this module runs code of the program's, such as ``__torch_function__``.
"""
from __future__ import annotations

from typing import Any

import torch

_as_subclass: Any = torch.Tensor.as_subclass
_set_grad_enabled: Any = torch._C._set_grad_enabled


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor that shares memory and history with a tensor of a derived class. It requires gradients if the
    tensor does, whether or not they are switched on."""
    if torch.is_grad_enabled():
        plain: torch.Tensor = _as_subclass(tensor, torch.Tensor)
        return plain
    _set_grad_enabled(True)
    try:
        plain = _as_subclass(tensor, torch.Tensor)
    finally:
        _set_grad_enabled(False)
    return plain


def requires_grad(tensor: torch.Tensor) -> bool:
    """``tensor.requires_grad`` of a tensor of a derived class."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.requires_grad


def given_class(cls: type, tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor that nothing else refers to, made one of a derived class, as if it had been made so."""
    tensor.__class__ = cls
    return tensor
