"""What functions of NumPy make of numbers that may differ from call to call, as in ``x / np.sqrt(x.shape[-1])``.

Invariant: for every call a number has NumPy's type and value. NumPy itself computes it, in the guard program, or it is
a polynomial of ints of 64 bits, as Python's ints are where the trace has them as symbols.
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
"""NumPy's numbers that are followed: those that NumPy makes of Python's, and that torch takes for these."""

_POLYNOMIALS: dict[Any, str] = {
    operator.add: "+", np.add: "+", operator.sub: "-", np.subtract: "-", operator.mul: "*", np.multiply: "*",
    operator.floordiv: "//", np.floor_divide: "//", operator.mod: "%", np.remainder: "%",
}
_OF_SEQUENCES: dict[Any, Any] = {np.prod: ("*", 1), np.sum: ("+", 0)}
_COMPARISONS: dict[Any, str] = {
    operator.lt: "<", operator.le: "<=", operator.eq: "==", operator.ne: "!=", operator.gt: ">", operator.ge: ">="}

Operand = tuple[VariableTracker, type | None]
"""A number of Python's, and the type of NumPy's that it has in the program."""


def is_followed(number: VariableTracker) -> bool:
    """Whether it is one of Python's numbers that may differ from call to call and that formulas are made of."""
    return isinstance(number, (SymbolicIntVariable, OutsideNumber))


def as_of_python(function: Any, args: Sequence[VariableTracker]) -> list[VariableTracker]:
    """Arguments of a builtin, with numbers of Python's for those of NumPy's where these are the same to it."""
    if function not in FUNCTIONS and function is not operator.index:
        return list(args)
    return [a.python_number if a.python_number is not None else a for a in args]


def product_or_sum(tx: Tracer, function: Any, numbers: Sequence[VariableTracker]) -> VariableTracker | None:
    """``np.prod`` or ``np.sum`` of a sequence of Python's ints, as one of these; None where it is another function, or
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
    """A function of NumPy, or an operator, of numbers of which some may differ from call to call.

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
        return None  # computed with the values, it raises what NumPy does
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
    """An int of Python's that NumPy's has the value of, in every call that the trace is for; None where NumPy's would
    have wrapped around."""
    for op, limit in (("<=", HIGHEST - 1), (">=", 1 - HIGHEST)):
        if not tx.truth(tx.operators.compare(op, number, ConstantVariable(limit))):
            return None
    return number


def _now(number: VariableTracker) -> Any:
    """The value in this call, on which nothing relies."""
    if isinstance(number, OutsideNumber):
        return number.now
    return number.example() if isinstance(number, SymbolicIntVariable) else number.constant()


@functools.lru_cache(maxsize=1024)
def _by_numpy(function: Any, classes: tuple[type | None, ...], whole: bool = False) -> Callable[..., Any]:
    """The function on Python's numbers, of which some become NumPy's before; the same one each time, as formulas are
    told apart by their functions. `whole`: with a result of NumPy's."""
    def compute(*numbers: Any) -> Any:
        result = function(*(n if cls is None else cls(n) for n, cls in zip(numbers, classes)))
        return result if whole else result.item()

    compute.__name__ = f"numpy.{getattr(function, '__name__', 'function')}"
    return compute
