"""Calls of classes: new objects of builtin and user's classes, and attributes read from classes.

Builtin classes have a constructor in a table; a user's class goes through ``__new__`` and ``__init__``, inlined where
they are Python. Invariant: an object made in the trace is not made for real before generated code makes it.
"""
from __future__ import annotations

import enum
import functools
import inspect
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.distributions.utils import _lazy_property_and_property

from ..guards.source import AttrSource, ConstSource, Source
from ..output.output_graph import OutputGraph
from ..polyfills.optimizers import Region
from ..rules.table import Decision, Rule, decide, handles
from ..rules.trace_rules import is_library
from ..variables.base import VariableTracker, realized, unsupported
from ..variables.constant import ConstantVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import ListVariable, NamedTupleVariable, TupleVariable, is_named_tuple
from ..variables.containers.sets import SetVariable, set_of
from ..variables.contents import VALUE_TYPES
from ..variables.functions.functions import FunctionVariable, MethodVariable, standing_for
from ..variables.functions.partials import new_partial
from ..variables.numbers.ranges import RangeVariable, SliceVariable
from ..variables.numbers.rng import draw, is_draw
from ..variables.numbers.scalars import ScalarVariable, call_on_scalars
from ..variables.objects.classes import (
    ClassVariable,
    MadeClassVariable,
    NewVariable,
    class_attribute_source,
    class_source,
    derives,
    is_data_descriptor,
    is_generic,
    is_made_by_python,
    is_stand_in,
    native_base,
    settle_protocol,
)
from ..variables.objects.made_classes import DESCRIPTORS, DescriptorVariable, define_class
from ..variables.objects.objects import ObjectVariable, class_method
from ..variables.objects.supers import SuperVariable
from ..variables.objects.weakrefs import WeakrefVariable
from ..variables.tensors import legacy_tensors as legacy_tensors  # for what it registers
from ..variables.tensors.arrays import fold
from ..variables.tensors.tensor import TensorVariable
from ..variables.torch_api.inference import InferenceModeVariable
from ..variables.torch_api.overrides import DisabledOverridesVariable
from .copying import deep_copied, reduced, reduced_ex

Constructor = Callable[..., VariableTracker]

