"""Classes that the traced program makes with a ``class`` statement or ``type(name, bases, namespace)``.

While tracing, a real class with the same bases stands in for the one that each run makes: checks of bases, descriptors
and missing attributes use it, as for any class. The values in its dict are stand-ins, too, which identify the trackers
of the attributes. Invariant: no stand-in leaves the trace; generated code makes a new class from the trackers, without
calling ``__set_name__``, which has been traced.
"""
from __future__ import annotations

import abc
import contextlib
import functools
import types
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.autograd.function import FunctionMeta

from ...bytecode.emit import in_order
from ...exc import Unsupported
from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from ..containers.sequences import TupleVariable
from ..functions.functions import FunctionVariable, NestedFunctionVariable
from .classes import ClassVariable, MadeClassVariable
from .objects import ObjectVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_KIND = "class_definition"
# Metaclasses whose classes generated code can make.
_METACLASSES = (type, abc.ABCMeta)
# Attributes that affect creation or finalization of instances, or have another meaning on the class itself.
_AWKWARD = frozenset({
    "__slots__", "__del__", "__classcell__", "__getattribute__", "__class__", "__dict__", "__weakref__", "__name__",
    "__bases__", "__base__", "__mro__", "mro", "__abstractmethods__", "__subclasshook__", "__instancecheck__",
    "__subclasscheck__", "__reduce__", "__reduce_ex__",
})
# Functions that type.__new__ wraps in a descriptor.
_WRAPPED = {"__new__": staticmethod, "__init_subclass__": classmethod, "__class_getitem__": classmethod}


class DescriptorVariable(VariableTracker):
    """A property, classmethod, staticmethod or cached_property that the traced program makes.

    Args:
        name: the name that ``__set_name__`` received from the class of which it is an attribute.
    """

    has_identity = True

    def __init__(self, cls: type, parts: list[VariableTracker], name: str | None = None) -> None:
        super().__init__()
        self.cls = cls
        self.parts = parts
        self.name = name

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"a {self.cls.__name__}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_key(self) -> Any:
        return ("object", id(self))

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if self.cls is property and name in _PARTS_OF_PROPERTY:
            part = self._part(_PARTS_OF_PROPERTY.index(name))
            if name == "__doc__" and part.is_none() and not self._part(0).is_none():
                return tx.getattr(self._part(0), name)
            return part
        if self.cls is property and name == "__name__" and name in vars(property):  # since 3.13
            return tx.getattr(self._part(0), name) if self.name is None else ConstantVariable(self.name)
        if self.cls is property and name in ("setter", "getter", "deleter"):
            return tx.builtin_method(self, name)
        if name == "__func__" and self.cls in (classmethod, staticmethod):
            return self.parts[0]
        if name == "__isabstractmethod__":
            return ConstantVariable(any(self._is_abstract(tx, part) for part in self.parts[:3]))
        if name in ("__wrapped__", "func"):
            return self.parts[0]
        if self.cls is property and not any(name in vars(base) for base in (property, object)):
            tx.raise_error(AttributeError, f"'property' object has no attribute {name!r}")
        return super().getattr(tx, name)

    def _part(self, index: int) -> VariableTracker:
        return self.parts[index] if index < len(self.parts) else ConstantVariable(None)

    def _is_abstract(self, tx: Tracer, part: VariableTracker) -> bool:
        """Whether a function is abstract (Objects/object.c, _PyObject_IsAbstract)."""
        name = "__isabstractmethod__"
        found = tx.attribute_or_none(part, name)
        return found is not None and tx.truth(found)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if self.cls is property and name in ("setter", "getter", "deleter") and len(args) == 1 and not kwargs:
            parts = [self._part(i) for i in range(max(3, len(self.parts)))]
            parts[("getter", "setter", "deleter").index(name)] = args[0]
            return DescriptorVariable(property, parts, self.name)
        return super().call_method(tx, name, args, kwargs)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if self.cls is staticmethod:
            return tx.call(self.parts[0], args, kwargs)
        return super().call(tx, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: cg.call_function(self.cls, self.parts, {}), lambda: self._tell_name(cg))

    def set_name(self, tx: Tracer, name: str) -> None:
        """Calls ``__set_name__``, as ``type.__new__`` does for the attributes of a new class."""
        if self.cls in _NAMED:
            tx.output.effects.advance(self)
            self.name = name

    def _tell_name(self, cg: Codegen) -> None:
        if self.name is not None:
            given = in_order(lambda: cg.emit.load_const(None), partial(cg.emit.load_const, self.name))
            cg.call_constant_on_top(_NAMED[self.cls], given, count=2)


