"""Instances of the user's classes, with Python's attribute protocol.

Attribute reads follow ``object.__getattribute__`` (Objects/object.c, PyObject_GenericGetAttr): data descriptors of the
class, the instance's dict, other class attributes, ``__getattr__``. Python code that this would run (properties,
descriptors, ``__getattr__``) is inlined. Invariant: every decision based on a class's or an instance's dict is guarded,
absence of a name included.
"""
from __future__ import annotations

import functools
import types
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ...bytecode.emit import in_order
from ...guards.source import ComputedSource, InstanceDictSource, SlotSource, Source
from .. import error_texts
from ..base import (
    MISSING,
    IteratorVariable,
    ObservedException,
    VariableTracker,
    instance_dict,
    realized,
    type_name,
    unsupported,
    wrapper_of,
    wraps_if,
    wraps_type,
)
from ..bound import missing_method
from ..constant import BINARY_METHODS, COMPARE_METHODS, ConstantVariable
from ..containers.foreign_iterators import FOLLOWED, is_followed
from ..containers.iterators import ReversedObjectVariable
from ..containers.mappings import DictVariable
from ..containers.sequences import ListVariable, TupleVariable
from ..containers.sets import SetVariable
from ..containers.spaces import OwnDictVariable, dict_of_made, dict_source, read_own, space_at, write_own
from ..contents import content_of_value
from ..special_results import checked_result, index_of
from . import words
from .classes import (
    NO_ATTRIBUTE,
    ClassVariable,
    has_instance_dict,
    is_data_descriptor,
    is_exception_class,
    is_generic,
    is_in_dict,
    is_made_by_python,
    native_base,
)
from .descriptors import takes_over
from .exception_state import EXCEPTION_FIELDS, ExceptionState, fits_exception
from .members import as_length, base_method, content_of, is_empty, slot_value
from .reads import reader_of

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer



