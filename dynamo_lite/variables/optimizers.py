"""Steps of torch's optimizers as one graph.

An optimizer's step is Python over tensors like any other, but for four things: it times itself, it breaks the graph for
the sake of torch's own compiler, it reads its step counts as Python numbers, and it passes numbers on as arguments that
must be Python's. The counts stay tensors here, of double precision, in which Python would compute too.

Invariant: nothing of a count's value becomes part of a graph, so no step is compiled for itself.
"""
from __future__ import annotations

import types
from typing import Any

import torch
from torch.optim.optimizer import _get_value, _use_grad_for_differentiable

from ..polyfills import optimizers as polyfills
from ..source import ConstSource, Source
from .base import VariableTracker
from .builtins import handles as handles_python
from .constant import ConstantVariable
from .functions import MethodVariable
from .tensor import TensorVariable
from .torch_functions import TorchFunctionVariable, handles

_STEP_CODE = next(c for c in _use_grad_for_differentiable.__code__.co_consts if isinstance(c, types.CodeType))


def stand_in(tx: Any, value: types.FunctionType, source: Source) -> VariableTracker | None:
    """What to evaluate in place of a function of torch's optimizers; None for every other function."""
    if value.__code__ is not _STEP_CODE:
        return None
    tx.guard(source, "is", value)
    at = _STEP_CODE.co_freevars.index("func")
    step = value.__closure__[at].cell_contents  # type: ignore[index]
    inner = tx.wrap_function(step, ConstSource(step, step.__qualname__), trusted=True)
    return MethodVariable(tx.library_function(polyfills.use_grad), inner, source)


@handles_python(_get_value)
def _value(tx: Any, x: VariableTracker) -> VariableTracker:
    if isinstance(x, TensorVariable) and x.fake.is_floating_point():
        return x.call_method(tx, "to", [ConstantVariable(torch.float64)], {})
    return x


def _foreach(function: Any, replacement: Any) -> None:
    plain = TorchFunctionVariable(function)

    @handles(function)
    def _call(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if len(args) == 4 and not kwargs and isinstance(args[3], TensorVariable):
            return tx.call(tx.library_function(replacement), list(args), {})
        return plain.record(tx, list(args), kwargs)


_foreach(torch._foreach_addcdiv_, polyfills.foreach_addcdiv_)
_foreach(torch._foreach_addcmul_, polyfills.foreach_addcmul_)
