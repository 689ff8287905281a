"""Makers of trackers for values that Python computed during tracing: one for each type, found by the value's class.

A maker is registered for types (and their subclasses), or for values that pass a test where the type doesn't decide.
Invariant: a maker returns the tracker that the evaluator would have made if the traced program had made the value.
"""
from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from .._eval_frame import CompiledFunction
from .._guards import clone_table
from ..guards.source import ConstSource
from ..rules.class_table import ClassTable
from ..rules.table import is_torch_builtin
from ..variables.base import VariableTracker
from ..variables.constant import ConstantVariable
from ..variables.containers.sequences import TupleVariable, is_named_tuple
from ..variables.containers.sets import SetVariable
from ..variables.functions.builtins import BuiltinVariable
from ..variables.functions.cached import CachedFunctionVariable
from ..variables.functions.functions import MethodVariable
from ..variables.numbers.ranges import RangeVariable, SliceVariable
from ..variables.numbers.scalars import is_unknown
from ..variables.numbers.symbolic_ints import size_variable
from ..variables.objects.native_enums import NativeEnumVariable, is_native_enum
from ..variables.torch_api.modules import OpaqueVariable, PythonModuleVariable
from ..variables.torch_api.overrides import TensorGetterVariable
from ..variables.torch_api.torch_functions import TorchFunctionVariable

# Arguments of a maker: the tracer's `Values`, the value, a description of it in words.
Maker = Callable[[Any, Any, str], VariableTracker]
_BY_CLASS: ClassTable[Maker] = ClassTable("made")
# Registers a maker for values of these classes.
makes = _BY_CLASS.register
_BY_TEST: list[tuple[Callable[[Any], bool], Maker]] = []


def maker_of(value: Any) -> Maker | None:
    """The maker for a value that is neither a constant nor a class; None if there is none."""
    for test, maker in _BY_TEST:
        if test(value):
            return maker
    cls = type(value)
    rows = _BY_CLASS.rows
    return next((rows[base] for base in cls.__mro__ if base in rows and (base is cls or base not in _EXACT)), None)


def makes_if(test: Callable[[Any], bool]) -> Callable[[Maker], Maker]:
    """Registers a maker for values that pass a test; tests run in the order of registration."""

    def register(maker: Maker) -> Maker:
        _BY_TEST.append((test, maker))
        return maker

    return register


# An instance of a subclass of these is a user-defined object, for which their makers don't apply.
_EXACT = frozenset({list, tuple, dict, set, frozenset})


@makes_if(is_torch_builtin)
def _torch_function(values: Any, value: Any, what: str) -> VariableTracker:
    return TorchFunctionVariable(value)


@makes_if(lambda value: isinstance(value, types.MethodWrapperType)
          and isinstance(value.__self__, types.GetSetDescriptorType))
def _getter(values: Any, value: Any, what: str) -> VariableTracker:
    return TensorGetterVariable(value)


@makes_if(lambda value: is_named_tuple(type(value)))
@makes(list, tuple)
def _sequence(values: Any, value: Any, what: str) -> VariableTracker:
    made: VariableTracker = values.new_sequence(type(value), [values.from_result(v, what) for v in value])
    return made


@makes(dict)
def _dict(values: Any, value: dict[Any, Any], what: str) -> VariableTracker:
    entries = {values.from_result(k, what): values.from_result(v, what) for k, v in value.items()}
    made: VariableTracker = values.new_dict(entries)
    return made


@makes(set, frozenset)
def _set(values: Any, value: Any, what: str) -> VariableTracker:
    made = SetVariable.of(values.tx, [values.from_result(v, what) for v in value], type(value))
    return SetVariable.known(clone_table(value), made.members)


@makes(torch.Size)
def _size(values: Any, value: torch.Size, what: str) -> VariableTracker:
    return TupleVariable([values.from_result(n, what) for n in value], cls=torch.Size)


@makes_if(lambda value: is_unknown(value) and value.node.tracker is not None)
def _number_of_the_graph(values: Any, value: Any, what: str) -> VariableTracker:
    number: VariableTracker = value.node.tracker
    return number


@makes(torch.SymInt)
def _symbolic_int(values: Any, value: torch.SymInt, what: str) -> VariableTracker:
    return size_variable(value, values.tx.output)


@makes(torch.SymBool)
def _symbolic_bool(values: Any, value: torch.SymBool, what: str) -> VariableTracker:
    return ConstantVariable(bool(value))


@makes(types.ModuleType)
def _module(values: Any, value: types.ModuleType, what: str) -> VariableTracker:
    return PythonModuleVariable(value)


@makes(range)
def _range(values: Any, value: range, what: str) -> VariableTracker:
    return RangeVariable(value)


@makes(slice)
def _slice(values: Any, value: slice, what: str) -> VariableTracker:
    return SliceVariable([values.from_result(v, what) for v in (value.start, value.stop, value.step)])


@makes(functools._lru_cache_wrapper)
def _cached(values: Any, value: Any, what: str) -> VariableTracker:
    return CachedFunctionVariable(value)


@makes(CompiledFunction)
def _compiled(values: Any, value: Any, what: str) -> VariableTracker:
    # The compiled function itself; it is unwrapped only if it is called.
    made: VariableTracker = values.wrap_at(value, ConstSource(value, value.__qualname__))
    return made


@makes(types.FunctionType)
def _function(values: Any, value: types.FunctionType, what: str) -> VariableTracker:
    made: VariableTracker = values.wrap_function(value, ConstSource(value, value.__qualname__), trusted=True)
    return made


@makes(types.MethodType)
def _method(values: Any, value: types.MethodType, what: str) -> VariableTracker:
    owner = values.from_result(value.__self__, what)
    return MethodVariable(values.from_result(value.__func__, what), owner)


BUILTIN_CALLABLES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)


@makes(*BUILTIN_CALLABLES)
def _builtin(values: Any, value: Any, what: str) -> VariableTracker:
    return BuiltinVariable(value)


@makes_if(lambda value: type(value).__module__ == "typing")
@makes(classmethod, staticmethod, types.GenericAlias, re.Pattern, re.Match, types.UnionType, types.CodeType, property,
       types.GetSetDescriptorType, types.MemberDescriptorType, torch.finfo, torch.iinfo)
def _opaque(values: Any, value: Any, what: str) -> VariableTracker:
    return OpaqueVariable(value)


@makes_if(is_native_enum)
def _native_enum(values: Any, value: Any, what: str) -> VariableTracker:
    return NativeEnumVariable(value)
