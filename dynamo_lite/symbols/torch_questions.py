"""Answers the questions that torch's metadata rules ask of ``torch.fx.experimental.symbolic_shapes``, without sympy.

That module imports sympy, which takes longer than tracing a small model. The rules ask few different questions, and
since each symbol of a trace has a value in the traced call, each question has a short answer. Rules import the
functions where they use them, so :func:`scope` replaces the real module in ``sys.modules`` by a module of answers while
an operator is dispatched.

Invariant: outside :func:`scope`, no name of torch's or sympy's refers to an object of dynamo_lite. Any other name is
looked up in the real module, which is imported at that moment.
"""
from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch

from .nodes import BoolNode, hint_of

NAME = "torch.fx.experimental.symbolic_shapes"
_NUMBERS = (torch.SymInt, torch.SymBool, torch.SymFloat)


def _guard(a: Any) -> bool:
    return bool(a)


def _statically(a: Any, wanted: bool) -> bool:
    if isinstance(a, torch.SymBool):
        node = a.node
        return node.env.known(node.condition) is wanted if isinstance(node, BoolNode) else False
    return bool(a) is wanted


def _sym_eq(x: Any, y: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and functools.reduce(operator.and_, map(_sym_eq, x, y), True)
    return x == y


def _has_symbols(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(value._has_symbolic_sizes_strides)
    if isinstance(value, (list, tuple)):
        return any(map(_has_symbols, value))
    return isinstance(value, _NUMBERS) and not value.node.is_constant()


def _none(*_: Any, **__: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _no_symbols(*_: Any, **__: Any) -> set[Any]:
    return set()


def _is_concrete(a: Any) -> bool:
    return not isinstance(a, _NUMBERS) or a.node.is_constant()


class _DataDependent(RuntimeError):
    """Stands for the exception that torch raises for a symbol without a value; rules only catch it."""


ANSWERS: dict[str, Any] = {
    "GuardOnDataDependentSymNode": _DataDependent,
    "expect_true": _guard, "guard_bool": _guard, "guard_or_false": _guard, "guard_or_true": _guard,
    "guard_size_oblivious": _guard,
    "guard_int": int, "guard_float": float, "guard_scalar": lambda a: a if _is_concrete(a) else hint_of(a),
    "statically_known_true": lambda a: _statically(a, True), "statically_known_false": lambda a: _statically(a, False),
    "sym_and": lambda x, *others: functools.reduce(operator.and_, others, x),
    "sym_or": lambda x, *others: functools.reduce(operator.or_, others, x),
    "sym_eq": _sym_eq, "is_nested_int": _none, "is_symbolic": _has_symbols, "has_free_symbols": _has_symbols,
    "has_free_unbacked_symbols": _none, "free_unbacked_symbols": _no_symbols,
    "has_symbolic_sizes_strides": _has_symbols,
    "has_guarding_hint": lambda a: True, "has_hint": lambda a: True, "guarding_hint_or_throw": hint_of,
    "optimization_hint": lambda a, fallback=None: hint_of(a), "hint_int": lambda a, fallback=None: hint_of(a),
    "size_hint": lambda a, fallback=None: hint_of(a),
    "is_concrete_int": _is_concrete, "is_concrete_float": _is_concrete, "is_concrete_bool": _is_concrete,
    "has_static_value": lambda a: not _has_symbols(a), "_constrain_range_for_size": _nothing,
    "constrain_range": _nothing, "compute_unbacked_bindings": _nothing, "_advise_is_size": _nothing,
    "_advise_is_bounded": _nothing, "_iterate_exprs": lambda *_: iter(()), "_iterate_nodes": lambda *_: iter(()),
}


class _Expression:
    """Stands for sympy's class of expressions while sympy is not imported; it has no instances."""


class _StandIn(types.ModuleType):
    """Stands in for a module. A name without an answer is looked up in the real module, which is imported at that
    moment."""

    def __init__(self, name: str, answers: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__["answers"] = answers
        self.__dict__["real"] = None

    def __getattr__(self, name: str) -> Any:
        if self.real is None and name in self.answers:
            return self.answers[name]
        if name == "__path__" and "." in self.__name__:
            raise AttributeError(name)  # asked by the import system; this is not a package
        if name == "__file__" and self.real is None:
            raise AttributeError(name)  # asked by inspect.getmodule of every module
        return getattr(self.load(), name)

    def load(self) -> types.ModuleType:
        """The real module, which is imported if necessary."""
        with _lock:
            if self.real is None:
                found = sys.modules.get(self.__name__)
                if found is self:
                    del sys.modules[self.__name__]
                    found = None
                self.__dict__["real"] = found or importlib.import_module(self.__name__)
            return self.real


class _Questions(_StandIn):
    """Answers for dynamo_lite's symbols, whether or not the real module has been imported."""

    def __getattribute__(self, name: str) -> Any:
        return ANSWERS[name] if name in ANSWERS else super().__getattribute__(name)

    def load(self) -> types.ModuleType:
        """The real module. It answers only the question that has no answer here: the stand-in stays in ``sys.modules``
        for the rest of the operator."""
        with _lock:
            real = super().load()
            if _depths[self]:
                sys.modules[self.__name__] = self
            return real


_questions = _Questions(NAME, ANSWERS)
# Rules import these two modules; where sizes are numbers, they use only these names of them.
_sympy = _StandIn("sympy", {"Basic": _Expression})
_functions = _StandIn("torch.utils._sympy.functions", {"Max": max})
_lock = threading.RLock()
_depths = {_questions: 0, _sympy: 0, _functions: 0}


@contextlib.contextmanager
def _in_place(module: _StandIn) -> Iterator[None]:
    with _lock:
        if not _depths[module]:
            module.__dict__["real"] = sys.modules.get(module.__name__, module.real)
            sys.modules[module.__name__] = module
        _depths[module] += 1
    try:
        yield
    finally:
        with _lock:
            _depths[module] -= 1
            if not _depths[module]:
                if module.real is not None:
                    sys.modules[module.__name__] = module.real
                elif sys.modules.get(module.__name__) is module:
                    del sys.modules[module.__name__]


_NOTHING = contextlib.nullcontext()


def scope(symbols: bool) -> contextlib.AbstractContextManager[None]:
    """A context in which imports of torch's rules for symbols are answered here.

    Args:
        symbols: whether the rules will meet dynamo_lite's symbols; if not, the real modules answer if they have been
            imported.
    """
    return _answering() if symbols or NAME not in sys.modules else _NOTHING


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    with _in_place(_questions):
        if "sympy" in sys.modules:
            yield
        else:
            with _in_place(_sympy), _in_place(_functions):
                yield
