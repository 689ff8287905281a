"""Numbers that are nodes of the graph: numbers out of tensors, known only as the graph runs (``x.sum().item()`` under
``config.capture_scalar_outputs``), and inputs that have changed from call to call.

A :class:`ScalarVariable` is a node of the graph whose value is a Python number of a known type. Arithmetic on it adds
nodes that run Python's own operators, so it is as exact as Python's; where Python raises, the graph raises. When
operations run on fake tensors, the number is an :class:`Unknown`, a torch symbolic number without a value: any code of
torch that asks for its value fails, so that no size, stride or branch can come to depend on it.

Invariant: nothing that the trace decides depends on the value. An operation that needs the value breaks the graph; if
the number is an input, it is guarded by value instead (:class:`NumberNeeded`).
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from ...exc import Unsupported
from ...guards.source import Source
from ..base import VariableTracker, unsupported
from ..constant import BINARY, COMPARE, UNARY, ConstantVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

NUMBERS = (bool, int, float)
# An example number of each type, for uses where only the type matters.
EXAMPLES: dict[type, Any] = {bool: True, int: 3, float: 2.5}
_SYMBOLS: dict[type, Any] = {bool: torch.SymBool, int: torch.SymInt, float: torch.SymFloat}

# Functions of numbers, each with the type of its result where that does not depend on the arguments.
FUNCTIONS: dict[Any, type] = {
    math.ceil: int, math.floor: int, math.trunc: int, math.isnan: bool, math.isinf: bool, math.isfinite: bool,
    float: float, int: int, bool: bool,
    **dict.fromkeys((
        math.sqrt, math.exp, math.expm1, math.exp2, math.log, math.log2, math.log10, math.log1p, math.sin, math.cos,
        math.tan, math.sinh, math.cosh, math.tanh, math.asin, math.acos, math.atan, math.atan2, math.asinh, math.acosh,
        math.atanh, math.hypot, math.pow, math.fabs, math.fmod, math.copysign, math.degrees, math.radians, math.erf,
        math.erfc, math.gamma, math.lgamma, math.cbrt, math.remainder,
    ), float),
}

# Functions and methods that never raise: they give a number whatever the operands are.
TOTAL = frozenset({
    "item", "tolist", operator.add, operator.sub, operator.mul, operator.neg, operator.pos, operator.not_, operator.eq,
    operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.is_, operator.is_not, operator.and_,
    operator.or_, operator.xor, abs, bool, math.isnan, math.isinf, math.isfinite, math.copysign, math.fabs,
})


class ValueNeeded(Exception):
    """An operation on fake tensors has asked for a number that only the running graph knows."""


class NumberNeeded(Unsupported):
    """The values of numbers from outside are needed: the trace starts again with these numbers guarded by value.

    Args:
        origins: the paths where the numbers live.
        cls: the type of the number whose value was needed.
    """

    def __init__(self, detail: str, origins: frozenset[Any], cls: type) -> None:
        super().__init__("changing_value", detail)
        self.origins = origins
        self.cls = cls


class Unknown:
    """The node behind a torch.SymInt, SymFloat or SymBool whose value is not known while tracing.

    Args:
        cls: the number's type.
        asked: called whenever code asks for the value.

    Attributes:
        tracker: the tracker that has this number, if there is one.
    """

    def __init__(self, cls: type, asked: Callable[[], None]) -> None:
        self._cls = cls
        self._asked = asked
        self.tracker: VariableTracker | None = None

    def is_int(self) -> bool:
        return self._cls is int

    def is_float(self) -> bool:
        return self._cls is float

    def is_bool(self) -> bool:
        return self._cls is bool

    def is_symbolic(self) -> bool:
        return True

    def is_nested_int(self) -> bool:
        return False

    def is_constant(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return False

    def _nothing(self) -> None:
        return None

    maybe_as_int = maybe_as_float = maybe_as_bool = constant_int = constant_float = constant_bool = _nothing
    nested_int = singleton_int = _nothing

    def wrap_int(self, value: int) -> Unknown:
        return Unknown(int, self._asked)

    def wrap_float(self, value: float) -> Unknown:
        return Unknown(float, self._asked)

    def wrap_bool(self, value: bool) -> Unknown:
        return Unknown(bool, self._asked)

    def clone(self) -> Unknown:
        return self

    def str(self) -> str:
        return self._cls.__name__

    def __repr__(self) -> str:  # type: ignore[valid-type]
        return self._cls.__name__

    __str__ = _graph_repr = __repr__

    @property
    def hint(self) -> NoReturn:
        """The value in this call. Nodes of symbolic sizes ask for it when they compute or compare with this number."""
        self._asked()
        raise ValueNeeded("hint")

    def __getattr__(self, name: Any) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "expr":
            return repr(self)  # printed in the text of a graph

        def refuse(*args: Any) -> NoReturn:
            self._asked()
            raise ValueNeeded(name)

        return refuse


class Scalars:
    """The numbers of one trace, and whether any code has asked for the value of one.

    Attributes:
        met: whether the trace has a number on whose value it must not depend.
        any: whether operations on fake tensors may get such a number as an argument.
    """

    def __init__(self) -> None:
        self.met = False
        self.any = False
        self.asked = False
        self._asked_origins: frozenset[Any] | None = None
        self._asked_type: type = int

    def start(self) -> None:
        """Resets the record of values that have been asked for."""
        self.asked = False
        self._asked_origins = frozenset()

    def unknown(self, cls: type, origins: frozenset[Any] | None) -> Any:
        """A new symbolic number; `origins` as in :class:`ScalarVariable`."""

        def note() -> None:
            self.asked = True
            self._asked_type = cls
            known = self._asked_origins
            self._asked_origins = None if known is None or origins is None else known | origins

        self.any = self.met = True
        return _SYMBOLS[cls](Unknown(cls, note))

    def check(self, operation: str) -> None:
        """Breaks the graph if an operation has asked for a value since :meth:`start`."""
        if self.asked and self._asked_origins is not None:
            raise NumberNeeded(f"{operation} needs its value", self._asked_origins, self._asked_type)
        if self.asked:
            unsupported("data_dependent_guard", f"{operation} needs the value of a number that came out of a tensor")


def is_unknown(value: Any) -> bool:
    """Whether a fake value is the symbol of a number that the graph computes."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) and isinstance(value.node, Unknown)