class ObjectVariable(VariableTracker):
    """An instance of a class that has no tracker class of its own.

    Args:
        cls: the exact class.
        value: the real object, if it came in from outside.
        content: the builtin value inside the object, if its class is a subclass of list, tuple, dict, set, a number or
            a text.
    """

    has_identity = True

    def __init__(
        self, cls: type, value: Any = None, source: Source | None = None, content: VariableTracker | None = None
    ) -> None:
        super().__init__(source)
        self.cls = cls
        self.value = value
        self.content = content
        if content is not None:
            content.holder = self
        self.new_arguments: list[VariableTracker] = []
        self.exception: ExceptionState | None = None
        self.own_dict: OwnDictVariable | None = None  # for an object made in the trace, once it has been read
        self._looks_up_plainly: bool | None = None

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        name = f" {self.source.name!r}" if self.source is not None else ""
        return f"object{name} of {self.cls.__qualname__}"

    def contains_tensor(self) -> bool:
        return self.content is not None and self.content.contains_tensor()

    def as_argument(self, tx: Tracer) -> Any:
        if self.content is not None and not isinstance(self.content, SetVariable):
            return self.content.as_argument(tx)
        return super().as_argument(tx)

    def hash_key(self) -> Any:
        if self.cls.__hash__ is None:
            raise TypeError(f"unhashable type: {self.cls.__name__!r}")
        if self.cls.__hash__ is not object.__hash__ or self.cls.__eq__ is not object.__eq__:
            content = self.content
            if isinstance(content, (TupleVariable, ConstantVariable)):
                base: Any = content.python_type()
                if self.cls.__hash__ is base.__hash__ and self.cls.__eq__ is base.__eq__:
                    return content.hash_key()
            unsupported("unsupported_value", f"{self.describe()} as a dict key, which defines __eq__ or __hash__")
        return ("object", id(self)) if self.value is None else _IdentityKey(self.value)

    def guard_hash(self, tx: Tracer) -> None:
        tx.classes.lookup(self.cls, "__hash__")
        tx.classes.lookup(self.cls, "__eq__")
        if self.content is not None:
            self.content.guard_hash(tx)
        elif self.source is not None:
            tx.output.guards.distinct([self.source])

    # -- attributes
    def own_attribute(self, tx: Tracer, name: str) -> VariableTracker | None:
        """The value under a name in the object's own dict, None if there is none."""
        own = instance_dict(self.value) if self.value is not None else None
        if own is None and self.value is not None:
            return None
        if self._looks_up_plainly is None:
            self._looks_up_plainly = all(issubclass(type(key), str) for key in own or ())
        if not self._looks_up_plainly:
            unsupported("unsupported_value", f"{self.describe()}, in whose __dict__ is a key that is no text")
        return read_own(tx, self, own, dict_source(self), name)

    def write_own(self, tx: Tracer, name: str, value: Any) -> None:
        """Sets the value under a name in the object's own dict; MISSING deletes it."""
        own = instance_dict(self.value) if self.value is not None else None
        write_own(tx, self, own, dict_source(self), name, value)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        custom = tx.classes.lookup(self.cls, "__getattribute__")
        if isinstance(custom, types.FunctionType):
            found: Any = None
            try:
                return tx.classes.call_attribute(
                    self, self.cls, "__getattribute__", custom, [ConstantVariable(name)], {}
                )
            except ObservedException as error:
                if not issubclass(error.value.python_type(), AttributeError):
                    raise
                found = self._fallback_getattr(tx, name)
                if found is None:
                    raise
            return found
        if not is_generic(custom, "__getattribute__"):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}, which code in C looks up in its own way")
        value = self.found_or_fallback(tx, name)
        if value is not None:
            return value
        slot = tx.classes.lookup(self.cls, name) if is_made_by_python(self.cls) else None
        if isinstance(slot, types.MemberDescriptorType):
            tx.raise_error(AttributeError, words.of_reading(self.cls, name))
        tx.raise_error(AttributeError, f"{type_name(self.cls)!r} object has no attribute {name!r}")

    def may_name_another_class(self, tx: Tracer) -> bool:
        """Whether reading ``__class__`` may give another class than the object's type."""
        plain = tx.classes.lookup(self.cls, "__class__") is object.__dict__["__class__"]
        return not plain or isinstance(tx.classes.lookup(self.cls, "__getattribute__"), types.FunctionType)

    def found_or_fallback(self, tx: Tracer, name: str) -> VariableTracker | None:
        """The attribute by generic lookup, or the result of ``__getattr__``, which is also called after an
        AttributeError of a descriptor (Objects/typeobject.c, slot_tp_getattr_hook); None if there is neither."""
        try:
            value = self.generic_getattr(tx, name)
        except ObservedException as error:
            if not issubclass(error.value.python_type(), AttributeError):
                raise
            if tx.classes.lookup(self.cls, "__getattr__") is None:
                raise
            value = None
        return value if value is not None else self._fallback_getattr(tx, name)

    def _fallback_getattr(self, tx: Tracer, name: str) -> VariableTracker | None:
        hook = tx.classes.special(self.cls, "__getattr__")
        if hook is None:
            return None
        return tx.classes.call_attribute(self, self.cls, "__getattr__", hook, [ConstantVariable(name)], {})

    def generic_getattr(self, tx: Tracer, name: str) -> VariableTracker | None:
        """object.__getattribute__(self, name); None where it finds no attribute."""
        if name in ("__class__", "__dict__") and (name == "__class__" or has_instance_dict(self.cls)):
            attribute = tx.classes.lookup(self.cls, name)
            if attribute is None or isinstance(attribute, types.GetSetDescriptorType):
                return tx.values.from_result(self.cls, "class") if name == "__class__" else self._dict_variable(tx)
        written = tx.output.effects.class_attribute(self.cls, name)
        if written is not None:
            own = self.own_attribute(tx, name)
            return own if own is not None else written
        attribute = tx.classes.lookup(self.cls, name, NO_ATTRIBUTE, data=True)
        if attribute is not NO_ATTRIBUTE and is_data_descriptor(tx, attribute) and (
                tx.classes.lookup(type(attribute), "__get__", NO_ATTRIBUTE) is not NO_ATTRIBUTE):
            return self.read_descriptor(tx, name, attribute)
        own = self.own_attribute(tx, name)
        if own is not None:
            return own
        if attribute is NO_ATTRIBUTE:
            return None
        return self.read_descriptor(tx, name, attribute)

    def _dict_variable(self, tx: Tracer) -> DictVariable:
        if self.value is not None:
            own = instance_dict(self.value)
            if own is None:
                tx.raise_error(AttributeError, f"{type_name(self.cls)!r} object has no attribute '__dict__'")
            return space_at(tx, own, InstanceDictSource(self.source))  # type: ignore[arg-type]
        return dict_of_made(tx, self, functools.partial(is_in_dict, self.cls))

    def read_descriptor(
        self, tx: Tracer, name: str, attribute: Any, home: type | None = None
    ) -> VariableTracker | None:
        """Reads a class attribute through the instance, by the descriptor protocol; None for an empty slot. `home` is
        the class through which the attribute was found, if that is not the instance's class."""
        return reader_of(attribute)(tx, self, home or self.cls, name, attribute)

    def read_slot(self, tx: Tracer, name: str, descriptor: Any) -> VariableTracker | None:
        """The value in a slot, None if it is empty."""
        effects = tx.output.effects
        if name in effects.attributes_of(self):
            return effects.load_attr(self, name)
        value = slot_value(self.value, descriptor) if self.value is not None else MISSING
        if value is MISSING:
            if self.source is not None:
                place = f"{descriptor.__objclass__.__qualname__}.{name} ({id(descriptor):x})"
                empty = ComputedSource(
                    self.source, functools.partial(is_empty, descriptor), f"the slot {place} of {self.source.name}")
                tx.guard(empty, "is", True)
            return None
        assert self.source is not None
        return realized(tx, tx.values.wrap_at(value, SlotSource(self.source, descriptor)))

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        custom = tx.classes.lookup(self.cls, "__setattr__")
        if not is_generic(custom, "__setattr__"):
            if not self._takes_over(custom):
                what = f"setting {name!r} of {self.describe()}, which code in C does in its own way"
                unsupported("side_effect_unsupported", what)
            args = [ConstantVariable(name), value]
            tx.classes.call_attribute(self, self.cls, "__setattr__", custom, args, {})
            return
        self.generic_setattr(tx, name, value)

    def _takes_over(self, method: Any) -> bool:
        """Whether the method that sets or deletes attributes is written in Python, or belongs to a builtin whose
        content the trace knows."""
        in_c = (types.WrapperDescriptorType, types.MethodDescriptorType)
        return isinstance(method, types.FunctionType) or isinstance(method, in_c) and self.content is not None

    def generic_setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        """object.__setattr__(self, name, value)."""
        set_on_class = tx.output.effects.class_attribute(self.cls, name) is not None  # such a value is no descriptor
        attribute = None if set_on_class else tx.classes.lookup(self.cls, name, data=True)
        if attribute is not None and not isinstance(attribute, types.MemberDescriptorType):
            done = takes_over(tx, attribute, self, name, "__set__", value)
            if done:
                return
            if done is None:
                if is_exception_class(self.cls) and name in EXCEPTION_FIELDS:
                    if not fits_exception(name, value):
                        unsupported("exception_handling", f"{name} of {self.describe()} = {value.describe()}")
                    tx.output.effects.store_attr(self, name, value)
                    if name == "__traceback__" and self.exception is not None:
                        self.exception.raised = False
                    if name == "__cause__":
                        tx.output.effects.store_attr(self, "__suppress_context__", ConstantVariable(True))
                    return
                unsupported("side_effect_unsupported", f"setting {self.describe()}.{name}, a descriptor written in C")
        if isinstance(attribute, types.MemberDescriptorType) and not is_made_by_python(attribute.__objclass__):
            unsupported("side_effect_unsupported", f"setting {self.describe()}.{name}, a member of a class in C")
        if isinstance(attribute, types.MemberDescriptorType):
            tx.output.effects.store_attr(self, name, value)
            return
        if not has_instance_dict(self.cls):
            if attribute is not None or set_on_class:
                tx.raise_error(AttributeError, f"{type_name(self.cls)!r} object attribute {name!r} is read-only")
            tx.raise_error(AttributeError, words.of_setting(self.cls, name))
        self.write_own(tx, name, value)

    def delattr(self, tx: Tracer, name: str) -> None:
        custom = tx.classes.lookup(self.cls, "__delattr__")
        if not is_generic(custom, "__delattr__"):
            if not self._takes_over(custom):
                what = f"deleting {name!r} of {self.describe()}, which code in C does in its own way"
                unsupported("side_effect_unsupported", what)
            tx.classes.call_attribute(self, self.cls, "__delattr__", custom, [ConstantVariable(name)], {})
            return
        self.generic_delattr(tx, name)

    def generic_delattr(self, tx: Tracer, name: str) -> None:
        """object.__delattr__(self, name)."""
        attribute = tx.classes.lookup(self.cls, name)
        if attribute is not None and not isinstance(attribute, types.MemberDescriptorType):
            done = takes_over(tx, attribute, self, name, "__delete__")
            if done:
                return
            if done is None:
                unsupported("side_effect_unsupported", f"deleting {self.describe()}.{name}, a descriptor written in C")
        if isinstance(attribute, types.MemberDescriptorType) and not is_made_by_python(attribute.__objclass__):
            unsupported("side_effect_unsupported", f"deleting {self.describe()}.{name}, a member of a class in C")
        if isinstance(attribute, types.MemberDescriptorType):
            if self.read_slot(tx, name, attribute) is None:
                tx.raise_error(AttributeError, name)
            tx.output.effects.store_attr(self, name, MISSING)
            return
        if self.own_attribute(tx, name) is None:
            # The error message depends on the internal representation of the object's dict.
            unsupported("unsupported_attribute", f"deleting {self.describe()}.{name}, which is not there")
        self.write_own(tx, name, MISSING)

    # -- protocols
    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        method = tx.classes.special(self.cls, "__call__")
        if method is None:
            tx.raise_error(TypeError, f"{type_name(self.cls)!r} object is not callable")
        if isinstance(method, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return tx.call_opaque(self, args, kwargs)
        return tx.classes.call_attribute(self, self.cls, "__call__", method, args, kwargs)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return tx.call(self.getattr(tx, name), args, kwargs)

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            method = tx.classes.lookup(self.cls, name, NO_ATTRIBUTE)
            if method is NO_ATTRIBUTE:
                continue
            if method is None:
                tx.raise_error(TypeError, error_texts.no_truth(self.cls))
            if isinstance(method, types.FunctionType):
                result = tx.classes.call_attribute(self, self.cls, name, method, [], {})
                said = checked_result(tx, name, self.cls, result) if name == "__bool__" else as_length(tx, result)
                return tx.truth(said)
            if self.content is not None:
                return self.content.truth(tx)
            unsupported("unsupported_value", f"truth of {self.describe()}")
        return True

    def length(self, tx: Tracer) -> VariableTracker:
        return as_length(tx, self._protocol(tx, "__len__", lambda c: c.length(tx), []))

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        content = self.content
        if isinstance(content, DictVariable) and tx.classes.lookup(self.cls, "__getitem__") is base_method(
            content, "__getitem__"
        ):
            value = content.lookup(tx, key)
            if value is None:
                missing = tx.classes.special(self.cls, "__missing__")
                if missing is None:
                    tx.errors.raise_value(KeyError, [key])
                return tx.classes.call_attribute(self, self.cls, "__missing__", missing, [key], {})
            return value
        return self._protocol(tx, "__getitem__", lambda c: c.getitem(tx, key), [key])

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        self._protocol(tx, "__setitem__", lambda c: c.setitem(tx, key, value), [key, value])

    def delitem(self, tx: Tracer, key: VariableTracker) -> None:
        self._protocol(tx, "__delitem__", lambda c: c.delitem(tx, key), [key])

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        method = tx.classes.lookup(self.cls, "__contains__", NO_ATTRIBUTE)
        if method is NO_ATTRIBUTE:
            iterator = tx.iteration.iterator_or(self, error_texts.no_container(self.cls))
            return any(tx.operators.same_or_equal(candidate, item) for candidate in tx.iteration.steps(iterator))
        if method is None:
            tx.raise_error(TypeError, f"{type_name(self.cls)!r} object is not a container")
        if isinstance(method, types.FunctionType):
            return tx.truth(tx.classes.call_attribute(self, self.cls, "__contains__", method, [item], {}))
        if self.content is not None:
            return self.content.contains(tx, item)
        unsupported("unsupported_operator", f"`in` on {self.describe()}")

    def iterator(self, tx: Tracer) -> VariableTracker:
        method = tx.classes.lookup(self.cls, "__iter__", NO_ATTRIBUTE)
        if isinstance(method, types.FunctionType):
            result = tx.classes.call_attribute(self, self.cls, "__iter__", method, [], {})
            return realized(tx, result)
        if method not in (None, NO_ATTRIBUTE) and self.content is not None:
            return self.content.iterator(tx)
        getitem = tx.classes.lookup(self.cls, "__getitem__", NO_ATTRIBUTE)
        if method is NO_ATTRIBUTE and isinstance(getitem, (types.FunctionType, types.NoneType)):
            return GetItemIteratorVariable(self)
        if method is None or method is getitem is NO_ATTRIBUTE:
            tx.raise_error(TypeError, f"{type_name(self.cls)!r} object is not iterable")
        unsupported("unsupported_iteration", f"iterating over {self.describe()}")

    def as_index(self, tx: Tracer) -> Any:
        index = index_of(tx, self)
        return super().as_index(tx) if index is None else tx.operators.as_index(index)

    def reversed(self, tx: Tracer) -> VariableTracker:
        method = tx.classes.lookup(self.cls, "__reversed__", NO_ATTRIBUTE)
        if isinstance(method, types.FunctionType):
            return tx.classes.call_attribute(self, self.cls, "__reversed__", method, [], {})
        if self.content is not None and method not in (None, NO_ATTRIBUTE):
            return self.content.reversed(tx)
        if method is None or tx.classes.lookup(self.cls, "__getitem__", NO_ATTRIBUTE) is NO_ATTRIBUTE:
            tx.raise_error(TypeError, f"{type_name(self.cls)!r} object is not reversible")
        return ReversedObjectVariable(self, tx.operators.as_index(self.length(tx)) - 1)

    def next(self, tx: Tracer) -> VariableTracker | None:
        method = tx.classes.lookup(self.cls, "__next__")
        if not isinstance(method, types.FunctionType):
            unsupported("unsupported_iteration", f"next() of {self.describe()}")
        try:
            return tx.classes.call_attribute(self, self.cls, "__next__", method, [], {})
        except ObservedException as error:
            if issubclass(error.value.python_type(), StopIteration):
                return None
            raise

    def _protocol(self, tx: Tracer, name: str, on_content: Any, args: list[VariableTracker]) -> VariableTracker:
        method = tx.classes.special(self.cls, name)
        if method is None:
            tx.raise_error(TypeError, missing_method(name, self.cls))
        if isinstance(method, types.FunctionType):
            return tx.classes.call_attribute(self, self.cls, name, method, args, {})
        if self.content is not None and method is base_method(self.content, name):
            return on_content(self.content)
        unsupported("unsupported_method", f"{self.describe()}.{name}, written in C")

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        name = BINARY_METHODS[op][1 if reflected else 0]
        formats = op == "%" and not reflected and issubclass(self.cls, (str, bytes))  # % formats the object itself
        held = other if formats else content_of(other)
        result = self._operator(tx, name, other, lambda c: c.binary(tx, op, held, reflected))
        if isinstance(result, TupleVariable) and result is self.content:
            return TupleVariable(list(result.items))  # x * 1 is a new tuple for a subclass of tuple
        return result

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        name = "__i" + BINARY_METHODS[op][0][2:]
        result = self._operator(
            tx, name, other, lambda c: c.inplace(tx, op, other if isinstance(c, ListVariable) else content_of(other)))
        return self if result is self.content and result is not None else result

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        name = COMPARE_METHODS[op]
        if op == "!=" and tx.classes.lookup(self.cls, "__ne__") is object.__ne__:
            equal = self.compare(tx, "==", other)
            return None if equal is None else ConstantVariable(not tx.truth(equal))
        if self._is_namespace(tx, name) and isinstance(other, ObjectVariable) and other._is_namespace(tx, name):
            return self._dict_variable(tx).compare(tx, op, other._dict_variable(tx)) if op == "==" else None
        return self._operator(tx, name, other, lambda c: c.compare(tx, op, content_of(other)))

    def _is_namespace(self, tx: Tracer, name: str) -> bool:
        return issubclass(self.cls, types.SimpleNamespace) and (
            tx.classes.lookup(self.cls, name) is types.SimpleNamespace.__dict__[name])

    def _operator(self, tx: Tracer, name: str, other: VariableTracker, on_content: Any) -> VariableTracker | None:
        method = tx.classes.special(self.cls, name)
        if method is None:
            return None
        if isinstance(method, types.FunctionType):
            result = tx.classes.call_attribute(self, self.cls, name, method, [other], {})
            return None if result.is_not_implemented() else result
        if self.content is not None and method is base_method(self.content, name):
            return on_content(self.content)
        if getattr(object, name, None) is method:
            return None
        unsupported("unsupported_operator", f"{name} of {self.describe()}, written in C")

    # -- generated code
    def reconstruct(self, cg: Codegen) -> None:
        cg.effects.check_traceback(self)

        def arguments() -> None:
            cg.push(ClassVariable(self.cls))
            content = self.content
            if isinstance(content, TupleVariable):
                cg.push_all(content.items)
                cg.emit.build_tuple(len(content.items))
            elif isinstance(content, ConstantVariable):
                cg.emit.load_const(content.value)
            else:
                cg.push_all(self.new_arguments)

        base: Any = native_base(self.cls)
        one = base is tuple or isinstance(self.content, ConstantVariable)
        count = 1 + (1 if one else len(self.new_arguments))
        def make() -> None:
            cg.call_constant(base.__new__, arguments, count=count)
            if isinstance(self.content, SetVariable) and base is frozenset:
                self.content.fill(cg)

        cg.build_new(self, make, lambda: self._fill(cg), refers_only=base is not frozenset)

    def _fill(self, cg: Codegen) -> None:
        content = self.content
        if isinstance(content, ListVariable):
            cg.call_constant_on_top(list.extend, lambda: cg.push(TupleVariable(content.items)))
        elif isinstance(content, DictVariable):
            base: Any = native_base(self.cls)
            setter = base.__setitem__
            for key, value in content.items.values():
                cg.call_constant_on_top(setter, in_order(partial(cg.push, key), partial(cg.push, value)), count=2)
        elif isinstance(content, SetVariable) and not issubclass(self.cls, frozenset):
            content.fill(cg)
        if self.exception is not None:
            self.exception.reconstruct(cg, native_base(self.cls))
        cg.store_attributes(self)
        if self.own_dict is not None:
            self.own_dict.fill_keeper(cg)


class GetItemIteratorVariable(IteratorVariable):
    """iter() of an object that has only ``__getitem__`` (Objects/iterobject.c)."""

    def __init__(self, owner: VariableTracker) -> None:
        super().__init__()
        self.owner = owner
        self.index = 0
        self.exhausted = False  # stays True even if the owner grows

    def python_type(self) -> type:
        return type(iter(type("_Sequence", (), {"__getitem__": None})()))

    def next(self, tx: Tracer) -> VariableTracker | None:
        tx.output.effects.advance(self)
        if self.exhausted:
            return None
        try:
            value = self.owner.getitem(tx, ConstantVariable(self.index))
        except ObservedException as error:
            if issubclass(error.value.python_type(), (IndexError, StopIteration)):
                self.exhausted = True
                return None
            raise
        self.index += 1
        return value

    def remaining(self, tx: Tracer) -> VariableTracker | None:
        """The result of ``__length_hint__``."""
        if self.exhausted:
            return ConstantVariable(0)
        if tx.classes.special(self.owner.python_type(), "__len__") is None:
            return None
        return ConstantVariable(max(0, tx.operators.as_index(self.owner.length(tx)) - self.index))


class _IdentityKey:
    """A dict key that represents a real object by its identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _IdentityKey) and other.value is self.value


@wraps_type(weakref.ProxyType, weakref.CallableProxyType)
def _wrap_weak_proxy(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    unsupported("unsupported_value", f"{source.name}, a weak proxy")


@wraps_if(lambda value: True, rank=1000)
def wrap_object(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    return ObjectVariable(type(value), value, source, content_of_value(tx, value, source))


def is_foreign_iterator(value: Any) -> bool:
    """Whether a value from outside is an iterator written in C that the trace can't follow."""
    step = getattr(type(value), "__next__", None)
    if step is None or isinstance(step, types.FunctionType):
        return False
    return not is_followed(value, surely=True) if type(value) in FOLLOWED else wrapper_of(value) is wrap_object
