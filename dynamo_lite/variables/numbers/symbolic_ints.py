"""Numbers from outside that may differ from call to call (sizes of tensors, counters, learning rates), and numbers that
are computed from them.

A :class:`SymbolicIntVariable` is an expression over the trace's symbols (``symbols``). Arithmetic with ints gives
another expression. A comparison is answered for the traced call and becomes a guard. Where an operation of the graph
takes the number, nodes of the graph compute it.

An :class:`OutsideNumber` is a float, or a bool, computed from such numbers by functions implemented in C. The guard
program computes it by calling the same functions, so its value is Python's; the graph gets the result as an input. A
comparison is answered for the traced call, and its outcome is the guard. An int that such a function returns is a
symbol.

Invariant: asking for the value itself fixes it, by a guard. A formula that may raise is guarded to give a number, so
that no formula raises in a call that an entry fits.
"""
from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...guards.source import FormulaSource, NumberSource, Source
from ...symbols import integers as ints
from ...symbols.environment import HIGHEST
from ...symbols.integers import Division, Expr, Index, Sym
from ...symbols.nodes import IntNode, symbolic_int
from ...symbols.relations import Condition, compare
from ..base import VariableTracker, unsupported
from ..bound import BoundMethodVariable
from ..constant import BINARY, ConstantVariable
from .formulas import BOUNDED, formula_of, source_of_index
from .running_sizes import RunningCondition
from .scalars import FUNCTIONS, TOTAL, ScalarVariable, call_on_scalars, is_number, scalar_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocols import Codegen, OutputGraph, Tracer

LOWEST = -HIGHEST
# Largest number of operations in a formula, as each call computes them and the formula's text grows with them. A number
# that takes more operations is computed by the graph.
_LONGEST = 256
_MOST_OPERANDS = 4  # largest number of operands of one operation in the guard program
_MOST_FACTORS = 8  # largest exponent of a power that is written as a product
# Methods of an int that return the int itself, and methods that count its bits.
_ITSELF = frozenset({"__index__", "__int__", "__trunc__", "__floor__", "__ceil__", "__pos__", "conjugate"})
_COUNTS = frozenset({"bit_length", "bit_count"})
# Functions that compute an int from ints in a time that is bounded by the number of digits; and the numbers of items k
# for which this is true of math.comb(n, k).
_OF_INTS = frozenset({math.gcd, math.lcm, math.isqrt})
_FEW = ([1], [2], [3])
# Types whose comparisons with an int are implemented neither by the type nor by int.
_COMPARE_WITH_NO_INT = frozenset({
    type(None), str, bytes, type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format})
# Operators whose results on 64-bit ints fit into 64 bits, and that are not polynomials.
_BY_PYTHON = frozenset({"&", "|", "^", ">>", "//", "%"})


