"""Builtin functions that iterate.

Invariant: elements are taken and keys and comparisons evaluated in the same order as in CPython, as the code that
yields the elements may observe what has been done with the previous ones.
"""
from __future__ import annotations

import builtins
import itertools
import operator
import types
from collections.abc import Collection
from typing import TYPE_CHECKING

from ...bytecode.facts import facts
from ...rules.table import handles
from .. import error_texts
from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from ..functions.builtins import Handler
from ..numbers.choices import choose
from ..objects.objects import GetItemIteratorVariable, ObjectVariable
from .iterators import CallIteratorVariable, ReversedObjectVariable, TeeSourceVariable, TeeVariable
from .sequences import ListVariable, sort_items
from .sets import SetVariable

if TYPE_CHECKING:
    from ..protocols import Tracer


@handles(sum)
def _sum(tx: Tracer, items: VariableTracker, start: VariableTracker | None = None) -> VariableTracker:
    iterator = tx.iteration.get_iter(items)
    total = ConstantVariable(0) if start is None else start
    if start is not None and issubclass(start.python_type(), (str, bytes, bytearray)):
        joined = {str: "strings [use ''.join(seq)", bytes: "bytes [use b''.join(seq)"}
        said = next((text for cls, text in joined.items() if issubclass(start.python_type(), cls)), "bytearray")
        if said == "bytearray":
            unsupported("unsupported_builtin", "sum() of bytearrays")
        tx.raise_error(TypeError, f"sum() can't sum {said} instead]")
    numbers: list[VariableTracker] | None = []  # leading numbers, which are summed together
    for item in tx.iteration.steps(iterator):
        if numbers is not None:
            if _is_number(total) and _is_number(item):
                numbers.append(item)
                continue
            total, numbers = _add_numbers(tx, total, numbers), None
        total = tx.operators.binary("+", total, item)
    return total if not numbers else _add_numbers(tx, total, numbers)


def _is_number(value: VariableTracker) -> bool:
    cls = value.python_type()
    own = cls not in (int, float, bool, complex) and isinstance(value, ConstantVariable)
    return cls in (int, float, bool, complex) or own and issubclass(cls, int) and cls.__add__ is int.__add__


def _add_numbers(tx: Tracer, total: VariableTracker, numbers: list[VariableTracker]) -> VariableTracker:
    """sum() of numbers. For constants the real sum() runs, since in some versions of Python it compensates the rounding
    errors of floats (Python/bltinmodule.c)."""
    if all(type(number) is ConstantVariable for number in (total, *numbers)):
        for number in (total, *numbers):
            number.fix(tx)
        return ConstantVariable(tx.run_python(sum, [n.constant() for n in numbers], total.constant()))
    if facts.SUM_COMPENSATES and any(issubclass(n.python_type(), (float, complex)) for n in (total, *numbers)):
        unsupported("unsupported_builtin", "sum() of floats that are not known")
    for number in numbers:
        total = tx.operators.binary("+", total, number)
    return total


def _extreme(symbol: str, name: str) -> Handler:
    def handler(
        tx: Tracer, *args: VariableTracker, key: VariableTracker | None = None, default: VariableTracker | None = None
    ) -> VariableTracker:
        if len(args) > 1 and default is not None:
            tx.raise_error(TypeError, f"Cannot specify a default for {name}() with multiple positional arguments")
        if not args:
            tx.raise_error(TypeError, f"{name} expected at least 1 argument, got 0")
        key = None if key is None or key.is_none() else key
        best: VariableTracker | None = None
        best_key: VariableTracker | None = None
        for item in tx.iteration.steps(tx.iteration.get_iter(args[0])) if len(args) == 1 else args:
            item_key = tx.call(key, [item], {}) if key is not None else item
            chosen = None if best is None or key is not None else choose(tx, symbol, item, best)
            if chosen is not None:
                best = best_key = chosen
            elif best_key is None or tx.truth(tx.operators.compare(symbol, item_key, best_key)):
                best, best_key = item, item_key
        if best is not None:
            return best
        if default is not None:
            return default
        return tx.values.from_result(tx.run_python(getattr(builtins, name), ()), name)  # raises

    return handler


