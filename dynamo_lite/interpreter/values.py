"""Conversion of Python values to trackers and back, for the evaluator.

Invariant: a value from outside gets its tracker, and its guards, at the moment when the program first looks at it.
"""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from ..exc import Unsupported
from ..guards.source import AttrSource, ConstSource, FrozenSource, SlotSource, Source
from ..rules.table import Decision, Level, Rule, decide, home
from ..rules.trace_rules import is_library
from ..variables import registrations as registrations
from ..variables.base import LazyVariable, VariableTracker, realized, unsupported
from ..variables.cells import CellVariable, new_cell
from ..variables.constant import is_constant_value
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import ListVariable, NamedTupleVariable, TupleVariable, is_named_tuple
from ..variables.containers.sets import SetVariable
from ..variables.deferred_calls import AskedFunctionVariable, DeferredFunctionVariable
from ..variables.functions.builtins import BuiltinVariable
from ..variables.functions.disabled import disabled_function
from ..variables.functions.functions import FunctionVariable, MethodVariable, user_function
from ..variables.objects.classes import ClassVariable, class_attribute_source, is_in_stand_in, is_stand_in
from ..variables.objects.enums import constant_variable
from ..variables.torch_api.modules import (
    ConstantCallVariable,
    FoldedFunctionVariable,
    SkippedFunctionVariable,
    SubstitutedFunctionVariable,
)
from ..variables.torch_api.torch_functions import TorchFunctionVariable
from .part import Part
from .results import BUILTIN_CALLABLES, maker_of


class Values(Part):
    """From Python values to trackers and back; a part of the tracer."""

    def wrap_at(self, value: Any, source: Source) -> VariableTracker:
        """A lazy tracker of the value at a source; every attribute of a class is wrapped here."""
        if is_in_stand_in(source):
            return self.tx.output.effects.tracker_of(value) or self.from_result(value, source.name)
        return LazyVariable(value, source)

    def _stood_for(self, value: Any) -> VariableTracker | None:
        """The tracker for which `value`, a part of a class made in the trace, stands; None for real values."""
        known = self.tx.output.effects.tracker_of(value)
        return known if known is not None and known.source is None and not known.is_constant() else None

    def wrap_now(self, value: Any, source: Source) -> VariableTracker:
        """The realized tracker of the value at a source."""
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
            return decision.calls(self.tx, value, source)
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
        return _BY_RULE.get(decision.rule, _skipped)(self, value, decision, source)

    def wrap_marked(self, value: Any, source: Source) -> VariableTracker | None:
        """A function written in C about which the user decided; None for everything else."""
        if not issubclass(type(value), BUILTIN_CALLABLES):
            return None
        decision = decide(value)
        if decision.level is not Level.USER:
            return None
        self.tx.guard(source, "is", value)
        return self._by_rule(value, decision, source)

    def traced_as(self, value: Any, traced: types.FunctionType, source: Source) -> VariableTracker:
        """A function whose calls are traced as calls of another one."""
        inner = self.wrap_function(traced, ConstSource(traced, traced.__qualname__), trusted=True)
        return SubstitutedFunctionVariable(value, inner, source)

    def wrap_class_part(self, value: Any, source: Source) -> VariableTracker:
        """The function that a class attribute (a property, classmethod or staticmethod) wraps.

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
        """A function of the standard library or of dynamo_lite, to be inlined; nobody replaces it."""
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
        maker = maker_of(value)
        if maker is not None:
            return maker(self, value, what)
        unsupported("unsupported_value", f"{what}: a {type(value).__qualname__}")

    def as_plain(self, value: VariableTracker) -> Any:
        """The Python value of a tracker made of constants, containers included."""
        value = self.tx.operators.with_number(value)
        return value.to_plain(self.tx)

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


# ---------------------------------------------------------------- functions by their rule
def _skipped(values: Values, value: Any, decision: Decision, source: Source) -> VariableTracker:
    return SkippedFunctionVariable(value, decision.kind, decision.reason, source)


def _handled(values: Values, value: Any, decision: Decision, source: Source) -> VariableTracker:
    cls = TorchFunctionVariable if home(value).partition(".")[0] == "torch" else BuiltinVariable
    return cls(value, source)


def _below(values: Values, value: Any, decision: Decision, source: Source) -> VariableTracker:
    below = decision.calls
    return values.wrap_function(below, ConstSource(below, below.__qualname__), trusted=True)


def _compiled(values: Values, value: Any, decision: Decision, source: Source) -> VariableTracker:
    return realized(values.tx, values.wrap_at(decision.calls, AttrSource(source, "_torchdynamo_orig_callable")))


_BY_RULE: dict[Rule, Callable[[Values, Any, Decision, Source], VariableTracker]] = {
    Rule.GRAPH: lambda values, value, decision, source: TorchFunctionVariable(value, source),
    Rule.ELEMENTS: lambda values, value, decision, source: TorchFunctionVariable(value, source),
    Rule.HANDLED: _handled,
    Rule.RANDOM: lambda values, value, decision, source: BuiltinVariable(value, source),
    Rule.STAND_IN: lambda values, value, decision, source: values.library_function(decision.calls),
    Rule.SUBSTITUTED: lambda values, value, decision, source: values.traced_as(value, decision.calls, source),
    Rule.BELOW: _below,
    Rule.COMPILED: _compiled,
    Rule.FOLD: lambda values, value, decision, source: FoldedFunctionVariable(
        value, decision.kind, decision.reason, source),
    Rule.DEFERRED: lambda values, value, decision, source: DeferredFunctionVariable(
        value, decision.kind, decision.reason, source),
    Rule.ASKED: lambda values, value, decision, source: AskedFunctionVariable(
        value, decision.kind, decision.reason, source),
    Rule.CONSTANT: lambda values, value, decision, source: ConstantCallVariable(value, source),
}
