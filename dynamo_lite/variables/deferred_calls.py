"""Calls that are made after the graph: logging, and hooks of tensors.

A logging call whose arguments are all known while tracing depends on nothing that the graph changes. So generated code
makes the call, in the program's order, from frames that look like the program's own.

Invariant: the record that comes out is eager's: message, level, logger, file, function and line.
"""
from __future__ import annotations

import collections
import dataclasses
import logging
import types
from typing import TYPE_CHECKING, Any

from ..guards.source import BASES
from .base import VariableTracker, instance_dict, unsupported
from .constant import ConstantVariable
from .torch_api.modules import SkippedFunctionVariable

if TYPE_CHECKING:
    from .protocols import Codegen, Tracer


@dataclasses.dataclass(frozen=True)
class DeferredCall:
    """A call for its effect alone.

    Args:
        function: the function that is called.
        args, kwargs: the arguments of the call.
        frames: functions that each call the next one, as the frames of the program did, outermost first.
        line: the line of the call in the captured frame.
        hooks: the tensor whose history the call gives a hook.
    """

    function: Any
    args: list[VariableTracker]
    kwargs: dict[str, VariableTracker]
    frames: tuple[types.FunctionType, ...]
    line: int | None
    hooks: VariableTracker | None = None

    def emit(self, cg: Codegen) -> None:
        """Emits the call."""
        cg.emit.set_line(self.line)
        first, *rest = (*self.frames, self.function)
        cg.emit.load_function(first)
        for function in rest:
            cg.emit.load_const(function)
        cg.push_all(self.args)
        cg.push_all(self.kwargs.values())
        cg.emit.call(len(rest) + len(self.args), tuple(self.kwargs))
        cg.emit.pop()


class DeferredFunctionVariable(SkippedFunctionVariable):
    """A function that is called after the graph, if its arguments are known; its result is None."""

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if not all(_is_known(tx, a) for a in (*args, *kwargs.values())):
            unsupported(self.kind, f"{self.describe()}(): {self.reason} what is known only when the program runs")
        _check_state(tx, self)
        defer_call(tx, self.value, args, kwargs)
        return ConstantVariable(None)


class AskedFunctionVariable(SkippedFunctionVariable):
    """A function that is called while tracing, and by a guard at every call, which checks that the result is the
    same."""

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        real = tuple(tx.values.as_real(a) for a in args)
        if kwargs:
            unsupported(self.kind, f"{self.describe()}() with keyword arguments")
        _check_state(tx, self)
        result = tx.run_python(self.value, *real)
        tx.guard_result(self.value, real, result)
        return tx.values.from_result(result, self.describe())


def _check_state(tx: Tracer, function: SkippedFunctionVariable) -> None:
    """Breaks the graph if the trace has changed state on which the function's module depends: the module's globals, or
    objects of its classes."""
    name = function.value.__module__
    for changed in tx.output.effects.changed_objects():
        space = changed if type(changed) is dict else vars(changed) if type(changed) is types.ModuleType else {}
        if space.get("__name__") == name or any(c.__module__ == name for c in BASES(type(changed))):
            unsupported(function.kind, f"{function.describe()}() after a change of what {name} goes by")


# The largest number of objects reached from handlers that are examined for one call; and the classes whose instances no
# handler changes.
_MOST_BEHIND = 300
_UNCHANGED = (str, bytes, int, float, type(None), type, types.ModuleType, types.FunctionType, types.MethodType)


def _behind(args: list[VariableTracker]) -> list[Any]:
    """The handlers and filters that process a logger's record, and the objects that they hold and may change.

    Raises:
        exc.Unsupported: they hold more than `_MOST_BEHIND` objects.
    """
    asked = args[0].value if args and not args[0].is_constant() else None
    logger: logging.Logger | None = asked if issubclass(type(asked), logging.Logger) else logging.getLogger()
    pending: list[Any] = []
    while logger is not None:
        pending += (*logger.handlers, *logger.filters, *(f for handler in logger.handlers for f in handler.filters))
        logger = logger.parent if logger.propagate else None
    found: dict[int, Any] = {}
    while pending:
        if len(found) == _MOST_BEHIND:
            unsupported("print_or_log", f"a logging call whose handlers hold more than {_MOST_BEHIND} objects")
        value = pending.pop()
        cls = type(value)  # not isinstance, which reads __class__ of the user's objects
        if id(value) in found or issubclass(cls, (logging.Logger, *_UNCHANGED)):
            continue
        found[id(value)] = value
        if issubclass(cls, dict):
            pending += dict.values(value)
        elif cls in (list, tuple, set, collections.deque):
            pending += value
        else:
            pending += (instance_dict(value) or {}).values()
    return list(found.values())


def _is_known(tx: Tracer, value: VariableTracker) -> bool:
    """Whether the value is the same before and after the graph."""
    if value.is_constant():
        return not value.contains_tensor()
    if value.source is not None:
        return not value.contains_tensor() and not tx.output.effects.attributes_of(value) and value.cls is not None
    items = value.known_items()
    return items is not None and all(_is_known(tx, item) for item in items)


def defer_call(
    tx: Tracer, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> None:
    """Makes generated code call the function at the program's place in the order of effects."""
    frames: list[types.FunctionType] = []
    frame = tx
    while frame.parent is not None:
        frames.append(_frame_like(frame.code, frame.current.positions[0], frame.globals[0]))
        frame = frame.parent
    line = frame.current.positions[0]
    call = DeferredCall(function, args, kwargs, tuple(reversed(frames)), line)
    tx.output.effects.add_deferred(call, _behind(args))


def _frame_like(code: types.CodeType, line: int | None, globals: dict[str, Any]) -> types.FunctionType:
    """A function that calls its first argument with the others, from a frame that looks like a frame of this code."""
    here = _call_next.__code__
    names: dict[str, Any] = {"co_name": code.co_name, "co_qualname": code.co_qualname, "co_filename": code.co_filename}
    placed = here.replace(co_firstlineno=(line or code.co_firstlineno) - _LINES_BEFORE_CALL, **names)
    return types.FunctionType(placed, globals)


def _call_next(*args: Any, **kwargs: Any) -> Any:
    return args[0](*args[1:], **kwargs)


_LINES_BEFORE_CALL = max(line for *_, line in _call_next.__code__.co_lines() if line) - (
    _call_next.__code__.co_firstlineno)

__all__ = ["AskedFunctionVariable", "DeferredCall", "DeferredFunctionVariable", "defer_call"]
