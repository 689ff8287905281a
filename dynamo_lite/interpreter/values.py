"""From Python values to trackers and back, for the evaluator.

Invariant: a value from outside gets its tracker, and its guards, at the moment when the program first looks at it.
"""
from __future__ import annotations

import collections
import functools
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from .._eval_frame import CompiledFunction
from .._guards import clone_table
from ..exc import Unsupported
from ..guards.source import AttrSource, ConstSource, FrozenSource, SlotSource, Source
from ..rules.table import Decision, Level, Rule, decide, home, is_torch_builtin
from ..rules.trace_rules import is_library
from ..variables import equality as equality  # likewise
from ..variables.base import LazyVariable, VariableTracker, realized, unsupported
from ..variables.cells import CellVariable, new_cell
from ..variables.constant import ConstantVariable, constant_variable, is_constant_value
from ..variables.containers import builtin_iteration as builtin_iteration  # likewise
from ..variables.containers import outer_iterators as outer_iterators  # likewise
from ..variables.containers.deques import DequeVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import ListVariable, NamedTupleVariable, TupleVariable, is_named_tuple
from ..variables.containers.sets import SetVariable
from ..variables.deferred_calls import AskedFunctionVariable, LaterFunctionVariable
from ..variables.functions import compiled_functions as compiled_functions  # likewise
from ..variables.functions import introspected as introspected  # likewise
from ..variables.functions.builtins import BuiltinVariable
from ..variables.functions.cached import CachedFunctionVariable
from ..variables.functions.disabled import disabled_function
from ..variables.functions.functions import FunctionVariable, MethodVariable, user_function
from ..variables.numbers.ranges import RangeVariable, SliceVariable
from ..variables.numbers.scalars import ScalarVariable
from ..variables.objects import thread_locals as thread_locals  # likewise
from ..variables.objects.classes import ClassVariable, class_attribute_source, is_in_stand_in, is_stand_in
from ..variables.objects.native_enums import NativeEnumVariable, is_native_enum
from ..variables.tensors import inputs as inputs  # for what it registers
from ..variables.torch_api import branches as branches  # for what it registers
from ..variables.torch_api import optimizers as optimizers  # likewise
from ..variables.torch_api import transforms as transforms  # likewise
from ..variables.torch_api.modules import (
    ConstantCallVariable,
    FoldedFunctionVariable,
    OpaqueVariable,
    PythonModuleVariable,
    SkippedFunctionVariable,
    SubstitutedFunctionVariable,
)
from ..variables.torch_api.torch_functions import TorchFunctionVariable
from .part import Part

_BUILTIN_CALLABLES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
_OPAQUE = (types.GenericAlias, re.Pattern, re.Match, types.UnionType, types.CodeType, property,
    types.GetSetDescriptorType,
           types.MemberDescriptorType)


