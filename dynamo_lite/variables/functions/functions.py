"""Functions, methods, cells and generators of the user's, which are inlined.

A function is guarded by its code, not its identity, so that equal closures share a cache entry; its closure variables,
defaults and attributes are values with sources of their own. Invariant: closure variables are read and written through
cells, and each cell has one tracker, so that all closures share the variable.
"""
from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ...bytecode.instructions import docstring
from ...guards.source import (
    AttrSource,
    ConstSource,
    DictItemSource,
    FunctionPartSource,
    MethodPartSource,
    SequenceItemSource,
    Source,
)
from ...rules.table import Decision, Rule
from ..annotations import require_computed
from ..base import MISSING, LazyVariable, VariableTracker, realized, unsupported, wraps_type
from ..cells import CellVariable
from ..constant import ConstantVariable
from ..containers.mappings import DictVariable
from ..containers.spaces import read_own, space_at, write_own
from ..rule_calls import calls_by
from .binding import VARARGS, bind_arguments
from .equivalents import StandsFor
from .generators import GeneratorVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

GENERATOR, COROUTINE, ASYNC_GENERATOR = 0x20, 0x80, 0x200
# 0x100 is inspect.CO_ITERABLE_COROUTINE
_NOT_INLINED = COROUTINE | ASYNC_GENERATOR | 0x100


