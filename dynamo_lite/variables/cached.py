"""Functions under ``functools.lru_cache``.

Invariant: a cached function is called while tracing only for known arguments, and its result is guarded by asking the
cache again; what it keeps is one object, which the program may change or compare.
"""
from __future__ import annotations

import functools
from typing import Any

from ..source import AttrSource, ConstSource, Source
from .base import VariableTracker, realized, unsupported, wraps_type
from .constant import is_constant_value
from .later import call_later
from .real_object import RealObjectVariable
from .scalars import ScalarVariable


class CachedCall:
    """A call of a cached function, as a place where guards find what it gives."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    @property
    def result(self) -> Any:
        """What the cache holds."""
        return self.function(*self.args, **self.kwargs)


class CachedFunctionVariable(RealObjectVariable):
    """A function under ``functools.lru_cache`` or ``functools.cache``."""

    def describe(self) -> str:
        return f"cached function {getattr(self.value, '__qualname__', self.value)}"

    def call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """Asks the cache where the arguments are known; else evaluates the function, if that makes no difference."""
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, ScalarVariable):
                argument.refuse("an argument of a cached function")
        if all(a.is_constant() for a in (*args, *kwargs.values())):
            return self._ask(tx, tuple(a.constant() for a in args), {k: v.constant() for k, v in kwargs.items()})
        calls = tx.output.effects.calls
        begun = len(calls)
        with tx.output.effects.watched() as touched:
            result = tx.call(tx.library_function(self.value.__wrapped__), args, kwargs)
        if len(calls) > begun:
            # It logs, and does so once for these arguments: the cache decides about that when it is called.
            if not result.is_none():
                unsupported("print_or_log", f"{self.describe()} logs and returns something")
            del calls[begun:]
            call_later(tx, self.value, args, kwargs)
        elif any(t is None or t.source is not None for t in touched):
            unsupported("call_skipped", f"{self.describe()} changes something, once for these arguments")
        elif not (result.is_constant() and is_constant_value(result.constant())):
            # The cache gives the same object each time, which may have been changed since.
            unsupported("call_skipped", f"{self.describe()} keeps an object, for {_first_unknown(args, kwargs)}")
        return result

    def _ask(self, tx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> VariableTracker:
        """What the cache gives for known arguments, asked again at each call."""
        result = tx.run_python(self.value, *args, **kwargs)
        if is_constant_value(result) and not kwargs:
            tx.guard_result(self.value, args, result)
            return tx.from_result(result, self.describe())
        asked = CachedCall(self.value, args, kwargs)
        words = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])
        source = AttrSource(ConstSource(asked, f"{self.value.__qualname__}({words})"), "result")
        return realized(tx, tx.wrap_at(result, source))

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("cache_info", "cache_clear", "cache_parameters"):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}")
        return super().getattr(tx, name)


def _first_unknown(args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> str:
    return next(a for a in (*args, *kwargs.values()) if not a.is_constant()).describe()


@wraps_type(functools._lru_cache_wrapper)
def _wrap_cached_function(tx: Any, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return CachedFunctionVariable(value, source)
