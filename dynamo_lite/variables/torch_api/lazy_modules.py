"""The first call of a lazy module (``nn.LazyLinear``), which makes its parameters and changes its class.

Parameters draw random numbers where the program makes them, so this can't be done while tracing. It happens once: the
frame that calls the module runs in plain Python this time, and the next call is captured whole, as of a module that
never was lazy. Invariant: nothing of such a trace is used, except the guards under which it came here.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.modules.lazy import LazyModuleMixin

from ...exc import Unsupported
from ...rules.table import handles
from ..base import VariableTracker, realized, unsupported

if TYPE_CHECKING:
    from ..protocols import Tracer

_KIND = "unsupported_torch_call"


class InitializesOnce(Unsupported):
    """The frame does something that it will not do again, and runs in plain Python for it."""


@handles(LazyModuleMixin._infer_parameters)
def _infer_parameters(tx: Tracer, module: VariableTracker, *args: VariableTracker) -> VariableTracker:
    module = realized(tx, module)
    what = f"the first call of {module.describe()}, which makes its parameters"
    if module.source is None:  # the program makes such a module in each call
        unsupported(_KIND, what)
    raise InitializesOnce(_KIND, what)
