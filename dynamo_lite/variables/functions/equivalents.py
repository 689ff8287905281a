"""Python equivalents (polyfills) of functions written in C, and the C objects for which their results stand.

Invariant: a program can't distinguish the equivalent from the original.
"""
from __future__ import annotations

import dataclasses
import os
import types
from typing import TYPE_CHECKING, Any

from ... import polyfills
from ..base import VariableTracker, unsupported

if TYPE_CHECKING:
    from ..protocols import Codegen

_RETURNS_ITSELF = (lambda self: self).__code__.co_code
_EQUIVALENTS = os.path.dirname(polyfills.__file__) + os.sep


def check_asked_again(*values: VariableTracker) -> None:
    """Breaks the graph where generated code would make an iterator over iterators whose ``__iter__`` has side effects:
    the trace has already called it, and generated code would call it again."""
    for value in values:
        cls = value.cls
        method = getattr(cls, "__iter__", None) if isinstance(cls, type) and hasattr(cls, "__next__") else None
        if isinstance(method, types.FunctionType) and method.__code__.co_code != _RETURNS_ITSELF:
            unsupported("unsupported_iteration", f"{value.describe()}, an iterator whose __iter__ does something")


@dataclasses.dataclass(frozen=True)
class StandsFor:
    """The call of a function or class written in C, in place of which an equivalent of ours was called."""

    function: Any
    args: list[VariableTracker]
    kwargs: dict[str, VariableTracker]

    def reconstruct(self, cg: Codegen) -> None:
        """Emits the original call."""
        check_asked_again(*self.args, *self.kwargs.values())
        cg.call_function(self.function, self.args, self.kwargs)


def is_equivalent(code: types.CodeType) -> bool:
    """Whether this is code of ours that is traced in place of a function written in C."""
    return code.co_filename.startswith(_EQUIVALENTS)
