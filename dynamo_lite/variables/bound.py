"""Bound methods of builtin values that have been read but not called yet, and calls of bound special methods.

Invariant: calling a bound special method gives the same result as the corresponding operator or builtin function, and
NotImplemented where the type's own method returns it.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .base import VariableTracker, type_name, unsupported
from .constant import BINARY_METHODS, COMPARE_METHODS, ConstantVariable

if TYPE_CHECKING:
    from .protocols import Codegen, Tracer


class BoundMethodVariable(VariableTracker):
    """A method of a builtin value that has been read but not called yet."""

    has_identity = True

    def __init__(self, owner: VariableTracker, method: str) -> None:
        super().__init__()
        self.owner = owner
        self.method = method

    def is_method_of(self, owner: VariableTracker, name: str) -> bool:
        return self.owner is owner and self.method == name

    def python_type(self) -> type:
        return type([].append)

    def describe(self) -> str:
        return f"{self.method} of {self.owner.describe()}"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        special = SPECIAL_METHODS.get(self.method)
        if special is not None and not kwargs:
            return tx.checked_call(special, tx, self.owner, *args)
        return self.owner.call_method(tx, self.method, args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return ConstantVariable(self.method)
        if name == "__qualname__":
            return ConstantVariable(f"{self.owner.python_type().__qualname__}.{self.method}")
        if name == "__call__":
            return self
        return super().getattr(tx, name)

    def same_object(self, other: VariableTracker) -> bool | None:
        return self.may_be_the_same(other)

    def hash_key(self) -> Any:
        return ("builtin method", self.method, id(self.owner))

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op in ("==", "!=") and isinstance(other, BoundMethodVariable):
            same = self.method == other.method and self.owner is other.owner
            return ConstantVariable(same == (op == "=="))
        return None

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            cg.push(self.owner)
            cg.emit.load_attr(self.method)

        cg.build_new(self, make, lambda: None, refers_only=True)


# CPython's messages for a value whose class lacks a special method.
MISSING_METHODS: dict[str, str] = {
    "__getitem__": "{!r} object is not subscriptable",
    "__setitem__": "{!r} object does not support item assignment",
    "__delitem__": "{!r} object doesn't support item deletion",
    "__len__": "object of type {!r} has no len()",
    "__neg__": "bad operand type for unary -: {!r}",
    "__pos__": "bad operand type for unary +: {!r}",
    "__invert__": "bad operand type for unary ~: {!r}",
    "__abs__": "bad operand type for abs(): {!r}",
    "__round__": "type {} doesn't define __round__ method",
}


def missing_method(name: str, cls: type) -> str:
    """The text of the TypeError for a value whose class lacks the special method `name`."""
    text = MISSING_METHODS.get(name, "{!r} object has no " + name)
    return text.format(type_name(cls))


Special = Callable[..., VariableTracker]


def _or_not_implemented(value: VariableTracker | None) -> VariableTracker:
    return ConstantVariable(NotImplemented) if value is None else value


def _for_effect(function: Callable[..., Any]) -> Special:
    def call(tx: Tracer, owner: VariableTracker, *args: VariableTracker) -> VariableTracker:
        function(tx, owner, *args)
        return ConstantVariable(None)

    return call


def _beside(owner: VariableTracker, other: VariableTracker) -> VariableTracker:
    """The right operand as a method of a builtin sees it: for an instance of a subclass, the builtin value inside."""
    content = other.content
    return content if content is not None and owner.content is None else other


def _binary(symbol: str, reflected: bool) -> Special:
    return lambda tx, owner, other: _or_not_implemented(owner.binary(tx, symbol, _beside(owner, other), reflected))


def _inplace(symbol: str) -> Special:
    return lambda tx, owner, other: _or_not_implemented(owner.inplace(tx, symbol, other))


def _compare(symbol: str) -> Special:
    return lambda tx, owner, other: _or_not_implemented(owner.compare(tx, symbol, _beside(owner, other)))


def _add(tx: Tracer, owner: VariableTracker, other: VariableTracker) -> VariableTracker:
    """``__add__``: that of a sequence raises TypeError where those of other types return NotImplemented."""
    sequence = issubclass(owner.python_type(), (list, tuple, str, bytes))
    return tx.operators.binary("+", owner, other) if sequence else _binary("+", False)(tx, owner, other)


def _repeated(symbol: str) -> Callable[..., VariableTracker]:
    """``__mul__``, ``__rmul__`` and ``__imul__``: those of a sequence call ``__index__`` of the other operand where
    those of other types return NotImplemented."""
    def call(tx: Tracer, owner: VariableTracker, other: VariableTracker) -> VariableTracker:
        made = owner.inplace(tx, "*", other) if symbol == "*=" else owner.binary(tx, "*", other, symbol == "r*")
        if made is None and issubclass(owner.python_type(), (list, tuple, str, bytes)):
            return call(tx, owner, ConstantVariable(tx.operators.as_index(other)))
        return _or_not_implemented(made)

    return call


def _power(
    tx: Tracer, owner: VariableTracker, other: VariableTracker, *modulo: VariableTracker
) -> VariableTracker:
    return owner.call_method(tx, "__pow__", [other, *modulo], {}) if modulo else _binary("**", False)(tx, owner, other)


def _unary(symbol: str) -> Special:
    return lambda tx, owner: owner.unary(tx, symbol)


def _hash(tx: Tracer, owner: VariableTracker) -> VariableTracker:
    if owner.is_constant():
        return ConstantVariable(tx.operators.hash_of(owner))
    try:
        owner.hash_key()
    except TypeError as error:
        tx.raise_error(TypeError, str(error))
    unsupported("unsupported_method", f"__hash__ of {owner.describe()}")


# Implementations of calls of bound special methods of builtin values: (tx, owner, *args) -> result.
SPECIAL_METHODS: dict[str, Special] = {
    "__len__": lambda tx, o: o.length(tx),
    "__getitem__": lambda tx, o, key: o.getitem(tx, key),
    "__setitem__": _for_effect(lambda tx, o, key, value: o.setitem(tx, key, value)),
    "__delitem__": _for_effect(lambda tx, o, key: o.delitem(tx, key)),
    "__contains__": lambda tx, o, item: ConstantVariable(o.contains(tx, item)),
    "__iter__": lambda tx, o: o.iterator(tx),
    "__next__": lambda tx, o: tx.iteration.next_of(o),
    "__get__": lambda tx, o, obj, cls=None: tx.bind_function(o, obj),
    "__call__": lambda tx, o, *args: tx.call(o, list(args), {}),
    "__bool__": lambda tx, o: ConstantVariable(o.truth(tx)),
    "__hash__": _hash,
    "__str__": lambda tx, o: tx.texts.to_text(o, "s"),
    "__repr__": lambda tx, o: tx.texts.to_text(o, "r"),
    "__format__": lambda tx, o, spec: tx.texts.format_value(o, "", spec.constant()),
    "__getattribute__": lambda tx, o, name: tx.getattr(o, name.constant()),
    "__setattr__": _for_effect(lambda tx, o, name, value: o.setattr(tx, name.constant(), value)),
    "__delattr__": _for_effect(lambda tx, o, name: o.delattr(tx, name.constant())),
    "__reduce__": lambda tx, o: tx.reduced(o),
    "__reduce_ex__": lambda tx, o, protocol: tx.reduced_ex(o, protocol),
    "__copy__": lambda tx, o: tx.call_method(o, "copy", []),
    "__deepcopy__": lambda tx, o, memo: tx.deep_copied(o, memo),
    "__neg__": _unary("-"), "__pos__": _unary("+"), "__invert__": _unary("~"),
    **{names[0]: _binary(symbol, False) for symbol, names in BINARY_METHODS.items()},
    **{names[1]: _binary(symbol, True) for symbol, names in BINARY_METHODS.items()},
    **{"__i" + names[0][2:]: _inplace(symbol) for symbol, names in BINARY_METHODS.items()},
    **{name: _compare(symbol) for symbol, name in COMPARE_METHODS.items()},
    "__add__": _add, "__pow__": _power, "__mul__": _repeated("*"), "__rmul__": _repeated("r*"),
    "__imul__": _repeated("*="),
}
