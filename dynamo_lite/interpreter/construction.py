"""Calls of classes: new objects of builtin and user's classes, and attributes read from classes.

Builtin classes have a constructor in a table; a user's class goes through ``__new__`` and ``__init__``, inlined where
they are Python. Invariant: an object made in the trace is not made for real before generated code makes it.
"""
from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..guards.source import ConstSource
from ..rules.table import Decision, Rule, decide
from ..variables.base import VariableTracker, realized, unsupported
from ..variables.constant import ConstantVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import ListVariable, NamedTupleVariable, TupleVariable, is_named_tuple
from ..variables.containers.sets import SetVariable, set_of
from ..variables.contents import VALUE_TYPES
from ..variables.functions.functions import FunctionVariable, standing_for
from ..variables.numbers.rng import draw, is_draw
from ..variables.objects.classes import (
    ClassVariable,
    class_attribute_source,
    derives,
    is_generic,
    is_made_by_python,
    native_base,
    settle_protocol,
)
from ..variables.objects.objects import ObjectVariable
from ..variables.tensors.arrays import fold
from .copying import reduced, reduced_ex
from .part import Part

if TYPE_CHECKING:
    from ..variables.protocols import Tracer


class Construction(Part):
    """Calls of classes; a part of the tracer."""

    def construct(
        self, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker], by_type: bool = False
    ) -> VariableTracker:
        """cls(*args, **kwargs); `by_type`: as type.__call__ does it, whatever the metaclass defines."""
        tx = self.tx
        value = cls.value
        decision = decide(value)
        if decision.rule is not Rule.CONSTRUCTED:
            return self._by_rule_of_class(decision, value, args, kwargs)
        meta_call = tx.classes.lookup(type(value), "__call__")
        if isinstance(value, enum.EnumMeta):
            if len(args) == 1 and not kwargs:
                return tx.values.from_result(tx.run_python(value, args[0].constant()), "enum member")
            unsupported("unsupported_builtin", f"making the enum {value.__qualname__}")
        if isinstance(meta_call, types.FunctionType) and not by_type and not issubclass(value, torch.nn.Parameter):
            return tx.classes.call_attribute(cls, type(value), "__call__", meta_call, args, kwargs)
        if isinstance(meta_call, type) and not by_type:
            return tx.call(tx.values.from_result(meta_call, "class"), args, kwargs)  # such as dict, for typed dicts
        if issubclass(value, BaseException) and _has_native_constructor(value):
            if kwargs:
                unsupported("unsupported_builtin", f"{value.__qualname__} with keyword arguments")
            return tx.errors.new_exception(value, args)
        if issubclass(value, torch.Tensor):
            unsupported("tensor_subclass" if value is not torch.Tensor else "unsupported_torch_call",
                f"{value.__qualname__}()")
        if is_named_tuple(value):
            return self._construct_named_tuple(cls, args, kwargs)
        if issubclass(value, np.generic):
            return fold(tx, value, args, kwargs)
        if not is_made_by_python(value):
            if value.__module__.partition(".")[0] == "torch":
                return tx.construction.call_torch_class(value, args, kwargs)
            unsupported("unsupported_builtin", f"{value.__qualname__}()")
        if tx.classes.lookup(value, "__del__") is not None:
            unsupported("unsupported_builtin", f"{value.__qualname__}(), an object with a finalizer")
        new = tx.classes.lookup(value, "__new__")
        made: VariableTracker
        if isinstance(new, staticmethod) and isinstance(new.__func__, types.FunctionType):
            function = tx.values.wrap_class_part(new.__func__, class_attribute_source(value, "__new__"))
            made = tx.call(function, [cls, *args], kwargs)
        elif new is not native_base(value).__new__:
            unsupported("unsupported_builtin", f"{value.__qualname__}(), whose __new__ is no plain function")
        else:
            made = self.new_object(cls, args, kwargs)
        if not (isinstance(made, ObjectVariable) and derives(tx, made.cls, value)):
            return made
        settle_protocol(made.cls)
        init = tx.classes.lookup(made.cls, "__init__")
        if isinstance(init, types.FunctionType):
            result = realized(tx, tx.classes.call_attribute(made, made.cls, "__init__", init, args, kwargs))
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
        tx = self.tx
        if decision.rule is Rule.HANDLED:
            return tx.checked_call(decision.calls, tx, *args, **kwargs)
        if decision.rule is Rule.REPLACED:
            return standing_for(tx.call(tx.values.library_function(decision.calls), args, kwargs), cls, args, kwargs)
        if decision.rule is Rule.SUBSTITUTED and isinstance(decision.calls, types.FunctionType):
            held = ConstSource(decision.calls, decision.calls.__qualname__)
            return tx.call(tx.values.wrap_function(decision.calls, held, trusted=True), args, kwargs)
        said = f": {decision.reason}" if decision.reason else ""
        unsupported(decision.kind, f"{cls.__qualname__}(){said}")

    def new_object(
        self, cls: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """cls.__new__(cls, *args) of a builtin base."""
        tx = self.tx
        value = cls.constant()
        if not isinstance(value, type):
            unsupported("unsupported_builtin", "__new__ of what is no class")
        base = native_base(value)
        if issubclass(base, BaseException):
            return tx.errors.new_exception(value, args, initialize=False)
        if decide(value).rule is Rule.HANDLED:
            return self.construct(cls if isinstance(cls, ClassVariable) else ClassVariable(value), args, kwargs)
        if base in VALUE_TYPES:
            return ObjectVariable(value, content=tx.construction.construct(ClassVariable(base), args, kwargs))
        if base is object:
            if inspect.isabstract(value):
                tx.run_python(object.__new__, value)
            return ObjectVariable(value)
        content: VariableTracker
        if base is list:
            content = ListVariable([])
        elif issubclass(base, dict):
            content = DictVariable({}, cls=base)
        elif base is tuple and is_named_tuple(value):
            return NamedTupleVariable(tx.iteration.listed(args[0]) if args else [], None, value)
        elif kwargs and base in (tuple, frozenset) and _inherits(tx, value, "__new__", base):
            tx.raise_error(TypeError, f"{base.__name__}() takes no keyword arguments")
        elif base is tuple:
            content = TupleVariable(tx.iteration.listed(args[0]) if args else [])
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
        tx = self.tx
        value = cls.value
        if not hasattr(value, "_fields"):
            return NamedTupleVariable(tx.iteration.listed(args[0]), None, value)
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
        tx = self.tx
        content = owner.content
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
        tx = self.tx
        if name == "__init__":
            if not isinstance(owner, ObjectVariable) or owner.exception is None:
                unsupported("exception_handling", f"{owner.describe()}.__init__()")
            tx.errors.init_exception(owner, args)
            return ConstantVariable(None)
        if name == "add_note" and len(args) == 1 and issubclass(args[0].python_type(), str):
            if "__notes__" not in tx.output.effects.attributes_of(owner):
                if owner.value is not None:
                    unsupported("exception_handling", f"{owner.describe()}.add_note()")
                tx.output.effects.store_attr(owner, "__notes__", ListVariable([]))
            tx.call_method(tx.output.effects.load_attr(owner, "__notes__"), "append", args)
            return ConstantVariable(None)
        if name == "with_traceback":
            return owner
        if name in ("__str__", "__repr__") and isinstance(owner, ObjectVariable):
            return tx.errors.exception_text(owner, "s" if name == "__str__" else "r")
        unsupported("exception_handling", f"{owner.describe()}.{name}()")

    def _fill(self, content: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        tx = self.tx
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

    def call_torch_class(
        self, cls: type, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """torch.device(...), torch.Size(...), torch.finfo(...): classes written in C whose instances are constants."""
        tx = self.tx
        if cls in (torch.device, torch.finfo, torch.iinfo):
            plain = [tx.values.as_plain(a) for a in args]
            return tx.values.from_result(
                tx.run_python(cls, *plain, **{k: tx.values.as_plain(v) for k, v in kwargs.items()}), cls.__name__
            )
        unsupported("unsupported_torch_call", f"{cls.__module__}.{cls.__qualname__}()")




def _has_native_constructor(cls: type) -> bool:
    new, init = cls.__new__, cls.__init__  # type: ignore[misc]
    return not isinstance(new, types.FunctionType) and not isinstance(init, types.FunctionType)


def _inherits(tx: Tracer, cls: type, name: str, base: type) -> bool:
    return tx.classes.lookup(cls, name) is base.__dict__.get(name)


def _do(function: Callable[..., Any]) -> Callable[..., VariableTracker]:
    def handler(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        function(tx, *args, **kwargs)
        return ConstantVariable(None)

    return handler


def _object_eq(tx: Tracer, owner: VariableTracker, other: VariableTracker) -> VariableTracker:
    return ConstantVariable(True if tx.operators.is_same(owner, other) else NotImplemented)


def _object_init(
    tx: Tracer, owner: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return ConstantVariable(None)


_ACCESS = ("__getattribute__", "__setattr__", "__delattr__")
_OBJECT_METHODS: dict[str, Callable[..., VariableTracker]] = {
    "__init__": _object_init,
    "__init_subclass__": _object_init,
    "__setattr__": _do(lambda tx, o, name, value: o.generic_setattr(tx, name.constant(), value)),
    "__delattr__": _do(lambda tx, o, name: o.generic_delattr(tx, name.constant())),
    "__getattribute__": lambda tx, o, name: _generic_attribute(tx, o, name),
    "__eq__": _object_eq,
    "__ne__": lambda tx, o, other: tx.operators.compare("!=", o, other),
    "__reduce__": reduced,
    "__reduce_ex__": reduced_ex,
}


def _generic_attribute(tx: Tracer, owner: Any, name: VariableTracker) -> VariableTracker:
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
    "__eq__": lambda tx, c, other: tx.operators.compare("==", c, other.content or other),
    "__ne__": lambda tx, c, other: tx.operators.compare("!=", c, other.content or other),
    "__add__": lambda tx, c, other: tx.operators.binary("+", c, other.content or other),
}