# Descriptors whose ``__set_name__`` stores the name; neither stores the class.
_NAMED: dict[type, Any] = {cls: cls.__dict__["__set_name__"] for cls in (property, functools.cached_property)}
_PARTS_OF_PROPERTY = ("fget", "fset", "fdel", "__doc__")
# Descriptors that give another object when they are read from the class.
_BINDING = (classmethod, staticmethod)
DESCRIPTORS = (property, classmethod, staticmethod, functools.cached_property)


class DefinedClassVariable(MadeClassVariable):
    """A class made from a namespace.

    Args:
        value: the class that stands in for it.
        namespace: its current attributes: those of the class statement, with the program's later changes.
        visit: visit number of the root frame's instruction that made it.
    """

    def __init__(
        self, value: type, bases: list[VariableTracker], namespace: dict[str, VariableTracker], visit: int
    ) -> None:
        super().__init__(value, self._make)
        self.bases = bases
        self.namespace = namespace
        self.visit = visit

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        own = self.namespace.get(name)
        bound = isinstance(own, ObjectVariable) or isinstance(own, DescriptorVariable) and own.cls in _BINDING
        if own is not None and not bound and name not in _WRAPPED:
            return own  # without the stand-in: a function read from a class is itself
        return super().getattr(tx, name)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        if type(self.value).__setattr__ is not type.__setattr__ or (name.startswith("__") and name.endswith("__")):
            unsupported(_KIND, f"setting {name!r} of the class {self.value.__qualname__}")
        tx.output.effects.advance(self)
        setattr(self.value, name, stand_in(tx, value))
        self.namespace[name] = value

    def delattr(self, tx: Tracer, name: str) -> None:
        if name not in self.namespace:
            tx.raise_error(AttributeError, f"type object {self.value.__name__!r} has no attribute {name!r}")
        if name.startswith("__") and name.endswith("__"):
            unsupported(_KIND, f"deleting {name!r} of the class {self.value.__qualname__}")
        tx.output.effects.advance(self)
        delattr(self.value, name)
        del self.namespace[name]

    def reconstruct(self, cg: Codegen) -> None:
        if type(self.value) not in _METACLASSES:
            raise Unsupported(_KIND, f"{self.describe()}, which leaves the captured part", visit=self.visit)
        cg.build_new(self, lambda: self._make(cg), lambda: self._fill(cg), refers_only=True)

    def _make(self, cg: Codegen) -> None:
        texts = {name: v.value for name, v in self.namespace.items() if isinstance(v, ConstantVariable)}
        first = tuple((name, texts.get(name)) for name in self.namespace)
        given = [ConstantVariable(self.value.__name__), TupleVariable(self.bases), ConstantVariable(first)]
        cg.call_function(empty_class, [ClassVariable(type(self.value)), *given], {})

    def _fill(self, cg: Codegen) -> None:
        for name, value in self.namespace.items():
            if isinstance(value, ConstantVariable):
                continue
            cg.call_constant_on_top(
                set_class_attribute, in_order(partial(cg.emit.load_const, name), partial(cg.push, value)), count=2
            )
        if "__eq__" in self.namespace and "__hash__" not in self.namespace:
            cg.call_constant_on_top(
                set_class_attribute,
                in_order(lambda: cg.emit.load_const("__hash__"), lambda: cg.emit.load_const(None)), count=2
            )
        if isinstance(self.value, abc.ABCMeta):
            cg.call_constant_on_top(abc.update_abstractmethods, lambda: None, count=0)


