"""Introspection of functions and classes: signatures, type hints, subclasses, names.

Invariant: a result that Python computes while tracing is guarded, either by guards on the data from which it was
computed or by computing it again; for functions and classes that the traced program makes, only their given parts are
used.
"""
from __future__ import annotations

import _abc
import abc
import inspect
import pickle
import types
import typing
import weakref
from typing import TYPE_CHECKING, Any

from ...guards.source import DictItemSource, FunctionPartSource, Source
from ...rules.table import handles
from ..annotations import require_computed
from ..base import MISSING, VariableTracker, unsupported
from ..constant import ConstantVariable
from ..containers.mappings import DictVariable
from ..containers.sequences import ListVariable, TupleVariable
from ..objects.classes import ClassVariable, class_attribute_source, is_stand_in
from .functions import FunctionVariable, MethodVariable, NestedFunctionVariable

if TYPE_CHECKING:
    from ..protocols import Tracer


@handles(inspect.signature)
def _signature(tx: Tracer, obj: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if isinstance(obj, NestedFunctionVariable) and obj.stands_for is None and not kwargs:
        return tx.values.frozen(tx.run_python(inspect.signature, _like_nested(tx, obj)))
    real = tx.values.real_function(obj)
    if real is None or kwargs:
        unsupported("unsupported_builtin", f"inspect.signature of {obj.describe()}")
    inner = obj.function if isinstance(obj, MethodVariable) else obj
    if isinstance(inner, FunctionVariable):
        require_computed(inner.value, f"inspect.signature of {obj.describe()}")
        if inner.function_source is not None:
            _guard_signature(tx, inner.value, inner.function_source)
    return tx.values.frozen(tx.run_python(inspect.signature, real))


@handles(inspect.getattr_static)
def _getattr_static(
    tx: Tracer, obj: VariableTracker, attr: VariableTracker, default: VariableTracker | None = None
) -> VariableTracker:
    """inspect.getattr_static(cls, attr): the attribute of a class or its metaclass, without binding it."""
    if not isinstance(obj, ClassVariable) or not isinstance(attr, ConstantVariable):
        unsupported("unsupported_builtin", f"inspect.getattr_static of {obj.describe()}")
    cls, looked_up = obj.value, attr.constant()
    for holder in (cls, type(cls)):
        if tx.output.effects.class_attribute(holder, looked_up) is None:
            attribute = tx.classes.lookup(holder, looked_up, MISSING)
            if attribute is not MISSING:
                return tx.values.wrap_class_part(attribute, class_attribute_source(holder, looked_up))
        else:
            what = f"inspect.getattr_static of {obj.describe()}.{looked_up}, which is set"
            unsupported("unsupported_builtin", what)
    if default is None:
        tx.raise_error(AttributeError, looked_up)
    return default


def _guard_signature(tx: Tracer, function: Any, source: Source) -> None:
    """Guards the parts of a function that inspect.signature reads."""
    own = FunctionPartSource(source, "__dict__")
    tx.guard(source, "code_is", function.__code__)
    tx.guard(FunctionPartSource(source, "__defaults__"), "is", function.__defaults__)
    named = FunctionPartSource(source, "__kwdefaults__")
    if function.__kwdefaults__:
        tx.guard(named, "dict_keys", tuple(function.__kwdefaults__))
        for name, value in function.__kwdefaults__.items():
            tx.guard(DictItemSource(named, name), "is", value)
    else:
        tx.guard(named, "is", function.__kwdefaults__)
    if "__signature__" in function.__dict__:
        unsupported("unsupported_builtin", f"inspect.signature of {source.name}, which has a __signature__")
    tx.guard(own, "dict_lacks", "__signature__")
    wrapped = function.__dict__.get("__wrapped__")
    if wrapped is None:
        tx.guard(own, "dict_lacks", "__wrapped__")
    elif isinstance(wrapped, types.FunctionType):
        require_computed(wrapped, f"inspect.signature of {source.name}")
        _guard_signature(tx, wrapped, DictItemSource(own, "__wrapped__"))
    else:
        unsupported("unsupported_builtin", f"inspect.signature of {source.name}, which wraps no plain function")


def _like_nested(tx: Tracer, function: NestedFunctionVariable) -> types.FunctionType:
    """A real function with the same parameters as one that the traced program made."""
    if function.annotations is not None or function.annotate is not None or function.getattr(tx, "__dict__").truth(tx):
        unsupported("unsupported_builtin", f"inspect.signature of {function.describe()}")
    code = function.code()
    cells = tuple(types.CellType() for _ in code.co_freevars)
    defaults = tuple(tx.values.as_plain(v) for v in function.defaults(tx))
    made = types.FunctionType(code, {}, code.co_name, defaults, cells)
    made.__kwdefaults__ = {k: tx.values.as_plain(v) for k, v in function.keyword_defaults(tx).items()}
    return made


# ---------------------------------------------------------------- type hints
@handles(typing.get_type_hints)
def _type_hints(tx: Tracer, obj: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    inner = obj.function if isinstance(obj, MethodVariable) else obj
    if kwargs or not isinstance(inner, (FunctionVariable, ClassVariable)) or is_changed(tx, inner):
        unsupported("unsupported_builtin", f"typing.get_type_hints() of {obj.describe()}")
    for owner in inner.value.__mro__ if isinstance(inner, ClassVariable) else (inner.value,):
        require_computed(owner, f"typing.get_type_hints() of {obj.describe()}")
    hints = tx.run_python(typing.get_type_hints, inner.value)
    if isinstance(inner, FunctionVariable) and inner.source is not None:
        tx.guard(inner.source, "is", inner.real)
    tx.guard_result(typing.get_type_hints, (inner.value,), hints)
    return tx.values.from_result(hints, f"the type hints of {inner.describe()}")


# ---------------------------------------------------------------- classes
def is_changed(tx: Tracer, owner: VariableTracker) -> bool:
    """Whether the trace has set attributes of a function or class, or made the class."""
    if isinstance(owner, ClassVariable) and (is_stand_in(owner.value) or tx.output.effects.sets_class_attributes()):
        return True
    return bool(tx.output.effects.attributes_of(owner))


def subclasses(cls: type) -> list[weakref.ref[type]]:
    """Weak references to the existing subclasses, so that a guard on them does not keep them alive."""
    found: list[type] = type.__subclasses__(cls)
    return [weakref.ref(sub) for sub in found]


@handles(type.__subclasses__, bound=True)
def _subclasses(tx: Tracer, owner: VariableTracker) -> VariableTracker:
    if not isinstance(owner, ClassVariable):
        unsupported("unsupported_builtin", f"type.__subclasses__() of {owner.describe()}")
    cls = owner.value
    found: list[type] = type.__subclasses__(cls)
    if is_stand_in(cls) or any(map(is_stand_in, found)):
        unsupported("class_definition", f"{cls.__qualname__}.__subclasses__(), with classes that the program makes")
    tx.guard_result(subclasses, (cls,), subclasses(cls))
    return tx.values.from_result(found, "the subclasses of a class")


@handles(_abc._abc_instancecheck)
def _abstract_instance(tx: Tracer, cls: VariableTracker, value: VariableTracker) -> VariableTracker:
    """ABCMeta.__instancecheck__, which metaclasses of users call through super()."""
    kinds = [value.python_type(), *tx.checks.classes_it_names(value)]
    return ConstantVariable(any(_is_abstract_subclass(tx, cls, kind) for kind in kinds))


@handles(_abc._abc_subclasscheck)
def _abstract_subclass(tx: Tracer, cls: VariableTracker, sub: VariableTracker) -> VariableTracker:
    if not isinstance(sub, ClassVariable):
        tx.raise_error(TypeError, "issubclass() arg 1 must be a class")
    return ConstantVariable(_is_abstract_subclass(tx, cls, sub.value))


def _is_abstract_subclass(tx: Tracer, cls: VariableTracker, kind: type) -> bool:
    """ABCMeta's subclass check, by the bases of a class, its registration and ``__subclasshook__``."""
    if not isinstance(cls, ClassVariable) or is_stand_in(cls.value):
        unsupported("unsupported_builtin", f"an instance check of {cls.describe()}")
    check = tx.classes.lookup(type(cls.value), "__subclasscheck__")
    if check is not abc.ABCMeta.__subclasscheck__:
        unsupported("unsupported_builtin", f"an instance check of {cls.describe()}, whose metaclass has its own")
    tx.classes.guard_mro(kind)
    return bool(tx.checks.is_subclass(kind, cls.value))


# ---------------------------------------------------------------- as bytes
@handles(pickle.dumps)
def _pickled(tx: Tracer, obj: VariableTracker, *args: VariableTracker) -> VariableTracker:
    """The bytes of a flat container of numbers and texts, as keys of caches are made of arguments. Texts are pickled
    once for each object, so that equal ones in it must not stand in it."""
    plain: Any = tx.values.as_plain(obj) if type(obj) in (DictVariable, ListVariable, TupleVariable) else None
    if type(plain) not in (dict, list, tuple) or not all(a.is_constant() for a in args):
        unsupported("call_skipped", "_pickle.dumps()")
    parts = [*plain, *plain.values()] if isinstance(plain, dict) else plain
    texts = [part for part in parts if type(part) in (str, bytes)]
    if len(set(texts)) < len(texts) or not all(type(p) in (int, float, bool, type(None), str, bytes) for p in parts):
        unsupported("call_skipped", f"_pickle.dumps() of {obj.describe()}")
    return ConstantVariable(tx.run_python(pickle.dumps, plain, *(a.constant() for a in args)))


@handles(dir)
def _dir(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    if not args:
        unsupported("dynamic_code", "dir()")
    owner = args[0]
    if not isinstance(owner, ClassVariable) or tx.classes.lookup(type(owner.value), "__dir__") is not type.__dict__[
            "__dir__"] or is_changed(tx, owner):
        unsupported("call_skipped", f"dir() of {owner.describe()}")
    names = dir(owner.value)
    tx.guard_result(dir, (owner.value,), names)
    return tx.values.from_result(names, "the names of a class")
