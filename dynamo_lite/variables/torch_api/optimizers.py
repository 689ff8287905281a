"""Steps of torch's optimizers as one graph.

An optimizer's step is Python over tensors like any other, but for a few things: it times itself, it breaks the graph
or asks not to be traced for the sake of torch's own compiler, it reads its step counts as Python numbers, it passes
numbers on as arguments that must be Python's, and it groups its tensors in C. The counts stay tensors here, of double
precision, in which Python would compute too.

Invariant: nothing of a count's value becomes part of a graph, so no step is compiled for itself.
"""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import _get_value, _use_grad_for_differentiable

from ...guards.source import ConstSource, Source
from ...polyfills import optimizers as polyfills
from ...rules.table import handles, looks_at
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..functions.functions import MethodVariable
from ..numbers.scalars import ScalarVariable
from ..tensors.tensor import TensorVariable, is_unknown_number
from .torch_functions import TorchFunctionVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

_STEP_CODE = next(
    c for c in _use_grad_for_differentiable.__code__.co_consts
    if isinstance(c, types.CodeType) and not c.co_name.startswith("__")  # the annotations are code, too (PEP 649)
)


@looks_at(_STEP_CODE)
def _step(tx: Tracer, value: types.FunctionType, source: Source) -> VariableTracker:
    """An optimizer's step, under the decorator that all have."""
    cells = dict(zip(value.__code__.co_freevars, value.__closure__ or ()))
    step = cells["func"].cell_contents
    inner = tx.values.wrap_function(step, ConstSource(step, step.__qualname__), trusted=True)
    tx.guard(source, "is", value)
    return MethodVariable(tx.values.library_function(polyfills.use_grad), inner, source)


@handles(_get_value)
def _value(tx: Tracer, x: VariableTracker) -> VariableTracker:
    if isinstance(x, TensorVariable) and x.fake.is_floating_point():
        return x.call_method(tx, "to", [ConstantVariable(torch.float64)], {})
    return x


@handles(torch._C._group_tensors_by_device_and_dtype)
def _group(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    return tx.call(tx.values.library_function(polyfills.group_tensors), list(args), {})


def _foreach(packet: str, replacement: Any, takes: Callable[[Any, list[VariableTracker], Any], bool]) -> None:
    """Calls of an operation on lists that `takes` become calls of the replacement, with the name of the operation."""
    function = getattr(torch, f"_foreach_{packet}")
    plain = TorchFunctionVariable(function)

    @handles(function)
    def _call(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if takes(tx, list(args), kwargs):
            return tx.call(tx.values.library_function(replacement), [ConstantVariable(packet), *args], kwargs)
        return plain.record(tx, list(args), kwargs)


def _with_tensor(tx: Tracer, args: list[VariableTracker], kwargs: Any) -> bool:
    return len(args) == 4 and not kwargs and isinstance(realized(tx, args[3]), TensorVariable)


def _with_number(tx: Tracer, args: list[VariableTracker], kwargs: Any) -> bool:
    if len(args) == 2 and set(kwargs) == {"alpha"}:
        return is_unknown_number(tx, kwargs["alpha"])
    return len(args) == 2 and not kwargs and isinstance(realized(tx, args[1]), ScalarVariable)


for _name in ("addcdiv_", "addcmul_"):
    _foreach(_name, polyfills.foreach_with_tensor_, _with_tensor)
for _name in ("add", "sub", "mul", "div"):
    _foreach(_name, polyfills.foreach_with_number, _with_number)
    _foreach(_name + "_", polyfills.foreach_with_number_, _with_number)
