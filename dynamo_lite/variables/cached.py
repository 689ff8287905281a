"""Functions under ``functools.lru_cache``.

Invariant: a cached function is called while tracing only for known arguments, and its result is guarded by asking the
cache again; what it keeps is one object, which the program may change or compare.
"""
from __future__ import annotations

import functools
import weakref
from typing import Any

from ..source import AttrSource, ConstSource, Source, WeakrefSource
from .base import VariableTracker, realized, unsupported, wraps_type
from .constant import is_constant_value
from .later import call_later
from .real_object import RealObjectVariable
from .scalars import ScalarVariable
from .sequences import TupleVariable


class CachedCall:
    """A call of a cached function, as a place where guards find what it gives. Objects of the program among the
    arguments are not kept alive: where one has ended, there is no result."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    @property
    def result(self) -> Any:
        """What the cache holds."""
        return self.function(*map(_value, self.args), **{name: _value(arg) for name, arg in self.kwargs.items()})


def _value(argument: Any) -> Any:
    value = argument() if type(argument) is weakref.ref else argument
    if value is None and argument is not None:
        raise ReferenceError("an argument of a cached function has ended")
    return value


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
        begun, operations = len(calls), tx.output.operations
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
            if tx.output.operations == operations and all(map(_is_known, (*args, *kwargs.values()))):
                asked = CachedCall(self.value, tuple(map(_real, args)), {name: _real(a) for name, a in kwargs.items()})
                if _stands_for(tx, result, tx.run_python(lambda: asked.result)):
                    for argument in (*args, *kwargs.values()):
                        if not argument.is_constant():
                            tx.guard(argument.source, "tensor_same", WeakrefSource(_reference(argument)))
                    return self._at_cache(tx, asked)
            unsupported("call_skipped", f"{self.describe()} keeps an object, for {_first_unknown(args, kwargs)}")
        return result

    def _ask(self, tx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> VariableTracker:
        """What the cache gives for known arguments, asked again at each call."""
        result = tx.run_python(self.value, *args, **kwargs)
        if is_constant_value(result) and not kwargs:
            tx.guard_result(self.value, args, result)
            return tx.from_result(result, self.describe())
        return self._at_cache(tx, CachedCall(self.value, args, kwargs))

    def _at_cache(self, tx: Any, asked: CachedCall) -> VariableTracker:
        """What the cache holds, where guards find it."""
        words = ", ".join([*map(_words, asked.args), *(f"{k}={_words(v)}" for k, v in asked.kwargs.items())])
        source = AttrSource(ConstSource(asked, f"{self.value.__qualname__}({words})"), "result")
        return realized(tx, tx.wrap_at(asked.result, source))

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("cache_info", "cache_clear", "cache_parameters"):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}")
        return super().getattr(tx, name)


def _is_known(argument: VariableTracker) -> bool:
    """Whether a cache finds an argument again: constants, and objects from outside by their identity."""
    if argument.is_constant():
        return True
    value = getattr(argument, "value", None)
    cls = type(value)
    return argument.source is not None and value is not None and cls.__hash__ is object.__hash__ and (
        cls.__eq__ is object.__eq__ and cls.__weakrefoffset__ > 0 and not isinstance(value, type))


def _real(argument: VariableTracker) -> Any:
    return argument.constant() if argument.is_constant() else weakref.ref(argument.value)  # type: ignore[attr-defined]


def _reference(argument: VariableTracker) -> Source:
    return ConstSource(_real(argument), f"a weak reference to {argument.source.name}")  # type: ignore[union-attr]


def _words(argument: Any) -> str:
    return f"<{type(argument()).__qualname__}>" if type(argument) is weakref.ref else repr(argument)


def _stands_for(tx: Any, tracker: VariableTracker, value: Any) -> bool:
    """Whether a tracker is what the cache gives: the same objects, in tuples."""
    tracker = realized(tx, tracker)
    if isinstance(tracker, TupleVariable) and type(value) is tuple:
        pairs = list(zip(tracker.items, value))
        return len(tracker.items) == len(value) and all(_stands_for(tx, item, real) for item, real in pairs)
    if tracker.is_constant():
        return type(value) is type(tracker.constant()) and value == tracker.constant()
    return tracker.source is not None and getattr(tracker, "value", None) is value


def _first_unknown(args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> str:
    return next(a for a in (*args, *kwargs.values()) if not a.is_constant()).describe()


@wraps_type(functools._lru_cache_wrapper)
def _wrap_cached_function(tx: Any, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return CachedFunctionVariable(value, source)
