"""``x.numpy()``: an array in the memory of a tensor, which generated code makes behind the graph.

The array sees what is written to the tensor's memory, before and behind the place where the program asks for it, so it
does not matter when it is made. The trace only passes it on: what NumPy computes from it is computed in plain Python.

Invariant: the tensor is a view of its own, so that the array lies in eager's memory even where the program gives the
tensor other data afterwards.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ..base import VariableTracker, unsupported
from .method_calls import handles_method
from .tensor import TensorVariable, record_method

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_KIND = "numpy_conversion"
_DTYPES = frozenset({
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.complex64, torch.complex128,
})


def _refuse(array: VariableTracker, *_: Any) -> NoReturn:
    unsupported(_KIND, f"what NumPy does with {array.describe()}")


_REFUSED: Any = _refuse  # as any method


class TensorArrayVariable(VariableTracker):
    """An array in the memory of a tensor."""

    has_identity = True

    def __init__(self, tensor: VariableTracker) -> None:
        super().__init__()
        self.tensor = tensor

    def python_type(self) -> type:
        return np.ndarray

    def describe(self) -> str:
        return f"the array of {self.tensor.describe()}"

    def contains_tensor(self) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: cg.call_function(Tensor.numpy, [self.tensor], {}), lambda: None)

    truth = getattr = setattr = delattr = call = call_method = length = getitem = setitem = delitem = _REFUSED
    contains = iterate = iterator = reversed = next = binary = inplace = compare = unary = _REFUSED


@handles_method(Tensor.numpy)
def _numpy(tx: Tracer, tensor: TensorVariable, **options: VariableTracker) -> VariableTracker:
    fake = tensor.fake
    if options:
        unsupported(_KIND, "Tensor.numpy() with options")
    if tx.output.parts or tx.output.examples or torch._C._are_functorch_transforms_active():
        unsupported(_KIND, "Tensor.numpy() in a function that torch calls by itself")
    if fake.requires_grad or fake.is_conj() or fake.is_neg() or fake.device.type != "cpu" or fake.dtype not in _DTYPES:
        unsupported(_KIND, f"Tensor.numpy() of {tensor.describe()}, which raises")
    return TensorArrayVariable(record_method(tx, "detach", tensor, [], {}))
