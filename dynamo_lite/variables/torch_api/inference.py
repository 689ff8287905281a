"""``torch.inference_mode`` inside a captured function.

The mode is really entered while tracing, so that fake results are inference tensors where eager's are, and the graph
enters and leaves it where the program does. Invariant: a graph never ends inside the mode; a program that would break
the graph there breaks before it enters the mode.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from .open_mode import OpenMode

if TYPE_CHECKING:
    from ..protocols import Tracer


class InferenceModeVariable(OpenMode, VariableTracker):
    """The C++ object that ``torch.inference_mode`` enters and leaves."""

    has_identity = True

    def __init__(self, mode: bool, visit: int) -> None:
        VariableTracker.__init__(self)
        OpenMode.__init__(self, visit)
        self.mode = mode
        self._context: Any = None
        self._node: Any = None

    def python_type(self) -> type:
        return torch._C._InferenceMode

    def describe(self) -> str:
        return f"torch.inference_mode({self.mode})"

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return tx.builtin_method(self, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        output = tx.output
        if name == "__enter__" and self._context is None:
            self._context = torch._C._InferenceMode(self.mode)
            self._context.__enter__()
            output.open_modes.append(self)
            self._node = output.mode_node(tx, _enter_inference_mode, (self.mode,))
            return ConstantVariable(None)
        if name == "__exit__" and output.open_modes and output.open_modes[-1] is self:
            output.open_modes.pop()
            self.leave()
            output.mode_node(tx, _exit_inference_mode, (self._node,))
            return ConstantVariable(None)
        unsupported("unsupported_context_manager", f"{self.describe()}.{name}()")

    def leave(self) -> None:
        self._context.__exit__(None, None, None)
