"""Members that an object gets from its class: methods written in C, class methods, slots.

Invariant: reading a member gives the same as the descriptor protocol.
"""
from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from ..._eval_frame import CompiledFunction
from ...guards.source import AttrSource, Source
from ...rules.table import Rule, class_method_row, decide
from ..base import (
    MISSING,
    VariableTracker,
    realized,
    unsupported,
    wraps_if,
)
from ..constant import ConstantVariable
from ..functions.functions import MethodVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, ObjectVariable, Tracer

BIND = (functools._lru_cache_wrapper, CompiledFunction)  # classes in C whose objects bind like functions


class BuiltinMethodVariable(VariableTracker):
    """A method written in C, bound to an object of a user's class, such as ``dict.update``."""

    def __init__(self, owner: ObjectVariable, name: str, function: Any) -> None:
        super().__init__()
        self.owner = owner
        self.name = name
        self.function = function

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.construction.call_native_method(self.owner, self.name, self.function, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        # The method is not read from the object, whose class may override it if super() found this one.
        bind = functools.partial(bound_to, self.function)
        cg.build_new(
            self, lambda: cg.call_constant(bind, lambda: cg.push(self.owner)), lambda: None, refers_only=True
        )


def bound_to(descriptor: Any, owner: Any) -> Any:
    """Binds a method written in C; called by generated code. The class is passed since descriptors of methods that take
    their defining class, such as ``_queue.SimpleQueue.get``, rely on it."""
    return descriptor.__get__(owner, type(owner))


# Whether a classmethod calls ``__get__`` of the descriptor that it wraps: up to Python 3.12. Later versions bind any
# wrapped object.
_ASKS_DESCRIPTORS = classmethod(property(lambda cls: True)).__get__(None, int) is True  # type: ignore[arg-type]


def class_method(tx: Tracer, attribute: Any, source: Source, cls: VariableTracker) -> VariableTracker:
    """The result of reading a classmethod (Objects/funcobject.c, cm_descr_get)."""
    function = attribute.__func__
    if not _ASKS_DESCRIPTORS:
        if not callable(function):  # generated code could not rebuild such a method
            unsupported("unsupported_attribute", f"a classmethod around a {type(function).__qualname__}")
        return MethodVariable(tx.values.wrap_class_part(function, source), cls)
    if isinstance(function, property):
        return tx.call(tx.values.wrap_class_part(function.fget, source), [cls], {})
    binds = isinstance(function, (types.FunctionType, *BIND))
    if not binds and tx.classes.lookup(type(function), "__get__") is not None:
        unsupported("unsupported_attribute", f"a classmethod around a {type(function).__qualname__}")
    return MethodVariable(tx.values.wrap_class_part(function, source), cls)


class NativeClassMethodVariable(MethodVariable):
    """A class method written in C, with a row in the table of calls, bound to a class."""

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "__func__":
            tx.raise_error(AttributeError, "'builtin_function_or_method' object has no attribute '__func__'")
        return super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        # The method is not read from the class, which may override it if super() found this one.
        descriptor = self.function.constant()
        cg.build_new(
            self,
            lambda: cg.call_constant(functools.partial(descriptor.__get__, None), lambda: cg.push(self.owner)),
            lambda: None,
            refers_only=True,
        )


def native_class_method(tx: Tracer, attribute: Any, cls: VariableTracker, what: str) -> VariableTracker:
    """The result of reading a class method written in C."""
    if decide(attribute).rule is not Rule.RECEIVER:
        return NativeClassMethodVariable(tx.values.from_result(attribute, what), cls)
    return tx.values.from_result(attribute.__get__(None, cls.constant()), what)


@wraps_if(lambda value: class_method_row(value) is not None, rank=1)
def _wrap_native_class_method(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    """A class method from outside; each read makes a new object, so a guard on its identity would always fail."""
    tx.guard(source, "type_is", types.BuiltinMethodType)
    tx.guard(AttrSource(source, "__name__"), "const", value.__name__)
    owner = tx.values.wrap_now(value.__self__, AttrSource(source, "__self__"))
    function = tx.values.from_result(class_method_row(value), value.__qualname__)
    return NativeClassMethodVariable(function, owner, source)


def as_length(tx: Tracer, said: VariableTracker) -> VariableTracker:
    """The result of len() for the result `said` of ``__len__`` (Objects/typeobject.c, slot_sq_length)."""
    said = realized(tx, said)
    if said.python_type() is int and (not said.is_constant() or 0 <= said.constant() <= sys.maxsize):
        return said
    length = tx.operators.as_index(said)
    if length < 0:
        tx.raise_error(ValueError, "__len__() should return >= 0")
    if length > sys.maxsize:
        tx.raise_error(OverflowError, "cannot fit 'int' into an index-sized integer")
    return ConstantVariable(int(length))


def slot_value(value: Any, descriptor: Any) -> Any:
    """The value in an object's slot; MISSING if the slot is empty."""
    try:
        return descriptor.__get__(value, type(value))
    except AttributeError:
        return MISSING


def is_empty(descriptor: Any, value: Any) -> bool:
    return slot_value(value, descriptor) is MISSING


def content_of(value: VariableTracker) -> VariableTracker:
    content = value.content
    return content if content is not None else value


def base_method(content: VariableTracker, name: str) -> Any:
    cls = content.python_type()
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None
