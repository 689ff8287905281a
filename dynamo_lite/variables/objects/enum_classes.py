"""Enum classes: the methods of ``enum.EnumMeta``, as rows of the table of calls.

A derived metaclass may override these methods and call them. Invariant: lookups of members depend only on guarded data
and on code of the module enum; a ``_missing_`` of the program's is evaluated.
"""
from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from ...rules.table import handles
from ..base import ObservedException, VariableTracker, is_made_by_python, unsupported
from ..constant import ConstantVariable, is_constant_value
from ..containers.sequences import ListVariable
from .classes import IN_C, ClassVariable, class_attribute_source
from .enums import is_of_enum, makes_members_plainly

if TYPE_CHECKING:
    from ..protocols import Tracer

_META: Any = enum.EnumMeta
_NEW: Any = enum.Enum.__new__


def _members(tx: Tracer, cls: VariableTracker) -> Any:
    """The real enum class, which has members; breaks the graph otherwise."""
    real = _enum(tx, cls)
    if not real._member_map_:
        unsupported("unsupported_builtin", f"making an enum of {cls.describe()}")
    return real


def _enum(tx: Tracer, cls: VariableTracker) -> Any:
    """The real enum class; breaks the graph if its metaclass overrides attribute lookup, which enum's methods use."""
    real = cls.value
    if not isinstance(cls, ClassVariable) or not isinstance(real, enum.EnumMeta):
        unsupported("unsupported_builtin", f"a method of EnumMeta on {cls.describe()}")
    if type(real) is not _META and not isinstance(tx.classes.lookup(type(real), "__getattribute__"), IN_C):
        unsupported("unsupported_attribute", f"attributes of {cls.describe()}, which its metaclass looks up")
    return real


@handles(_META.__call__)
def _call(tx: Tracer, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """cls(value) (Lib/enum.py, Enum.__new__)."""
    if len(args) != 1 or kwargs:
        unsupported("unsupported_builtin", f"making the enum {cls.describe()}")
    real = _members(tx, cls)
    new = tx.classes.lookup(real, "__new__")
    if getattr(new, "__func__", new) is not _NEW:
        unsupported("unsupported_builtin", f"{cls.describe()}(), whose __new__ is not enum's")
    value = args[0]
    if value.python_type() is real:
        return value
    plain = tx.values.as_plain(value)
    found = _found(tx, real, plain)
    if found is not None:
        return tx.values.from_result(found, "enum member")
    missing = tx.classes.lookup(real, "_missing_")
    if makes_members_plainly(tx, real):
        return tx.values.from_result(tx.run_python(_META.__call__, real, plain), "enum member")
    if isinstance(missing, classmethod) and is_of_enum(missing.__func__):
        unsupported("unsupported_builtin", f"{cls.describe()}(), of a metaclass that tells its members")
    tx.guard(class_attribute_source(real, "_value2member_map_"), "dict_lacks", plain)
    try:
        made = tx.call_method(cls, "_missing_", [value])
    except ObservedException as error:
        if issubclass(error.value.python_type(), ValueError) or not issubclass(error.value.python_type(), Exception):
            raise
        unsupported("exception_handling", f"what {cls.describe()}._missing_() raises, which gets a context")
    if made.is_none():
        tx.raise_error(ValueError, f"{plain!r} is not a valid {real.__qualname__}")
    if real not in made.python_type().__mro__:
        unsupported("unsupported_builtin", f"{cls.describe()}._missing_(), which has given {made.describe()}")
    return made


def _found(tx: Tracer, real: Any, plain: Any) -> Any:
    """The member with a given value; None if there is none."""
    values = real._value2member_map_
    if tx.output.effects.is_tracked(values):
        unsupported("unsupported_builtin", f"a member of {real.__qualname__}, whose dict of values has been looked at")
    try:
        hash(plain)
    except TypeError:
        unsupported("unsupported_builtin", f"a member of {real.__qualname__} with a value that can't be hashed")
    if any(is_made_by_python(type(value)) and not is_constant_value(value) for value in values):
        unsupported("unsupported_builtin", f"a member of {real.__qualname__}, some of whose values compare themselves")
    return values.get(plain)


@handles(_META.__getitem__)
def _getitem(tx: Tracer, cls: VariableTracker, name: VariableTracker) -> VariableTracker:
    member = tx.run_python(_META.__getitem__, _members(tx, cls), tx.values.as_plain(name))
    return tx.values.from_result(member, "enum member")


@handles(_META.__len__)
def _len(tx: Tracer, cls: VariableTracker) -> VariableTracker:
    return ConstantVariable(len(list(_META.__iter__(_enum(tx, cls)))))


@handles(_META.__iter__)
def _iter(tx: Tracer, cls: VariableTracker) -> VariableTracker:
    members = [tx.values.from_result(member, "enum member") for member in _META.__iter__(_enum(tx, cls))]
    return ListVariable(members).iterator(tx)


@handles(_META.__contains__)
def _contains(tx: Tracer, cls: VariableTracker, value: VariableTracker) -> VariableTracker:
    real = _enum(tx, cls)
    if tx.checks.asks_metaclass(real, "__instancecheck__"):
        unsupported("unsupported_operator", f"`in` of {cls.describe()}, whose metaclass tells its instances")
    return ConstantVariable(tx.run_python(_META.__contains__, real, tx.values.as_plain(value)))
