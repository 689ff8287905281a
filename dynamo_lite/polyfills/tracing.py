"""Stand-ins for functions of ``torch.jit`` and ``torch.fx`` that a program calls while it is captured, and the call of
a ``torch.fx.GraphModule``.

Invariant: each has the result of torch's own function in plain Python.
"""
from __future__ import annotations

import types
from typing import Any

import torch
from torch.fx import _symbolic_trace

from ..rules.table import stands_in_for
from ..torch_versions import FX_TRACES_BY_THREAD


@stands_in_for(torch.jit.annotate)
def annotate(the_type: Any, the_value: Any) -> Any:
    """``torch.jit.annotate``."""
    return the_value


def is_fx_tracing() -> bool:
    """The function of ``torch.fx`` without the warning that it logs at each call."""
    return _symbolic_trace._is_fx_tracing_flag


def is_fx_tracing_in_thread() -> bool:
    """The same for versions of torch in which each thread has a flag of its own."""
    return getattr(_symbolic_trace._is_fx_tracing_tls, "flag", False)  # type: ignore[attr-defined]


stands_in_for(_symbolic_trace.is_fx_tracing, _symbolic_trace.is_fx_symbolic_tracing)(
    is_fx_tracing_in_thread if FX_TRACES_BY_THREAD else is_fx_tracing)


def call_graph_module(module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The ``__call__`` of a ``GraphModule``, without the report of the generated line at which a call fails."""
    wrapped = module._wrapped_call
    if wrapped.cls_call is not None:
        return wrapped.cls_call(module, *args, **kwargs)
    return super(wrapped.cls, module).__call__(*args, **kwargs)


def nested_code(outer: types.CodeType, name: str) -> types.CodeType:
    """The code of the function `name` that a function with the code `outer` defines, as a new object each time."""
    return next(c for c in outer.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


# torch makes a new function for each module.
stands_in_for(nested_code(torch.fx.GraphModule.recompile.__code__, "call_wrapped"))(call_graph_module)
