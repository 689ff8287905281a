"""Results of NumPy functions on numbers that may differ from call to call, as in ``x / np.sqrt(x.shape[-1])``.

Invariant: in every call, a number has NumPy's type and value. Either the guard program has NumPy compute it, or it is a
polynomial of ints that is known to fit into 64 bits and so has the value of Python's ints, which are symbols of the
trace.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...symbols.environment import HIGHEST
from ..base import VariableTracker
from ..constant import ConstantVariable
from .scalars import FUNCTIONS
from .symbolic_ints import OutsideNumber, SymbolicIntVariable, computed_ahead

if TYPE_CHECKING:
    from ..protocols import Tracer

TYPES = (np.int64, np.float64)
"""NumPy's number types that are followed: NumPy makes these from Python's numbers, and torch takes them for those."""

_POLYNOMIALS: dict[Any, str] = {
    operator.add: "+", np.add: "+", operator.sub: "-", np.subtract: "-", operator.mul: "*", np.multiply: "*",
    operator.floordiv: "//", np.floor_divide: "//", operator.mod: "%", np.remainder: "%",
}
_OF_SEQUENCES: dict[Any, Any] = {np.prod: ("*", 1), np.sum: ("+", 0)}
_COMPARISONS: dict[Any, str] = {
    operator.lt: "<", operator.le: "<=", operator.eq: "==", operator.ne: "!=", operator.gt: ">", operator.ge: ">="}

Operand = tuple[VariableTracker, type | None]
"""A Python number, and the NumPy type that the number has in the program (None: it is a Python number there, too)."""


def is_followed(number: VariableTracker) -> bool:
    """Whether it is a Python number that may differ from call to call and that formulas can be made of."""
    return isinstance(number, (SymbolicIntVariable, OutsideNumber))


def as_of_python(function: Any, args: Sequence[VariableTracker]) -> list[VariableTracker]:
    """Arguments of a builtin, with Python numbers in place of NumPy's where the builtin does not distinguish them."""
    if function not in FUNCTIONS and function is not operator.index:
        return list(args)
    return [a.python_number if a.python_number is not None else a for a in args]


def product_or_sum(tx: Tracer, function: Any, numbers: Sequence[VariableTracker]) -> VariableTracker | None:
    """``np.prod`` or ``np.sum`` of a sequence of Python ints, as a Python int; None for any other function, or if all
    the numbers are known."""
    if function not in _OF_SEQUENCES or not any(isinstance(n, SymbolicIntVariable) for n in numbers):
        return None
    if any(n.python_type() is not int for n in numbers):
        return None
    op, start = _OF_SEQUENCES[function]
    result: VariableTracker = ConstantVariable(start)
    for n in numbers:
        result = tx.operators.binary(op, result, n)
    return _of_64_bits(tx, result)


def computed(tx: Tracer, function: Any, operands: Sequence[Operand]) -> tuple[VariableTracker, type] | bool | None:
    """The result of a NumPy function or an operator on numbers, some of which may differ from call to call.

    Returns:
        the result and its type; a bool for a comparison, whose outcome is guarded; None where the values are needed.
    """
    numbers = [number for number, _ in operands]
    classes = tuple(cls for _, cls in operands)
    if function in _COMPARISONS:
        return tx.truth(tx.operators.compare(_COMPARISONS[function], numbers[0], numbers[1]))
    try:
        now = _by_numpy(function, classes, whole=True)(*(_now(n) for n in numbers))
    except (ArithmeticError, TypeError, ValueError):
        return None  # computed with the values instead, it raises NumPy's own exception
    cls = next((cls for cls in TYPES if type(now) is cls), None)
    if cls is None:
        return None
    ints = cls is np.int64 and all(n.python_type() is int for n in numbers)
    if ints and function is np.int64:
        return numbers[0], cls
    if ints and function is operator.neg:
        return numbers[0].unary(tx, "-"), cls
    if ints and function in _POLYNOMIALS and (_POLYNOMIALS[function] not in ("//", "%") or _now(numbers[1]) > 0):
        made = _of_64_bits(tx, tx.operators.binary(_POLYNOMIALS[function], numbers[0], numbers[1]))
        return None if made is None else (made, cls)
    number = computed_ahead(tx, _by_numpy(function, classes), numbers, int if cls is np.int64 else float)
    return None if number is None else (number, cls)


def _of_64_bits(tx: Tracer, number: VariableTracker) -> VariableTracker | None:
    """The given Python int, if it has the value of NumPy's 64-bit int in every call that the trace is for; None where
    NumPy's int would have wrapped around."""
    for op, limit in (("<=", HIGHEST - 1), (">=", 1 - HIGHEST)):
        if not tx.truth(tx.operators.compare(op, number, ConstantVariable(limit))):
            return None
    return number


def _now(number: VariableTracker) -> Any:
    """The value in this call. Callers must not let the trace depend on it."""
    if isinstance(number, OutsideNumber):
        return number.now
    return number.example() if isinstance(number, SymbolicIntVariable) else number.constant()


@functools.lru_cache(maxsize=1024)
def _by_numpy(function: Any, classes: tuple[type | None, ...], whole: bool = False) -> Callable[..., Any]:
    """The function on Python numbers, which converts some of them to NumPy's types first. It is cached because formulas
    are told apart by the identity of their functions. `whole`: the result stays a NumPy object."""
    def compute(*numbers: Any) -> Any:
        result = function(*(n if cls is None else cls(n) for n, cls in zip(numbers, classes)))
        return result if whole else result.item()

    compute.__name__ = f"numpy.{getattr(function, '__name__', 'function')}"
    return compute
