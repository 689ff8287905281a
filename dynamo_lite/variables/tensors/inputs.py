"""Tensors that come from outside of the frame: which of them can be inputs of a graph, and the guards that check it.

Invariant: every property of its inputs' layout that a graph relies on is guarded here.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ..._guards import TENSOR_CONJ, TENSOR_EXPECTED_SHIFT, TENSOR_INFERENCE, TENSOR_NEG, TENSOR_ZERO
from ...guards.source import AttrSource, Source
from ..base import VariableTracker, realized, unsupported, wraps_if, wraps_type
from .meta_tensors import MetaTensorVariable
from .parameters import is_static
from .symbolic_sizes import symbolic_dims, symbolic_layout

if TYPE_CHECKING:
    from ..protocols import Tracer
from .attributes import PLAIN_TENSOR_TYPES
from .methods import TensorMethodVariable

_DLPACK_CODES = {
    torch.int8: (0, 8), torch.int16: (0, 16), torch.int32: (0, 32), torch.int64: (0, 64), torch.uint8: (1, 8),
    torch.uint16: (1, 16), torch.uint32: (1, 32), torch.uint64: (1, 64), torch.float16: (2, 16), torch.float32: (2, 32),
    torch.float64: (2, 64), torch.bfloat16: (4, 16), torch.complex64: (5, 64), torch.complex128: (5, 128),
    torch.bool: (6, 8),
}


_DLPACK_DEVICES = {"cpu": 1, "cuda": 2}


@wraps_type(torch.Tensor, torch.nn.Parameter)
def wrap_tensor(tx: Tracer, value: torch.Tensor, source: Source) -> VariableTracker:
    """A plain tensor, or a parameter of a class that only adds attributes to it."""
    if value.device.type == "meta" and type(value) in PLAIN_TENSOR_TYPES:
        tx.guard(source, "type_is", type(value))
        return MetaTensorVariable(value, source)
    reason = _why_not_plain(value)
    if reason is not None:
        unsupported(*reason)
    dims = symbolic_dims(tx, value, source, is_static(value, source))
    layout = symbolic_layout(tx, value, source, dims) if dims else None
    size = tuple(value.shape) if layout is None else layout.guarded_size
    strides = tuple(value.stride()) if layout is None else layout.guarded_strides
    code, bits = _DLPACK_CODES[value.dtype]
    tx.guard(
        source, "tensor", type(value), code, bits, _DLPACK_DEVICES[value.device.type], value.device.index or 0,
        size, strides, value.requires_grad, _tensor_flags(value), value.dtype,
    )
    return tx.output.add_input(value, source, layout)


@wraps_if(lambda value: type(value) is types.BuiltinMethodType and isinstance(value.__self__, torch.Tensor), rank=1)
def _wrap_tensor_method(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    """Wraps ``x.sin``. Python makes such an object each time it is read, so its identity need not be guarded."""
    tx.guard(source, "type_is", types.BuiltinMethodType)
    owner: Any = realized(tx, tx.values.wrap_at(value.__self__, AttrSource(source, "__self__")))
    tx.guard(AttrSource(source, "__name__"), "const", value.__name__)
    method = TensorMethodVariable(owner, value.__name__)
    method.source = source
    return method


def _tensor_flags(value: torch.Tensor) -> int:
    """The operand `flags` of the guard program's step "tensor": the bits that are checked, and those expected set."""
    state = ((TENSOR_INFERENCE, value.is_inference()), (TENSOR_CONJ, value.is_conj()), (TENSOR_NEG, value.is_neg()),
             (TENSOR_ZERO, False))
    flags = 0
    for bit, expected in state:
        flags |= bit | (bit << TENSOR_EXPECTED_SHIFT if expected else 0)
    return flags


def _why_not_plain(value: torch.Tensor) -> tuple[str, str] | None:
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return "sparse_or_quantized", f"a {value.layout} tensor"
    if value._is_zerotensor():
        return "unsupported_value", "a tensor of zeros without memory, as autograd makes some gradients"
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return "functorch", "a tensor wrapped by a functorch transform"
    if value.device.type not in _DLPACK_DEVICES or value.dtype not in _DLPACK_CODES:
        return "unsupported_value", f"a tensor of {value.dtype} on {value.device}"
    return None
