"""Python modules, ``nn.Module`` instances, and functions that are called but never traced.

An nn.Module is guarded by structure: its class, the attributes that the trace reads, and the absence of hooks.
Invariant: nothing here depends on the identity of a user's nn.Module, so that equal modules share a compiled artifact.
"""
from __future__ import annotations

import collections
import inspect
import operator
import re
import types
import typing
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.modules.module as module_state

from ...guards.source import AttrSource, ConstSource, DictItemSource, DictValueSource, InstanceDictSource, Source
from ...polyfills.modules import call_with_hooks
from ...rules.torch_marks import below_torch_compile
from ...rules.trace_rules import is_library
from ..base import MISSING, VariableTracker, instance_dict, realized, unsupported, wraps_if, wraps_type
from ..constant import ConstantVariable
from ..containers.sequences import is_named_tuple
from ..containers.spaces import dict_source, read_own, space_at, write_own
from ..objects.classes import has_instance_dict, is_made_by_python
from ..objects.objects import ObjectVariable
from ..real_object import RealObjectVariable
from .torch_functions import is_switch

if TYPE_CHECKING:
    from ..protocols import Tracer

_HOOK_TABLES = (
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks",
)
_GLOBAL_HOOK_TABLES = (
    "_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)
# Tables of hooks that are called in another way than once, with the positional arguments alone.
_OTHER_TABLES = (
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
)
_OTHER_GLOBAL_TABLES = (
    "_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
)
_MEMBER_TABLES = ("_parameters", "_buffers", "_modules")


def _is_torchs(function: Any, name: str) -> bool:
    """Whether a method of nn.Module is torch's own, not a replacement."""
    if not isinstance(function, types.FunctionType):
        return False
    code = function.__code__
    return code.co_name == name and code.co_filename == module_state.__file__


class NNModuleVariable(ObjectVariable):
    """An ``nn.Module`` from outside."""

    def describe(self) -> str:
        name = f" {self.source.name!r}" if self.source is not None else ""
        return f"module{name} of {self.cls.__qualname__}"

    def _fallback_getattr(self, tx: Tracer, name: str) -> VariableTracker | None:
        hook = tx.classes.lookup(self.cls, "__getattr__")
        if not _is_torchs(hook, "__getattr__") or self.value is None:
            return super()._fallback_getattr(tx, name)
        return self.member(tx, name)

    def member(self, tx: Tracer, name: str) -> VariableTracker | None:
        """A parameter, buffer or submodule, looked up as nn.Module.__getattr__ does it."""
        own = instance_dict(self.value) or {}
        if self.has_written(tx, *_MEMBER_TABLES):
            return super()._fallback_getattr(tx, name)
        source = dict_source(self)
        for table in _MEMBER_TABLES:
            members = own.get(table)
            if members is None:
                continue
            assert source is not None
            if tx.output.effects.is_tracked(members):
                found = realized(tx, tx.values.wrap_at(members, DictItemSource(source, table)))
                key = ConstantVariable(name)
                if found.contains(tx, key):
                    return found.getitem(tx, key)
                continue
            where = DictItemSource(source, table)
            tx.output.effects.note_read(members, where)
            if name in members:
                return realized(tx, tx.values.wrap_at(members[name], DictItemSource(where, name)))
            tx.guard(where, "dict_lacks", name)
        return None

    def has_written(self, tx: Tracer, *names: str) -> bool:
        """Whether the trace has changed any of these names in the module's instance dict."""
        own = instance_dict(self.value) or {}
        space = tx.output.effects.space_of(tx, self, own, dict_source(self))
        if space is not None:
            return not all(map(space.is_as_before, names))
        return not tx.output.effects.attributes_of(self).keys().isdisjoint(names)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """module(...): without hooks, a call of `forward` alone; with hooks around `forward` only, ``call_with_hooks``;
        otherwise nn.Module's own code, inlined."""
        own = ("__call__", "_wrapped_call_impl"), ("_call_impl", "_call_impl")
        if not all(_is_torchs(tx.classes.lookup(self.cls, name), wanted) for name, wanted in own):
            return super().call(tx, args, kwargs)
        if self.own_attribute(tx, "_call_impl") is not None:
            return super().call(tx, args, kwargs)
        bare = self._has_no_hooks(tx)
        hooks = None if bare else self._forward_hooks(tx)
        if not bare and hooks is None:
            return super().call(tx, args, kwargs)
        compiled = self.own_attribute(tx, "_compiled_call_impl")
        if compiled is not None and not compiled.is_none():
            unsupported("recursive_compile", f"{self.describe()}, which Module.compile() has compiled")
        if hooks is not None:
            given = (
                tx.values.new_sequence(tuple, args),
                tx.values.new_dict({ConstantVariable(k): v for k, v in kwargs.items()}),
            )
            inner = tx.values.library_function(call_with_hooks)
            tx.output.effects.hooked_calls.append(id(self.value))
            try:
                return tx.call(inner, [self, *hooks, *given], {})
            finally:
                tx.output.effects.hooked_calls.pop()
        return tx.call(self.getattr(tx, "forward"), args, kwargs)

    def _forward_hooks(self, tx: Tracer) -> list[VariableTracker] | None:
        """The hooks before and after forward, global ones first and those that the trace has registered last; None if
        there are hooks of other kinds.

        Guards check their number and the identity of each, but not their keys, which are new for each hook.
        """
        own = instance_dict(self.value) if self.value is not None else None
        if own is None or self.source is None:
            return None
        places: tuple[tuple[Any, Source, Any, tuple[str, ...]], ...] = (
            (vars(module_state), ConstSource(module_state, "torch.nn.modules.module"), "_global", _OTHER_GLOBAL_TABLES),
            (own, self.source, "", _OTHER_TABLES),
        )
        before: list[VariableTracker] = []
        after: list[VariableTracker] = []
        for space, _, prefix, others in places:
            names = [f"{prefix}_forward_pre_hooks", f"{prefix}_forward_hooks"]
            tables = [space.get(name) for name in (*names, *others)]
            if self.has_written(tx, *names, *others) or any(map(tx.output.effects.is_tracked, tables)):
                return None
            if any(tables[2:]) or not all(type(table) is collections.OrderedDict for table in tables[:2]):
                return None
        for space, source, prefix, others in places:
            where = InstanceDictSource(source) if space is own else ConstSource(space, "torch.nn.modules.module")
            empty = list(others)
            for name, found in ((f"{prefix}_forward_pre_hooks", before), (f"{prefix}_forward_hooks", after)):
                if not space[name]:
                    empty.append(name)
                    continue
                table = DictItemSource(where, name)
                tx.guard(table, "type_is", collections.OrderedDict)
                tx.guard(table, "len", len(space[name]))
                found += [tx.values.wrap_at(v, DictValueSource(table, i)) for i, v in enumerate(space[name].values())]
            tx.guard(source, "no_hooks", tuple(empty))
        added = tx.output.effects.added_hooks.get(id(self.value), ([], []))
        return [tx.values.new_sequence(tuple, old + new) for old, new in zip((before, after), added)]

    def _has_no_hooks(self, tx: Tracer) -> bool:
        own = instance_dict(self.value) if self.value is not None else None
        if own is None or any(own.get(name) for name in _HOOK_TABLES) or any(
                tx.output.effects.added_hooks.get(id(self.value), ())):
            return False
        if self.has_written(tx, *_HOOK_TABLES) or any(tx.output.effects.is_tracked(own.get(n)) for n in _HOOK_TABLES):
            return False
        if any(getattr(module_state, name) for name in _GLOBAL_HOOK_TABLES):
            return False
        assert self.source is not None
        tx.guard(self.source, "no_hooks", _HOOK_TABLES)
        tx.guard(ConstSource(module_state, "torch.nn.modules.module"), "no_hooks", _GLOBAL_HOOK_TABLES)
        return True


@wraps_if(lambda value: issubclass(type(value), torch.nn.Module), rank=6)
def _wrap_module(tx: Tracer, value: torch.nn.Module, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    if isinstance(value, torch.jit.ScriptModule):
        unsupported("unsupported_value", f"{source.name}, a TorchScript module")
    compiled = below_torch_compile(value)
    if compiled is not None and not any(getattr(value, name) for name in _HOOK_TABLES):
        tx.guard(source, "no_hooks", _HOOK_TABLES)
        return realized(tx, tx.values.wrap_at(compiled, AttrSource(source, "_orig_mod")))
    return NNModuleVariable(type(value), value, source)


# Getters of modules that keep what they give in the module's dict, under their own name (Objects/moduleobject.c).
_MADE_WHEN_READ = [vars(types.ModuleType)[name] for name in ("__annotations__", "__annotate__")
                   if name in vars(types.ModuleType)]


class PythonModuleVariable(RealObjectVariable):
    """A module such as ``torch`` or ``math``."""

    value: types.ModuleType

    @property
    def name(self) -> str:
        """The module's name, for messages and guards; a program may have removed it."""
        name = vars(self.value).get("__name__")
        return name if isinstance(name, str) else "module"

    def describe(self) -> str:
        return f"module {self.name}"

    def _changed(self, tx: Tracer) -> VariableTracker:
        """The tracker that holds writes to the module, which the program may reach by several names."""
        known = tx.output.effects.tracker_of(self.value)
        if known is None:
            known = PythonModuleVariable(self.value, ConstSource(self.value, self.name))
            tx.output.effects.track(self.value, known)
        return known

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        space = vars(self.value)
        where = ConstSource(space, self.name)
        if name == "__dict__":
            return space_at(tx, space, where)
        cls = type(self.value)
        if is_made_by_python(cls) or not is_library(self.name):
            tx.guard(ConstSource(self.value, self.name), "type_is", cls)
        # A data descriptor of the module's class takes precedence over the module's dict.
        by_class = inspect.getattr_static(cls, name, None)
        made_when_read = any(by_class is getter for getter in _MADE_WHEN_READ)
        if made_when_read or not hasattr(type(by_class), "__set__"):
            found = read_own(tx, self._changed(tx), space, where, name)
            if found is not None:
                return found
            if made_when_read:
                unsupported("unsupported_attribute", f"{self.describe()}.{name}, which is made when it is first read")
        switch = getattr(vars(cls).get(name), "getter", None)
        if is_switch(switch):
            # A guard sees the value at entry, which may differ from the value that the trace has set.
            return tx.call(tx.values.wrap_at(switch, ConstSource(switch, f"{self.name}.{name}")), [], {})
        changed, effects = self._changed(tx), tx.output.effects
        if "__getattr__" in effects.attributes_of(changed) or effects.is_tracked(space):
            found = read_own(tx, changed, space, where, "__getattr__")
            if found is not None:
                return tx.call(found, [ConstantVariable(name)], {})
            self._raise_missing(tx, space, where, name)
        hook = space.get("__getattr__", MISSING)
        if hook is MISSING:
            tx.guard(where, "dict_lacks", "__getattr__")
        else:
            tx.guard(DictItemSource(where, "__getattr__"), "is", hook)
        if not hasattr(cls, name) and (name in space or hook is MISSING and cls is types.ModuleType):
            self._raise_missing(tx, space, where, name)
        # A module-level or class-level __getattr__, as in torch.ops and modules that load lazily.
        value = tx.run_python(getattr, self.value, name)
        return tx.values.wrap_at(value, AttrSource(ConstSource(self.value, self.name), name))

    def _raise_missing(self, tx: Tracer, space: dict[str, Any], where: Source, name: str) -> None:
        if getattr(space.get("__spec__"), "_initializing", False):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}, while the module is imported")
        own = read_own(tx, self._changed(tx), space, where, "__name__")
        named = f" {own.constant()!r}" if own is not None and own.python_type() is str else ""
        tx.raise_error(AttributeError, f"module{named} has no attribute {name!r}")

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        cls = type(self.value)
        if is_made_by_python(cls) or not is_library(self.name):
            tx.guard(ConstSource(self.value, self.name), "type_is", cls)
        by_class = hasattr(type(inspect.getattr_static(cls, name, None)), "__set__")  # __class__, properties
        if by_class or cls.__setattr__ is not types.ModuleType.__setattr__:
            unsupported("unsupported_attribute", f"setting {self.describe()}.{name}, which its class decides about")
        space = vars(self.value)
        write_own(tx, self._changed(tx), space, ConstSource(space, self.name), name, value)


@wraps_if(lambda value: issubclass(type(value), types.ModuleType), rank=1)
def _wrap_python_module(tx: Tracer, value: types.ModuleType, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return PythonModuleVariable(value, source)


class SkippedFunctionVariable(RealObjectVariable):
    """A function that runs in plain Python only: each call breaks the graph.

    Args:
        value: the function.
        kind: the break's kind.
        reason: in words, why it is not traced.
    """

    def __init__(self, value: Any, kind: str, reason: str, source: Source | None = None) -> None:
        super().__init__(value, source)
        self.kind = kind
        self.reason = reason

    def describe(self) -> str:
        return f"{getattr(self.value, '__module__', '')}.{getattr(self.value, '__qualname__', self.value)}"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        unsupported(self.kind, f"{self.describe()}(): {self.reason}" if self.reason else f"{self.describe()}()")


class SubstitutedFunctionVariable(RealObjectVariable):
    """A function in place of which another function is traced.

    Args:
        value: the function.
        traced: the tracker of the other function.
    """

    def __init__(self, value: Any, traced: VariableTracker, source: Source | None = None) -> None:
        super().__init__(value, source)
        self.traced = traced

    def describe(self) -> str:
        return f"{getattr(self.value, '__module__', '')}.{getattr(self.value, '__qualname__', self.value)}"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.traced, args, kwargs)


class ConstantCallVariable(SkippedFunctionVariable):
    """A function whose result the user has declared to be constant: it is called while compiling."""

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(value, "call_skipped", "", source)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        plain = [tx.values.as_real(a) for a in args]
        named = {k: tx.values.as_real(v) for k, v in kwargs.items()}
        return _constant_result(tx, tx.run_python(self.value, *plain, **named))


def _constant_result(tx: Tracer, value: Any) -> VariableTracker:
    """The tracker of a result that is taken to be the same in all calls; tensors in it are those of this call."""
    if isinstance(value, torch.Tensor):
        return tx.values.frozen(value)
    if type(value) in (list, tuple) or is_named_tuple(type(value)):
        return tx.values.new_sequence(type(value), [_constant_result(tx, item) for item in value])
    if type(value) is dict:
        return tx.values.new_dict({_constant_result(tx, k): _constant_result(tx, v) for k, v in value.items()})
    return tx.values.from_result(value, "a result that is assumed to be constant")


@wraps_type(types.GenericAlias, *{type(list[int] | None), type(typing.Optional[int])}, type(property()),
            types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType, re.Pattern, re.Match)
def _wrap_opaque_constant(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return OpaqueVariable(value, source)


# Not for classes, even if their metaclass is defined in typing: protocols and typed dicts are handled like others.
@wraps_if(lambda value: type(value).__module__ == "typing" and not issubclass(type(value), type), rank=7)
def _wrap_typing(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return OpaqueVariable(value, source)


_IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType)
# The first read of these attributes of a type parameter or a type alias runs the program's code (PEP 695).
_COMPUTED_AT_FIRST = frozenset({"__bound__", "__constraints__", "__default__", "__value__"})


class OpaqueVariable(RealObjectVariable):
    """An immutable object that the program only passes around, such as a type union or a code object."""

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        attribute = getattr(type(self.value), name, None) if name in _COMPUTED_AT_FIRST else None
        # One that is made by a call of its class, such as TypeVar("T", bound=int), is given the value.
        if isinstance(attribute, _IN_C) and getattr(self.value, "__infer_variance__", True):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}, which is computed at the first read")
        return super().getattr(tx, name)

    def describe(self) -> str:
        try:
            text = repr(self.value)
        except AttributeError:  # its __init__ has not yet set the attributes that repr() shows
            text = "in the making"
        return f"{type(self.value).__name__} {text}"[:80]

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op in ("==", "!=") and other.is_constant():
            return ConstantVariable((self.value == other.constant()) == (op == "=="))
        return None

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        return tx.values.from_result(
            tx.run_python(operator.getitem, self.value, tx.values.as_plain(key)), f"{self.describe()}[...]"
        )

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op == "|" and other.is_constant():
            pair = (other.constant(), self.value) if reflected else (self.value, other.constant())
            return tx.values.from_result(tx.run_python(operator.or_, *pair), "type union")
        return None

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        origin = getattr(self.value, "__origin__", None)
        if isinstance(origin, type) and getattr(self.value, "_inst", True):  # typing.List can not be called
            made = tx.call(tx.values.from_result(origin, "class"), args, kwargs)
            if isinstance(made, ObjectVariable) and has_instance_dict(made.cls):
                made.setattr(tx, "__orig_class__", self)
            return made
        unsupported("call_skipped", f"calling {self.describe()}")


class FoldedFunctionVariable(SkippedFunctionVariable):
    """A function that only computes a result from its arguments: it is called while compiling, on constants."""

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        plain, named = [tx.values.as_plain(a) for a in args], {k: tx.values.as_plain(v) for k, v in kwargs.items()}
        return tx.values.from_result(tx.run_python(self.value, *plain, **named), self.describe())
