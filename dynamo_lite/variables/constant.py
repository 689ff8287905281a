"""Values that are fully known while tracing: numbers, strings, dtypes, devices, enum members and the like.

Invariant: a constant is immutable and compares by value, so that a guard on its value is all that a cache entry needs.
"""
from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..guards.source import Source
from .base import VariableTracker, unsupported, wraps_type

if TYPE_CHECKING:
    from .protocols import Codegen, Tracer

SCALAR_TYPES = (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
TORCH_TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format)

BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "<<": operator.lshift, ">>": operator.rshift,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
}
COMPARE = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}
# The comparison that holds for exchanged operands.
MIRRORED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}

# symbol -> (method, reflected method), symbol -> method: for operators between values of any kind
_BINARY_NAMES = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor",
}
BINARY_METHODS: dict[str, tuple[str, str]] = {s: (f"__{n}__", f"__r{n}__") for s, n in _BINARY_NAMES.items()}
COMPARE_METHODS = {"<": "__lt__", "<=": "__le__", "==": "__eq__", "!=": "__ne__", ">": "__gt__", ">=": "__ge__"}
UNARY_METHODS = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
TEXT_METHODS = ("__str__", "__repr__", "__format__")
# Special methods that functions in C may call on an operand, apart from those for texts.
ASKED_IN_C = (
    *COMPARE_METHODS.values(), *UNARY_METHODS.values(), *(name for pair in BINARY_METHODS.values() for name in pair),
    "__hash__", "__bool__", "__len__", "__iter__", "__getitem__", "__contains__", "__index__", "__int__", "__float__",
    "__complex__", "__bytes__", "__abs__", "__round__", "__trunc__", "__floor__", "__ceil__", "__divmod__",
    "__rdivmod__", "__fspath__", "__reduce_ex__", "__reduce__", "__getattribute__", "__getattr__",
)
assert BINARY_METHODS.keys() == BINARY.keys() and COMPARE_METHODS.keys() == COMPARE.keys()

# Folding must not hang the compiler: `2 ** 10**9` is left to run time.
_MAX_FOLDED_BITS = 1 << 20


def _check_changes_nothing(mapping: VariableTracker) -> None:
    """Breaks the graph for a defaultdict: formatting looks up keys in the mapping, and a defaultdict adds missing
    ones."""
    if getattr(mapping, "default_factory", None) is not None:
        unsupported("unsupported_operator", f"text made of the values of {mapping.describe()}")


