"""``torch.istft``, followed as operations, with the check of its window in the graph.

Invariant: what torch refuses or warns of is left to torch's own function.
"""
from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from ...polyfills.spectral import istft
from ...rules.table import handles
from ..base import VariableTracker
from ..constant import ConstantVariable
from ..tensors.method_calls import handles_method
from ..tensors.tensor import TensorVariable, record, record_method

if TYPE_CHECKING:
    from ..protocols import Tracer

_SIGNATURE = inspect.signature(istft)


def _is_regular(given: dict[str, Any]) -> bool:
    """Whether torch accepts the arguments of a call, as far as can be seen without elements, and warns of none."""
    x, window = given.pop("input"), given.pop("window")
    if not all(type(value) is ConstantVariable for value in given.values()):
        return False
    plain = {name: value.value for name, value in given.items()}
    n_fft, onesided = plain["n_fft"], plain["onesided"]
    if not _is_count(n_fft):
        return False
    hop = plain["hop_length"] if plain["hop_length"] is not None else n_fft // 4
    width = plain["win_length"] if plain["win_length"] is not None else n_fft
    sizes = (n_fft, hop, width)
    if not all(map(_is_count, sizes)) or width > n_fft or hop > width or plain["return_complex"]:
        return False
    fake = x.fake
    if fake._has_symbolic_sizes_strides or not fake.is_complex() or fake.dim() not in (2, 3) or not fake.numel():
        return False
    if fake.is_conj() or onesided not in (None, True, False) or fake.dtype is torch.complex32:
        return False
    if fake.shape[-2] != (n_fft if onesided is False else n_fft // 2 + 1):
        return False
    if not window.is_none() and not _fits(window, fake, width):
        return False
    whole = n_fft + hop * (fake.shape[-1] - 1)
    start = n_fft // 2 if plain["center"] else 0
    length = plain["length"]
    return length is None and whole > 2 * start or _is_count(length) and length <= whole - start


def _is_count(number: Any) -> bool:
    return type(number) is int and number > 0


def _fits(window: VariableTracker, x: torch.Tensor, width: int) -> bool:
    if not isinstance(window, TensorVariable):
        return False
    own = window.fake
    return own.shape == (width,) and own.dtype is x.dtype.to_real() and own.device == x.device


def _followed(
    tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """The result; None for arguments that torch's own function is to see."""
    try:
        bound = _SIGNATURE.bind(*args, **kwargs)
    except TypeError:
        return None
    for name, parameter in _SIGNATURE.parameters.items():
        if name not in bound.arguments and parameter.default is not inspect.Parameter.empty:
            bound.arguments[name] = ConstantVariable(parameter.default)
    if not isinstance(bound.arguments["input"], TensorVariable) or not _is_regular(dict(bound.arguments)):
        return None
    return tx.call(tx.values.library_function(istft), args, kwargs)


@handles(torch.istft, of_tensor=True)
def _istft(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    made = _followed(tx, list(args), kwargs)
    return made if made is not None else record(tx, "call_function", torch.istft, list(args), kwargs)


@handles_method(torch.Tensor.istft)
def _istft_method(
    tx: Tracer, tensor: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    made = _followed(tx, [tensor, *args], kwargs)
    return made if made is not None else record_method(tx, "istft", tensor, list(args), kwargs)
