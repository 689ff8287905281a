"""The results of ``isinstance`` and ``issubclass``; a part of the translator.

Invariant: an answer by a class's bases is guarded by these, one by a metaclass's method evaluates that method, and that
a metaclass of the user's defines none is guarded, too.
"""
from __future__ import annotations

import abc
import types
import typing
from typing import Any

import torch

from ..guards.source import ConstSource
from ..rules.trace_rules import is_library
from ..variables.base import VariableTracker, unsupported
from ..variables.objects.objects import ObjectVariable
from ..variables.tensors.tensor import TensorVariable
from .part import Part


class ClassChecks(Part):
    """isinstance and issubclass; a part of the tracer."""

    def is_instance(self, value: VariableTracker, classes: VariableTracker) -> bool:
        """isinstance(value, classes) (Objects/abstract.c, object_recursive_isinstance)."""
        tx = self.tx
        plain = tx.values.as_plain(classes)
        cls = value.python_type()
        tx.classes.guard_mro(cls)
        return any(self._is_instance_of(value, cls, candidate) for candidate in _flatten_classes(plain))

    def _is_instance_of(self, value: VariableTracker, cls: type, candidate: Any) -> bool:
        tx = self.tx
        hook = self._hook(candidate, "__instancecheck__")
        if hook is not None and cls is candidate:
            return True  # __instancecheck__ isn't called then
        if hook is None and isinstance(value, TensorVariable):
            return self._tensor_is(value, candidate)
        checks = any("__instancecheck__" in vars(c) for c in type(candidate).__mro__)
        if not (checks or isinstance(candidate, type) or hasattr(candidate, "__bases__")):
            tx.raise_error(TypeError, "isinstance() arg 2 must be a type, a tuple of types, or a union")
        if hook is not None:
            return self._ask(candidate, "__instancecheck__", hook, value)
        check = getattr(type(candidate), "__instancecheck__", None)
        if _may_refuse(candidate, check):
            tx.run_python(isinstance, None, candidate)
        plain_check = type(candidate).__module__.startswith(("abc", "typing", "enum"))
        if isinstance(check, types.FunctionType) and not plain_check:
            if isinstance(value, ObjectVariable) and value.value is not None:
                return bool(tx.run_python(isinstance, value.value, candidate))
            if value.is_constant():
                return bool(tx.run_python(isinstance, value.example(), candidate))
        kinds = [cls, *self.classes_it_names(value)]
        by_bases = check is type.__dict__["__instancecheck__"]
        found = any(candidate in kind.__mro__ if by_bases else self.is_subclass(kind, candidate) for kind in kinds)
        return found or getattr(candidate, "_is_protocol", False) is True and self._has_members(value, candidate)

    def _has_members(self, value: VariableTracker, protocol: Any) -> bool:
        """Whether an object has the attributes of a protocol that its class lacks."""
        if value.is_constant():
            return bool(self.tx.run_python(isinstance, value.constant(), protocol))
        if isinstance(value, ObjectVariable):
            for name in typing._get_protocol_attrs(protocol):  # type: ignore[attr-defined]
                if value.own_attribute(self.tx, name) is not None:
                    unsupported("unsupported_builtin", f"isinstance() with the protocol {protocol.__qualname__}, of "
                                f"which {value.describe()} has a member by itself")
        return False

    def classes_it_names(self, value: VariableTracker) -> list[type]:
        """The value of ``__class__`` of an object whose class defines it (Objects/abstract.c, object_isinstance)."""
        if not isinstance(value, ObjectVariable) or not value.may_name_another_class(self.tx):
            return []
        named = value.getattr(self.tx, "__class__")
        return [named.constant()] if named.is_constant() and isinstance(named.constant(), type) else []

    def is_subclass(self, cls: type, candidate: Any) -> bool:
        """issubclass(cls, candidate), guarded where classes may be registered as virtual subclasses."""
        tx = self.tx
        hook = self._hook(candidate, "__subclasscheck__")
        if hook is not None:
            return self._ask(candidate, "__subclasscheck__", hook, tx.values.from_result(cls, "class"))
        if isinstance(candidate, abc.ABCMeta) and candidate not in cls.__mro__:
            token = abc.get_cache_token()
            tx.guard(ConstSource(abc, "abc"), "callable_eq", abc.get_cache_token, (), token)
        return bool(tx.run_python(issubclass, cls, candidate))

    def asks_metaclass(self, candidate: Any, name: str) -> bool:
        """Whether the user's metaclass of a class defines this check; guarded."""
        return self._hook(candidate, name) is not None

    def _hook(self, candidate: Any, name: str) -> types.FunctionType | None:
        """The method of the user's metaclass that decides the check; if there is none, that is guarded."""
        tx = self.tx
        meta = type(candidate)
        if meta is type or is_library(meta.__module__):
            return None
        hook = tx.classes.special(meta, name)
        return hook if isinstance(hook, types.FunctionType) and not is_library(hook.__module__) else None

    def _ask(self, candidate: Any, name: str, hook: types.FunctionType, value: VariableTracker) -> bool:
        tx = self.tx
        meta = tx.values.from_result(candidate, "class")
        return bool(tx.truth(tx.classes.call_attribute(meta, type(candidate), name, hook, [value], {})))

    def _tensor_is(self, value: TensorVariable, candidate: Any) -> bool:
        tx = self.tx
        if candidate is torch.nn.Parameter:
            return issubclass(value.cls, torch.nn.Parameter)
        if candidate is torch.nn.Buffer:
            return value.value is not None and getattr(value.value, "_is_buffer", False)
        if isinstance(candidate, type) and candidate.__module__ == "torch" and candidate.__name__.endswith("Tensor"):
            example = torch.empty(0, dtype=value.fake.dtype)
            return candidate is torch.Tensor or bool(tx.run_python(isinstance, example, candidate))
        if isinstance(candidate, type) and type(candidate).__instancecheck__ is type.__instancecheck__:
            return any(candidate is base for base in value.cls.__mro__)
        return bool(tx.run_python(issubclass, value.cls, candidate))


def _may_refuse(candidate: Any, check: Any) -> bool:
    """Whether isinstance() may raise TypeError for a class argument of this kind, for any object."""
    return isinstance(candidate, types.GenericAlias) or (
        isinstance(check, types.FunctionType) and check.__module__ == "typing")


def _flatten_classes(classes: Any) -> list[Any]:
    if isinstance(classes, tuple):
        return [c for element in classes for c in _flatten_classes(element)]
    if isinstance(classes, types.UnionType):
        return list(classes.__args__)
    return [classes]


