"""Special methods of torch's classes of tensors, whose operations the trace records without calling them.

Invariant: that a special method is torch's own is guarded; a program that has replaced it breaks the graph. What
classes derived from torch.Tensor define is followed elsewhere (``subclasses``).
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ..base import unsupported
from .parameters import adds_only

if TYPE_CHECKING:
    from ..protocols import TensorVariable, Tracer

_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.NoneType)
_NAMESPACE: Any = vars(torch._tensor)


def check_special(tx: Tracer, tensor: TensorVariable, *names: str) -> None:
    """Guards that these special methods of a tensor's class are torch's own.

    Raises:
        exc.Unsupported: the program has replaced one of them.
    """
    cls = tensor.cls
    if cls not in (torch.Tensor, torch.nn.Parameter) and not adds_only(cls):
        return
    for name in names:
        method = tx.classes.lookup(cls, name)
        of_torch = isinstance(method, types.FunctionType) and method.__globals__ is _NAMESPACE
        if not of_torch and not isinstance(method, _IN_C):
            unsupported("unsupported_method", f"{name} of {tensor.describe()}, which the program has replaced")
