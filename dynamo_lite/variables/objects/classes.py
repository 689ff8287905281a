"""Classes as values, and facts about them that are read without running user code.

Invariant: each fact that a decision reads from a class's dict is guarded through ``tx.classes.lookup``; facts of the
memory layout (the native base, the presence of an instance dict) can't change while the class exists.
"""
from __future__ import annotations

import gc
import types
import typing
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..._guards import generic_access
from ...guards.source import BASES, OWN_DICT, ConstSource, FrozenSource, Source, TypeAttrSource, found_in_bases
from ...rules.trace_rules import is_library
from ..base import VariableTracker, is_made_by_python, unsupported, wraps_if
from ..constant import ConstantVariable
from ..real_object import RealObjectVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

NO_ATTRIBUTE = object()
# Types of the attributes that classes written in C define; C code implements reads and calls of these.
IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType,
        types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.BuiltinFunctionType)


class ClassVariable(RealObjectVariable):
    """A class."""

    value: type

    def describe(self) -> str:
        return f"class {self.value.__qualname__}"

    def as_argument(self, tx: Tracer) -> Any:
        return self.value

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_class(self.value)

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        made = super().compare(tx, op, other)
        if made is None and op in ("==", "!=") and other.is_constant() and other.own_comparison(tx, op) is None:
            return ConstantVariable((self.value == other.constant()) == (op == "=="))
        return made

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        made = super().binary(tx, op, other, reflected)
        if made is None and op == "|" and other.is_constant() and not other.asks_own(tx, "__or__", "__ror__"):
            union = (other.constant() | self.value) if reflected else (self.value | other.constant())
            return tx.values.from_result(union, "type union")
        return made

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        tx.output.effects.check_unchanged(self.value, self)
        return tx.classes.read(self, name)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        cls, meta, what = self.value, type(self.value), f"setting {name!r} of the class {self.value.__qualname__}"
        special = name.startswith("__") and name.endswith("__")
        if special or is_stand_in(cls) or not is_made_by_python(cls) or is_library(cls.__module__):
            unsupported("side_effect_unsupported", what)
        if tx.classes.lookup(meta, "__setattr__") is not type.__setattr__ or tx.classes.lookup(meta, name) is not None:
            unsupported("side_effect_unsupported", f"{what}, about which its metaclass decides")
        if tx.classes.lookup(value.python_type(), "__get__") is not None:
            unsupported("side_effect_unsupported", f"{what} to {value.describe()}")
        tx.output.effects.store_class_attribute(cls, name, value, lambda: ClassVariable(cls, class_source(cls)))

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.construction.construct(self, args, kwargs)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return tx.call(self.getattr(tx, name), args, kwargs)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        return tx.classes.getitem(self, key)

    def iterator(self, tx: Tracer) -> VariableTracker:
        return tx.classes.iterator(self)

    def length(self, tx: Tracer) -> VariableTracker:
        method = tx.classes.lookup(type(self.value), "__len__")
        if isinstance(method, types.FunctionType):
            return tx.classes.call_attribute(self, type(self.value), "__len__", method, [], {})
        return ConstantVariable(tx.run_python(len, self.value))

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        method = tx.classes.lookup(type(self.value), "__contains__")
        if isinstance(method, types.FunctionType):
            return tx.truth(tx.classes.call_attribute(self, type(self.value), "__contains__", method, [item], {}))
        if method is None and isinstance(tx.classes.lookup(type(self.value), "__iter__"), types.FunctionType):
            return super().contains(tx, item)
        return tx.run_python(lambda: item.constant() in self.value)  # type: ignore[operator]


class MadeClassVariable(ClassVariable):
    """A class that a call in the traced program creates at each run, such as a namedtuple class.

    Args:
        value: a class that was made while tracing, as a stand-in to read facts from; it never leaves the trace.
        call: emits the call that makes the class.
    """

    def __init__(self, value: type, call: Callable[[Codegen], None]) -> None:
        super().__init__(value)
        self.make = call
        _STAND_INS[id(value)] = value

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: self.make(cg), lambda: None)


class NewVariable(VariableTracker):
    """``cls.__new__`` of a builtin class."""

    has_identity = True

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def python_type(self) -> type:
        return types.BuiltinFunctionType

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.cls.__new__

    def same_object(self, other: VariableTracker) -> bool | None:
        return other.is_constant() and other.constant() is self.constant()

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit.load_const(self.constant())

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.construction.new_object(args[0], args[1:], kwargs)


class TypeMethodVariable(VariableTracker):
    """A method of ``type`` bound to a class, regardless of overrides in its metaclass."""

    def __init__(self, owner: ClassVariable, method: str) -> None:
        super().__init__()
        self.owner = owner
        self.method = method

    def is_method_of(self, owner: VariableTracker, name: str) -> bool:
        return self.owner is owner and self.method == name

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if self.method == "__call__":
            return tx.construction.construct(self.owner, args, kwargs, by_type=True)
        if self.method in ("__instancecheck__", "__subclasscheck__") and len(args) == 1:
            cls = args[0].python_type() if self.method == "__instancecheck__" else args[0].constant()
            tx.classes.guard_mro(cls)
            return ConstantVariable(self.owner.value in cls.__mro__)
        unsupported("unsupported_method", f"type.{self.method} of {self.owner.describe()}")


