"""What an exception object keeps in C: its arguments, cause, context and traceback.

Invariant: a field holds what CPython lets it hold.
"""
from __future__ import annotations

import dataclasses
import types
from typing import TYPE_CHECKING, Any

from ..base import (
    VariableTracker,
)

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


@dataclasses.dataclass
class ExceptionState:
    """What an exception made in the trace holds in C.

    Args:
        arguments: of the ``__init__`` of its builtin base; None while that has not been called.
        by_interpreter: whether the evaluator raised it, as CPython itself does, so that attributes such as the
            ``name`` of an AttributeError are not known.
        raised: whether it was raised since its traceback was set, which makes it a longer one.
        outer_context: whether, when it was raised last, no frame of the trace handled an exception: its context is
            then what a caller outside of the trace handles, if that is any.
    """

    arguments: list[VariableTracker] | None = None
    by_interpreter: bool = False
    raised: bool = False
    outer_context: bool = False

    def reconstruct(self, cg: Codegen, base: Any) -> None:
        """With the exception on the stack, emits what its base's ``__init__`` stores besides the arguments."""
        if self.arguments is None or base.__init__ is BaseException.__init__:
            return
        arguments = self.arguments
        cg.call_constant_on_top(base.__init__, lambda: cg.push_all(arguments), count=len(arguments))


# What every exception holds in C and a program may set.
EXCEPTION_FIELDS = frozenset({"args", "__cause__", "__context__", "__traceback__", "__suppress_context__"})


def fits_exception(name: str, value: VariableTracker) -> bool:
    """Whether an exception stores a value as it is; others it converts or refuses."""
    if name == "args":
        return value.python_type() is tuple
    if name == "__suppress_context__":
        return value.python_type() is bool
    if value.is_none():
        return True
    return issubclass(value.python_type(), types.TracebackType if name == "__traceback__" else BaseException)


class TracebackVariable(VariableTracker):
    """A traceback of an exception that was raised while tracing: it is handed around and never looked at.

    Args:
        exception: the one that it belongs to.
    """

    def __init__(self, exception: VariableTracker) -> None:
        super().__init__()
        self.exception = exception

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, tx: Tracer) -> bool:
        return True
