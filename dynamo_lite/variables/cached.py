"""Functions under ``functools.lru_cache``.

Invariant: a cached function is called while tracing only for known arguments, and its result is guarded by asking the
    cache
again.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..source import Source
from .base import VariableTracker, unsupported, wraps_type
from .constant import is_constant_value
from .later import call_later

if TYPE_CHECKING:
    from ..codegen import Codegen


class CachedFunctionVariable(VariableTracker):
    """A function under ``functools.lru_cache`` or ``functools.cache``."""

    has_identity = True

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"cached function {getattr(self.value, '__qualname__', self.value)}"

    def hash_key(self) -> Any:
        return self.value

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def same_object(self, other: VariableTracker) -> bool | None:
        return other.is_constant() and other.constant() is self.value

    def truth(self, tx: Any) -> bool:
        return True

    def call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """Asks the cache where the arguments are known, else evaluates the function: its result is what the cache
        would hold."""
        if not kwargs and all(a.is_constant() for a in args):
            plain = tuple(a.constant() for a in args)
            result = tx.run_python(self.value, *plain)
            if is_constant_value(result):
                tx.guard_result(self.value, plain, result)
                return tx.from_result(result, self.describe())
        calls = tx.output.effects.calls
        begun = len(calls)
        result = tx.call(tx.library_function(self.value.__wrapped__), args, kwargs)
        if len(calls) > begun:
            # It logs, and does so once for these arguments: the cache decides about that when it is called.
            if not (result.is_constant() and result.constant() is None):
                unsupported("print_or_log", f"{self.describe()} logs and returns something")
            del calls[begun:]
            call_later(tx, self.value, args, kwargs)
        return result

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("cache_info", "cache_clear", "cache_parameters"):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}")
        return tx.from_result(tx.run_python(getattr, self.value, name), f"{self.describe()}.{name}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit.load_const(self.value)


@wraps_type(functools._lru_cache_wrapper)
def _wrap_cached_function(tx: Any, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return CachedFunctionVariable(value, source)
