"""``contextvars.ContextVar``: reads, sets and resets of variables in the current context.

A value that is read is guarded in the context of the calling thread; a value that the trace sets and does not reset is
set after the graph. Invariant: a token exists only in the trace, so that a break between ``set`` and ``reset`` moves
back to before ``set``.
"""
from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from ...guards.source import ComputedSource, Source
from ..base import VariableTracker, unsupported, wraps_type
from ..constant import ConstantVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


def _is_set(var: contextvars.ContextVar[Any]) -> bool:
    return var in contextvars.copy_context()


_UNSET: Any = object()


def _default(var: contextvars.ContextVar[Any]) -> Any:
    """The default with which a variable was made (its value in an empty context); _UNSET if it has none."""
    try:
        return contextvars.Context().run(var.get)
    except LookupError:
        return _UNSET


class ContextVarVariable(VariableTracker):
    """A context variable from outside."""

    has_identity = True
    replayed = 2

    def __init__(self, value: contextvars.ContextVar[Any], source: Source) -> None:
        super().__init__()
        self.value = value
        self.source = source
        self.held: VariableTracker | None = None  # the value that the trace has set, None if none

    def python_type(self) -> type:
        return contextvars.ContextVar

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "name":
            return ConstantVariable(self.value.name)
        return tx.builtin_method(self, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        method = _METHODS.get(name)
        if method is None or kwargs:
            unsupported("unsupported_method", f"{self.describe()}.{name}")
        return tx.checked_call(method, self, tx, *args)

    def get(self, tx: Tracer, default: VariableTracker | None = None, /) -> VariableTracker:
        if self.held is not None:
            return self.held
        assert self.source is not None
        is_set = _is_set(self.value)
        tx.guard(ComputedSource(self.source, _is_set, f"whether {self.source.name} is set"), "const", is_set)
        if not is_set and default is not None:
            return default
        if not is_set and _default(self.value) is _UNSET:
            unsupported("python_exception_in_trace", f"LookupError: {self.describe()} is not set")
        get = contextvars.ContextVar.get
        return tx.values.wrap_now(self.value.get(), ComputedSource(self.source, get, f"{self.source.name}.get()"))

    def set(self, tx: Tracer, value: VariableTracker, /) -> VariableTracker:
        token = TokenVariable(self, self.held)
        self._hold(tx, value)
        return token

    def reset(self, tx: Tracer, token: VariableTracker, /) -> VariableTracker:
        if not isinstance(token, TokenVariable) or token.of is not self or token.used:
            unsupported("unsupported_method", f"{self.describe()}.reset() with {token.describe()}")
        token.used = True
        tx.output.effects.advance(token)
        self._hold(tx, token.before)
        return ConstantVariable(None)

    def _hold(self, tx: Tracer, value: VariableTracker | None) -> None:
        # If the trace has not set a value before, the context holds the old value, and setting releases it there.
        tx.output.effects.mutate(self, [] if self.held is None else [self.held])
        self.held = value

    def prepare(self, cg: Codegen) -> Any:
        """Emits code that computes the value to set; returns a function that emits the call of ``set``."""
        if self.held is None:
            return lambda: None
        held = cg.hold(self.held)

        def emit() -> None:
            cg.load_source(self.source)
            cg.emit.load_attr("set")
            cg.call_top(lambda: cg.emit.load_fast(held))
            cg.emit.pop()

        return emit


class TokenVariable(VariableTracker):
    """The result of ``set``, by which ``reset`` restores the previous value."""

    has_identity = True

    def __init__(self, of: ContextVarVariable, before: VariableTracker | None) -> None:
        super().__init__()
        self.of, self.before, self.used = of, before, False

    def python_type(self) -> type:
        return contextvars.Token

    def describe(self) -> str:
        return f"a token of {self.of.describe()}"

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "var":
            return self.of
        unsupported("unsupported_attribute", f"{self.describe()}.{name}")

    def reconstruct(self, cg: Codegen) -> None:
        unsupported("side_effect_unsupported", f"{self.describe()}, which only set() makes")


_METHODS: dict[str, Any] = {
    "get": ContextVarVariable.get, "set": ContextVarVariable.set, "reset": ContextVarVariable.reset,
}


@wraps_type(contextvars.ContextVar)
def _wrap_context_var(tx: Tracer, value: contextvars.ContextVar[Any], source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return ContextVarVariable(value, source)