handles(min)(_extreme("<", "min"))
handles(max)(_extreme(">", "max"))


@handles(any)
def _any(tx: Tracer, items: VariableTracker) -> VariableTracker:
    return ConstantVariable(any(tx.truth(item) for item in items.iterate(tx)))


@handles(all)
def _all(tx: Tracer, items: VariableTracker) -> VariableTracker:
    return ConstantVariable(all(tx.truth(item) for item in items.iterate(tx)))


@handles(iter)
def _iter(tx: Tracer, value: VariableTracker, sentinel: VariableTracker | None = None) -> VariableTracker:
    if sentinel is not None:
        return CallIteratorVariable(value, sentinel)
    return tx.iteration.get_iter(value)


@handles(next)
def _next(tx: Tracer, iterator: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    if default is None:
        return tx.iteration.next_of(iterator)
    value = iterator.next(tx)
    return value if value is not None else default


def _sort_one_way(items: Collection[VariableTracker]) -> bool:
    """Whether these are constants whose sorted order does not depend on their initial order and that are comparable."""
    if not all(item.is_constant() for item in items):
        return False
    values = [item.constant() for item in items]
    types = set(map(type, values))
    return types <= {str} or types <= {int, bool} or types <= {int, float, bool} and all(v == v for v in values)


@handles(sorted)
def _sorted(
    tx: Tracer, items: VariableTracker, *, key: VariableTracker | None = None, reverse: VariableTracker | None = None
) -> VariableTracker:
    if isinstance(items, SetVariable) and key is None and _sort_one_way(items.members.values()):
        found = list(items.members.values())
    else:
        found = tx.iteration.listed(items)
    sort_items(tx, found, key, reverse)
    return ListVariable(found)


@handles(operator.length_hint)
def _length_hint(tx: Tracer, value: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    cls = value.python_type()
    if isinstance(value, ObjectVariable) and isinstance(tx.classes.lookup(cls, "__len__"), types.WrapperDescriptorType):
        return value.length(tx)
    if not isinstance(value, (ObjectVariable, GetItemIteratorVariable, ReversedObjectVariable)):
        if hasattr(cls, "__len__"):
            return value.length(tx)
        if hasattr(cls, "__length_hint__"):
            unsupported("unsupported_builtin", f"operator.length_hint() of {value.describe()}")
    said = tx.iteration.length_hint(value)
    return said if said is not None else default if default is not None else ConstantVariable(0)


def _tee_keeps_a_tee() -> bool:
    """Whether tee() of a tee iterator returns that iterator itself as the first one, as up to Python 3.13."""
    iterator, = itertools.tee("", 1)
    return itertools.tee(iterator)[0] is iterator


_TEE_KEEPS_A_TEE = _tee_keeps_a_tee()


@handles(itertools.tee)
def _tee(tx: Tracer, items: VariableTracker, n: VariableTracker | None = None, /) -> VariableTracker:
    number = tx.operators.as_index(n) if n is not None else 2
    if number < 0:
        tx.raise_error(ValueError, error_texts.negative_count())
    if not number:
        return tx.values.new_tuple([])
    iterator = tx.iteration.get_iter(items)
    if not isinstance(iterator, TeeVariable) and tx.classes.lookup(iterator.python_type(), "__copy__") is not None:
        unsupported("unsupported_builtin", f"itertools.tee() of {iterator.describe()}, which has a __copy__")
    if not isinstance(iterator, TeeVariable):
        iterator = tx.iteration.get_iter(iterator)  # CPython's tee() calls iter() twice, too
    if not isinstance(iterator, TeeVariable):
        first = TeeVariable(TeeSourceVariable(iterator))
    else:
        first = iterator if _TEE_KEEPS_A_TEE else iterator.copied()
    return tx.values.new_tuple([first, *(first.copied() for _ in range(number - 1))])
