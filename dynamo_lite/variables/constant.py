"""Values that are wholly known while tracing: numbers, strings, dtypes, devices, enum members and the like.

Invariant: a constant is immutable and compares by value, so that a guard on its value is all that a cache entry needs.
"""
from __future__ import annotations

import enum
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..guards.source import ConstSource, DictItemSource, InstanceDictSource, Source
from ..rules.trace_rules import is_library
from .base import VariableTracker, unsupported, wraps_if, wraps_type

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

# Folding must not hang the compiler: `2 ** 10**9` is left to run time.
_MAX_FOLDED_BITS = 1 << 20


def _check_changes_nothing(mapping: VariableTracker) -> None:
    """Text made of a mapping looks up its keys, and a defaultdict adds those that it lacks."""
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
            return False  # before the values: who asks for that of a number that changes fixes it
        if self.value is other.value:
            return True
        # Small integers and equal strings may or may not be one object in Python; only singletons are certain.
        singleton = (bool, type(None), type(Ellipsis), enum.Enum, torch.dtype, torch.layout, torch.memory_format)
        if isinstance(self.value, singleton):
            return False
        return False if self.value != other.value else None

    def as_argument(self, tx: Tracer) -> Any:
        return self.value

    def reconstruct(self, cg: Codegen) -> None:
        if self.source is not None and not is_unique(self.value):
            cg.load_source(self.source)  # equal values are guarded, not this very object
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
            args = [tx.values.new_list(texts)]
        if name == "format_map":
            _check_changes_nothing(args[0])
        if name == "format" and isinstance(self.value, str):
            return tx.texts.format_string(self.value, args, kwargs)
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
        a, b = (other.value, self.value) if reflected else (self.value, other.value)
        if _is_huge(op, a, b):
            unsupported("unsupported_operator", f"{a!r:.40} {op} {b!r:.40} is too large to compute while compiling")
        return tx.values.from_result(tx.run_python(BINARY[op], a, b), "operator")

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if not isinstance(other, ConstantVariable):
            return None
        if other.is_symbolic and not self.is_symbolic:
            return other.compare(tx, MIRRORED[op], self)
        return ConstantVariable(tx.run_python(COMPARE[op], self.value, other.value))

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        return ConstantVariable(tx.run_python(UNARY[op], self.value))


def _check_enters_nothing(value: Any, name: str) -> None:
    """A method that enters or leaves a context, called by name, is no computation with constants."""
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


@wraps_if(lambda value: issubclass(type(value), enum.Enum), rank=10)
def _wrap_enum(tx: Tracer, value: enum.Enum, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return EnumVariable(value, source)


# What enum's own properties read, which a program may set anew.
_BEHIND: dict[Any, str] = {enum.Enum.__dict__[name]: f"_{name}_" for name in ("name", "value")}


class EnumVariable(ConstantVariable):
    """A member of an enum: a constant whose class may have methods and properties of the user's."""

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        cls = type(self.value)
        attribute = tx.classes.lookup(cls, name)
        if isinstance(attribute, types.FunctionType) and not is_library(attribute.__module__):
            return tx.values.bound_class_function(self, cls, name, attribute)
        if type(attribute) is property and isinstance(attribute.fget, types.FunctionType):
            return tx.call(tx.values.wrap_class_part(attribute.fget, ConstSource(attribute, name)), [self], {})
        own = self.value.__dict__
        where = InstanceDictSource(ConstSource(self.value, str(self.value)))
        behind = _BEHIND.get(attribute) if isinstance(attribute, types.DynamicClassAttribute) else name
        if behind in own:
            return tx.values.wrap_now(own[behind], DictItemSource(where, behind))
        if name not in own and not hasattr(type(attribute), "__set__"):
            tx.guard(where, "dict_lacks", name)
        return super().getattr(tx, name)

    def fix(self, tx: Tracer) -> None:
        """Guards what enum's own methods go by."""
        where = InstanceDictSource(ConstSource(self.value, str(self.value)))
        for name in _BEHIND.values():
            held = self.value.__dict__.get(name)
            if type(held) in SCALAR_TYPES:  # a number that changes is fixed, too
                tx.guard(DictItemSource(where, name), "is" if held is None or type(held) is bool else "const", held)
            elif name in self.value.__dict__:
                tx.values.wrap_now(held, DictItemSource(where, name))

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        for operand in (self, other):
            if isinstance(operand, EnumVariable) and isinstance(operand.value, enum.Flag):
                operand.fix(tx)
        return super().binary(tx, op, other, reflected)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        self.fix(tx)
        return super().unary(tx, op)

    def truth(self, tx: Tracer) -> bool:
        if isinstance(self.value, enum.Flag):
            self.fix(tx)
        return super().truth(tx)

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        self.fix(tx)
        if isinstance(item, EnumVariable):
            item.fix(tx)
        return super().contains(tx, item)

    def iterator(self, tx: Tracer) -> VariableTracker:
        self.fix(tx)
        method = tx.classes.lookup(type(self.value), "__iter__")
        if isinstance(method, types.FunctionType) and is_library(method.__module__):  # of enum.Flag
            return tx.values.new_list([constant_variable(v) for v in method(self.value)]).iterator(tx)
        return super().iterator(tx)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        attribute = tx.classes.lookup(type(self.value), name)
        if isinstance(attribute, types.FunctionType) and not is_library(attribute.__module__):
            return tx.call(self.getattr(tx, name), args, kwargs)
        self.fix(tx)
        return super().call_method(tx, name, args, kwargs)


def constant_variable(value: Any, source: Source | None = None) -> ConstantVariable:
    """The tracker of a constant."""
    return EnumVariable(value, source) if isinstance(value, enum.Enum) else ConstantVariable(value, source)


def is_constant_value(value: Any) -> bool:
    """Whether a Python value can stand as a constant by itself, without a source."""
    if isinstance(value, (*TORCH_TYPES, enum.Enum)) or type(value) in SCALAR_TYPES:
        return True
    return type(value) in (tuple, frozenset) and all(is_constant_value(v) for v in value)