def example_of(value: Any) -> Any:
    """An example number of the same type for an unknown number; any other value as it is."""
    if not is_unknown(value):
        return value
    for cls, symbol in _SYMBOLS.items():
        if isinstance(value, symbol):
            return EXAMPLES[cls]
    return value


class ScalarVariable(VariableTracker):
    """A number that a node of the graph computes.

    Args:
    Args:
        node: the node.
        cls: the number's Python type: bool, int or float.
        fake: the torch symbol that stands for it when operations run on fake tensors.
        origins: the paths of the numbers from outside that it is computed from; None if it depends on a tensor's data.
        source: where it lives, for inputs.
    """

    def __init__(
        self, node: fx.Node, cls: type, fake: Any, origins: frozenset[Any] | None, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self._node = node
        self.cls = cls
        self._fake = fake
        self.origins = origins
        if is_unknown(fake):
            fake.node.tracker = self

    @property
    def node(self) -> fx.Node:
        return self._node

    @property
    def fake(self) -> Any:
        return self._fake

    def describe(self) -> str:
        return f"{self.cls.__name__} that the graph computes"

    def python_type(self) -> type:
        return self.cls

    def example(self) -> Any:
        return EXAMPLES[self.cls]

    def computed(self, tx: Tracer, target: Any, args: list[VariableTracker], cls: type) -> VariableTracker | None:
        """The result of `target` on numbers that include this one, if it is known ahead of the graph, else None."""
        return None

    def as_argument(self, tx: Tracer) -> Any:
        return self.node

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_output(self)

    def refuse(self, use: str, kind: str = "data_dependent_guard") -> NoReturn:
        """Breaks the graph, because the program needs the value itself."""
        if self.origins is not None:
            raise NumberNeeded(f"{use} of a {self.cls.__name__} that changes from call to call", self.origins, self.cls)
        if _is_random(self.node):
            unsupported("rng_state", f"{use} of a {self.cls.__name__} that hangs on a random number")
        unsupported(kind, f"{use} of a {self.cls.__name__} that came out of a tensor")

    def to_plain(self, tx: Tracer) -> Any:
        return self.constant() if self.is_constant() else self.refuse("the value")

    def constant(self) -> Any:
        self.refuse("the value")

    def as_index(self, tx: Tracer) -> Any:
        self.refuse("an index")

    def truth(self, tx: Tracer) -> bool:
        self.refuse("bool()", "data_dependent_branch")

    def hash_key(self) -> Any:
        self.refuse("hash()")

    def same_object(self, other: VariableTracker) -> bool | None:
        if self is other:
            return True
        if isinstance(other, ConstantVariable) and other.python_type() is not self.cls:
            return False
        return None if isinstance(other, (ConstantVariable, ScalarVariable)) else False

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if not hasattr(self.cls, name):
            tx.raise_error(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if name == "real" and self.cls is not bool:
            return self
        if name == "__class__":
            return tx.values.from_result(self.cls, "class")
        self.refuse(f".{name}")

    # -- operators
    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if not is_number(other):
            self._refuse_repetition(op, other)
            return None
        operands = [other, self] if reflected else [self, other]
        cls = _type_of_result(op, *operands)
        if cls is None:
            self.refuse(f"operator {op}")
        return scalar_node(tx, BINARY[op], operands, cls)

    def _refuse_repetition(self, op: str, other: VariableTracker) -> None:
        """Breaks the graph for ``[0] * n``, ``"-" * n`` and ``n * 1j``, which need the value of the number."""
        if isinstance(other, ConstantVariable) and other.python_type() is complex:
            self.refuse(f"operator {op}")
        if op == "*" and self.cls is not float and hasattr(other.python_type(), "__len__"):
            if not issubclass(other.python_type(), torch.Tensor):
                self.refuse("operator *")

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if isinstance(other, ConstantVariable) and other.python_type() is complex:
            self.refuse(f"operator {op}")
        if not is_number(other):
            return None
        return scalar_node(tx, COMPARE[op], [self, other], bool)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        if op == "~" and self.cls is float:
            tx.raise_error(TypeError, "bad operand type for unary ~: 'float'")
        return scalar_node(tx, UNARY[op], [self], int if self.cls is bool else self.cls)


def _is_random(node: fx.Node) -> bool:
    """Whether a node is computed from a random number."""
    todo, seen = [node], {node}
    while todo:
        node = todo.pop()
        if "draws" in node.meta:
            return True
        new = [n for n in node.all_input_nodes if n not in seen and is_unknown(n.meta.get("example_value"))]
        seen.update(new)
        todo += new
    return False


def is_number(value: VariableTracker) -> bool:
    """Whether it is a number, known or unknown."""
    return isinstance(value, ScalarVariable) or (
        isinstance(value, ConstantVariable) and value.python_type() in NUMBERS)


def scalar_node(tx: Tracer, target: Any, args: list[VariableTracker], cls: type) -> VariableTracker:
    """The number of type `cls` that `target` computes from numbers: a node, unless it is known ahead of the graph."""
    origins: frozenset[Any] | None = frozenset()
    for argument in args:
        if isinstance(argument, ScalarVariable):
            ahead = argument.computed(tx, target, args, cls)
            if ahead is not None:
                return ahead
            origins = None if origins is None or argument.origins is None else origins | argument.origins
    arguments = tuple(a.as_argument(tx) for a in args)
    return scalar_of(tx, "call_function", target, arguments, cls, origins, counted=False)


def scalar_of(
    tx: Tracer, op: str, target: Any, args: tuple[Any, ...], cls: type, origins: frozenset[Any] | None = None,
    counted: bool = True,
) -> ScalarVariable:
    """A node that computes a number of type `cls` from arguments of the graph; `counted`: it takes part in the count of
    operations, because tensors are among the arguments."""
    fake = new_number(tx.output, cls, origins)
    node = tx.output.create_node(tx, op, target, args, {}, fake, False, counted)
    node.meta["raises"] = target not in TOTAL
    return ScalarVariable(node, cls, fake, origins)


def new_number(output: Any, cls: type, origins: frozenset[Any] | None) -> Any:
    """The symbol of a new number that the graph computes."""
    output.fake_mode.cache_enabled = False  # the cache's keys can't hold unknown numbers
    return output.scalars.unknown(cls, origins)


def call_on_scalars(
    tx: Tracer, function: Any, args: Iterable[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """A call of a builtin on numbers that include numbers of the graph; None if it is not a call that a graph holds."""
    args = list(args)
    if kwargs or not all(is_number(a) for a in args) or not any(isinstance(a, ScalarVariable) for a in args):
        return None
    types = [a.python_type() for a in args]
    result = _RESULTS.get(function)
    cls = result(types) if result is not None else FUNCTIONS.get(function)
    if cls is None:
        return None
    if len(args) == 1 and types[0] is cls and function in NUMBERS:
        return args[0]
    return scalar_node(tx, function, args, cls)


def _of_one_type(types: list[type]) -> type | None:
    return types[0] if len(types) > 1 and len(set(types)) == 1 else None


# The type of a function's result where it depends on the argument types; None for a call that a graph does not hold.
_RESULTS: dict[Any, Callable[[list[type]], type | None]] = {
    min: _of_one_type,
    max: _of_one_type,
    round: lambda types: int if len(types) == 1 or types[0] is bool else types[0],
    abs: lambda types: int if types[0] is bool else types[0],
    operator.index: lambda types: None if types[0] is float else types[0],
}


def _type_of_result(op: str, left: VariableTracker, right: VariableTracker) -> type | None:
    """The type of ``left op right``; None where it depends on the values, or where there is no such operator."""
    kinds = (left.python_type(), right.python_type())
    if op == "**":
        return _type_of_power(left, right)
    if op in ("<<", ">>"):
        return None if float in kinds else int
    try:
        result = type(BINARY[op](EXAMPLES[kinds[0]], EXAMPLES[kinds[1]]))
    except TypeError:
        return None
    return result if result in NUMBERS else None


def _type_of_power(base: VariableTracker, exponent: VariableTracker) -> type | None:
    """The type of a power; None where it depends on the values: an int to a negative power is a float, and a negative
    number to a fractional power is complex."""
    is_float = float in (base.python_type(), exponent.python_type())
    if isinstance(exponent, ConstantVariable):
        power: Any = exponent.value
        if isinstance(power, float) and not power.is_integer():
            return None
        return float if is_float or power < 0 else int
    if exponent.python_type() is not float:
        return float if is_float else None
    positive = isinstance(base, ConstantVariable) and base.value >= 0
    return float if positive else None


# ---------------------------------------------------------------- numbers out of tensors
NUMBER_METHODS: dict[str, type | None] = {"item": None, "tolist": None, "__int__": int, "__float__": float}
_MAX_LIST = 64


def number_in(tx: Tracer, tensor: Any, name: str) -> VariableTracker | None:
    """The number in a tensor, or the list of its numbers, as nodes; None where they are not plain numbers."""
    fake = tensor.fake
    if fake.dtype.is_complex or (fake.numel() > _MAX_LIST if name == "tolist" else fake.numel() != 1):
        return None
    cls = float if fake.dtype.is_floating_point else bool if fake.dtype is torch.bool else int
    if name == "tolist" and fake.dim():
        value = torch.empty(fake.shape).tolist()
        node = tx.output.create_node(tx, "call_method", "tolist", (tensor.node,), {}, value, False)
        return _numbers_of(tx, node, value, cls)
    wanted = NUMBER_METHODS[name]
    if wanted is not None:
        return scalar_of(tx, "call_function", wanted, (tensor.node,), wanted)
    return scalar_of(tx, "call_method", "item", (tensor.node,), cls)


def _numbers_of(tx: Tracer, node: fx.Node, value: list[Any], cls: type) -> VariableTracker:
    """The nested list of numbers that a node computes, each of them as a node."""
    items: list[VariableTracker] = []
    for index, element in enumerate(value):
        if isinstance(element, list):
            child = tx.output.create_node(tx, "call_function", operator.getitem, (node, index), {}, element, False)
            items.append(_numbers_of(tx, child, element, cls))
        else:
            items.append(scalar_of(tx, "call_function", operator.getitem, (node, index), cls))
    return tx.values.new_list(items)


# Operations whose result has the same shape and dtype whatever numbers they get.
_ANY_NUMBER: frozenset[Any] = frozenset({
    *BINARY.values(), *COMPARE.values(), *(getattr(operator, f"i{f.__name__.strip('_')}") for f in BINARY.values()),
    *(getattr(torch, name) for name in ("add", "sub", "mul", "div", "pow", "float_power", "remainder", "fmod")),
    *(name + end for name in ("add", "sub", "mul", "div", "pow") for end in ("", "_")),
})
# The operations among them that raise for no integers; division by 0 and negative powers of integers do raise.
_WHATEVER_NUMBER: frozenset[Any] = frozenset({
    *COMPARE.values(), *(getattr(operator, i + name) for name in ("add", "sub", "mul", "truediv") for i in ("", "i")),
    *(getattr(torch, name) for name in ("add", "sub", "mul")),
    *(name + end for name in ("add", "sub", "mul") for end in ("", "_")),
})
_FROM_NUMBERS = (torch.tensor, torch.as_tensor)


def run_with_numbers(
    tx: Tracer, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, bool]:
    """Runs an operation on fake tensors, some of whose arguments may be unknown numbers."""
    if target in _ANY_NUMBER:
        examples, named = fx.node.map_aggregate((args, kwargs), example_of)
        made = tx.output.run_fake(tx, op, target, examples, named)
        if target not in _WHATEVER_NUMBER and any(map(is_unknown, _leaves(args))) and _is_whole(made[0]):
            # The example is neither a divisor of 0 nor a negative exponent, but the number may be.
            tx.output.fake_mode.raises_seen = True
        return made
    elif target in (operator.getitem, operator.setitem):
        args = (args[0], _any_index(args[1]), *args[2:])
    elif target in _FROM_NUMBERS and any(is_unknown(leaf) for leaf in _leaves(args)) and not _has_tensor_inside(args):
        examples, named = fx.node.map_aggregate((args, kwargs), example_of)
        like = target(*examples, **{**named, "requires_grad": False} if target is torch.tensor else named)
        if kwargs.get("requires_grad"):
            unsupported("grad_mode_mismatch", "a new tensor that requires gradients")
        made = tx.output.run_fake(
            tx, op, torch.empty, (tuple(like.shape),), {"dtype": like.dtype, "device": like.device})
        tx.output.fake_mode.known.drop(made[0])  # its elements are not the contents of the stand-in's memory
        return made
    return tx.output.run_fake(tx, op, target, args, kwargs)


def _any_index(key: Any) -> Any:
    """An index with 0 in place of unknown numbers: 0 is valid for any dimension that has elements."""
    if is_unknown(key):
        return 0
    return tuple(map(_any_index, key)) if isinstance(key, tuple) else key


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _is_whole(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())


def _has_tensor_inside(args: tuple[Any, ...]) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in _leaves(args))