class Construction:
    """Calls of classes; a part of the translator."""

    output: OutputGraph

    def construct(
        self, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker], by_type: bool = False
    ) -> VariableTracker:
        """cls(*args, **kwargs); `by_type`: as type.__call__ does it, whatever the metaclass defines."""
        tx: Any = self
        value = cls.value
        decision = decide(value)
        if decision.rule is not Rule.CONSTRUCTED:
            return self._by_rule_of_class(decision, value, args, kwargs)
        meta_call = tx.class_lookup(type(value), "__call__")
        if isinstance(value, enum.EnumMeta):
            if len(args) == 1 and not kwargs:
                return tx.from_result(tx.run_python(value, args[0].constant()), "enum member")
            unsupported("unsupported_builtin", f"making the enum {value.__qualname__}")
        if isinstance(meta_call, types.FunctionType) and not by_type and not issubclass(value, torch.nn.Parameter):
            return tx.call_class_attribute(cls, type(value), "__call__", meta_call, args, kwargs)
        if isinstance(meta_call, type) and not by_type:
            return tx.call(tx.from_result(meta_call, "class"), args, kwargs)  # such as dict, for typed dicts
        if issubclass(value, BaseException) and _has_native_constructor(value):
            if kwargs:
                unsupported("unsupported_builtin", f"{value.__qualname__} with keyword arguments")
            return tx.new_exception(value, args)
        if issubclass(value, torch.Tensor):
            unsupported("tensor_subclass" if value is not torch.Tensor else "unsupported_torch_call",
                f"{value.__qualname__}()")
        if is_named_tuple(value):
            return self._construct_named_tuple(cls, args, kwargs)
        if issubclass(value, np.generic):
            return fold(tx, value, args, kwargs)
        if not is_made_by_python(value):
            if value.__module__.partition(".")[0] == "torch":
                return tx.call_torch_class(value, args, kwargs)
            unsupported("unsupported_builtin", f"{value.__qualname__}()")
        if tx.class_lookup(value, "__del__") is not None:
            unsupported("unsupported_builtin", f"{value.__qualname__}(), an object with a finalizer")
        new = tx.class_lookup(value, "__new__")
        made: VariableTracker
        if isinstance(new, staticmethod) and isinstance(new.__func__, types.FunctionType):
            function = tx.wrap_class_part(new.__func__, class_attribute_source(value, "__new__"))
            made = tx.call(function, [cls, *args], kwargs)
        elif new is not native_base(value).__new__:
            unsupported("unsupported_builtin", f"{value.__qualname__}(), whose __new__ is no plain function")
        else:
            made = self.new_object(cls, args, kwargs)
        if not (isinstance(made, ObjectVariable) and derives(tx, made.cls, value)):
            return made
        settle_protocol(made.cls)
        init = tx.class_lookup(made.cls, "__init__")
        if isinstance(init, types.FunctionType):
            result = realized(tx, tx.call_class_attribute(made, made.cls, "__init__", init, args, kwargs))
            if not result.is_none():
                kind = result.python_type().__name__
                tx.raise_error(TypeError, f"__init__() should return None, not {kind!r}")
        elif init is not object.__init__ and init is not None:
            self.call_native_method(made, "__init__", init, args, kwargs)
        elif (args or kwargs) and not isinstance(new, staticmethod) and new is object.__new__:
            tx.raise_error(TypeError, f"{value.__name__}() takes no arguments")
        return made

    def _by_rule_of_class(
        self, decision: Decision, cls: type, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        tx: Any = self
        if decision.rule is Rule.HANDLED:
            return tx.checked_call(decision.calls, tx, *args, **kwargs)
        if decision.rule is Rule.REPLACED:
            return standing_for(tx.call(tx.library_function(decision.calls), args, kwargs), cls, args, kwargs)
        if decision.rule is Rule.SUBSTITUTED and isinstance(decision.calls, types.FunctionType):
            held = ConstSource(decision.calls, decision.calls.__qualname__)
            return tx.call(tx.wrap_function(decision.calls, held, trusted=True), args, kwargs)
        said = f": {decision.reason}" if decision.reason else ""
        unsupported(decision.kind, f"{cls.__qualname__}(){said}")

    def new_object(
        self, cls: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """cls.__new__(cls, *args) of a builtin base."""
        tx: Any = self
        value = cls.constant()
        if not isinstance(value, type):
            unsupported("unsupported_builtin", "__new__ of what is no class")
        base = native_base(value)
        if issubclass(base, BaseException):
            return tx.new_exception(value, args, initialize=False)
        if decide(value).rule is Rule.HANDLED:
            return tx.construct(cls, args, kwargs)
        if base in VALUE_TYPES:
            return ObjectVariable(value, content=tx.construct(ClassVariable(base), args, kwargs))
        if base is object:
            if inspect.isabstract(value):
                lacks = sorted(value.__abstractmethods__)
                names = f"abstract method{'s' if len(lacks) > 1 else ''} {', '.join(lacks)}"
                tx.raise_error(TypeError, f"Can't instantiate abstract class {value.__name__} with {names}")
            return ObjectVariable(value)
        content: VariableTracker
        if base is list:
            content = ListVariable([])
        elif issubclass(base, dict):
            content = DictVariable({}, cls=base)
        elif base is tuple and is_named_tuple(value):
            return NamedTupleVariable(tx.listed(args[0]) if args else [], None, value)
        elif kwargs and base in (tuple, frozenset) and _inherits(tx, value, "__new__", base):
            tx.raise_error(TypeError, f"{base.__name__}() takes no keyword arguments")
        elif base is tuple:
            content = TupleVariable(tx.listed(args[0]) if args else [])
        elif base is set:
            content = SetVariable({})
        elif base is frozenset:
            content = set_of(tx, args[0], frozenset) if args else SetVariable({}, cls=frozenset)
        else:
            unsupported("unsupported_builtin", f"an object of {value.__qualname__}, a kind of {base.__qualname__}")
        return ObjectVariable(value, content=content)

    def _construct_named_tuple(
        self, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        tx: Any = self
        value = cls.value
        if not hasattr(value, "_fields"):
            return NamedTupleVariable(tx.listed(args[0]), None, value)
        new = value.__new__
        if isinstance(new, types.FunctionType):
            bound = FunctionVariable(new, ConstSource(new, value.__qualname__)).bind(tx, [cls, *args], kwargs)
            return NamedTupleVariable([realized(tx, bound[name]) for name in value._fields], None, value)
        unsupported("unsupported_builtin", f"{value.__qualname__}()")

    def call_native_method(
        self,
        owner: VariableTracker,
        name: str,
        function: Any,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        """A method that a user's class inherits from a class written in C."""
        tx: Any = self
        content = getattr(owner, "content", None)
        home = getattr(function, "__objclass__", None)
        if name == "__init__" and issubclass(owner.python_type(), BaseException):
            return self._exception_method(owner, name, args)
        of_object = home in (object, BaseException) or native_base(owner.python_type()) is object
        if of_object or isinstance(owner, ObjectVariable) and content is None:
            handler = _OBJECT_METHODS.get(name)
            if handler is not None and (of_object or name in _ACCESS and is_generic(function, name)):
                return tx.checked_call(handler, tx, owner, *args, **kwargs)
            if issubclass(owner.python_type(), BaseException):
                return self._exception_method(owner, name, args)
        if name in ("__reduce__", "__reduce_ex__"):
            return tx.checked_call(_OBJECT_METHODS[name], tx, owner, *args)
        if content is None and is_draw(function):
            return draw(tx, function, owner, args, kwargs)
        if content is None:
            unsupported("unsupported_method", f"{owner.describe()}.{name}(), written in C")
        if name == "__init__":
            self._fill(content, args, kwargs)
            return ConstantVariable(None)
        if name in _CONTENT_PROTOCOL:
            result = _CONTENT_PROTOCOL[name](tx, content, *args)
            return result if result is not None else ConstantVariable(None)
        result = content.call_method(tx, name, args, kwargs)
        if result is content and name.startswith("__i"):
            return owner
        if result is content and isinstance(content, SetVariable):
            # copy() of a subclass is no longer the object itself
            return content.duplicate()
        if result is content and isinstance(content, TupleVariable):
            return TupleVariable(list(content.items))
        return result

    def _exception_method(self, owner: VariableTracker, name: str, args: list[VariableTracker]) -> VariableTracker:
        tx: Any = self
        if name == "__init__":
            if not isinstance(owner, ObjectVariable) or owner.exception is None:
                unsupported("exception_handling", f"{owner.describe()}.__init__()")
            tx.init_exception(owner, args)
            return ConstantVariable(None)
        if name == "add_note" and len(args) == 1 and issubclass(args[0].python_type(), str):
            if "__notes__" not in tx.output.effects.attributes_of(owner):
                if getattr(owner, "value", None) is not None:
                    unsupported("exception_handling", f"{owner.describe()}.add_note()")
                tx.output.effects.store_attr(owner, "__notes__", ListVariable([]))
            tx.call_method(tx.output.effects.load_attr(owner, "__notes__"), "append", args)
            return ConstantVariable(None)
        if name == "with_traceback":
            return owner
        if name in ("__str__", "__repr__"):
            return tx.exception_text(owner, "s" if name == "__str__" else "r")
        unsupported("exception_handling", f"{owner.describe()}.{name}()")

    def _fill(self, content: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        tx: Any = self
        if kwargs and not isinstance(content, DictVariable):
            tx.raise_error(TypeError, f"{content.python_type().__name__}() takes no keyword arguments")
        if isinstance(content, DictVariable):
            DictVariable._update(content, tx, *args, **kwargs)
        elif isinstance(content, ListVariable):
            content.call_method(tx, "clear", [], {})
            if args:
                content.call_method(tx, "extend", args, {})
        elif isinstance(content, SetVariable) and content.cls is not frozenset:
            content.call_method(tx, "clear", [], {})
            if args:
                content.call_method(tx, "update", args, {})

    reduced = reduced
    reduced_ex = reduced_ex
    deep_copied = deep_copied

    # -- attributes of classes
    def call_class_attribute(
        self,
        owner: VariableTracker,
        cls: type,
        name: str,
        attribute: Any,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        """Calls what `cls` defines under `name` with `owner` as first argument, as the protocols of C do."""
        tx: Any = self
        source = class_attribute_source(cls, name)
        if isinstance(attribute, types.FunctionType):
            return tx.call(tx.wrap_function(attribute, source, trusted=True), [owner, *args], kwargs)
        if isinstance(attribute, (staticmethod, classmethod)):
            first = [tx.from_result(cls, "class")] if isinstance(attribute, classmethod) else []
            return tx.call(tx.wrap_class_part(attribute.__func__, source), [*first, *args], kwargs)
        if isinstance(attribute, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return self.call_native_method(owner, attribute.__name__, attribute, args, kwargs)
        return tx.call(realized(tx, tx.wrap_at(attribute, source)), args, kwargs)

    def read_class_attribute(self, cls: ClassVariable, name: str) -> VariableTracker:
        """cls.name (Objects/typeobject.c, type_getattro)."""
        tx: Any = self
        value = cls.value
        written = tx.output.effects.attributes_of(cls)
        if name in written:
            return tx.output.effects.load_attr(cls, name)
        if is_made_by_python(value) and not is_stand_in(value) and not is_library(value.__module__):
            tx.guard(class_source(value), "type_is", type(value))
        if isinstance(tx.class_lookup(type(value), "__getattribute__"), types.FunctionType):
            what = f"{value.__qualname__}.{name}, which {type(value).__qualname__}.__getattribute__ looks up"
            unsupported("unsupported_attribute", what)
        meta = tx.class_lookup(type(value), name)
        if isinstance(meta, property):
            return tx.call(tx.wrap_class_part(meta.fget, class_attribute_source(type(value), name)), [cls], {})
        if name == "__dict__" or is_made_by_python(type(meta)) and is_data_descriptor(tx, meta):
            unsupported("unsupported_attribute", f"{value.__qualname__}.{name}")
        if name == "__annotations__" and is_made_by_python(value):
            return tx.wrap_at(value.__annotations__, AttrSource(class_source(value), name))
        if name in _CLASS_FACTS:
            if name in ("__mro__", "__bases__", "__base__"):
                tx.guard_mro(value)
            elif name in ("__name__", "__qualname__") and is_made_by_python(value):
                where = AttrSource(class_source(value), name)
                tx.guard(where, "const", getattr(value, name))
            elif is_made_by_python(value):
                tx.class_lookup(value, name)
            return tx.from_result(getattr(value, name), f"{value.__qualname__}.{name}")
        set_before = tx.output.effects.class_attribute(value, name)
        if set_before is not None:
            return set_before
        attribute = tx.class_lookup(value, name, _ABSENT, data=True)
        source = class_attribute_source(value, name)
        if attribute is not _ABSENT:
            return self._unbound_attribute(cls, name, attribute, source)
        if meta is not None:
            if isinstance(meta, types.FunctionType):
                return MethodVariable(
                    tx.wrap_function(meta, class_attribute_source(type(value), name), trusted=True), cls
                )
            if is_stand_in(value):
                unsupported("class_definition", f"{value.__qualname__}.{name}, written in C")
            return tx.from_result(tx.run_python(getattr, value, name), f"{value.__qualname__}.{name}")
        hook = tx.class_lookup(type(value), "__getattr__")
        if isinstance(hook, types.FunctionType):
            return tx.call_class_attribute(cls, type(value), "__getattr__", hook, [ConstantVariable(name)], {})
        tx.raise_error(AttributeError, f"type object {value.__name__!r} has no attribute {name!r}")

    def _unbound_attribute(self, cls: ClassVariable, name: str, attribute: Any, source: Source) -> VariableTracker:
        tx: Any = self
        if isinstance(attribute, types.FunctionType):
            return tx.wrap_function(attribute, source, trusted=True)
        if isinstance(attribute, staticmethod):
            if name == "__new__" and not isinstance(attribute.__func__, types.FunctionType):
                return NewVariable(cls.value)
            return tx.wrap_class_part(attribute.__func__, source)
        if isinstance(attribute, classmethod):
            return class_method(tx, attribute, source, cls)
        if name == "__new__":
            return NewVariable(cls.value)
        if isinstance(attribute, types.ClassMethodDescriptorType) and is_stand_in(cls.value):
            unsupported("class_definition", f"{cls.value.__qualname__}.{name}(), written in C")
        if isinstance(attribute, types.ClassMethodDescriptorType):
            return tx.from_result(getattr(cls.value, name), f"{cls.value.__qualname__}.{name}")
        if isinstance(cls.value, enum.EnumMeta) and isinstance(getattr(cls.value, name, None), enum.Enum):
            return tx.from_result(getattr(cls.value, name), "enum member")
        getter = tx.class_lookup(type(attribute), "__get__")
        if isinstance(getter, types.FunctionType):
            descriptor = realized(tx, tx.wrap_at(attribute, source))
            return tx.call_method(descriptor, "__get__", [ConstantVariable(None), cls])
        if getter is not None or isinstance(attribute, (property, functools.cached_property)):
            return tx.from_result(attribute, f"{cls.value.__qualname__}.{name}")
        if not is_made_by_python(cls.value):
            return tx.from_result(attribute, f"{cls.value.__qualname__}.{name}")
        return tx.wrap_at(attribute, source)

    def class_of(self, value: VariableTracker, is_class: bool) -> VariableTracker:
        """The class to which super() binds class methods."""
        tx: Any = self
        return value if is_class else tx.from_result(value.python_type(), "class")

    def class_getitem(self, cls: ClassVariable, key: VariableTracker) -> VariableTracker:
        """cls[key]."""
        tx: Any = self
        meta = tx.class_lookup(type(cls.value), "__getitem__")
        if isinstance(meta, types.FunctionType) and not isinstance(cls.value, enum.EnumMeta):
            return tx.call_class_attribute(cls, type(cls.value), "__getitem__", meta, [key], {})
        own = tx.class_lookup(cls.value, "__class_getitem__")
        if isinstance(own, classmethod) and isinstance(own.__func__, types.FunctionType):
            if not is_library(own.__func__.__module__):
                return tx.call(self.read_class_attribute(cls, "__class_getitem__"), [key], {})
        if isinstance(cls, MadeClassVariable):
            unsupported("class_definition", f"{cls.describe()}[...]")
        return tx.from_result(tx.run_python(operator.getitem, cls.value, tx.as_plain(key)), "generic alias")

    def class_iterator(self, cls: ClassVariable) -> VariableTracker:
        """iter(cls): the members of an enum."""
        tx: Any = self
        meta = tx.class_lookup(type(cls.value), "__iter__")
        if not isinstance(cls.value, enum.EnumMeta) and isinstance(meta, types.FunctionType):
            return tx.get_iter(tx.call_class_attribute(cls, type(cls.value), "__iter__", meta, [], {}))
        if not isinstance(cls.value, enum.EnumMeta):
            unsupported("unsupported_iteration", f"iterating over {cls.describe()}")
        members: Any = list(cls.value)
        return ListVariable([tx.from_result(member, "enum member") for member in members]).iterator(tx)

    def call_torch_class(
        self, cls: type, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """torch.device(...), torch.Size(...), torch.finfo(...): classes written in C whose instances are constants."""
        tx: Any = self
        if cls in (torch.device, torch.finfo, torch.iinfo):
            plain = [tx.as_plain(a) for a in args]
            return tx.from_result(tx.run_python(cls, *plain, **{k: tx.as_plain(v) for k, v in kwargs.items()}),
                cls.__name__)
        unsupported("unsupported_torch_call", f"{cls.__module__}.{cls.__qualname__}()")


_ABSENT = object()
_CLASS_FACTS = frozenset({"__name__", "__qualname__", "__module__", "__mro__", "__bases__", "__base__", "__doc__",
    "__flags__",
                          "__basicsize__", "__class__"})


def _has_native_constructor(cls: type) -> bool:
    new, init = cls.__new__, cls.__init__  # type: ignore[misc]
    return not isinstance(new, types.FunctionType) and not isinstance(init, types.FunctionType)


def _inherits(tx: Any, cls: type, name: str, base: type) -> bool:
    return tx.class_lookup(cls, name) is base.__dict__.get(name)


def _do(function: Callable[..., Any]) -> Callable[..., VariableTracker]:
    def handler(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        function(tx, *args, **kwargs)
        return ConstantVariable(None)

    return handler


def _object_eq(tx: Any, owner: VariableTracker, other: VariableTracker) -> VariableTracker:
    return ConstantVariable(True if tx.is_same(owner, other) else NotImplemented)


def _object_init(tx: Any, owner: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return ConstantVariable(None)


_ACCESS = ("__getattribute__", "__setattr__", "__delattr__")
_OBJECT_METHODS: dict[str, Callable[..., VariableTracker]] = {
    "__init__": _object_init,
    "__init_subclass__": _object_init,
    "__setattr__": _do(lambda tx, o, name, value: o.generic_setattr(tx, name.constant(), value)),
    "__delattr__": _do(lambda tx, o, name: o.generic_delattr(tx, name.constant())),
    "__getattribute__": lambda tx, o, name: _generic_attribute(tx, o, name),
    "__eq__": _object_eq,
    "__ne__": lambda tx, o, other: tx.compare("!=", o, other),
    "__reduce__": reduced,
    "__reduce_ex__": reduced_ex,
}


def _generic_attribute(tx: Any, owner: Any, name: VariableTracker) -> VariableTracker:
    value = owner.generic_getattr(tx, name.constant())
    if value is None:
        tx.raise_error(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name.constant()!r}")
    return value


_CONTENT_PROTOCOL: dict[str, Callable[..., Any]] = {
    "__getitem__": lambda tx, c, key: c.getitem(tx, key),
    "__setitem__": lambda tx, c, key, value: c.setitem(tx, key, value),
    "__delitem__": lambda tx, c, key: c.delitem(tx, key),
    "__contains__": lambda tx, c, item: ConstantVariable(c.contains(tx, item)),
    "__len__": lambda tx, c: c.length(tx),
    "__iter__": lambda tx, c: c.iterator(tx),
    "__eq__": lambda tx, c, other: tx.compare("==", c, getattr(other, "content", None) or other),
    "__ne__": lambda tx, c, other: tx.compare("!=", c, getattr(other, "content", None) or other),
    "__add__": lambda tx, c, other: tx.binary("+", c, getattr(other, "content", None) or other),
}


# ---------------------------------------------------------------- builtin classes
@handles(torch.autograd.profiler.record_function)
def _record_function(tx: Any, name: VariableTracker, args: VariableTracker | None = None) -> VariableTracker:
    return tx.construct(ClassVariable(Region), [], {})


@handles(range)
def _range(tx: Any, *args: VariableTracker) -> VariableTracker:
    return RangeVariable(tx.run_python(range, *(tx.as_index(a) for a in args)))


@handles(slice)
def _slice(tx: Any, *args: VariableTracker) -> VariableTracker:
    none = ConstantVariable(None)
    parts = {1: [none, *args, none], 2: [*args, none], 3: list(args)}.get(len(args))
    if parts is None:
        tx.raise_error(TypeError, f"slice expected at most 3 arguments, got {len(args)}")
    return SliceVariable(parts)


@handles(functools.partial)
def _partial(tx: Any, function: VariableTracker, /, *args: VariableTracker,
    **kwargs: VariableTracker) -> VariableTracker:
    return new_partial(tx, function, list(args), kwargs)


@handles(types.MethodType)
def _method(tx: Any, function: VariableTracker, owner: VariableTracker) -> VariableTracker:
    return MethodVariable(function, owner)


@handles(type)
def _type(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if len(args) == 3 and not kwargs:
        content = tx.dict_content(args[2])
        if content is None or not args[0].is_constant() or not issubclass(args[1].python_type(), tuple):
            unsupported("class_definition", "type(name, bases, namespace)")
        namespace = {key.constant(): value for key, value in zip(content.keys(), content.values(tx))}
        namespace.setdefault("__module__", ConstantVariable(tx.globals[0].get("__name__")))
        return define_class(tx, args[0].constant(), list(args[1].iterate(tx)), namespace, None)
    if len(args) != 1:
        unsupported("class_definition", "type(name, bases, namespace)")
    return tx.from_result(args[0].python_type(), "class")


def _descriptor(cls: type) -> Constructor:
    def constructor(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if kwargs or not args:
            unsupported("class_definition", f"{cls.__name__}() with keyword arguments")
        return DescriptorVariable(cls, list(args))

    return constructor


for _cls in DESCRIPTORS:
    handles(_cls)(_descriptor(_cls))


@handles(object)
def _object(tx: Any) -> VariableTracker:
    return ObjectVariable(object)


@handles(super)
def _super(tx: Any, *args: VariableTracker) -> VariableTracker:
    if not args:
        start, owner = tx.zero_argument_super()
    else:
        start, owner = args[0], args[1]
    cls = start.constant() if start.is_constant() else None
    if not isinstance(cls, type):
        tx.raise_error(TypeError, f"super() argument 1 must be a type, not {start.python_type().__name__}")
    if len(args) == 1 or len(args) > 2:
        unsupported("unsupported_builtin", "super() with one argument")
    if isinstance(owner, ClassVariable) and derives(tx, owner.value, cls):
        return SuperVariable(cls, owner, owner.value, True)
    if not derives(tx, owner.python_type(), cls):
        tx.raise_error(TypeError, "super(type, obj): obj must be an instance or subtype of type")
    return SuperVariable(cls, owner, owner.python_type(), False)


@handles(bool)
def _bool(tx: Any, value: VariableTracker | None = None) -> VariableTracker:
    if isinstance(value, ScalarVariable):
        return call_on_scalars(tx, bool, [value], {}) or value
    return ConstantVariable(value is not None and tx.truth(value))


def _number(cls: type, method: str) -> Constructor:
    def constructor(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if args and isinstance(args[0], TensorVariable):
            return args[0].call_method(tx, method, [], {})
        number = call_on_scalars(tx, cls, args, kwargs) if tx.output.scalars.any else None
        if number is not None:
            return number
        if args and isinstance(args[0], ObjectVariable):
            for name in (method, "__index__"):
                if tx.class_lookup(args[0].cls, name) is not None:
                    return tx.call_method(args[0], name, [])
        plain = [tx.as_plain(a) for a in args]
        return ConstantVariable(tx.run_python(cls, *plain, **{k: tx.as_plain(v) for k, v in kwargs.items()}))

    return constructor


for _cls, _name in ((int, "__int__"), (float, "__float__"), (complex, "__complex__"), (bytes, "__bytes__")):
    handles(_cls)(_number(_cls, _name))


@handles(str)
def _str(tx: Any, value: VariableTracker | None = None, *rest: VariableTracker) -> VariableTracker:
    if value is None:
        return ConstantVariable("")
    if rest:
        return ConstantVariable(tx.run_python(str, value.constant(), *(r.constant() for r in rest)))
    return tx.to_text(value, "s")


@handles(torch._C._InferenceMode)
def _inference_mode(tx: Any, mode: VariableTracker) -> VariableTracker:
    return InferenceModeVariable(tx.truth(mode), tx.root_visit())


@handles(weakref.ref)
def _weakref(tx: Any, referent: VariableTracker, *callback: VariableTracker) -> VariableTracker:
    if callback or not isinstance(referent, (ObjectVariable, FunctionVariable, ClassVariable)):
        unsupported("unsupported_builtin", f"weakref.ref() of {referent.describe()}")
    cls = referent.python_type()
    if isinstance(referent, ObjectVariable) and not cls.__weakrefoffset__:
        tx.raise_error(TypeError, f"cannot create weak reference to {cls.__name__!r} object")
    return WeakrefVariable(referent)


@handles(types.SimpleNamespace)
def _simple_namespace(tx: Any, /, **attributes: VariableTracker) -> VariableTracker:
    made = ObjectVariable(types.SimpleNamespace)
    for name, value in attributes.items():
        tx.output.effects.store_attr(made, name, value)
    return made


@handles(torch._C.DisableTorchFunction)
def _disable_torch_function(tx: Any) -> VariableTracker:
    return DisabledOverridesVariable(torch._C.DisableTorchFunction, tx.root_visit())


@handles(torch._C.DisableTorchFunctionSubclass)
def _disable_torch_function_subclass(tx: Any) -> VariableTracker:
    return DisabledOverridesVariable(torch._C.DisableTorchFunctionSubclass, tx.root_visit())


class _LazyAttributeVariable(ObjectVariable):
    """What a lazily computed attribute of a distribution is when it is read from the class: only asked what it is."""

    def reconstruct(self, cg: Any) -> None:
        unsupported("unsupported_value", "a lazy property of a class")


@handles(_lazy_property_and_property)
def _lazy_attribute(tx: Any, wrapped: VariableTracker) -> VariableTracker:
    return _LazyAttributeVariable(_lazy_property_and_property)
