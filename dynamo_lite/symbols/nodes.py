"""The nodes behind ``torch.SymInt``, ``torch.SymBool`` and ``torch.SymFloat`` while operators run on fake tensors.

torch's operators compute with such numbers by calling methods of the node (``c10::SymNodeImpl``; torch/csrc/utils/
python_symnode.h lists them). Our nodes hold an expression over the symbols of an :class:`Environment`, which answers
the questions about it.

Invariant: wherever torch comes to depend on the value of a number, the environment decides that value, so that there is
a guard for it.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from . import integers as ints
from .environment import Environment, NumbersAsked
from .integers import Index
from .relations import Condition, compare, compound, negated

_Operator = Callable[[Any], Any]
# File in which C++ of torch 2.15 asks for all sizes of a tensor as numbers; up to 2.14 it dispatches aten.size instead.
_SIZES_AS_NUMBERS = "SymbolicShapeMeta.cpp"


class Node:
    """The methods that are the same for nodes of all types."""

    __slots__ = ("env",)
    env: Environment

    # Attributes of torch's own nodes. Here the environment answers the questions that are asked of them there.
    shape_env = None
    constant = None

    def is_int(self) -> bool:
        return False

    is_float = is_bool = is_nested_int = is_int

    def is_symbolic(self) -> bool:
        return not self.is_constant()

    def fix(self, why: str = "") -> Any:
        """The value, which from now on is required of every call of the trace; `why` is for the texts of guards."""
        raise NotImplementedError

    def is_constant(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return True

    def clone(self) -> Node:
        return self

    def nested_int(self) -> Any:
        return None

    maybe_as_int = maybe_as_float = maybe_as_bool = constant_int = constant_float = constant_bool = nested_int
    singleton_int = nested_int

    def wrap_int(self, value: int) -> IntNode:
        return IntNode(self.env, value)

    def wrap_float(self, value: float) -> FloatNode:
        return FloatNode(self.env, "constant", (value,), value)

    def wrap_bool(self, value: bool) -> BoolNode:
        return BoolNode(self.env, value)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return type(self).__name__

    def str(self) -> str:
        return str(self)

    def _graph_repr(self) -> str:  # type: ignore[valid-type]
        return str(self)


def _comparison(op: str) -> Callable[[IntNode, Node], BoolNode]:
    def compared(self: IntNode, other: Node) -> BoolNode:
        if isinstance(other, IntNode):
            return BoolNode(self.env, self.env.compared(op, self.expr, other.expr))
        return getattr(self.sym_float(), _FLOAT_COMPARISONS[op])(other)

    return compared


_FLOAT_COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class IntNode(Node):
    """An integer, given as an expression over the environment's symbols."""

    __slots__ = ("_expr",)

    def __init__(self, env: Environment, expr: Index) -> None:
        self.env = env
        self._expr = expr

    @property
    def expr(self) -> Index:
        """The expression, simplified by the decisions made since the node was created."""
        expr = self._expr
        if not isinstance(expr, int):
            expr = self._expr = self.env.simplified(expr)
        return expr

    @property
    def hint(self) -> int:
        """The value in the traced call."""
        return self.env.value(self.expr)

    def __str__(self) -> str:
        return str(self.expr)

    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.expr, int)

    def maybe_as_int(self) -> int | None:
        expr = self.expr
        return expr if isinstance(expr, int) else None

    constant_int = maybe_as_int

    def fix(self, why: str = "") -> int:
        """The value, which from now on is required of every call that the trace is valid for."""
        return self.env.fix(self.expr, why)

    def guard_int(self, file: str = "", line: int = 0) -> int:
        """Called by torch when it needs the value as an int; `file` is the C++ source file that calls."""
        if _SIZES_AS_NUMBERS in file and self.env.may_call_again():
            raise NumbersAsked(file)
        return self.fix()

    def int_(self) -> int:
        return self.fix()

    def bool_(self) -> bool:
        return self.env.decide(compare("!=", self.expr, 0))

    # -- arithmetic
    def _made(self, expr: Index) -> Node:
        return IntNode(self.env, self.env.bounded(expr))

    def add(self, other: Node) -> Node:
        if not isinstance(other, IntNode):
            return self.sym_float().add(other)
        return self._made(ints.add(self.expr, other.expr))

    def sub(self, other: Node) -> Node:
        if not isinstance(other, IntNode):
            return self.sym_float().sub(other)
        return self._made(ints.add(self.expr, ints.mul(other.expr, -1)))

    def mul(self, other: Node) -> Node:
        if not isinstance(other, IntNode):
            return self.sym_float().mul(other)
        return self._made(ints.mul(self.expr, other.expr))

    def sym_sum(self, others: tuple[IntNode, ...]) -> Node:
        return self._made(ints.sum_of(node.expr for node in others))

    def neg(self) -> Node:
        return self._made(ints.mul(self.expr, -1))

    def pos(self) -> Node:
        return self

    def abs(self) -> Node:
        return self if self.env.decide(compare(">=", self.expr, 0)) else self.neg()

    __abs__ = abs

    def _is_divisor(self) -> bool:
        return self.env.decide(compare(">", self.expr, 0))

    def int_floordiv(self, other: Node) -> Node:
        assert isinstance(other, IntNode)
        if not other._is_divisor():
            return self._made(self.guard_int() // other.guard_int())
        return self._made(ints.floordiv(self.expr, other.expr))

    floordiv = int_floordiv

    def mod(self, other: Node) -> Node:
        if not isinstance(other, IntNode):
            return self.sym_float().mod(other)
        if not other._is_divisor():
            return self._made(self.guard_int() % other.guard_int())
        return self._made(ints.mod(self.expr, other.expr))

    def pow_by_natural(self, other: Node) -> Node:
        assert isinstance(other, IntNode)
        return self._made(ints.product([self.expr] * other.guard_int()))

    pow = pow_by_natural

    def int_truediv(self, other: Node) -> FloatNode:
        return FloatNode.of(operator.truediv, self, other)

    truediv = int_truediv

    def float_truediv(self, other: Node) -> Node:
        return self.sym_float().float_truediv(other)

    def float_pow(self, other: Node) -> Node:
        return self.sym_float().float_pow(other)

    def sym_min(self, other: Node) -> Node:
        if not isinstance(other, IntNode):
            return self.sym_float().sym_min(other)
        return self if self.env.decide(compare("<=", self.expr, other.expr)) else other

    def sym_max(self, other: Node) -> Node:
        if not isinstance(other, IntNode):
            return self.sym_float().sym_max(other)
        return self if self.env.decide(compare(">=", self.expr, other.expr)) else other

    def floor(self) -> Node:
        return self

    ceil = trunc = round = floor

    def is_integer(self) -> BoolNode:
        return BoolNode(self.env, True)

    def sym_float(self) -> FloatNode:
        return FloatNode.of(float, self)

    def _fixed(self, function: Callable[..., int], other: Node) -> Node:
        assert isinstance(other, IntNode)
        return self._made(function(self.guard_int(), other.guard_int()))

    def lshift(self, other: Node) -> Node:
        return self._fixed(operator.lshift, other)

    def rshift(self, other: Node) -> Node:
        return self._fixed(operator.rshift, other)

    def bitwise_and(self, other: Node) -> Node:
        return self._fixed(operator.and_, other)

    def bitwise_or(self, other: Node) -> Node:
        return self._fixed(operator.or_, other)

    def bitwise_xor(self, other: Node) -> Node:
        return self._fixed(operator.xor, other)

    eq, ne, lt = _comparison("=="), _comparison("!="), _comparison("<")
    le, gt, ge = _comparison("<="), _comparison(">"), _comparison(">=")


class BoolNode(Node):
    """A truth value, given as a condition on integers."""

    __slots__ = ("_condition",)

    def __init__(self, env: Environment, condition: Condition) -> None:
        self.env = env
        self._condition = condition

    @property
    def condition(self) -> Condition:
        """The condition; a bool if the environment knows the answer."""
        known = self.env.known(self._condition)
        return self._condition if known is None else known

    def __str__(self) -> str:
        return str(self._condition)

    def is_bool(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self._condition, bool)

    def maybe_as_bool(self) -> bool | None:
        return self._condition if isinstance(self._condition, bool) else None

    constant_bool = maybe_as_bool

    def fix(self, why: str = "") -> bool:
        return self.env.decide(self._condition, why)

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        return self.fix()

    guard_size_oblivious = guard_or_false = guard_or_true = expect_true = expect_size = guard_bool

    def bool_(self) -> bool:
        return self.env.decide(self._condition)

    def statically_known_true(self, file: str = "", line: int = 0) -> bool:
        return self.env.known(self._condition) is True

    def _joined(self, op: str, other: Node) -> BoolNode:
        assert isinstance(other, BoolNode)
        return BoolNode(self.env, compound(op, self._condition, other._condition))

    def sym_and(self, other: Node) -> BoolNode:
        return self._joined("and", other)

    def sym_or(self, other: Node) -> BoolNode:
        return self._joined("or", other)

    and_, or_ = sym_and, sym_or

    def sym_not(self) -> BoolNode:
        return BoolNode(self.env, negated(self._condition))

    def sym_ite(self, yes: Node, no: Node) -> Node:
        return yes if self.guard_bool() else no

    def eq(self, other: Node) -> BoolNode:
        assert isinstance(other, BoolNode)
        same = compound("and", self._condition, other._condition)
        neither = compound("and", negated(self._condition), negated(other._condition))
        return BoolNode(self.env, compound("or", same, neither))

    def ne(self, other: Node) -> BoolNode:
        return self.eq(other).sym_not()

    def sym_int(self) -> IntNode:
        return IntNode(self.env, int(self.guard_bool()))


_EXACT = 1 << 52
"""Integers below this limit, and sums of two of them, are exact as floats."""
_OPERATORS = {operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
              operator.ge: ">="}


def _is_told_by_rounded(a: Index, b: Index) -> bool:
    """Whether two integers compare like the floats nearest to them, however large the symbols are. This holds if their
    difference is a single term plus a small constant: it is large wherever floats round."""
    difference = ints.add(a, ints.mul(b, -1))
    if isinstance(difference, int):
        return isinstance(a, int)
    return len(difference.terms) == 1 and abs(difference.const) < _EXACT


class FloatNode(Node):
    """A float that a function computes from numbers.

    Args:
        env: the environment of the integers that it is computed from.
        function: the function that computes it, or "constant".
        args: the function's arguments as nodes, or the constant.
        hint: the value in the traced call.
    """

    __slots__ = ("args", "function", "hint")
    # Set below the class.
    add: _Operator
    sub: _Operator
    mul: _Operator
    mod: _Operator
    float_truediv: _Operator
    float_pow: _Operator

    def __init__(self, env: Environment, function: Any, args: tuple[Any, ...], hint: float) -> None:
        self.env = env
        self.function = function
        self.args = args
        self.hint = hint

    @classmethod
    def of(cls, function: Callable[..., float], *args: Any) -> FloatNode:
        """The node for the result of `function` on nodes; a constant if all nodes are constants."""
        hint = function(*[a.hint for a in args])
        env = args[0].env
        if all(a.is_constant() for a in args):
            return cls(env, "constant", (hint,), hint)
        return cls(env, function, args, hint)

    def __str__(self) -> str:
        if self.function == "constant":
            return repr(self.hint)
        return f"{getattr(self.function, '__name__', self.function)}({', '.join(map(str, self.args))})"

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.function == "constant" or all(a.is_constant() for a in self.args)

    def maybe_as_float(self) -> float | None:
        return self.hint if self.is_constant() else None

    constant_float = maybe_as_float

    def guard_float(self, file: str = "", line: int = 0) -> float:
        return self.fix()

    def fix(self, why: str = "") -> float:
        """The value. From now on the values of the integers that it is computed from are required of every call that
        the trace is valid for."""
        for a in self.args:
            if isinstance(a, Node):
                a.fix(why)
        return self.hint

    def _ratio(self) -> tuple[Index, int] | None:
        """Numerator and denominator, a power of 2, if the float is computed exactly from integers and constants by sums
        and by products with constants; None otherwise."""
        if abs(self.hint) >= _EXACT:
            return None
        if self.function == "constant":
            ratio = self.hint.as_integer_ratio() if math.isfinite(self.hint) else (0, _EXACT)
            return ratio if max(map(abs, ratio)) < _EXACT else None
        if self.function is float and isinstance(self.args[0], IntNode):
            return self.args[0].expr, 1
        if self.function not in (operator.add, operator.sub, operator.mul):
            return None
        mine, theirs = ((n.expr, 1) if isinstance(n, IntNode) else n._ratio() for n in self.args)
        if mine is None or theirs is None:
            return None
        (a, p), (b, q) = mine, theirs
        if self.function is operator.mul:
            return (ints.mul(a, b), p * q) if isinstance(a, int) or isinstance(b, int) else None
        b = b if self.function is operator.add else ints.mul(b, -1)
        return ints.add(ints.mul(a, q), ints.mul(b, p)), p * q

    def _integer_value(self) -> Index | None:
        """The float as an integer, if it is computed exactly from integers and is integral; None otherwise."""
        ratio = self._ratio()
        return ratio[0] if ratio is not None and ratio[1] == 1 else None

    def _has_product(self) -> bool:
        return self.function is operator.mul or any(n._has_product() for n in self.args if isinstance(n, FloatNode))

    def _is_exact(self) -> bool:
        """Whether no step of the computation rounds. Guards that numerators fit the mantissa of a float."""
        ratio = self._ratio()
        if ratio is None or not all(n._is_exact() for n in self.args if isinstance(n, FloatNode)):
            return False
        decide, limit = self.env.decide, _EXACT
        return isinstance(ratio[0], int) or (
            decide(compare("<", ratio[0], limit)) and decide(compare(">", ratio[0], -limit)))

    def _compared(self, function: Callable[[Any, Any], bool], other: Node) -> BoolNode:
        mine = self._integer_value()
        theirs = other.expr if isinstance(other, IntNode) else (
            other._integer_value() if isinstance(other, FloatNode) else None)
        if mine is not None and theirs is not None and (
                not self._has_product() and _is_told_by_rounded(mine, theirs)
                or self._is_exact() and (not isinstance(other, FloatNode) or other._is_exact())):
            return BoolNode(self.env, compare(_OPERATORS[function], mine, theirs))
        if isinstance(other, IntNode):
            other.guard_int()
        elif isinstance(other, FloatNode):
            other.fix()
        self.fix()
        return BoolNode(self.env, function(self.hint, other.hint))  # type: ignore[attr-defined]

    def bool_(self) -> bool:
        return bool(self.guard_float())

    def sym_float(self) -> FloatNode:
        return self

    def neg(self) -> FloatNode:
        return FloatNode.of(operator.neg, self)

    def pos(self) -> FloatNode:
        return self

    def abs(self) -> FloatNode:
        return FloatNode.of(abs, self)

    def _integer(self, function: Callable[[float], int]) -> IntNode:
        ratio = self._ratio()
        if ratio is None or isinstance(ratio[0], int) or not self._is_exact():
            self.fix()
            return IntNode(self.env, function(self.hint))
        up = function is math.ceil or function is math.trunc and self.env.decide(compare("<", ratio[0], 0))
        sign = -1 if up else 1
        return IntNode(self.env, ints.mul(ints.floordiv(ints.mul(ratio[0], sign), ratio[1]), sign))

    def floor(self) -> IntNode:
        return self._integer(math.floor)

    def ceil(self) -> IntNode:
        return self._integer(math.ceil)

    def trunc(self) -> IntNode:
        return self._integer(math.trunc)

    def is_integer(self) -> BoolNode:
        self.fix()
        return BoolNode(self.env, self.hint.is_integer())

    def sym_min(self, other: Node) -> Node:
        return self if self._compared(operator.le, other).guard_bool() else other

    def sym_max(self, other: Node) -> Node:
        return self if self._compared(operator.ge, other).guard_bool() else other


def _float_operator(function: Callable[..., Any]) -> Callable[[FloatNode, Node], FloatNode]:
    def computed(self: FloatNode, other: Node) -> FloatNode:
        return FloatNode.of(function, self, other)

    return computed


def _float_comparison(function: Callable[..., Any]) -> Callable[[FloatNode, Node], BoolNode]:
    def compared(self: FloatNode, other: Node) -> BoolNode:
        return self._compared(function, other)

    return compared


for _name, _function in {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod, "truediv": operator.truediv,
    "float_truediv": operator.truediv, "float_pow": operator.pow, "pow": operator.pow,
}.items():
    setattr(FloatNode, _name, _float_operator(_function))
for _name, _function in {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}.items():
    setattr(FloatNode, _name, _float_comparison(_function))
for _name in ("sqrt", "cos", "sin", "tan", "cosh", "sinh", "tanh", "acos", "asin", "atan", "log2", "log", "exp"):
    _math = getattr(math, _name)
    setattr(FloatNode, f"sym_{_name}", functools.partialmethod(FloatNode.of, _math))
    setattr(IntNode, f"sym_{_name}", lambda self, _math=_math: FloatNode.of(_math, self))


# ---------------------------------------------------------------- torch's numbers
def symbolic_int(env: Environment, x: Index) -> Any:
    """A ``torch.SymInt`` for an expression; an int stays an int."""
    return x if isinstance(x, int) else torch.SymInt(IntNode(env, x))


def is_symbolic(value: Any) -> bool:
    """Whether a value is one of torch's symbolic numbers with a node of dynamo_lite."""
    return isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)) and isinstance(value.node, Node)


def expression_of(value: Any) -> Index:
    """The expression of an int, or of a ``torch.SymInt`` with a node of dynamo_lite."""
    if isinstance(value, torch.SymInt):
        node = value.node
        assert isinstance(node, IntNode), node
        return node.expr
    return int(value)


def hint_of(value: Any) -> Any:
    """The value of a symbolic number in the traced call; other values are returned unchanged."""
    return value.node.hint if is_symbolic(value) and not isinstance(value, torch.SymBool) else value