class SymbolicIntVariable(ConstantVariable):
    """An integer that is an expression over symbols.

    Args:
        expr: the expression.
        output: holds the symbols and the graph.
    """

    is_symbolic = True

    def __init__(self, expr: Expr, output: OutputGraph) -> None:
        VariableTracker.__init__(self)
        self._expr = expr
        self._output = output
        self._number: int | None = None

    @property
    def expr(self) -> Index:
        """The expression, simplified by the decisions made since its creation."""
        return self._output.symbols.env.simplified(self._expr)

    def is_running(self) -> bool:
        """Whether only the running graph knows it."""
        return self._output.symbols.is_running(self.expr)

    @property
    def value(self) -> Any:
        """The number. Asking for it fixes it."""
        expr = self.expr
        if not isinstance(expr, int) and self._output.fits_all:
            unsupported("changing_value", f"{self._output.symbols.describe(expr)} matters here")
        number = self._output.symbols.env.fix(expr)
        if self._number != number:
            self._number = number + 0  # a new object, as Python's int would be
        return self._number

    def describe(self) -> str:
        return f"number {self._output.symbols.describe(self.expr)!r}"

    def python_type(self) -> type:
        return int

    def is_none(self) -> bool:
        return False

    def same_object(self, other: VariableTracker) -> bool | None:
        return True if other is self else super().same_object(other)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in ("real", "numerator"):
            return self
        if name in ("imag", "denominator"):
            return ConstantVariable(0 if name == "imag" else 1)
        if name in _ITSELF or name in _COUNTS:
            return BoundMethodVariable(self, name)
        if not hasattr(int, name):
            tx.raise_error(AttributeError, f"'int' object has no attribute {name!r}")
        return super().getattr(tx, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in _ITSELF and not args and not kwargs:
            return self
        counted = computed_ahead(tx, getattr(int, name), [self.as_number(tx)], int) if (
            name in _COUNTS and not args and not kwargs) else None
        return counted if counted is not None else super().call_method(tx, name, args, kwargs)

    def example(self) -> Any:
        return self._output.symbols.env.value(self.expr)

    def reconstruct(self, cg: Codegen) -> None:
        if self.is_running():
            cg.load_output(self._output.symbols.output_number(self.expr))
            return
        _push(cg, self._output, self._output.symbols.whole(self.expr))

    def as_number(self, tx: Tracer) -> VariableTracker:
        """The same value as a number of the graph, or as a constant where it has been found to be one."""
        expr = self.expr
        if self._output.symbols.is_running(expr):
            return self._output.symbols.number(tx, expr)
        return ConstantVariable(expr) if isinstance(expr, int) else number_of(tx, expr)

    def as_argument(self, tx: Tracer) -> Any:
        expr = self.expr
        return expr if isinstance(expr, int) else self._output.symbols.number(tx, expr).node

    def truth(self, tx: Tracer) -> bool:
        return self._decide("!=", 0)

    def _decide(self, op: str, other: Index) -> bool:
        return self._output.symbols.env.decide(compare(op, self.expr, other))

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op == "**" and not reflected and _makes_float(other) and self._decide(">", 0):
            return scalar_node(tx, operator.pow, [self.as_number(tx), other], float)
        step = int_expression(other)
        if step is None or op == "/":
            if is_number(other) and (op == "/" or other.python_type() is float or isinstance(other, ScalarVariable)):
                return self.as_number(tx).binary(tx, op, _as_number(tx, other), reflected)
            return super().binary(tx, op, other, reflected)
        left, right = (step, self.expr) if reflected else (self.expr, step)
        result = self._arithmetic(op, left, right)
        if result is None:
            operands = [other, self] if reflected else [self, other]
            computed = None
            if op in _BY_PYTHON or op in BOUNDED:
                computed = computed_ahead(tx, BOUNDED.get(op, BINARY[op]), [_as_number(tx, x) for x in operands], int)
            return computed if computed is not None else super().binary(tx, op, other, reflected)
        if self._output.fits_all and not self._output.symbols.env.is_computable(result):
            unsupported("changing_value", f"{self._output.symbols.describe(self.expr)} matters in a long expression")
        return int_variable(self._output.symbols.env.bounded(result), self._output)

    def _arithmetic(self, op: str, left: Index, right: Index) -> Index | None:
        """``left op right`` as an expression; None where it can't be written as one."""
        if op == "+":
            return ints.add(left, right)
        if op == "-":
            return ints.add(left, ints.mul(right, -1))
        if op == "*":
            return ints.mul(left, right)
        if op in ("//", "%") and self._output.symbols.env.decide(compare(">", right, 0)):
            return ints.floordiv(left, right) if op == "//" else ints.mod(left, right)
        if op == "**" and isinstance(right, int) and 0 <= right <= _MOST_FACTORS:
            return ints.product([left] * right)
        return None

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        limit = int_expression(other)
        if limit is None and type(other) is ConstantVariable and type(other.value) is float:
            if op in ("==", "!=") and not other.value.is_integer():
                return ConstantVariable(op == "!=")
            limit = _limit(op, other.value)
        if limit is not None:
            condition = compare(op, self.expr, limit)
            if self._output.symbols.hangs_on_the_run(condition):
                return RunningCondition.of(tx, op, self.expr, limit)
            return ConstantVariable(self._output.symbols.env.decide(condition))
        if isinstance(other, ScalarVariable):
            return self.as_number(tx).compare(tx, op, other)
        if other.python_type() in _COMPARE_WITH_NO_INT:
            return None
        return super().compare(tx, op, other)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        if op == "+":
            return self
        negative = ints.mul(self.expr, -1)
        return int_variable(negative if op == "-" else ints.add(negative, -1), self._output)


class OutsideNumber(ScalarVariable):
    """A float or bool computed from numbers outside of the frame, or an int that is an operand of such a formula.

    Args:
        cls: its type.
        now: its value in this call.
        source: where it lives, or its formula.
        origins: the paths that it is computed from.
        make: makes the graph's number where it is not to be an input of the graph on its own.
    """

    def __init__(
        self, output: OutputGraph, cls: type, now: Any, source: Source, origins: frozenset[Any],
        make: Callable[[], ScalarVariable] | None = None,
    ) -> None:
        VariableTracker.__init__(self, source)
        self.cls = cls
        self.now = now
        self.origins = origins
        self._output = output
        self._make = make
        output.scalars.met = True

    def _number(self) -> ScalarVariable:
        """The number as the graph has it."""
        assert self.source is not None
        return self._make() if self._make is not None else self._output.add_number(
            self.source, self.cls, origins=self.origins)

    @property
    def node(self) -> fx.Node:
        return self._number().node

    @property
    def fake(self) -> Any:
        return self._number().fake

    def describe(self) -> str:
        return f"{self.cls.__name__} {self.source.name!r}" if self.source is not None else self.cls.__name__

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_source(self.source)

    def computed(self, tx: Tracer, target: Any, args: list[VariableTracker], cls: type) -> VariableTracker | None:
        return computed_ahead(tx, target, args, cls)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op == "**" and is_number(other):
            # For some numbers the power is complex, or an int.
            other = _as_number(tx, other)
            power = computed_ahead(tx, operator.pow, [other, self] if reflected else [self, other], None)
            if power is not None:
                return power
        return super().binary(tx, op, other, reflected)

    def truth(self, tx: Tracer) -> bool:
        return self._decided()

    def constant(self) -> Any:
        return self._decided() if self.cls is bool else super().constant()

    def to_plain(self, tx: Tracer) -> Any:
        return self._decided() if self.cls is bool else super().to_plain(tx)

    def as_index(self, tx: Tracer) -> Any:
        return self._decided() if self.cls is bool else super().as_index(tx)

    def hash_key(self) -> Any:
        return self._decided() if self.cls is bool else super().hash_key()

    def _decided(self) -> bool:
        """Its truth value in this call, which is guarded. An entry that has to fit all calls breaks the graph."""
        assert self.source is not None
        if self._output.fits_all or not self._output.numbers_ahead:
            self.refuse("bool()", "data_dependent_branch")
        asked = self.source if self.cls is bool else FormulaSource(bool, (self.source,), f"bool({self.source.name})")
        self._output.guards.add(asked, "const", bool(self.now))
        return bool(self.now)


def number_of(tx: Tracer, x: Index) -> OutsideNumber:
    """An expression over symbols as an operand of formulas."""
    symbols = tx.output.symbols
    whole = symbols.whole(x)
    origins = frozenset(symbols.sources[s].key for s in ints.symbols_of(whole))
    return OutsideNumber(
        tx.output, int, symbols.env.value(x), source_of_index(tx.output, whole), origins, lambda: symbols.number(tx, x))


def computed_ahead(
    tx: Tracer, target: Any, args: list[VariableTracker], cls: type | None
) -> VariableTracker | None:
    """The result of a function implemented in C on known numbers and numbers from outside; None: the graph has to
    compute it.

    Args:
        cls: the result's type; None: float, provided that the result is a float in this call.
    """
    if not tx.output.numbers_ahead:
        return None
    sources: list[Source] = []
    values: list[Any] = []
    origins: frozenset[Any] = frozenset()
    for argument in (_as_number(tx, a) for a in args):
        if isinstance(argument, OutsideNumber):
            assert argument.source is not None and argument.origins is not None
            sources.append(argument.source)
            values.append(argument.now)
            origins |= argument.origins
        elif type(argument) is ConstantVariable and type(argument.value) in (bool, int, float):
            sources.append(NumberSource(argument.value))
            values.append(argument.value)
        else:
            return None
    source = formula_of(target, tuple(sources))
    if source.size > _LONGEST or len(sources) > _MOST_OPERANDS:
        return None
    if cls is int and target in (operator.lshift, operator.pow):
        return None  # its length is not bounded
    try:
        now: Any = target(*values)
    except (ArithmeticError, ValueError):
        return None  # the graph raises the exception
    wanted: Any = cls or float
    if type(now) is not wanted or cls is int and abs(now) >= HIGHEST:
        return None
    if target not in TOTAL:
        tx.output.guards.add(source, "type_is", type(now))
    if cls is int:
        return _symbol(tx, source, now)
    return OutsideNumber(tx.output, type(now), now, source, origins)


def _symbol(tx: Tracer, source: Source, now: int) -> VariableTracker:
    """The symbol of an int that a formula computes."""
    symbols = tx.output.symbols

    def node(tx: Tracer) -> fx.Node:
        return tx.output.add_number(source, int, symbolic_int(symbols.env, expr)).node

    expr = symbols.add(tx, source, now, LOWEST, node)
    return int_variable(expr, tx.output)


def _makes_float(exponent: VariableTracker) -> bool:
    """Whether a positive int raised to this power is a float."""
    if type(exponent) is not ConstantVariable:
        return False
    return type(exponent.value) is float or type(exponent.value) is int and exponent.value < 0


def _limit(op: str, number: float) -> int | None:
    """The int for which an int's comparison by `op` has the same outcome as with a float; None if there is no such int
    below ``HIGHEST``."""
    if not math.isfinite(number) or abs(number) >= HIGHEST:
        return None
    if op in ("==", "!="):
        return int(number)
    return math.floor(number) if op in ("<=", ">") else math.ceil(number)


def _as_number(tx: Tracer, value: VariableTracker) -> VariableTracker:
    return value.as_number(tx) if isinstance(value, SymbolicIntVariable) else value


def int_expression(value: VariableTracker) -> Index | None:
    """The expression of an int; None for other values and for constants not below ``HIGHEST``."""
    if isinstance(value, SymbolicIntVariable):
        return value.expr
    is_int = type(value) is ConstantVariable and type(value.value) is int
    return value.value if is_int and abs(value.value) < HIGHEST else None


def int_variable(expr: Index, output: OutputGraph) -> ConstantVariable:
    """The tracker of an expression."""
    return ConstantVariable(expr) if isinstance(expr, int) else SymbolicIntVariable(expr, output)


def size_variable(size: Any, output: OutputGraph) -> ConstantVariable:
    """The tracker of a size of a fake tensor, or of another integer that torch has computed from sizes."""
    if type(size) is int:
        return ConstantVariable(size)
    if isinstance(size, torch.SymInt) and isinstance(size.node, IntNode):
        return int_variable(size.node.expr, output)
    unsupported("data_dependent_guard", "a size that only the running graph knows")


def _push(cg: Codegen, output: OutputGraph, x: Index) -> None:
    """Emits code that computes an expression from the places where its symbols live."""
    if isinstance(x, int):
        cg.emit.load_const(x)
        return
    first = True
    for monomial, k in x.terms.items():
        started = abs(k) != 1 or first and k < 0
        if started:
            cg.emit.load_const(k if first else abs(k))
        for a in monomial:
            if isinstance(a, Division):
                _push(cg, output, a.expr)
                _push(cg, output, a.divisor)
                cg.emit.binary(a.sign)
            else:
                assert isinstance(a, Sym)
                cg.load_source(output.symbols.sources[a])
            if started:
                cg.emit.binary("*")
            started = True
        if not first:
            cg.emit.binary("+" if k > 0 else "-")
        first = False
    if x.const:
        cg.emit.load_const(abs(x.const))
        cg.emit.binary("+" if x.const > 0 else "-")


def call_on_ints(
    tx: Tracer, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """A call of a builtin on ints, some of them symbolic; None if the call needs their values."""
    if kwargs or not any(isinstance(a, SymbolicIntVariable) for a in args):
        return None
    if FUNCTIONS.get(function) is float:
        return call_on_scalars(tx, function, [_as_number(tx, a) for a in args], kwargs)
    numbers = [int_expression(a) for a in args]
    if any(n is None for n in numbers):
        return None
    if function in _OF_INTS or function is math.comb and numbers[1:] in _FEW:
        return computed_ahead(tx, function, args, int)
    env = tx.output.symbols.env
    if function in (min, max) and len(args) > 1:
        best = args[0]
        for other in args[1:]:
            if env.decide(_is_better(function, best, other)):
                best = other
        return best
    if len(args) == 1:
        return _call_on_int(tx, function, args[0])
    if function is divmod and len(args) == 2:
        parts = [tx.operators.binary(op, args[0], args[1]) for op in ("//", "%")]
        return tx.values.new_sequence(tuple, parts)
    return None


def _is_better(function: Any, best: VariableTracker, other: VariableTracker) -> Condition:
    """The condition under which ``min`` or ``max`` takes `other` rather than `best`. Of equal values Python takes the
    first; here a constant is taken in preference to a symbol that equals it, so that a clamped size is that constant in
    as many calls as possible."""
    x, y = int_expression(best), int_expression(other)
    assert x is not None and y is not None
    op = "<" if function is min else ">"
    if isinstance(y, int) and not isinstance(x, int) and other.python_type() is int:
        op += "="
    return compare(op, y, x)


def _call_on_int(tx: Tracer, function: Any, number: VariableTracker) -> VariableTracker | None:
    if function in (int, operator.index, round, math.floor, math.ceil, math.trunc):
        return number
    if function is not abs:
        return None
    positive = tx.output.symbols.env.decide(compare(">=", int_expression(number), 0))  # type: ignore[arg-type]
    return number if positive else number.unary(tx, "-")
