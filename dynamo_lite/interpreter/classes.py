"""Attributes of classes: their guarded lookup, and the results of reading or calling them.

Invariant: whatever a decision takes from a class's dict is guarded.
"""
from __future__ import annotations

import operator
import types
from typing import Any

from ..guards.source import BASES, OWN_DICT, AttrSource, ConstSource, found_in_bases
from ..rules.trace_rules import is_library
from ..variables.annotations import require_computed
from ..variables.base import MISSING, VariableTracker, realized, type_name, unsupported
from ..variables.constant import ConstantVariable
from ..variables.finalization import SUSPENDED
from ..variables.objects.class_reads import builtin_reader_of, class_reader_of
from ..variables.objects.classes import (
    IN_C,
    NO_ATTRIBUTE,
    ClassVariable,
    MadeClassVariable,
    class_attribute_source,
    class_source,
    has_odd_keys,
    is_data_descriptor,
    is_dynamic_data,
    is_made_by_python,
    is_stand_in,
)
from ..variables.objects.reads import reader_of
from .part import Part

_ABSENT = object()
_CLASS_FACTS = frozenset({"__name__", "__qualname__", "__module__", "__mro__", "__bases__", "__base__", "__doc__",
    "__flags__",
                          "__basicsize__", "__class__"})


class Classes(Part):
    """Guarded reads of the attributes that classes define; a part of the tracer."""

    def call_attribute(
        self,
        owner: VariableTracker,
        cls: type,
        name: str,
        attribute: Any,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        """Calls the attribute `name` of `cls` with `owner` as first argument, as CPython's C protocols do."""
        tx = self.tx
        source = class_attribute_source(cls, name)
        if isinstance(attribute, types.FunctionType):
            return tx.call(tx.values.wrap_function(attribute, source, trusted=True), [owner, *args], kwargs)
        if isinstance(attribute, (staticmethod, classmethod)):
            first = [tx.values.from_result(cls, "class")] if isinstance(attribute, classmethod) else []
            return tx.call(tx.values.wrap_class_part(attribute.__func__, source), [*first, *args], kwargs)
        if isinstance(attribute, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return self.tx.construction.call_native_method(owner, attribute.__name__, attribute, args, kwargs)
        return tx.call(realized(tx, tx.values.wrap_at(attribute, source)), args, kwargs)

    def read(self, cls: ClassVariable, name: str) -> VariableTracker:
        """cls.name (Objects/typeobject.c, type_getattro)."""
        tx = self.tx
        value = cls.value
        written = tx.output.effects.attributes_of(cls)
        if name in written:
            return tx.output.effects.load_attr(cls, name)
        if is_made_by_python(value) and not is_stand_in(value) and not is_library(value.__module__):
            tx.guard(class_source(value), "type_is", type(value))
        if isinstance(tx.classes.lookup(type(value), "__getattribute__"), types.FunctionType):
            what = f"{value.__qualname__}.{name}, which {type(value).__qualname__}.__getattribute__ looks up"
            unsupported("unsupported_attribute", what)
        meta = tx.classes.lookup(type(value), name, NO_ATTRIBUTE)
        if self._goes_first(meta, f"{value.__qualname__}.{name}"):
            return self._of_metaclass(cls, name, meta)
        if name == "__dict__":
            unsupported("unsupported_attribute", f"{value.__qualname__}.{name}")
        if name == "__annotations__" and is_made_by_python(value):
            require_computed(value, f"{value.__qualname__}.{name}")
            return tx.values.wrap_at(value.__annotations__, AttrSource(class_source(value), name))
        if name in _CLASS_FACTS:
            if name in ("__mro__", "__bases__", "__base__"):
                tx.classes.guard_mro(value)
            elif name in ("__name__", "__qualname__") and is_made_by_python(value):
                where = AttrSource(class_source(value), name)
                tx.guard(where, "const", getattr(value, name))
            elif is_made_by_python(value):
                tx.classes.lookup(value, name)
            return tx.values.from_result(getattr(value, name), f"{value.__qualname__}.{name}")
        set_before = tx.output.effects.class_attribute(value, name)
        if set_before is not None:
            return set_before
        attribute = tx.classes.lookup(value, name, _ABSENT, data=True)
        source = class_attribute_source(value, name)
        # A getter of the metaclass in C precedes inherited attributes, and looks at the class's own dict.
        by_meta = isinstance(meta, types.GetSetDescriptorType) and (attribute is meta or name not in vars(value))
        if attribute is not _ABSENT and not by_meta:
            return class_reader_of(attribute)(tx, cls, name, attribute, source)
        if meta is not NO_ATTRIBUTE:
            return self._of_metaclass(cls, name, meta)
        hook = tx.classes.special(type(value), "__getattr__")
        if isinstance(hook, types.FunctionType):
            return tx.classes.call_attribute(cls, type(value), "__getattr__", hook, [ConstantVariable(name)], {})
        tx.raise_error(AttributeError, f"type object {value.__name__!r} has no attribute {name!r}")

    def _goes_first(self, meta: Any, what: str) -> bool:
        """Whether a metaclass's attribute precedes the class's: it is a data descriptor written in Python."""
        if isinstance(meta, property):
            return True
        if not is_made_by_python(type(meta)) or not is_data_descriptor(self.tx, meta):
            return False
        if self.lookup(type(meta), "__get__", NO_ATTRIBUTE) is NO_ATTRIBUTE:
            unsupported("unsupported_attribute", what)
        return True

    def _of_metaclass(self, cls: ClassVariable, name: str, attribute: Any) -> VariableTracker:
        """An attribute that a class has from its metaclass, read as an object reads an attribute of its class."""
        tx, value = self.tx, cls.value
        if not isinstance(attribute, IN_C):
            found = reader_of(attribute)(tx, cls, type(value), name, attribute)
            assert found is not None  # only slots are empty
            return realized(tx, found)
        if is_stand_in(value):
            unsupported("class_definition", f"{value.__qualname__}.{name}, written in C")
        return tx.values.from_result(tx.run_python(getattr, value, name), f"{value.__qualname__}.{name}")

    def class_of(self, value: VariableTracker, is_class: bool) -> VariableTracker:
        """The class to which super() binds class methods."""
        tx = self.tx
        return value if is_class else tx.values.from_result(value.python_type(), "class")

    def getitem(self, cls: ClassVariable, key: VariableTracker) -> VariableTracker:
        """cls[key]."""
        tx = self.tx
        meta = tx.classes.special(type(cls.value), "__getitem__")
        if isinstance(meta, types.FunctionType):
            return tx.classes.call_attribute(cls, type(cls.value), "__getitem__", meta, [key], {})
        own = tx.classes.lookup(cls.value, "__class_getitem__")
        if isinstance(own, classmethod) and isinstance(own.__func__, types.FunctionType):
            if not is_library(own.__func__.__module__):
                return tx.call(self.read(cls, "__class_getitem__"), [key], {})
        if isinstance(cls, MadeClassVariable):
            unsupported("class_definition", f"{cls.describe()}[...]")
        return tx.values.from_result(
            tx.run_python(operator.getitem, cls.value, tx.values.as_plain(key)), "generic alias"
        )

    def iterator(self, cls: ClassVariable) -> VariableTracker:
        """iter(cls), by the metaclass."""
        tx = self.tx
        meta = tx.classes.lookup(type(cls.value), "__iter__")
        if not isinstance(meta, types.FunctionType):
            unsupported("unsupported_iteration", f"iterating over {cls.describe()}")
        return tx.iteration.get_iter(tx.classes.call_attribute(cls, type(cls.value), "__iter__", meta, [], {}))

    def lookup(self, cls: type, name: str, default: Any = None, data: bool = False) -> Any:
        """The attribute that `cls` or a base of it defines under a name, guarded; `default` if none does.

        Args:
            data: whether the caller guards a plain value by itself (``is_dynamic_data``) if it reads it, and has asked
                for what the trace has set.
        """
        if not data and self.tx.output.effects.class_attribute(cls, name) is not None:
            what = f"{cls.__qualname__}.{name} is set, and then looked up by the interpreter"
            unsupported("side_effect_unsupported", what)
        required = self.tx.output.guards.class_value(cls, name, _ABSENT)
        if required is not _ABSENT and not data:
            return default if required is MISSING else required
        if not self.tx.output.guards.has_class(cls) and has_odd_keys(cls):
            what = f"{cls.__qualname__}.{name}, in a class whose dict has keys that are no strings"
            unsupported("unsupported_attribute", what)
        for own in map(OWN_DICT, BASES(cls)):
            if name in own:
                value = own[name]
                if data and is_dynamic_data(self.tx, cls, name, value):
                    self.tx.guard(class_attribute_source(cls, name), "type_is", type(value))
                else:
                    self._guard_class(cls, name, value)
                return value
        self._guard_class(cls, name, MISSING)
        return default

    def special(self, cls: type, name: str) -> Any:
        """The attribute that the interpreter calls for a special method of `cls`; None if no class defines it. If the
        attribute is None itself, raises the TypeError of calling None (the slots of Objects/typeobject.c)."""
        method = self.lookup(cls, name, NO_ATTRIBUTE)
        if method is None:
            self.tx.raise_error(TypeError, "'NoneType' object is not callable")
        return None if method is NO_ATTRIBUTE else method

    def _guard_class(self, cls: type, name: str, value: Any) -> None:
        if is_stand_in(cls):
            for base in BASES(cls):
                if is_stand_in(base) and name not in OWN_DICT(base):
                    continue
                if is_stand_in(base):
                    return
                self._guard_class(base, name, found_in_bases(base, name, MISSING))
                if name in OWN_DICT(base):
                    return
            return
        # Classes written in C do not change.
        if cls.__flags__ & (1 << 9):
            if isinstance(value, SUSPENDED):
                unsupported("unsupported_attribute", f"{cls.__qualname__}.{name}, whose life guards would prolong")
            self.tx.output.guards.class_attribute(cls, name, value)

    def guard_mro(self, cls: type) -> None:
        """Guards that a class keeps its bases."""
        if is_stand_in(cls):
            for base in BASES(cls):
                if not is_stand_in(base):
                    self.guard_mro(base)
        elif cls.__flags__ & (1 << 9) and not is_library(cls.__module__):
            self.tx.guard(AttrSource(ConstSource(cls, cls.__qualname__), "__mro__"), "is", cls.__mro__)

    def builtin_attribute(self, owner: VariableTracker, cls: type, name: str) -> VariableTracker:
        """An attribute that a builtin object has from its class."""
        attribute = found_in_bases(cls, name, MISSING)
        if cls.__flags__ & (1 << 9):
            self.lookup(cls, name)
        if attribute is MISSING:
            self.tx.raise_error(AttributeError, f"{type_name(cls)!r} object has no attribute {name!r}")
        return builtin_reader_of(attribute)(self.tx, owner, cls, name, attribute)