class ConstantVariable(VariableTracker):
    """A known immutable value.

    Args:
        value: the value itself.
        source: where it lives, if it came in from outside.
    """

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def describe(self) -> str:
        return f"constant {self.value!r}"

    def python_type(self) -> type:
        return type(self.value)

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def hash_key(self) -> Any:
        return self.value

    def same_object(self, other: VariableTracker) -> bool | None:
        if not isinstance(other, ConstantVariable) or self.python_type() is not other.python_type():
            # Types are compared before values, as reading the value of a symbolic number specializes it.
            return False
        if self.value is other.value:
            return True
        # Equal numbers and strings may or may not be one object in Python; only singletons are certain.
        singleton = (bool, type(None), type(Ellipsis), enum.Enum, torch.dtype, torch.layout, torch.memory_format)
        if isinstance(self.value, singleton):
            return False
        return False if self.value != other.value else None

    def as_argument(self, tx: Tracer) -> Any:
        return self.value

    def reconstruct(self, cg: Codegen) -> None:
        if self.source is not None and not is_unique(self.value):
            cg.load_source(self.source)  # the guard is on an equal value, not on this object
        else:
            cg.emit.load_const(self.value)

    def truth(self, tx: Tracer) -> bool:
        return bool(self.value)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        _check_enters_nothing(self.value, name)
        value = tx.run_python(getattr, self.value, name)
        return tx.values.from_result(value, f"{self.describe()}.{name}")

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        tx.raise_error(TypeError, f"{type(self.value).__name__!r} object is not callable")

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        _check_enters_nothing(self.value, name)
        method = tx.run_python(getattr, self.value, name)
        if name == "join" and len(args) == 1 and not kwargs:
            texts = tx.iteration.fast_sequence(args[0], "can only join an iterable")
            joined = tx.texts.join(self.value, texts) if isinstance(self.value, (str, bytes)) else None
            if joined is not None:
                return joined
            # Joining texts calls none of their methods.
            if isinstance(self.value, (str, bytes)) and all(text.is_constant() for text in texts):
                return ConstantVariable(tx.run_python(method, [text.constant() for text in texts]))
            args = [tx.values.new_list(texts)]
        if name == "format_map":
            _check_changes_nothing(args[0])
            if tx.texts.is_made_by_classes(args[0]):
                unsupported("unsupported_builtin", "str.format_map(), with a text that its class makes")
        if name == "format" and isinstance(self.value, str):
            return tx.texts.format_string(self.value, args, kwargs)
        for given in (*args, *kwargs.values()):
            given.check_plain(tx, texts=name.startswith("__"))
        if any(not a.is_constant() for a in [*args, *kwargs.values()]):
            plain = [tx.values.as_plain(a) for a in args]
            plain_kwargs = {k: tx.values.as_plain(v) for k, v in kwargs.items()}
        else:
            plain, plain_kwargs = [a.constant() for a in args], {k: v.constant() for k, v in kwargs.items()}
        return tx.values.from_result(tx.run_python(method, *plain, **plain_kwargs), f"{self.describe()}.{name}()")

    def length(self, tx: Tracer) -> VariableTracker:
        return ConstantVariable(tx.run_python(len, self.value))

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        if isinstance(self.value, enum.EnumMeta):
            return tx.values.from_result(tx.run_python(operator.getitem, self.value, key.constant()), "enum member")
        return ConstantVariable(tx.run_python(operator.getitem, self.value, tx.values.as_plain(key)))

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        return tx.run_python(operator.contains, self.value, tx.values.as_plain(item))

    def iterator(self, tx: Tracer) -> VariableTracker:
        if isinstance(self.value, (str, bytes)):
            return tx.values.new_list([ConstantVariable(c) for c in self.value]).iterator(tx)
        tx.raise_error(TypeError, f"{type(self.value).__name__!r} object is not iterable")

    def reversed(self, tx: Tracer) -> VariableTracker:
        if isinstance(self.value, (str, bytes)):
            return tx.values.new_list(list(self.iterate(tx))[::-1]).iterator(tx)
        return super().reversed(tx)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op == "%" and isinstance(self.value, (str, bytes)) and not reflected:
            _check_changes_nothing(other)
            return tx.texts.fill(self.value, other)
        if not isinstance(other, ConstantVariable):
            return None
        if other.is_symbolic and not self.is_symbolic:
            return other.binary(tx, op, self, not reflected)
        name, mirrored = BINARY_METHODS[op][::-1] if reflected else BINARY_METHODS[op]
        if other.own_method(tx, mirrored) is not None:
            return self._alone(tx, name, other)
        a, b = (other.value, self.value) if reflected else (self.value, other.value)
        if _is_huge(op, a, b):
            unsupported("unsupported_operator", f"{a!r:.40} {op} {b!r:.40} is too large to compute while compiling")
        return tx.values.from_result(tx.run_python(BINARY[op], a, b), "operator")

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if not isinstance(other, ConstantVariable):
            return None
        if other.is_symbolic and not self.is_symbolic:
            return other.compare(tx, MIRRORED[op], self)
        if other.own_comparison(tx, MIRRORED[op]) is not None:
            return self._alone(tx, COMPARE_METHODS[op], other)
        return ConstantVariable(tx.run_python(COMPARE[op], self.value, other.value))

    def _alone(self, tx: Tracer, name: str, other: ConstantVariable) -> VariableTracker | None:
        """The result of this operand's operator method on `other`, without falling back to the method of `other`."""
        texts = (str, bytes)
        if isinstance(self.value, texts) and isinstance(other.value, texts) and name not in COMPARE_METHODS.values():
            unsupported("unsupported_operator", f"{name} of {self.describe()} and {other.describe()}")
        method = None if name == "__add__" and isinstance(self.value, texts) else getattr(type(self.value), name, None)
        made = NotImplemented if method is None else tx.run_python(method, self.value, other.value)
        return None if made is NotImplemented else tx.values.from_result(made, "operator")

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        return ConstantVariable(tx.run_python(UNARY[op], self.value))


def _check_enters_nothing(value: Any, name: str) -> None:
    """Breaks the graph if `name` enters or leaves a context: calling that by name is no computation with constants."""
    if isinstance(value, torch.device) and name in ("__enter__", "__exit__"):
        unsupported("unsupported_context_manager", f"{value!r}.{name}, which is not called by a with statement")


def is_unique(value: Any) -> bool:
    """Whether Python has one object for this value, so that `is` means `==`."""
    if type(value) is int:
        return -5 <= value <= 256
    if type(value) in (str, bytes):
        return len(value) < 2 and (type(value) is bytes or value.isascii())
    return type(value) not in (float, complex)


def _is_huge(op: str, a: Any, b: Any) -> bool:
    if op == "**" and isinstance(a, int) and isinstance(b, int):
        return b > 0 and a.bit_length() * b > _MAX_FOLDED_BITS
    if op == "<<" and isinstance(b, int):
        return b > _MAX_FOLDED_BITS
    if op == "*":
        for sequence, times in ((a, b), (b, a)):
            if isinstance(sequence, (str, bytes)) and isinstance(times, int):
                return len(sequence) * times > _MAX_FOLDED_BITS
    return False


@wraps_type(*SCALAR_TYPES, *TORCH_TYPES)
def _wrap_constant(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    if value is None or value is True or value is False or isinstance(value, TORCH_TYPES[0]):
        tx.guard(source, "is", value)
    else:
        tx.guard(source, "const", value)
    return ConstantVariable(value, source)


def is_constant_value(value: Any) -> bool:
    """Whether a Python value can stand as a constant by itself, without a source."""
    if isinstance(value, (*TORCH_TYPES, enum.Enum)) or type(value) in SCALAR_TYPES:
        return True
    return type(value) in (tuple, frozenset) and all(is_constant_value(v) for v in value)