def standing_for(
    value: VariableTracker, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Marks a value that one of our equivalents made: where it leaves the trace, generated code calls the C function
    instead."""
    if isinstance(value, NestedFunctionVariable):
        value.stands_for = StandsFor(function, args, kwargs)
    elif isinstance(value, GeneratorVariable):
        # The generator's parameters are also arguments of the C function, with its eager conversions already done.
        code = value.function.code()
        npos, nkw = code.co_argcount, code.co_kwonlyargcount
        positional = [value.arguments[n] for n in code.co_varnames[:npos]]
        named = {n: value.arguments[n] for n in code.co_varnames[npos : npos + nkw]}
        if code.co_flags & VARARGS:
            rest = value.arguments[code.co_varnames[npos + nkw]]
            positional += rest.items  # type: ignore[attr-defined]
        value.stands_for = StandsFor(function, positional, named)
    return value


@calls_by(Rule.REPLACED)
def _replaced(
    tx: Tracer, called: VariableTracker, decision: Decision, args: list[VariableTracker],
    kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    made = tx.call(tx.values.library_function(decision.calls), args, kwargs)
    return standing_for(made, called.value, args, kwargs)


@calls_by(Rule.SUBSTITUTED)
def _substituted(
    tx: Tracer, called: VariableTracker, decision: Decision, args: list[VariableTracker],
    kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    if not isinstance(decision.calls, types.FunctionType):
        return None
    held = ConstSource(decision.calls, decision.calls.__qualname__)
    return tx.call(tx.values.wrap_function(decision.calls, held, trusted=True), args, kwargs)


def _raise_missing(tx: Tracer, function: VariableTracker, name: str) -> NoReturn:
    """Raises the AttributeError in the program for an attribute that a function does not have."""
    if hasattr(types.FunctionType, name):  # its class defines it
        unsupported("unsupported_attribute", f"{function.describe()}.{name}")
    tx.raise_error(AttributeError, f"'function' object has no attribute {name!r}")


class CallableVariable(VariableTracker):
    """The base class of functions and methods."""

    has_identity = True

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_key(self) -> Any:
        return ("object", id(self))


class BaseFunctionVariable(CallableVariable):
    """A Python function, from outside or made in the frame."""

    def code(self) -> types.CodeType:
        raise NotImplementedError

    def globals(self) -> tuple[dict[str, Any], Source]:
        """The function's globals and their source."""
        raise NotImplementedError

    def cells(self, tx: Tracer) -> list[CellVariable]:
        """The closure's cells, in the order of co_freevars."""
        raise NotImplementedError

    def defaults(self, tx: Tracer) -> Sequence[VariableTracker]:
        raise NotImplementedError

    def keyword_defaults(self, tx: Tracer) -> dict[str, VariableTracker]:
        raise NotImplementedError

    def function_name(self) -> str:
        return self.code().co_name

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        code = self.code()
        return f"function {code.co_qualname}"

    def bind(
        self, tx: Tracer, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> dict[str, VariableTracker]:
        """The values of the parameters for a call, by name."""
        return bind_arguments(tx, self, args, kwargs)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.inline(self, args, kwargs)


class FunctionVariable(BaseFunctionVariable):
    """A function from outside of the trace. `real` is the object whose identity and hash it has."""

    def __init__(self, value: types.FunctionType, source: Source) -> None:
        super().__init__(source)
        self.value = self.real = value
        self.function_source = source

    def code(self) -> types.CodeType:
        return self.value.__code__

    def function_name(self) -> str:
        return self.value.__qualname__

    def globals(self) -> tuple[dict[str, Any], Source]:
        space = self.value.__globals__
        return space, ConstSource(space, str(space.get("__name__", "globals")))

    def hash_key(self) -> Any:
        return self.real

    def guard_hash(self, tx: Tracer) -> None:
        if self.source is not None:
            tx.guard(self.source, "is", self.real)

    def same_object(self, other: VariableTracker) -> bool | None:
        return isinstance(other, FunctionVariable) and self.real is other.real

    def _part(self, name: str) -> Source:
        return FunctionPartSource(self.function_source, name)

    def cells(self, tx: Tracer) -> list[CellVariable]:
        closure = self.value.__closure__ or ()
        part = self._part("__closure__")
        names = self.value.__code__.co_freevars
        return [
            tx.values.wrap_cell(cell, SequenceItemSource(part, i, False), names[i]) for i, cell in enumerate(closure)
        ]

    def defaults(self, tx: Tracer) -> Sequence[VariableTracker]:
        values = self.value.__defaults__
        part = self._part("__defaults__")
        if values is None:
            tx.guard(part, "is", None)
            return ()
        tx.guard(part, "len", len(values))
        return [LazyVariable(v, SequenceItemSource(part, i, False)) for i, v in enumerate(values)]

    def keyword_defaults(self, tx: Tracer) -> dict[str, VariableTracker]:
        values = self.value.__kwdefaults__
        part = self._part("__kwdefaults__")
        if not values:
            tx.guard(part, *(("is", None) if values is None else ("len", 0)))
            return {}
        space = tx.output.effects.space_of(tx, self, values, part)
        if space is not None:
            return {key.constant(): value for key, value in space.items.values()}
        return {name: LazyVariable(v, DictItemSource(part, name)) for name, v in values.items()}

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        value = self.value
        if name in _TEXTS:
            assert self.source is not None
            tx.guard(AttrSource(self.source, name), "const", getattr(value, name))
            return ConstantVariable(getattr(value, name))
        if name in _OBJECTS:
            return tx.values.wrap_at(getattr(value, name), self._part(name))
        if name == "__dict__":
            return space_at(tx, value.__dict__, self._part(name))
        if name == "__annotations__":
            require_computed(value, f"{self.describe()}.{name}")
        if name in ("__annotations__", "__type_params__") and hasattr(value, name):
            return tx.values.wrap_at(getattr(value, name), AttrSource(self.source, name))  # type: ignore[arg-type]
        if name in _KNOWN:
            return _KNOWN[name](self, tx)
        found = read_own(tx, self, value.__dict__, self._part("__dict__"), name)
        if found is not None:
            return found
        if name == "__call__":
            return self
        _raise_missing(tx, self, name)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        if name.startswith("__"):
            super().setattr(tx, name, value)
        write_own(tx, self, self.value.__dict__, self._part("__dict__"), name, value)

    def delattr(self, tx: Tracer, name: str) -> None:
        if name.startswith("__"):
            super().delattr(tx, name)
        if read_own(tx, self, self.value.__dict__, self._part("__dict__"), name) is None:
            tx.raise_error(AttributeError, f"'function' object has no attribute {name!r}")
        write_own(tx, self, self.value.__dict__, self._part("__dict__"), name, MISSING)

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit.load_const(self.value)


# Attributes of a function from outside: texts, objects that it holds, and values that its tracker computes.
_TEXTS = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})
_OBJECTS = frozenset({"__defaults__", "__kwdefaults__", "__closure__", "__globals__"})
_KNOWN: dict[str, Callable[[FunctionVariable, Tracer], VariableTracker]] = {
    "__code__": lambda function, tx: tx.values.from_result(function.value.__code__, "code object"),
    "__class__": lambda function, tx: tx.values.from_result(function.python_type(), "class"),
    "__get__": lambda function, tx: tx.builtin_method(function, "__get__"),
}


