"""``torch.Tensor(...)``, ``torch.FloatTensor(...)`` and the other legacy constructors, which are older than dtypes
(torch/csrc/utils/tensor_new.cpp, legacy_tensor_generic_ctor_new).

Invariant: the constructor itself runs on numbers while tracing, and the graph makes the same tensor; arguments that the
constructor refuses raise its own exception.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ...rules.table import handles
from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from .class_arguments import LEGACY_DTYPES
from .tensor import TensorVariable, call_in_graph

if TYPE_CHECKING:
    from ..protocols import Tracer

_CPU = torch.device("cpu")


def make_legacy(cls: Any, tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    name = f"{cls.__module__}.{cls.__name__}()"
    if tx.output.open_modes:
        unsupported("unsupported_torch_call", f"{name} under a mode")
    device = kwargs.pop("device", ConstantVariable(None))
    if kwargs or not (device.is_none() or torch.device(tx.values.as_plain(device)) == _CPU):
        unsupported("unsupported_torch_call", f"{name} with {', '.join(kwargs) or 'a device'}")
    if len(args) == 1 and isinstance(args[0], TensorVariable):
        return _of_tensor(tx, cls, args[0])
    plain = [tx.values.as_plain(arg) for arg in args]  # breaks the graph for tensors, whose elements are not known
    dtype = LEGACY_DTYPES.get(cls, torch.get_default_dtype())
    if all(type(n) is int for n in plain) or len(plain) == 1 and type(plain[0]) is torch.Size:
        shape = plain[0] if plain and type(plain[0]) is torch.Size else plain or [0]
        sizes = tx.values.new_list([ConstantVariable(n) for n in shape])
        return call_in_graph(tx, torch.empty, [sizes], _options(dtype))
    made = tx.run_python(cls, *plain)
    return call_in_graph(tx, torch.tensor, [tx.values.from_result(made.tolist(), name)], _options(dtype))


def _of_tensor(tx: Tracer, cls: Any, other: TensorVariable) -> VariableTracker:
    """Another tensor that shares the memory of the given one."""
    fake, dtype = other.fake, LEGACY_DTYPES.get(cls, other.fake.dtype)
    if fake.dtype is not dtype or fake.device != _CPU and cls is not torch.Tensor:
        tx.run_python(cls, torch.empty(0, dtype=fake.dtype))  # raises the constructor's own exception
        unsupported("unsupported_torch_call", f"{cls.__name__}() of {other.describe()}")
    return call_in_graph(tx, torch.ops.aten.alias.default, [other], {})


def _options(dtype: torch.dtype) -> dict[str, VariableTracker]:
    return {"dtype": ConstantVariable(dtype), "device": ConstantVariable(_CPU)}


@handles(torch.nn.Parameter)
def _parameter(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    unsupported("unsupported_torch_call", "torch.nn.Parameter()")


for _cls in (torch.Tensor, *LEGACY_DTYPES):
    handles(_cls)(functools.partial(make_legacy, _cls))