class Values(Part):
    """From Python values to trackers and back; a part of the tracer."""

    def wrap_at(self, value: Any, source: Source) -> VariableTracker:
        """The value at a source, not looked at yet; every attribute that a class has comes by here."""
        if is_in_stand_in(source):
            return self.tx.output.effects.tracker_of(value) or self.from_result(value, source.name)
        return LazyVariable(value, source)

    def _stood_for(self, value: Any) -> VariableTracker | None:
        """What the trace has made and `value`, a part of a class that it makes, stands for; None for real values."""
        known = self.tx.output.effects.tracker_of(value)
        return known if known is not None and known.source is None and not known.is_constant() else None

    def wrap_now(self, value: Any, source: Source) -> VariableTracker:
        """The value at a source, looked at."""
        return self.tx.output.wrap(self.tx, value, source)

    def wrap_slot(self, source: Source, cls: type, value: Any, name: str) -> VariableTracker:
        """A member that a builtin object stores, such as ``slice.start``."""
        return realized(self.tx, LazyVariable(getattr(value, name), SlotSource(source, cls.__dict__[name])))

    def wrap_cell(self, cell: types.CellType, source: Source, name: str) -> CellVariable:
        """The tracker of a real cell, one per cell."""
        known = self.tx.output.effects.tracker_of(cell)
        if isinstance(known, CellVariable):
            if known.source is not None and known.source != source:
                self.tx.guard(source, "tensor_same", known.source)
            return known
        variable = new_cell(self.tx, cell, source, name)
        self.tx.output.effects.track(cell, variable)
        return variable

    def wrap_function(self, value: types.FunctionType, source: Source, trusted: bool = False) -> VariableTracker:
        """A Python function: one to inline, one for the graph, or one to call in plain Python.

        Args:
            trusted: whether the identity of the function at the source is guarded already.
        """
        own = self._stood_for(value)
        if own is not None:
            return own
        decision = decide(value)
        if decision.rule is Rule.LOOKED_AT:
            return decision.calls(self.tx, value, source)  # type: ignore[misc]
        if decision.rule is Rule.INLINE:
            if not trusted:
                return user_function(self.tx, value, source)
            if not is_library(value.__module__):
                self.tx.guard(ConstSource(value, value.__qualname__), "code_is", value.__code__)
            return FunctionVariable(value, source)
        if not trusted and decision.kind == "disabled_function":
            return disabled_function(self.tx, value, source, decision.reason)
        if not trusted:
            self.tx.guard(source, "is", value)
        return self._by_rule(value, decision, source)

    def _by_rule(self, value: Any, decision: Decision, source: Source) -> VariableTracker:
        """A function that is not inlined, guarded by its identity."""
        rule = decision.rule
        below: Any = decision.calls
        if rule in (Rule.GRAPH, Rule.ELEMENTS) or rule is Rule.HANDLED and home(value).partition(".")[0] == "torch":
            return TorchFunctionVariable(value, source)
        if rule in (Rule.HANDLED, Rule.DRAWN):
            return BuiltinVariable(value, source)
        if rule is Rule.STAND_IN:
            return self.library_function(below)
        if rule is Rule.SUBSTITUTED:
            return self._traced_as(value, below, source)
        if rule is Rule.BELOW:
            return self.wrap_function(below, ConstSource(below, below.__qualname__), trusted=True)
        if rule is Rule.COMPILED:
            return realized(self.tx, self.wrap_at(below, AttrSource(source, "_torchdynamo_orig_callable")))
        if rule is Rule.FOLD:
            return FoldedFunctionVariable(value, decision.kind, decision.reason, source)
        if rule is Rule.LATER:
            return LaterFunctionVariable(value, decision.kind, decision.reason, source)
        if rule is Rule.ASKED:
            return AskedFunctionVariable(value, decision.kind, decision.reason, source)
        if rule is Rule.CONSTANT:
            return ConstantCallVariable(value, source)
        return SkippedFunctionVariable(value, decision.kind, decision.reason, source)

    def wrap_marked(self, value: Any, source: Source) -> VariableTracker | None:
        """A function written in C about which the user decided; None for everything else."""
        if not issubclass(type(value), _BUILTIN_CALLABLES):
            return None
        decision = decide(value)
        if decision.level is not Level.USER:
            return None
        self.tx.guard(source, "is", value)
        return self._by_rule(value, decision, source)

    def _traced_as(self, value: Any, traced: types.FunctionType, source: Source) -> VariableTracker:
        """A function whose calls are traced as calls of another one."""
        inner = self.wrap_function(traced, ConstSource(traced, traced.__qualname__), trusted=True)
        return SubstitutedFunctionVariable(value, inner, source)

    def wrap_class_part(self, value: Any, source: Source) -> VariableTracker:
        """What a class attribute wraps (the function of a property, classmethod or staticmethod).

        The attribute itself is guarded by identity with its class, which fixes the function inside.
        """
        if isinstance(value, types.FunctionType):
            held = ConstSource(value, getattr(value, "__qualname__", "function"))
            return self.wrap_function(value, held, trusted=True)
        return self._stood_for(value) or self.from_result(value, source.name)

    def bound_class_function(self, owner: VariableTracker, cls: type, name: str,
        value: types.FunctionType) -> VariableTracker:
        """A function that a class defines, bound to an instance."""
        source = class_attribute_source(cls, name)
        return MethodVariable(self.wrap_function(value, source, trusted=True), owner)

    def library_function(self, value: Callable[..., Any]) -> VariableTracker:
        """A function of the standard library or of ours to inline, which nobody replaces."""
        function: Any = value
        return FunctionVariable(function, ConstSource(function, function.__qualname__))

    def from_result(self, value: Any, what: str, source: Source | None = None) -> VariableTracker:
        """The tracker of a value that Python computed while tracing."""
        if is_constant_value(value):
            if type(value) is tuple:
                return TupleVariable([self.from_result(v, what) for v in value])
            if type(value) is frozenset:
                return SetVariable.known(value, {v: self.from_result(v, what) for v in value})
            return constant_variable(value, source)
        if isinstance(value, type):
            made = self.tx.output.effects.tracker_of(value) if is_stand_in(value) else None
            return made or ClassVariable(value, source)
        if isinstance(value, types.ModuleType):
            return PythonModuleVariable(value)
        if isinstance(value, torch.Size):
            return TupleVariable([ConstantVariable(n) for n in value], cls=torch.Size)
        if type(value) in (list, tuple) or is_named_tuple(type(value)):
            return self.new_sequence(type(value), [self.from_result(v, what) for v in value])
        if type(value) is dict:
            return self.new_dict({self.from_result(k, what): self.from_result(v, what) for k, v in value.items()})
        if type(value) in (set, frozenset):
            made = SetVariable.of(self.tx, [self.from_result(v, what) for v in value], type(value))
            return SetVariable.known(clone_table(value), made.members)
        if isinstance(value, range):
            return RangeVariable(value)
        if isinstance(value, slice):
            return SliceVariable([self.from_result(v, what) for v in (value.start, value.stop, value.step)])
        if is_torch_builtin(value):
            return TorchFunctionVariable(value)
        if isinstance(value, functools._lru_cache_wrapper):
            return CachedFunctionVariable(value)
        if isinstance(value, CompiledFunction):
            return self.wrap_at(value, ConstSource(value, value.__qualname__))  # as it is, unless it is called
        if isinstance(value, types.FunctionType):
            return self.wrap_function(value, ConstSource(value, value.__qualname__), trusted=True)
        if isinstance(value, types.MethodType):
            owner = self.from_result(value.__self__, what)
            return MethodVariable(self.from_result(value.__func__, what), owner)
        if isinstance(value, (classmethod, staticmethod)):
            return OpaqueVariable(value)
        if isinstance(value, _BUILTIN_CALLABLES):
            return BuiltinVariable(value)
        if isinstance(value, _OPAQUE) or type(value).__module__ == "typing":
            return OpaqueVariable(value)
        if isinstance(value, (torch.finfo, torch.iinfo)):
            return OpaqueVariable(value)
        if is_native_enum(value):
            return NativeEnumVariable(value)
        unsupported("unsupported_value", f"{what}: a {type(value).__qualname__}")

    def as_plain(self, value: VariableTracker) -> Any:
        """The Python value of a tracker made of constants, containers included."""
        value = self.tx.operators.with_number(value)
        if isinstance(value, SetVariable) and all(member.is_constant() for member in value.members.values()):
            return clone_table(value.real(self.tx)) if len(value.members) > 1 else value.cls(
                member.constant() for member in value.members.values())
        if value.is_constant():
            return value.constant()
        if isinstance(value, NamedTupleVariable) and hasattr(value.cls, "_fields"):
            return tuple.__new__(value.cls, [self.as_plain(item) for item in value.iterate(self.tx)])
        if isinstance(value, DequeVariable):
            return collections.deque((self.as_plain(item) for item in value.iterate(self.tx)), value.maxlen)
        if isinstance(value, (ListVariable, TupleVariable)):
            return value.cls([self.as_plain(item) for item in value.iterate(self.tx)])
        if isinstance(value, DictVariable):
            plain = {self.as_plain(k): self.as_plain(v) for k, v in zip(value.keys(), value.values(self.tx))}
            if value.cls is collections.defaultdict:
                factory = None if value.default_factory is None else self.as_plain(value.default_factory)
                return collections.defaultdict(factory, plain)
            return plain if value.cls is dict else value.cls(plain)
        if isinstance(value, SetVariable):
            return value.python_type()(self.as_plain(member) for member in value.members.values())
        if isinstance(value, ScalarVariable):
            value.refuse("the value")
        unsupported("unsupported_builtin", f"a builtin function on {value.describe()}")

    def frozen(self, value: Any) -> VariableTracker:
        """The tracker of an object that Python made while tracing and that nobody changes."""
        return self.wrap_now(value, FrozenSource(value, type(value).__name__))

    def real_function(self, value: VariableTracker) -> Any:
        """The real function or bound method behind a tracker, None if there is none."""
        if isinstance(value, FunctionVariable):
            return value.value
        if isinstance(value, MethodVariable):
            inner = self.real_function(value.function)
            return None if inner is None else types.MethodType(inner, object())
        return value.constant() if value.is_constant() else None

    def as_real(self, value: VariableTracker) -> Any:
        """The real object behind a tracker: a value from outside as it is, or a constant."""
        real = value.value
        return real if value.source is not None and real is not None else self.as_plain(value)

    def new_list(self, items: list[VariableTracker]) -> VariableTracker:
        return ListVariable(items)

    def new_tuple(self, items: list[VariableTracker]) -> VariableTracker:
        return TupleVariable(items)

    def new_size(self, items: list[VariableTracker]) -> VariableTracker:
        return TupleVariable(items, cls=torch.Size)

    def new_dict(self, entries: dict[VariableTracker, VariableTracker]) -> DictVariable:
        """A new dict of these keys and values."""
        result = DictVariable({})
        for key, value in entries.items():
            hashed = result.key_of(self.tx, key)
            old = result.items.get(hashed)
            result.items[hashed] = (old[0] if old is not None else key, value)
        return result

    def new_sequence(self, cls: type, items: list[VariableTracker]) -> VariableTracker:
        """A new sequence of a builtin class or a named tuple."""
        if cls is list:
            return ListVariable(items)
        if cls in (tuple, torch.Size):
            return TupleVariable(items, cls=cls)
        if is_named_tuple(cls):
            return NamedTupleVariable(items, None, cls)
        raise Unsupported("unsupported_value", f"a {cls.__qualname__} as result of an operation")