class NestedFunctionVariable(BaseFunctionVariable):
    """A function that the traced program made with ``def`` or ``lambda``."""

    def __init__(
        self,
        code: types.CodeType,
        globals: tuple[dict[str, Any], Source],
        qualname: str,
        defaults: Sequence[VariableTracker],
        keyword_defaults: dict[str, VariableTracker],
        closure: list[CellVariable],
        annotations: VariableTracker | None,
    ) -> None:
        super().__init__()
        self._code = code
        self._globals = globals
        self.qualname = qualname
        self.own_defaults = defaults
        self.own_keyword_defaults = keyword_defaults
        self.closure = closure
        self.annotations = annotations
        self.annotate: VariableTracker | None = None  # function that computes them when they are first read (PEP 649)
        self.attributes: dict[str, VariableTracker] = {}  # attributes that a function stores in its C struct
        self.own_dict = FunctionDictVariable(self)
        self.stands_for: StandsFor | None = None

    def python_type(self) -> type:
        made_by = self.stands_for.function if self.stands_for is not None else None
        return made_by if isinstance(made_by, type) else types.FunctionType

    def code(self) -> types.CodeType:
        return self._code

    def function_name(self) -> str:
        return self.qualname

    def globals(self) -> tuple[dict[str, Any], Source]:
        return self._globals

    def cells(self, tx: Tracer) -> list[CellVariable]:
        return self.closure

    def defaults(self, tx: Tracer) -> Sequence[VariableTracker]:
        return self.own_defaults

    def keyword_defaults(self, tx: Tracer) -> dict[str, VariableTracker]:
        return self.own_keyword_defaults

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in self.attributes:
            return self.attributes[name]
        if name in _IN_CODE:
            return ConstantVariable(_IN_CODE[name](self))
        own = self.own_dict.lookup(tx, ConstantVariable(name))
        if own is not None:
            return own
        part = _PARTS.get(name)
        if part is not None and (name not in _OF_LATER_VERSIONS or hasattr(types.FunctionType, name)):
            return part(self, tx)
        _raise_missing(tx, self, name)

    def keyword_defaults_as_dict(self, tx: Tracer) -> VariableTracker:
        """The function's ``__kwdefaults__``."""
        if not self.own_keyword_defaults:
            return ConstantVariable(None)
        return tx.values.new_dict({ConstantVariable(k): v for k, v in self.own_keyword_defaults.items()})

    def read_annotations(self, tx: Tracer) -> VariableTracker:
        """The function's ``__annotations__``, computed at the first read."""
        if self.annotations is None:
            if self.annotate is None or self.annotate.is_none():
                self.annotations = tx.values.new_dict({})
            else:
                self.annotations = tx.call(self.annotate, [ConstantVariable(_BY_VALUE)], {})
        return self.annotations

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        if name in ("__defaults__", "__kwdefaults__", "__code__", "__dict__", "__closure__", "__globals__"):
            unsupported("side_effect_unsupported", f"setting {name} of {self.describe()}")
        if name not in _STORED_IN_C:
            self.own_dict.store(tx, ConstantVariable(name), value)
            return
        tx.output.effects.advance(self)
        if name == "__annotate__":  # resets the annotations (Objects/funcobject.c, function___annotate___set_impl)
            self.annotate, self.annotations = value, None
            self.attributes.pop("__annotations__", None)
            return
        if name == "__annotations__":
            self.annotate = None
        self.attributes[name] = value

    def delattr(self, tx: Tracer, name: str) -> None:
        if self.own_dict.lookup(tx, ConstantVariable(name)) is None:
            tx.raise_error(AttributeError, f"'function' object has no attribute {name!r}")
        self.own_dict.delitem(tx, ConstantVariable(name))

    def reconstruct(self, cg: Codegen) -> None:
        if self.stands_for is not None:
            stands_for = self.stands_for
            cg.build_new(self, lambda: stands_for.reconstruct(cg), lambda: None)
            return
        cg.build_new(self, lambda: self._make(cg), lambda: self._fill(cg), refers_only=True)

    def _make(self, cg: Codegen) -> None:
        def arguments() -> None:
            cg.emit.load_const(self._code)
            cg.load_globals(self._globals)
            cg.emit.load_const(self._code.co_name)
            cg.push_all(self.own_defaults)
            cg.emit.build_tuple(len(self.own_defaults))
            cg.push_all(self.closure)
            cg.emit.build_tuple(len(self.closure))

        cg.call_constant(make_function, arguments, count=5)

    def _fill(self, cg: Codegen) -> None:
        extra = {**self.attributes, **{key.constant(): value for key, value in self.own_dict.items.values()}}
        if self.own_keyword_defaults:
            extra["__kwdefaults__"] = cg.dict_of(self.own_keyword_defaults)
        if self.qualname != self._code.co_name:
            extra.setdefault("__qualname__", ConstantVariable(self.qualname))
        if self.annotations is not None:
            extra.setdefault("__annotations__", self.annotations)
        elif self.annotate is not None:
            extra["__annotate__"] = self.annotate
        for name, value in extra.items():
            cg.emit.dup()
            cg.push(value)
            cg.emit.swap(2)
            cg.emit.store_attr(name)


_STORED_IN_C = frozenset(
    {"__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__"}
    | ({"__annotate__"} if hasattr(types.FunctionType, "__annotate__") else set()))
_BY_VALUE = 1  # annotationlib.Format.VALUE, the format that a read of __annotations__ requests


