"""``super()``: attributes of the classes after a given class in the method resolution order.

Invariant: the attribute that is found is guarded, and so is its absence in the classes before.
"""
from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.guards.source import OWN_DICT, Source

from ...rules.class_table import ClassTable
from ..base import VariableTracker, realized, type_name, unsupported, wraps_type
from ..functions.functions import MethodVariable
from ..tensors.subclasses import SubclassTensorVariable
from .classes import ClassVariable, NewVariable, TypeMethodVariable, class_attribute_source
from .members import BuiltinMethodVariable, class_method, native_class_method
from .objects import ObjectVariable

if TYPE_CHECKING:
    from ..protocols import Tracer


class SuperVariable(VariableTracker):
    """``super(start, owner)``."""

    def __init__(self, start: type, owner: VariableTracker, mro_class: type, of_class: bool) -> None:
        super().__init__()
        self.start = start
        self.owner = owner
        self.mro_class = mro_class
        self.of_class = of_class

    def python_type(self) -> type:
        return super

    def truth(self, tx: Tracer) -> bool:
        return True

    def _find(self, tx: Tracer, name: str) -> tuple[type | None, Any]:
        mro = self.mro_class.__mro__
        position = mro.index(self.start)
        tx.classes.guard_mro(self.mro_class)
        for cls in mro[position + 1 :]:
            tx.classes.lookup(cls, name)  # guards the entry in its dict, or its absence
            if name in OWN_DICT(cls):
                return cls, OWN_DICT(cls)[name]
        return None, None

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        cls, attribute = self._find(tx, name)
        if cls is None:
            return self._of_itself(tx, name)
        reader = _READERS.unless(type(attribute), "__get__")
        found = reader(tx, self, attribute, class_attribute_source(cls, name)) if reader is not None else None
        if found is not None:
            return found
        if name == "__new__":
            return NewVariable(cls)
        if isinstance(self.owner, ClassVariable) and cls is type:
            return TypeMethodVariable(self.owner, name)
        if self.of_class and isinstance(attribute, types.ClassMethodDescriptorType):
            return native_class_method(tx, attribute, self.owner, f"super().{name}")
        if self.of_class:
            return self._of_class(tx, cls, name, attribute)
        if isinstance(self.owner, SubclassTensorVariable):
            return _of_tensor(tx, self.owner, name, attribute)
        if isinstance(self.owner, ObjectVariable):
            return _of_object(tx, self.owner, cls, name, attribute)
        unsupported("unsupported_attribute", f"super().{name} of {self.owner.describe()}")

    def _of_itself(self, tx: Tracer, name: str) -> VariableTracker:
        """An attribute of the super object itself, as no class after `start` has one of that name."""
        if name == "__class__":
            return tx.values.from_result(super, "class")
        if hasattr(super, name):
            unsupported("unsupported_attribute", f"{name} of a super object")
        tx.raise_error(AttributeError, f"'super' object has no attribute {name!r}")

    def _of_class(self, tx: Tracer, cls: type, name: str, attribute: Any) -> VariableTracker:
        """An attribute that is read for a class: one without ``__get__``, or one whose ``__get__`` returns the
        descriptor itself where there is no object."""
        if hasattr(type(attribute), "__get__") and type(attribute) not in _THEMSELVES:
            unsupported("unsupported_attribute", f"super().{name}, a {type(attribute).__qualname__}, of a class")
        return realized(tx, tx.values.wrap_at(attribute, class_attribute_source(cls, name)))


_THEMSELVES = (
    property, functools.cached_property, types.MemberDescriptorType, types.GetSetDescriptorType,
    types.MethodDescriptorType, types.WrapperDescriptorType,
)


def _of_object(tx: Tracer, owner: ObjectVariable, cls: type, name: str, attribute: Any) -> VariableTracker:
    if isinstance(attribute, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return BuiltinMethodVariable(owner, name, attribute)
    found = owner.read_descriptor(tx, name, attribute, cls)
    if found is None:
        tx.raise_error(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name!r}")
    return found


def _of_tensor(tx: Tracer, owner: SubclassTensorVariable, name: str, attribute: Any) -> VariableTracker:
    if isinstance(attribute, (types.GetSetDescriptorType, property)):
        return owner.computed(tx, name)
    if isinstance(attribute, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        if attribute.__objclass__ is object:
            return BuiltinMethodVariable(owner, name, attribute)  # type: ignore[arg-type]
        return MethodVariable(tx.values.from_result(attribute, f"super().{name}"), owner)
    unsupported("unsupported_attribute", f"super().{name} of {owner.describe()}")


SuperReader = Callable[["Tracer", SuperVariable, Any, Source], VariableTracker | None]
_READERS: ClassTable[SuperReader] = ClassTable("read")


@_READERS.register(types.FunctionType)
def _function(tx: Tracer, asked: SuperVariable, attribute: Any, source: Source) -> VariableTracker:
    function = tx.values.wrap_function(attribute, source, trusted=True)
    return function if asked.of_class else MethodVariable(function, asked.owner)


@_READERS.register(staticmethod)
def _static(tx: Tracer, asked: SuperVariable, attribute: Any, source: Source) -> VariableTracker:
    return tx.values.wrap_class_part(attribute.__func__, source)


@_READERS.register(classmethod)
def _class_method(tx: Tracer, asked: SuperVariable, attribute: Any, source: Source) -> VariableTracker:
    return class_method(tx, attribute, source, tx.classes.class_of(asked.owner, asked.of_class))


@_READERS.register(property)
def _property(tx: Tracer, asked: SuperVariable, attribute: Any, source: Source) -> VariableTracker | None:
    """None for properties without a getter or with an overridden ``__get__``, and where there is no object."""
    if attribute.fget is None or type(attribute).__get__ is not property.__get__ or asked.of_class:
        return None
    return tx.call(tx.values.wrap_class_part(attribute.fget, source), [asked.owner], {})


def misfit_text(start: type, owner: type, owner_is_class: bool) -> str:
    """CPython's error message for ``super(start, owner)`` where the class `owner`, or that of an instance, does not
    derive from `start`."""

    class Start:
        pass

    class Owner:
        pass

    try:
        super(Start, Owner if owner_is_class else Owner())
    except TypeError as error:
        text = str(error).replace("Owner", "{owner}").replace("Start", "{start}")
        return text.format(owner=type_name(owner), start=type_name(start))
    raise AssertionError("unreachable")


class OuterSuperVariable(VariableTracker):
    """A ``super`` object that was made before the frame (or before a break): reading its attributes breaks the
    graph."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)

    def python_type(self) -> type:
        return super

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        unsupported("unsupported_attribute", f"{name} of a super object that was made outside")


@wraps_type(super)
def _wrap_super(tx: Tracer, value: super, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", super)
    return OuterSuperVariable(source)
