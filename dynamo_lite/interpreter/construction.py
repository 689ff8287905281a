"""Calls of classes: new objects of builtin and user's classes, and methods that user's classes have from classes in C.

A class with a row of its own is called by its rule. Others are made by what their metaclass, or a class that they
derive from, has registered (``variables/class_calls.py``), or go through ``__new__`` and ``__init__``, inlined where
they are Python. Invariant: an object made in the trace is not made for real before generated code makes it.
"""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..rules.table import Rule, decide
from ..variables.base import VariableTracker, realized, unsupported
from ..variables.class_calls import allocator_of, constructor_of
from ..variables.constant import ConstantVariable
from ..variables.containers.sequences import TupleVariable
from ..variables.containers.sets import SetVariable
from ..variables.numbers.rng import draw
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
from ..variables.rule_calls import CALLERS
from ..variables.tensors.subclasses import SubclassTensorVariable
from .part import Part

if TYPE_CHECKING:
    from ..variables.protocols import Tracer

_ACCESS = ("__getattribute__", "__setattr__", "__delattr__")


class Construction(Part):
    """Calls of classes; a part of the tracer."""

    def construct(
        self, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker], by_type: bool = False
    ) -> VariableTracker:
        """cls(*args, **kwargs); `by_type`: whether to ignore the metaclass's own ``__call__``."""
        tx, value = self.tx, cls.value
        decision = decide(value)
        if decision.rule is not Rule.CONSTRUCTED:
            made = CALLERS[decision.rule](tx, cls, decision, args, kwargs) if decision.rule in CALLERS else None
            return made if made is not None else unsupported(decision.kind, f"{value.__qualname__}()")
        meta_call = tx.classes.special(type(value), "__call__")
        made = None if by_type else self._by_metaclass(cls, meta_call, args, kwargs)
        if made is None:
            constructor = constructor_of(value)
            made = constructor(tx, cls, args, kwargs) if constructor is not None else None
        return made if made is not None else self._by_new_and_init(cls, args, kwargs)

    def _by_metaclass(
        self, cls: ClassVariable, meta_call: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker | None:
        """The result of the metaclass's ``__call__``; None if the metaclass inherits it from ``type``."""
        tx = self.tx
        if isinstance(meta_call, types.FunctionType):
            return tx.classes.call_attribute(cls, type(cls.value), "__call__", meta_call, args, kwargs)
        if isinstance(meta_call, type):
            return tx.call(tx.values.from_result(meta_call, "class"), args, kwargs)  # such as dict, for typed dicts
        return None

    def _by_new_and_init(
        self, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Constructs an object as type.__call__ does (Objects/typeobject.c, type_call)."""
        tx, value = self.tx, cls.value
        if not is_made_by_python(value):
            of_torch = value.__module__.partition(".")[0] == "torch"
            name = f"{value.__module__}.{value.__qualname__}" if of_torch else value.__qualname__
            unsupported("unsupported_torch_call" if of_torch else "unsupported_builtin", f"{name}()")
        if tx.classes.lookup(value, "__del__") is not None:
            unsupported("unsupported_builtin", f"{value.__qualname__}(), an object with a finalizer")
        new = tx.classes.lookup(value, "__new__")
        made = self._by_new(cls, new, args, kwargs)
        if not (isinstance(made, (ObjectVariable, SubclassTensorVariable)) and derives(tx, made.cls, value)):
            return made
        settle_protocol(made.cls)
        init = tx.classes.special(made.cls, "__init__")
        if isinstance(init, types.FunctionType):
            result = realized(tx, tx.classes.call_attribute(made, made.cls, "__init__", init, args, kwargs))
            if not result.is_none():
                kind = result.python_type().__name__
                tx.raise_error(TypeError, f"__init__() should return None, not {kind!r}")
        elif init is not object.__init__ and init is not None:
            self.call_native_method(made, "__init__", init, args, kwargs)
        return made

    def _by_new(
        self, cls: ClassVariable, new: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        value = cls.value
        if isinstance(new, staticmethod) and isinstance(new.__func__, types.FunctionType):
            function = self.tx.values.wrap_class_part(new.__func__, class_attribute_source(value, "__new__"))
            return self.tx.call(function, [cls, *args], kwargs)
        if new is not native_base(value).__new__:
            unsupported("unsupported_builtin", f"{value.__qualname__}(), whose __new__ is no plain function")
        return self.new_object(cls, args, kwargs)

    def new_object(
        self, cls: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Evaluates cls.__new__(cls, *args) where ``__new__`` is that of a builtin base."""
        value = cls.constant()
        if not isinstance(value, type):
            unsupported("unsupported_builtin", "__new__ of what is no class")
        if decide(value).rule is Rule.HANDLED:
            return self.construct(cls if isinstance(cls, ClassVariable) else ClassVariable(value), args, kwargs)
        base = native_base(value)
        allocator = allocator_of(base)
        if allocator is None:
            unsupported("unsupported_builtin", f"an object of {value.__qualname__}, a kind of {base.__qualname__}")
        made = allocator(self.tx, value, base, args, kwargs)
        return made if made.python_type() is value else ObjectVariable(value, content=made)

    def call_native_method(
        self,
        owner: VariableTracker,
        name: str,
        function: Any,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        """Calls a method that a user-defined class inherits from a class written in C."""
        tx = self.tx
        generic = name in _ACCESS and is_generic(function, name)
        decision = decide(object.__dict__[name] if generic else function)
        if decision.rule is Rule.HANDLED:
            return tx.checked_call(decision.calls, tx, owner, *args, **kwargs)
        content = owner.content
        if content is None and issubclass(owner.python_type(), BaseException):
            return _exception_method(tx, owner, name, args)
        if content is None and decision.calls is draw:
            return draw(tx, function, owner, args, kwargs)
        if content is None:
            unsupported("unsupported_method", f"{owner.describe()}.{name}(), written in C")
        if name == "__init__":
            content.initialize(tx, args, kwargs)
            return ConstantVariable(None)
        special = tx.special_methods.get(name) if not kwargs else None
        if special is not None:
            result = tx.checked_call(special, tx, content, *args)
        else:
            result = content.call_method(tx, name, args, kwargs)
        return _of_subclass(owner, content, result, name)


def _of_subclass(owner: VariableTracker, content: VariableTracker, result: VariableTracker, name: str
                 ) -> VariableTracker:
    """Adapts the result of a builtin's method to `owner`, an instance of a subclass whose content is `content`."""
    if result is not content:
        return result
    if name.startswith("__i"):
        return owner
    # copy() of an instance of a subclass returns a new object of the builtin class.
    if isinstance(content, SetVariable):
        return content.duplicate()
    return TupleVariable(list(content.items)) if isinstance(content, TupleVariable) else result


def _init_exception(tx: Tracer, owner: ObjectVariable, args: list[VariableTracker]) -> VariableTracker:
    if owner.exception is None:
        unsupported("exception_handling", f"{owner.describe()}.__init__()")
    tx.errors.init_exception(owner, args)
    return ConstantVariable(None)


# Methods that user-defined exceptions inherit from BaseException and that a trace can evaluate.
_OF_EXCEPTIONS: dict[str, Callable[[Tracer, ObjectVariable, list[VariableTracker]], VariableTracker]] = {
    "__init__": _init_exception,
    "__str__": lambda tx, owner, args: tx.errors.exception_text(owner, "s"),
    "__repr__": lambda tx, owner, args: tx.errors.exception_text(owner, "r"),
}


def _exception_method(
    tx: Tracer, owner: VariableTracker, name: str, args: list[VariableTracker]
) -> VariableTracker:
    method = _OF_EXCEPTIONS.get(name)
    if method is None or not isinstance(owner, ObjectVariable):
        unsupported("exception_handling", f"{owner.describe()}.{name}()")
    return method(tx, owner, args)