class FunctionDictVariable(DictVariable):
    """``function.__dict__`` of a function that the traced program made."""

    def __init__(self, function: NestedFunctionVariable) -> None:
        super().__init__({})
        self.function = function

    def reconstruct(self, cg: Codegen) -> None:
        cg.push(self.function)
        cg.emit.load_attr("__dict__")


def make_function(
    code: types.CodeType, globals: dict[str, Any], name: str, defaults: tuple[Any, ...], closure: tuple[Any, ...]
) -> types.FunctionType:
    """Makes an inner function that escapes; called by generated code."""
    return types.FunctionType(code, globals, name, defaults or None, closure or None)


# Attributes of a function that the trace has made: those that its code determines, and all others.
_IN_CODE: dict[str, Callable[[NestedFunctionVariable], Any]] = {
    "__name__": lambda function: function.code().co_name,
    "__qualname__": lambda function: function.qualname,
    "__module__": lambda function: function.globals()[0].get("__name__"),
    "__doc__": lambda function: docstring(function.code()),
}
_PARTS: dict[str, Callable[[NestedFunctionVariable, Tracer], VariableTracker]] = {
    "__dict__": lambda function, tx: function.own_dict,
    "__defaults__": lambda function, tx: _tuple_or_none(tx, function.own_defaults),
    "__closure__": lambda function, tx: _tuple_or_none(tx, function.closure),
    "__kwdefaults__": NestedFunctionVariable.keyword_defaults_as_dict,
    "__annotations__": NestedFunctionVariable.read_annotations,
    "__annotate__": lambda function, tx: ConstantVariable(None) if function.annotate is None else function.annotate,
    "__type_params__": lambda function, tx: ConstantVariable(()),
    "__code__": lambda function, tx: tx.values.from_result(function.code(), "code object"),
    "__class__": lambda function, tx: tx.values.from_result(function.python_type(), "class"),
    "__get__": lambda function, tx: tx.builtin_method(function, "__get__"),
    "__call__": lambda function, tx: function,
}
# Attributes that functions do not have in every version of Python.
_OF_LATER_VERSIONS = ("__annotate__", "__type_params__")


def _tuple_or_none(tx: Tracer, items: Sequence[VariableTracker]) -> VariableTracker:
    return tx.values.new_tuple(list(items)) if items else ConstantVariable(None)


# Since 3.13. Before, a bound method's __get__ is that of its function, and binds the function to another object.
METHODS_STAY_BOUND = "__get__" in vars(types.MethodType)


class MethodVariable(CallableVariable):
    """A bound method: any callable together with its first argument."""

    def __init__(self, function: VariableTracker, owner: VariableTracker, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.owner = owner

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method {self.function.describe()}"

    def hash_key(self) -> Any:
        return ("method", self.function.hash_key(), self.owner.hash_key())

    def guard_hash(self, tx: Tracer) -> None:
        self.function.guard_hash(tx)
        self.owner.guard_hash(tx)

    def same_object(self, other: VariableTracker) -> bool | None:
        return self.may_be_the_same(other)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.function, [self.owner, *args], kwargs)

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op in ("==", "!=") and isinstance(other, MethodVariable):
            same = tx.operators.is_same(self.owner, other.owner) and tx.operators.is_same(self.function, other.function)
            return ConstantVariable(same == (op == "=="))
        return None

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        if name == "__get__" and METHODS_STAY_BOUND:
            return tx.builtin_method(self, name)
        if name == "__call__":
            return self
        return tx.getattr(self.function, name)

    def reconstruct(self, cg: Codegen) -> None:
        def arguments() -> None:
            cg.push(self.function)
            cg.push(self.owner)

        cg.build_new(
            self, lambda: cg.call_constant(types.MethodType, arguments, count=2), lambda: None, refers_only=True
        )


def is_inlinable(code: types.CodeType) -> bool:
    """Whether a call of this code can be evaluated inside the caller's trace."""
    return not code.co_flags & _NOT_INLINED


@wraps_type(types.FunctionType)
def _wrap_function(tx: Tracer, value: types.FunctionType, source: Source) -> VariableTracker:
    return tx.values.wrap_function(value, source)


def user_function(tx: Tracer, value: types.FunctionType, source: Source) -> FunctionVariable:
    """The tracker of a function to inline, guarded by its code and globals."""
    tx.guard(source, "code_is", value.__code__)
    tx.guard(FunctionPartSource(source, "__globals__"), "is", value.__globals__)
    return FunctionVariable(value, source)


@wraps_type(types.MethodType)
def _wrap_method(tx: Tracer, value: types.MethodType, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", types.MethodType)
    function = realized(tx, tx.values.wrap_at(value.__func__, MethodPartSource(source, "__func__")))
    owner = realized(tx, tx.values.wrap_at(value.__self__, MethodPartSource(source, "__self__")))
    return MethodVariable(function, owner, source)
