"""Reads of class attributes through the class itself or through an object of a builtin class, by the type of attribute
(``reads.py`` holds reads through instances of the user's classes).

A reader is registered for attributes of given types, subclasses included. Invariant: a reader returns the same as the
attribute's ``__get__``; the caller has guarded the attribute.
"""
from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...guards.source import Source
from ...rules.class_table import ClassTable
from ...rules.table import Rule, decide
from ..base import VariableTracker, is_made_by_python, realized, unsupported
from ..bound import BoundMethodVariable
from ..constant import ConstantVariable
from ..functions.functions import MethodVariable
from .classes import ClassVariable, NewVariable, is_stand_in
from .members import class_method, native_class_method

if TYPE_CHECKING:
    from ..protocols import Tracer

# Arguments: the tracer, the class, the attribute's name, the attribute, its source.
ClassReader = Callable[["Tracer", ClassVariable, str, Any, Source], VariableTracker]
# Arguments: the tracer, the object, its class, the attribute's name, the attribute.
BuiltinReader = Callable[["Tracer", VariableTracker, type, str, Any], VariableTracker]
_OF_CLASSES: ClassTable[ClassReader] = ClassTable("read")
_OF_BUILTINS: ClassTable[BuiltinReader] = ClassTable("read")
# Registers a reader for attributes of these types that are read through a class.
reads_from_class = _OF_CLASSES.register
# Registers a reader for attributes of these types that are read through an object of a builtin class.
reads_from_builtin = _OF_BUILTINS.register


def class_reader_of(attribute: Any) -> ClassReader:
    """The reader for an attribute that is read through a class."""
    return _OF_CLASSES.unless(type(attribute), "__get__") or _by_get


def builtin_reader_of(attribute: Any) -> BuiltinReader:
    """The reader for an attribute that is read through an object of a builtin class."""
    return _OF_BUILTINS.of(type(attribute)) or _as_it_is


# ---------------------------------------------------------------- through a class
@reads_from_class(types.FunctionType)
def _function(tx: Tracer, cls: ClassVariable, name: str, attribute: Any, source: Source) -> VariableTracker:
    return tx.values.wrap_function(attribute, source, trusted=True)


@reads_from_class(staticmethod)
def _static(tx: Tracer, cls: ClassVariable, name: str, attribute: Any, source: Source) -> VariableTracker:
    if name == "__new__" and not isinstance(attribute.__func__, types.FunctionType):
        return NewVariable(cls.value)
    return tx.values.wrap_class_part(attribute.__func__, source)


@reads_from_class(classmethod)
def _of_class(tx: Tracer, cls: ClassVariable, name: str, attribute: Any, source: Source) -> VariableTracker:
    return class_method(tx, attribute, source, cls)


@reads_from_class(types.ClassMethodDescriptorType)
def _native_class_method(tx: Tracer, cls: ClassVariable, name: str, attribute: Any, source: Source) -> VariableTracker:
    if is_stand_in(cls.value) and decide(attribute).rule is Rule.RECEIVER:
        unsupported("class_definition", f"{cls.value.__qualname__}.{name}(), written in C")
    return native_class_method(tx, attribute, cls, f"{cls.value.__qualname__}.{name}")


def _by_get(tx: Tracer, cls: ClassVariable, name: str, attribute: Any, source: Source) -> VariableTracker:
    """Reads by ``__get__`` of the attribute's class; gives the attribute itself if there is none, or one in C."""
    value = cls.value
    if name == "__new__":
        return NewVariable(value)
    of_enum = isinstance(attribute, (enum.Enum, types.DynamicClassAttribute)) and isinstance(value, enum.EnumMeta)
    if of_enum and isinstance(getattr(value, name, None), enum.Enum):
        return tx.values.from_result(getattr(value, name), "enum member")
    getter = tx.classes.special(type(attribute), "__get__")
    if isinstance(getter, types.FunctionType):
        descriptor = realized(tx, tx.values.wrap_at(attribute, source))
        return tx.call_method(descriptor, "__get__", [ConstantVariable(None), cls])
    if getter is not None or not is_made_by_python(value):
        return tx.values.from_result(attribute, f"{value.__qualname__}.{name}")
    return tx.values.wrap_at(attribute, source)


# ---------------------------------------------------------------- through an object of a builtin class
@reads_from_builtin(types.FunctionType)
def _method(tx: Tracer, owner: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    return MethodVariable(tx.values.library_function(attribute), owner)


@reads_from_builtin(classmethod)
def _bound_to_class(tx: Tracer, owner: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    if not isinstance(attribute.__func__, types.FunctionType):
        return _of_builtin_class(tx, owner, cls, name, attribute)
    return MethodVariable(tx.values.library_function(attribute.__func__), tx.values.from_result(cls, "class"))


@reads_from_builtin(staticmethod)
def _unbound(tx: Tracer, owner: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    if not isinstance(attribute.__func__, types.FunctionType):
        return _of_builtin_class(tx, owner, cls, name, attribute)
    return tx.values.library_function(attribute.__func__)


@reads_from_builtin(property)
def _property(tx: Tracer, owner: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    if not isinstance(attribute.fget, types.FunctionType):
        return _computed(tx, owner, cls, name, attribute)
    return tx.call(tx.values.library_function(attribute.fget), [owner], {})


@reads_from_builtin(types.MethodDescriptorType, types.WrapperDescriptorType)
def _native_method(tx: Tracer, owner: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    return BoundMethodVariable(owner, name)


@reads_from_builtin(types.GetSetDescriptorType, types.MemberDescriptorType)
def _computed(tx: Tracer, owner: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    unsupported("unsupported_attribute", f"{owner.describe()}.{name}")


@reads_from_builtin(types.ClassMethodDescriptorType, types.BuiltinFunctionType)
def _of_builtin_class(tx: Tracer, owner: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    return tx.values.from_result(getattr(cls, name), f"{cls.__name__}.{name}")


def _as_it_is(tx: Tracer, owner: VariableTracker, cls: type, name: str, attribute: Any) -> VariableTracker:
    return tx.values.from_result(attribute, f"{cls.__name__}.{name}")
