"""``with torch.device(...)`` inside a captured function.

The context is really entered while tracing. A function that makes tensors gets the device as an argument of its node,
so that the graph depends on no mode. Invariant: a graph never ends inside the context; a program that would break the
graph there breaks before it enters the context.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import _device_constructors

from ...rules.table import breaks
from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from .open_mode import OpenMode

if TYPE_CHECKING:
    from ..protocols import Tracer

breaks("unsupported_context_manager", torch._C._push_on_torch_dispatch_stack, torch._C._pop_torch_dispatch_stack)
# Called by name, they need not belong to one `with` statement, which enters and leaves the context together.
breaks("unsupported_context_manager", torch.device.__enter__, torch.device.__exit__)


class DeviceScopeVariable(OpenMode, VariableTracker):
    """The ``__exit__`` method of a ``torch.device`` that was entered: a call of it leaves the context."""

    has_identity = True

    def __init__(self, device: torch.device, visit: int) -> None:
        VariableTracker.__init__(self)
        OpenMode.__init__(self, visit)
        self.device = device

    def python_type(self) -> type:
        return type(self.device.__exit__)

    def describe(self) -> str:
        return f"with torch.device({str(self.device)!r})"

    def enter(self, tx: Tracer) -> VariableTracker:
        """Enters the context; returns the value that ``as`` binds."""
        self.device.__enter__()
        tx.output.open_modes.append(self)
        tx.output.effects.advance(self)
        return ConstantVariable(self.device)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        modes = tx.output.open_modes
        if not modes or modes[-1] is not self:
            unsupported("unsupported_context_manager", f"{self.describe()} is left out of order")
        modes.pop()
        tx.output.effects.advance(self)
        self.leave()
        return ConstantVariable(None)

    def leave(self) -> None:
        self.device.__exit__(None, None, None)


class DeviceEnterVariable(VariableTracker):
    """``__enter__`` of a scope, for Python 3.14, where ``with`` loads it separately from calling it."""

    def __init__(self, scope: DeviceScopeVariable) -> None:
        super().__init__()
        self.scope = scope

    def python_type(self) -> type:
        return type(self.scope.device.__enter__)

    def describe(self) -> str:
        return f"the beginning of {self.scope.describe()}"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return self.scope.enter(tx)


def device_of_scope(output: Any, target: Any) -> torch.device | None:
    """The device that the innermost context passes to a function that makes tensors; None if it passes none."""
    for mode in reversed(output.open_modes):
        if isinstance(mode, DeviceScopeVariable):
            return mode.device if target in _device_constructors() else None
    return None