# ---------------------------------------------------------------- facts about classes
def is_data_descriptor(tx: Tracer, attribute: Any) -> bool:
    """Whether a class attribute takes precedence over the instance's dict."""
    cls = type(attribute)
    return any(tx.classes.lookup(cls, name, NO_ATTRIBUTE) is not NO_ATTRIBUTE for name in ("__set__", "__delete__"))


def is_generic(method: Any, name: str) -> bool:
    """Whether a class's ``__getattribute__``, ``__setattr__`` or ``__delattr__`` does the same as object's: classes in
    C have wrappers of their own, around the same function or another one."""
    if method is object.__dict__[name]:
        return True
    return isinstance(method, types.WrapperDescriptorType) and method.__name__ == name and (
        generic_access(method.__objclass__)[name != "__getattribute__"])


def derives(tx: Tracer, cls: type, *bases: type) -> bool:
    """Whether a class is one of `bases` or derives from one, as the interpreter checks it in C: by the method
    resolution order, which is guarded, regardless of ``__subclasscheck__``."""
    if any(cls is base for base in bases):
        return True
    tx.classes.guard_mro(cls)
    mro = BASES(cls)
    return any(known is base for known in mro for base in bases)


def class_dict(cls: type) -> Any:
    """A class's own dict, to which Python gives access only through a proxy."""
    return gc.get_referents(OWN_DICT(cls))[0]


def has_odd_keys(cls: type) -> bool:
    """Whether the dict of a class or a base of it has keys that are not exactly strings: each lookup may call their
    ``__eq__`` and ``__hash__``, which must not happen while tracing."""
    made_by_python = (base for base in BASES(cls) if base.__flags__ & (1 << 9))
    return any(type(key) is not str for base in made_by_python for key in OWN_DICT(base))


def is_in_dict(cls: type, name: str) -> bool:
    """Whether an attribute of an instance is stored in its ``__dict__``, not in a slot or a field in C."""
    in_c = (types.MemberDescriptorType, types.GetSetDescriptorType)
    return not isinstance(found_in_bases(cls, name, None), in_c)


def has_instance_dict(cls: type) -> bool:
    return cls.__dictoffset__ != 0


# The classes that were made while tracing, in place of those that the traced program makes at each run. Keys are ids,
# as a metaclass may hash its classes in Python.
_STAND_INS: weakref.WeakValueDictionary[int, type] = weakref.WeakValueDictionary()


def is_stand_in(cls: type) -> bool:
    """Whether a class stands in for one that the traced program makes, so that nothing of it is guarded."""
    return _STAND_INS.get(id(cls)) is cls


def class_source(cls: type) -> Source:
    """The source of a class; the cache entry holds the class."""
    return (FrozenSource if is_stand_in(cls) else ConstSource)(cls, cls.__qualname__)


# Types of attributes that are plain values, without behavior as class attributes.
_DATA = frozenset({int, float, bool, str, type(None), list, dict, tuple, set, torch.Tensor, torch.nn.Parameter})


def is_dynamic_data(tx: Tracer, cls: type, name: str, value: Any) -> bool:
    """Whether a class attribute is a plain value that changed in earlier calls, so that it is guarded as a value at its
    source, not as a part of the class."""
    if not tx.output.dynamic or type(value) not in _DATA or is_stand_in(cls) or not is_made_by_python(cls):
        return False
    return class_attribute_source(cls, name).key in tx.output.dynamic


def class_attribute_source(cls: type, name: str) -> Source:
    """The source of a class attribute."""
    if is_stand_in(cls):
        owner = _owner(cls, name)
        cls = cls if is_stand_in(owner) else owner  # guards don't look up attributes through stand-ins
    return TypeAttrSource(class_source(cls), name)


def _owner(cls: type, name: str) -> type:
    """The class in the method resolution order that defines an attribute."""
    mro = BASES(cls)
    return next((c for c in mro if name in type.__dict__["__dict__"].__get__(c)), object)


def is_in_stand_in(source: Source) -> bool:
    """Whether this is the source of an attribute that a class made in the trace defines: the attribute's tracker is
    then that of the made class, even if the value is also known from another source."""
    if not isinstance(source, TypeAttrSource) or not isinstance(source.base, FrozenSource):
        return False
    return is_stand_in(_owner(source.base.value, source.part))


def native_base(cls: type) -> type:
    """The base class written in C that determines an instance's memory layout: list, dict, OrderedDict, object."""
    for base in cls.__mro__:
        if not is_made_by_python(base):
            return base
    return object


# The __init__ that typing gives to a protocol that defines none.
_PROTOCOL_INIT = vars(typing.SupportsInt)["__init__"]


def settle_protocol(cls: type) -> None:
    """Stores in a class that implements a protocol the next ``__init__`` behind the protocol's own, as typing does when
    the class's first object is made. It happens while tracing, so that guards on the class stay valid afterwards."""
    if cls.__init__ is _PROTOCOL_INIT and not getattr(cls, "_is_protocol", False):  # type: ignore[misc]
        found = (base.__dict__.get("__init__", _PROTOCOL_INIT) for base in cls.__mro__)
        cls.__init__ = next(init for init in found if init is not _PROTOCOL_INIT)  # type: ignore[misc]


def is_exception_class(cls: type) -> bool:
    return issubclass(cls, BaseException)


@wraps_if(lambda value: issubclass(type(value), type), rank=20)
def _wrap_class(tx: Tracer, value: type, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return tx.values.from_result(value, "class", source)
