"""Torch functions that take a size as an int. For a symbolic size, the graph calls an operator that takes symbols.

Invariant: where the size is a number, or the operator lacks one of the arguments, torch's own function is called.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...rules.table import handles
from ...runtime.sized_operators import operators
from ..base import VariableTracker
from ..numbers.symbolic_ints import SymbolicIntVariable
from ..tensors.tensor import TensorVariable, call_in_graph

if TYPE_CHECKING:
    from ..protocols import Tracer

_OPTIONS = frozenset({"dtype", "device"})
# Parameters that have no default or that distinguish overloads, in order.
_NAMES: dict[Callable[..., Any], tuple[str, ...]] = {
    torch.linspace: ("start", "end", "steps"), torch.logspace: ("start", "end", "steps", "base"),
    torch.tril_indices: ("row", "col", "offset"), torch.triu_indices: ("row", "col", "offset"),
    torch.nn.functional.one_hot: ("tensor", "num_classes"),
    torch.fft.fftfreq: ("n", "d"), torch.fft.rfftfreq: ("n", "d"),
    torch.hann_window: ("window_length", "periodic"), torch.blackman_window: ("window_length", "periodic"),
    torch.bartlett_window: ("window_length", "periodic"),
    torch.kaiser_window: ("window_length", "periodic", "beta"),
    torch.hamming_window: ("window_length", "periodic", "alpha", "beta"),
}
_SIZES = frozenset({"steps", "num_classes", "window_length", "row", "col", "n"})


def _with_symbol(
    function: Callable[..., Any], args: tuple[VariableTracker, ...], kwargs: dict[str, VariableTracker]
) -> tuple[Any, list[VariableTracker], dict[str, VariableTracker]] | None:
    """The operator and its arguments; None where torch's own function is to be called."""
    names = _NAMES[function]
    given = dict(zip(names, args))
    if len(args) > len(names) or given.keys() & kwargs.keys():
        return None
    given.update(kwargs)
    if not any(isinstance(given.get(name), SymbolicIntVariable) for name in _SIZES):
        return None
    options = {name: given.pop(name) for name in given.keys() & _OPTIONS}
    ordered = [given[name] for name in names if name in given]
    if len(ordered) < len(given) or list(given) != list(names[: len(given)]) or any(
            isinstance(value, TensorVariable) for name, value in given.items() if name != "tensor"):
        return None
    overloads = operators()[function.__name__]
    return overloads[len(ordered) - 1 if len(overloads) > 1 else 0], ordered, options


def _takes_symbols(function: Callable[..., Any]) -> None:
    @handles(function)
    def call(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        found = _with_symbol(function, args, kwargs)
        if found is None:
            return call_in_graph(tx, function, list(args), kwargs)
        return call_in_graph(tx, *found)


for _function in _NAMES:
    _takes_symbols(_function)
