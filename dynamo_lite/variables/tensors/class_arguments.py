"""Classes as arguments of torch functions: a graph is printed as Python code, in which a class can't be written.

Invariant: a class is replaced by the dtype that torch takes it for, or it breaks the graph.
"""
from __future__ import annotations

from typing import Any

import torch

from ...continuation.deoptimize import is_of_torch
from ..base import unsupported
from ..failures import target_name

# The dtypes that torch takes Python's number classes for, where it expects a dtype.
_DTYPES: dict[Any, torch.dtype] = {
    bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128,
}
# The dtypes of the legacy classes of tensors in the CPU's memory.
LEGACY_DTYPES: dict[Any, torch.dtype] = {
    torch.FloatTensor: torch.float32, torch.DoubleTensor: torch.float64, torch.HalfTensor: torch.float16,
    torch.BFloat16Tensor: torch.bfloat16, torch.LongTensor: torch.int64, torch.IntTensor: torch.int32,
    torch.ShortTensor: torch.int16, torch.CharTensor: torch.int8, torch.ByteTensor: torch.uint8,
    torch.BoolTensor: torch.bool,
}


def in_graph(target: Any, argument: Any) -> Any:
    """The argument in a form that a node of the graph can hold."""
    if not isinstance(argument, type):
        return argument
    if argument in _DTYPES and (isinstance(target, str) or is_of_torch(target)):
        return _DTYPES[argument]
    if argument in LEGACY_DTYPES and target in ("type", torch.Tensor.type):
        return f"torch.{argument.__name__}"
    unsupported("unsupported_torch_call", f"{target_name(target)} with the class {argument.__qualname__}")
