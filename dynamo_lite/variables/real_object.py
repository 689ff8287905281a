"""The common part of trackers that hold a real object as it is: classes, modules, functions that are not traced.

Invariant: the object is known while tracing and is guarded by its identity, so that it is a constant of the trace.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..guards.source import BASES, OWN_DICT, AttrSource, ConstSource, InstanceDictSource, Source
from ..rules.trace_rules import is_library
from .base import VariableTracker, instance_dict, is_made_by_python, realized, unsupported
from .constant import BINARY_METHODS, COMPARE_METHODS, ConstantVariable

if TYPE_CHECKING:
    from .protocols import Codegen, Tracer


class RealObjectVariable(VariableTracker):
    """A real object as a constant: identity and hashing are those of the object, and generated code refers to it.

    Special methods that its class (a metaclass or a subclass of modules) defines in Python are evaluated like other
    code.

    Args:
        value: the object.
        source: where it lives, if it came in from outside.
    """

    has_identity = True

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def hash_key(self) -> Any:
        cls = type(self.value)
        if cls is not type and is_made_by_python(cls):
            for name in ("__hash__", "__eq__"):
                home = next((base for base in BASES(cls) if name in OWN_DICT(base)), object)
                if is_made_by_python(home) and not is_library(home.__module__):
                    unsupported("unsupported_value", f"{self.describe()} as a key, whose class defines {name}")
        return self.value

    def same_object(self, other: VariableTracker) -> bool | None:
        return other.is_constant() and other.constant() is self.value

    def own_method(self, tx: Tracer, name: str) -> Any:
        cls = type(self.value)
        if cls is type or not is_made_by_python(cls):
            return None
        method = tx.classes.lookup(cls, name)
        if method is None or isinstance(method, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return None
        home = next(base for base in BASES(cls) if name in OWN_DICT(base))
        return None if is_library(home.__module__) else method

    def asks_own(self, tx: Tracer, *names: str) -> bool:
        return any(self.own_method(tx, name) is not None for name in names)

    def own_comparison(self, tx: Tracer, op: str) -> str | None:
        names = (COMPARE_METHODS[op], "__eq__") if op == "!=" else (COMPARE_METHODS[op],)
        return next((name for name in names if self.own_method(tx, name) is not None), None)

    def guard_hash(self, tx: Tracer) -> None:
        self.asks_own(tx, "__hash__", "__eq__")

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            method = tx.classes.lookup(type(self.value), name)
            if isinstance(method, types.FunctionType):
                return tx.truth(self._call_own(tx, name, method, []))
            if method is not None:
                unsupported("unsupported_value", f"truth of {self.describe()}")
        return True

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        made = self._operator(tx, COMPARE_METHODS[op], other)
        if made is None and op == "!=":
            equal = self._operator(tx, "__eq__", other)
            return None if equal is None else ConstantVariable(not tx.truth(equal))
        return made

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        return self._operator(tx, "__i" + BINARY_METHODS[op][0][2:], other)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        return self._operator(tx, BINARY_METHODS[op][reflected], other)

    def _operator(self, tx: Tracer, name: str, other: VariableTracker) -> VariableTracker | None:
        """The result of an operator method that the class defines in Python; None if there is none."""
        method = tx.classes.lookup(type(self.value), name)
        if not isinstance(method, types.FunctionType):
            return None
        made = self._call_own(tx, name, method, [other])
        return None if made.is_not_implemented() else made

    def _call_own(
        self, tx: Tracer, name: str, method: types.FunctionType, args: list[VariableTracker]
    ) -> VariableTracker:
        return tx.classes.call_attribute(self, type(self.value), name, method, args, {})

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if type(self.value).__dictoffset__ == 0:  # no attribute can be set
            value = tx.run_python(getattr, self.value, name)
            return tx.values.from_result(value, f"{self.describe()}.{name}")
        own = instance_dict(self.value)
        if own is not None and tx.output.effects.is_tracked(own):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}, whose dict has been changed")
        where = self.source or ConstSource(self.value, getattr(self.value, "__qualname__", self.describe()))
        try:
            value = getattr(self.value, name)
        except AttributeError as error:
            tx.guard(InstanceDictSource(where), "dict_lacks", name)
            tx.errors.raise_python(error)
        if getattr(value, "__self__", None) is self.value:  # a bound method, a new object at each access
            return tx.values.from_result(value, f"{self.describe()}.{name}")
        return realized(tx, tx.values.wrap_at(value, AttrSource(where, name)))

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit.load_const(self.value)
