"""Cached functions with symbolic sizes as arguments.

At each call the cached function is called with the sizes of that call, and a guard checks that each number in its
result equals the expression that the function computed from the symbols. Invariant: no number is treated as an
expression without such a guard, as a cached result may have been made in another state, or changed since.
"""
from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any

from ...guards.source import FormulaSource, Source
from ..base import LazyVariable, VariableTracker, realized
from ..containers.mappings import DictVariable
from ..containers.sequences import ListVariable, TupleVariable
from ..numbers.formulas import formula_of, source_of_index
from ..numbers.symbolic_ints import SymbolicIntVariable
from .cached_calls import CachedCall

if TYPE_CHECKING:
    from ..protocols import Tracer

_MOST_OPEN = 4  # the largest number of arguments that a formula of the guard program takes


def can_be_open(tx: Tracer, function: Any, arguments: list[VariableTracker]) -> bool:
    """Whether one graph can serve all sizes that are passed to a cached function.

    Args:
        function: the function inside the cache.
        arguments: its arguments, with tuples replaced by their elements.
    """
    if not any(a.is_symbolic for a in arguments) or type(function) is not types.FunctionType:
        return False
    open_ones = [a for a in arguments if a.is_symbolic or not a.is_constant()]
    from_outside = all(_is_from_outside(tx, a) for a in open_ones)
    return from_outside and len(open_ones) <= _MOST_OPEN and not _may_make_tensors(function, set())


def _is_from_outside(tx: Tracer, argument: VariableTracker) -> bool:
    if isinstance(argument, SymbolicIntVariable):
        return not tx.output.symbols.is_running(argument.expr)
    return argument.source is not None


def _may_make_tensors(function: types.FunctionType, seen: set[types.FunctionType]) -> bool:
    """Whether a function, or one that it calls by name, refers to an object of torch by name."""
    if function in seen:
        return False
    seen.add(function)
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        if isinstance(module, str) and module.partition(".")[0] == "torch":
            return True
        if type(value) is types.FunctionType and _may_make_tensors(value, seen):
            return True
    return False


def call_source(tx: Tracer, asked: CachedCall, given: list[VariableTracker]) -> Source:
    """The source of the cached result for sizes and objects that each call supplies."""
    sources: list[Source] = []
    for argument in given:
        if isinstance(argument, SymbolicIntVariable):
            sources.append(source_of_index(tx.output, tx.output.symbols.whole(argument.expr)))
        else:
            assert argument.source is not None
            sources.append(argument.source)
    return FormulaSource(asked, tuple(sources), asked.words(", ".join(source.name for source in sources)))


def with_expressions(tx: Tracer, made: VariableTracker, kept: VariableTracker) -> VariableTracker:
    """The cached result, with its numbers replaced by expressions.

    Args:
        made: the function's result for the symbols.
        kept: the cached result of this call, lazy.

    Returns: `kept`, realized as far as it contains expressions, or the expression if it is a number.
    """
    if isinstance(made, SymbolicIntVariable):
        return _guarded(tx, made, kept)
    if isinstance(made, (TupleVariable, ListVariable)):
        kept = realized(tx, kept)
        if isinstance(kept, (TupleVariable, ListVariable)) and not tx.output.effects.is_mutated(kept):
            for i, (part, value) in enumerate(zip(made.items, kept.items, strict=True)):
                kept.items[i] = with_expressions(tx, part, value)
    elif isinstance(made, DictVariable):
        kept = realized(tx, kept)
        if isinstance(kept, DictVariable) and not tx.output.effects.is_mutated(kept):
            for key, (name, value) in kept.items.items():
                kept.items[key] = name, with_expressions(tx, made.items[key][1], value)
    return kept


def _guarded(tx: Tracer, made: SymbolicIntVariable, kept: VariableTracker) -> VariableTracker:
    """The expression, with a guard that the cached number equals it; a number that is already realized stays."""
    if not isinstance(kept, LazyVariable):
        return kept
    assert kept.source is not None
    expected = source_of_index(tx.output, tx.output.symbols.whole(made.expr))
    tx.guard(kept.source, "type_is", int)
    tx.guard(formula_of(operator.eq, (kept.source, expected)), "const", True)
    return made
