"""The state that an exception object keeps in C: its arguments, cause, context and traceback.

Invariant: a field holds only values that CPython accepts for it.
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
    """The state in C of an exception made in the trace.

    Args:
        arguments: the arguments of ``__init__`` of its builtin base; None if that has not been called.
        by_interpreter: whether the evaluator raised it in place of CPython, so that attributes such as the ``name`` of
            an AttributeError are not known.
        raised: whether it was raised since its traceback was set, which extends the traceback.
        outer_context: whether no frame of the trace was handling an exception when it was last raised: its context is
            then the exception that a caller outside of the trace handles, if any.
    """

    arguments: list[VariableTracker] | None = None
    by_interpreter: bool = False
    raised: bool = False
    outer_context: bool = False

    def reconstruct(self, cg: Codegen, base: Any) -> None:
        """Emits a call of the base's ``__init__`` on the exception on top of the stack, if that stores more than the
        arguments."""
        if self.arguments is None or base.__init__ is BaseException.__init__:
            return
        arguments = self.arguments
        cg.call_constant_on_top(base.__init__, lambda: cg.push_all(arguments), count=len(arguments))


# Fields that every exception has in C and that a program may set.
EXCEPTION_FIELDS = frozenset({"args", "__cause__", "__context__", "__traceback__", "__suppress_context__"})


def fits_exception(name: str, value: VariableTracker) -> bool:
    """Whether an exception stores a value in the field `name` unchanged; it converts or refuses other values."""
    if name == "args":
        return value.python_type() is tuple
    if name == "__suppress_context__":
        return value.python_type() is bool
    if value.is_none():
        return True
    return issubclass(value.python_type(), types.TracebackType if name == "__traceback__" else BaseException)


class TracebackVariable(VariableTracker):
    """The traceback of an exception that was raised while tracing, which can be passed on but not inspected.

    Args:
        exception: the exception to which it belongs.
    """

    def __init__(self, exception: VariableTracker) -> None:
        super().__init__()
        self.exception = exception

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, tx: Tracer) -> bool:
        return True