def define_class(
    tx: Tracer, name: str, bases: list[VariableTracker], namespace: dict[str, VariableTracker], meta: type | None
) -> VariableTracker:
    """The class that ``meta(name, bases, namespace)`` makes."""
    real: list[type] = []
    for base in bases:
        if not isinstance(base, ClassVariable):
            unsupported(_KIND, f"class {name}, a base of which is {base.describe()}")
        tx.classes.guard_mro(base.value)
        real.append(base.value)
    if not real:
        bases, real = [ClassVariable(object)], [object]
    winner: type = tx.run_python(types.prepare_class, name, tuple(real), {"metaclass": meta} if meta else {})[0]
    if winner not in (*_METACLASSES, FunctionMeta):
        unsupported(_KIND, f"class {name}, made by the metaclass {winner.__qualname__}")
    for ancestor in real:
        if isinstance(tx.classes.lookup(ancestor, "__init_subclass__"), classmethod):
            unsupported(_KIND, f"class {name}, a base of which defines __init_subclass__")
    awkward = sorted(_AWKWARD & namespace.keys())
    if awkward:
        unsupported(_KIND, f"class {name}, which defines {awkward[0]}")
    later = [value for key, value in namespace.items() if key != "forward"]
    if winner is FunctionMeta and not all(_runs_as_it_is(tx, value) for value in later):
        unsupported(_KIND, f"class {name}, an autograd function with variables of the function around it")
    # Held by the tracker, and by nothing that outlives the trace.
    contents = {key: stand_in(tx, value) for key, value in namespace.items()}
    made = tx.run_python(winner, name, tuple(real), contents)
    variable = DefinedClassVariable(made, bases, namespace, tx.root_visit())
    tx.output.effects.track(made, variable)
    for key, value in list(namespace.items()):
        if isinstance(value, DescriptorVariable):
            value.set_name(tx, key)
        elif isinstance(value, ObjectVariable):
            hook = tx.classes.lookup(value.cls, "__set_name__")
            if hook is not None:
                tx.classes.call_attribute(
                    value, value.cls, "__set_name__", hook, [variable, ConstantVariable(key)], {}
                )
    return variable


def _runs_as_it_is(tx: Tracer, value: VariableTracker) -> bool:
    """Whether a stand-in behaves like the value when it is called: the backward pass of an autograd function runs for
    real."""
    if isinstance(value, DescriptorVariable):
        return all(_runs_as_it_is(tx, part) for part in value.parts)
    if isinstance(value, NestedFunctionVariable):
        given = [*value.defaults(tx), *value.keyword_defaults(tx).values()]
        return not value.code().co_freevars and not given and value.stands_for is None
    return isinstance(value, (ConstantVariable, ClassVariable, FunctionVariable))


class _Orphan:
    """The base class of stand-ins after their trace, so that their former bases no longer list them as subclasses."""


def forget_stand_ins(effects: Any) -> None:
    """Removes the stand-ins of a finished trace from the subclasses of their bases."""
    for real, tracker in effects.all_tracked():
        if isinstance(tracker, DefinedClassVariable) and type(real) in _METACLASSES:
            with contextlib.suppress(TypeError):  # another memory layout: the garbage collector frees it later
                real.__bases__ = (_Orphan,)


class _Held:
    """Stand-in, in a class's dict, for a value that is no descriptor."""


def stand_in(tx: Tracer, value: VariableTracker) -> Any:
    """A real object that identifies the tracker and behaves like the value in a class's dict."""
    if isinstance(value, (ConstantVariable, ClassVariable, FunctionVariable)):
        return value.value
    known = next((real for real, tracker in tx.output.effects.all_tracked() if tracker is value), None)
    if known is not None:
        return known
    real: Any
    if isinstance(value, NestedFunctionVariable) and value.stands_for is None:
        code = value.code()
        cells = tuple(types.CellType() for _ in code.co_freevars)
        real = types.FunctionType(code, value.globals()[0], code.co_name, None, cells)
        abstract = value.own_dict.lookup(tx, ConstantVariable("__isabstractmethod__"))
        if abstract is not None:
            real.__isabstractmethod__ = tx.truth(abstract)
    elif isinstance(value, DescriptorVariable):
        real = value.cls(*(stand_in(tx, part) for part in value.parts))
    elif isinstance(value, ObjectVariable) and value.content is None and _is_descriptor(tx, value.cls):
        real = tx.run_python(object.__new__, value.cls)
    else:
        real = _Held()
    tx.output.effects.track(real, value)
    return real


def _is_descriptor(tx: Tracer, cls: type) -> bool:
    return any(tx.classes.lookup(cls, name) is not None for name in ("__get__", "__set__", "__delete__"))


def empty_class(meta: Any, name: str, bases: tuple[type, ...], first: tuple[tuple[str, Any], ...]) -> type:
    """Makes a class with its attributes in order; those that are no constants are set afterwards. Called by generated
    code."""
    return meta(name, bases, dict(first))


def set_class_attribute(cls: type, name: str, value: Any) -> None:
    """Stores an attribute of a class like type.__new__; called by generated code."""
    wrap = _WRAPPED.get(name)
    if wrap is not None and isinstance(value, types.FunctionType):
        value = wrap(value)
    type.__setattr__(cls, name, value)
