"""Functions under ``disable``, of dynamo_lite or of torch.

Invariant: like other functions they are guarded by their code, not by identity: a program may make a new one at each
call, and calling it in plain Python is correct for any function.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING

from ...guards.source import FunctionPartSource, Source
from ..base import VariableTracker, unsupported
from .functions import FunctionVariable

if TYPE_CHECKING:
    from ..protocols import Tracer


class DisabledFunctionVariable(FunctionVariable):
    """A function whose calls break the graph.

    Args:
        reason: the user's reason, or "".
    """

    def __init__(self, value: types.FunctionType, source: Source, reason: str) -> None:
        super().__init__(value, source)
        self.reason = reason

    def describe(self) -> str:
        return f"{self.value.__module__}.{self.value.__qualname__}"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        unsupported("disabled_function", f"{self.describe()}()" + (f": {self.reason}" if self.reason else ""))


def disabled_function(tx: Tracer, value: types.FunctionType, source: Source, reason: str) -> VariableTracker:
    """The tracker of a function under ``disable``, guarded by its code and globals."""
    tx.guard(source, "code_is", value.__code__)
    tx.guard(FunctionPartSource(source, "__globals__"), "is", value.__globals__)
    return DisabledFunctionVariable(value, source, reason)
