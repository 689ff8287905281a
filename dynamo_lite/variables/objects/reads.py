"""Reads of class attributes through an instance: the descriptor protocol, by the type of attribute. The instance is an
object of the user's, an enum member, or a class as instance of its metaclass.

A reader is registered for attributes of given types, subclasses included; other attributes are read by ``__get__`` if
their class defines it (Objects/object.c, PyObject_GenericGetAttr). Invariant: a reader returns the same as the
attribute's ``__get__``, and guards fix the attribute.
"""
from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ...rules.class_table import ClassTable
from ..base import VariableTracker, is_made_by_python, realized, unsupported
from ..containers.sequences import FIELD, TupleVariable
from ..functions.functions import MethodVariable
from ..numbers.rng import is_draw_of_numpy
from .classes import class_attribute_source, has_instance_dict, is_exception_class, is_stand_in
from .descriptors import call_property, is_property
from .members import BIND, BuiltinMethodVariable, class_method, native_class_method

if TYPE_CHECKING:
    from ..protocols import ObjectVariable, Tracer

# Arguments: the tracer, the instance, the class through which the attribute was found, its name, the attribute.
Reader = Callable[["Tracer", VariableTracker, type, str, Any], VariableTracker | None]
_READERS: ClassTable[Reader] = ClassTable("read")
# Registers a reader for attributes of these types.
reads = _READERS.register


def reader_of(attribute: Any) -> Reader:
    """The reader for an attribute."""
    return _READERS.unless(type(attribute), "__get__") or _by_get


def _object(owner: VariableTracker, name: str) -> ObjectVariable:
    """The owner as an object with attributes; breaks the graph for constants (classes and enum members), for which such
    an attribute can't be followed."""
    if owner.is_constant():
        unsupported("unsupported_attribute", f"{owner.describe()}.{name}")
    return cast("ObjectVariable", owner)


@reads(types.FunctionType)
def _function(tx: Tracer, owner: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker:
    source = class_attribute_source(home, name)
    return MethodVariable(tx.values.wrap_function(attribute, source, trusted=True), owner)


@reads(staticmethod)
def _static(tx: Tracer, owner: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker:
    return tx.values.wrap_class_part(attribute.__func__, class_attribute_source(home, name))


@reads(classmethod)
def _of_class(tx: Tracer, owner: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker:
    cls = tx.values.from_result(owner.python_type(), "class")
    return class_method(tx, attribute, class_attribute_source(home, name), cls)


@reads(property)
def _property(tx: Tracer, owner: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker | None:
    if is_property(tx, attribute, "__get__"):
        return call_property(tx, attribute, owner, name, "__get__")
    return _by_get(tx, owner, home, name, attribute)


@reads(types.MemberDescriptorType)
def _slot(tx: Tracer, given: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker | None:
    owner = _object(given, name)
    if is_exception_class(owner.cls) and not is_made_by_python(attribute.__objclass__):
        return tx.errors.exception_attribute(owner, name)
    return owner.read_slot(tx, name, attribute)


@reads(*BIND)
def _binding(tx: Tracer, owner: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker:
    return MethodVariable(realized(tx, tx.values.wrap_at(attribute, class_attribute_source(home, name))), owner)


@reads(functools.cached_property)
def _cached_property(tx: Tracer, given: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker:
    """Lib/functools.py, cached_property.__get__: the key in the object's dict is the name from ``__set_name__``."""
    owner = _object(given, name)
    key = attribute.attrname
    if key is None:
        tx.run_python(attribute.__get__, owner)  # raises for any argument
    if not has_instance_dict(owner.cls):
        where = f"{owner.cls.__name__!r} instance"
        tx.raise_error(TypeError, f"No '__dict__' attribute on {where} to cache {key!r} property.")
    # An ordinary read has looked in the object's dict already, but one through super() has not.
    value = owner.own_attribute(tx, key)
    if value is None:
        function = tx.values.wrap_class_part(attribute.func, class_attribute_source(home, name))
        value = tx.call(function, [owner], {})
        owner.write_own(tx, key, value)
    return value


@reads(types.ClassMethodDescriptorType)
def _native_class_method(
    tx: Tracer, owner: VariableTracker, home: type, name: str, attribute: Any
) -> VariableTracker | None:
    if is_stand_in(owner.python_type()):
        return _by_get(tx, owner, home, name, attribute)
    what = f"{owner.python_type().__qualname__}.{name}"
    return native_class_method(tx, attribute, tx.classes.class_of(owner, False), what)


@reads(types.MethodDescriptorType, types.WrapperDescriptorType)
def _native_method(tx: Tracer, given: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker:
    owner = _object(given, name)
    return BuiltinMethodVariable(owner, name, attribute)


@reads(FIELD)
def _field(tx: Tracer, owner: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker | None:
    if isinstance(owner.content, TupleVariable):
        return owner.content.item(tx, attribute.__reduce__()[1][0])
    return _by_get(tx, owner, home, name, attribute)


@reads(types.GetSetDescriptorType)
def _computed(tx: Tracer, given: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker:
    owner = _object(given, name)
    if is_exception_class(owner.cls):
        return tx.errors.exception_attribute(owner, name)
    unsupported("unsupported_attribute", f"{owner.describe()}.{name}, a descriptor written in C")


def _by_get(tx: Tracer, owner: VariableTracker, home: type, name: str, attribute: Any) -> VariableTracker:
    """Reads by ``__get__`` of the attribute's class; gives the attribute itself if there is none."""
    source = class_attribute_source(home, name)
    getter = tx.classes.special(type(attribute), "__get__")
    if getter is None:
        return realized(tx, tx.values.wrap_at(attribute, source))
    if is_draw_of_numpy(attribute):
        return MethodVariable(realized(tx, tx.values.wrap_at(attribute, source)), owner)
    if not isinstance(getter, types.FunctionType):
        unsupported("unsupported_attribute", f"{owner.describe()}.{name}, a {type(attribute).__qualname__}")
    descriptor = realized(tx, tx.values.wrap_at(attribute, source))
    cls = tx.values.from_result(owner.python_type(), "class")
    return tx.classes.call_attribute(descriptor, type(attribute), "__get__", getter, [owner, cls], {})
