"""Classes as arguments of torch's functions: a graph is printed as Python, and a class has no text there.

Invariant: a class becomes the dtype that torch takes it for, or breaks the graph.
"""
from __future__ import annotations

from typing import Any

import torch

from ...continuation.deoptimize import is_of_torch
from ..base import unsupported
from ..failures import target_name

# What torch takes Python's number classes for, where it wants a dtype.
_DTYPES: dict[Any, torch.dtype] = {
    bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128,
}
# The dtypes of the classes for tensors in the CPU's memory.
LEGACY_DTYPES: dict[Any, torch.dtype] = {
    torch.FloatTensor: torch.float32, torch.DoubleTensor: torch.float64, torch.HalfTensor: torch.float16,
    torch.BFloat16Tensor: torch.bfloat16, torch.LongTensor: torch.int64, torch.IntTensor: torch.int32,
    torch.ShortTensor: torch.int16, torch.CharTensor: torch.int8, torch.ByteTensor: torch.uint8,
    torch.BoolTensor: torch.bool,
}


def in_graph(target: Any, argument: Any) -> Any:
    """An argument as a node of the graph can hold it."""
    if not isinstance(argument, type):
        return argument
    if argument in _DTYPES and (isinstance(target, str) or is_of_torch(target)):
        return _DTYPES[argument]
    if argument in LEGACY_DTYPES and target in ("type", torch.Tensor.type):
        return f"torch.{argument.__name__}"
    unsupported("unsupported_torch_call", f"{target_name(target)} with the class {argument.__qualname__}")
