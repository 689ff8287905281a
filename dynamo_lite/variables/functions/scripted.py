"""Functions under ``torch.jit.script``.

The trace evaluates the original Python function, which torch keeps beside the result of TorchScript. Invariant: this
happens only with arguments that TorchScript accepts, converted as it converts them, and only for functions that neither
check whether they are scripted nor raise exceptions of their own, whose types TorchScript replaces; all other calls run
in plain Python.
"""
from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...guards.source import AttrSource, ConstSource, Source
from ..base import ObservedException, VariableTracker, realized, unsupported, wraps_type
from ..constant import ConstantVariable
from ..containers.mappings import DictVariable
from ..real_object import RealObjectVariable
from ..tensors.tensor import TensorVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

# TorchScript's types in Python.
_PLAIN = {"IntType": int, "FloatType": float, "BoolType": bool, "StringType": str}
# The types of constants that TorchScript converts to a number of another type.
_NUMBERS = {"IntType": (bool,), "FloatType": (bool, int)}
_LONGEST = 63  # bits of the largest int in TorchScript, which refuses larger ones
# Names of functions that behave differently in TorchScript: other branches, other exceptions, text on C's own stdout.
_ELSEWHERE = frozenset({"is_scripting", "print", "warn"})


class ScriptFunctionVariable(RealObjectVariable):
    """A ``torch.jit.ScriptFunction``."""

    def describe(self) -> str:
        return f"scripted function {self.value.name}"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        inside = getattr(self.value, "_torchdynamo_inline", None)
        if type(inside) is not types.FunctionType:
            unsupported("call_skipped", f"{self.describe()}, whose Python function torch does not keep")
        reached = [*_reached(inside, {})]
        if any(map(_differs, reached)) or any(map(_converts_defaults, reached[1:])):
            unsupported("call_skipped", f"{self.describe()} raises, prints, asks whether it is scripted or calls a "
                        "function whose defaults TorchScript converts")
        given = self._given(tx, args, kwargs)
        where = AttrSource(ConstSource(self.value, self.describe()), "_torchdynamo_inline")
        if any(argument.type.kind() == "DictType" for argument in self.value.schema.arguments):
            self._check_dicts(reached)
        try:
            made = tx.call(realized(tx, tx.values.wrap_at(inside, where)), [], given)
        except ObservedException as error:
            name = error.value.python_type().__name__
            unsupported("call_skipped", f"{self.describe()} raises {name}, where TorchScript raises another exception")
        if issubclass(made.python_type(), _VIEWS):
            unsupported("call_skipped", f"{self.describe()} returns a view of a dict, where TorchScript makes a list")
        return made

    def _check_dicts(self, reached: list[types.FunctionType]) -> None:
        """Refuses functions that may see that Python's ``keys()`` is a view of the dict: TorchScript's is a list."""
        seen = [i for function in reached for i in _instructions(function.__code__)]
        names = {i.argval for i in seen if i.opname in ("LOAD_METHOD", "LOAD_ATTR")}
        changes = any(i.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") for i in seen) or not names.isdisjoint(_CHANGES)
        if changes and not names.isdisjoint(("keys", "values", "items")):
            unsupported("call_skipped", f"{self.describe()} asks for the keys of a dict and changes one")

    def _given(
        self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> dict[str, VariableTracker]:
        """The function's arguments by name, as TorchScript hands them to it."""
        declared = self.value.schema.arguments
        given = dict(zip((argument.name for argument in declared), args, strict=False))
        if len(args) > len(declared) or not given.keys().isdisjoint(kwargs):
            unsupported("call_skipped", f"{self.describe()} with too many arguments")
        given |= kwargs
        made: dict[str, VariableTracker] = {}
        for argument in declared:
            value = given.pop(argument.name, None)
            if value is None and argument.has_default_value():
                made[argument.name] = self._default(argument)
                continue
            converted = None if value is None else _converted(tx, argument.type, value)
            if converted is None:
                what = value.describe() if value is not None else f"no {argument.name}"
                unsupported("call_skipped", f"{self.describe()} of {what}")
            made[argument.name] = converted
        if given:
            unsupported("call_skipped", f"{self.describe()} has no parameter {next(iter(given))}")
        return made

    def _default(self, argument: Any) -> VariableTracker:
        """A default, which TorchScript has converted to the parameter's type."""
        value = argument.default_value
        if value is not None and type(value) not in _PLAIN.values():
            unsupported("call_skipped", f"{self.describe()} with a default of type {type(value).__name__}")
        return ConstantVariable(value)


def _converted(tx: Tracer, expected: Any, value: VariableTracker) -> VariableTracker | None:
    """The argument that TorchScript makes of a value; None if it refuses the value or converts it in other ways.

    Args:
        expected: the type of the parameter in TorchScript.
    """
    kind = expected.kind()
    if kind == "OptionalType":
        return value if value.is_none() else _converted(tx, expected.getElementType(), value)
    if kind == "TensorType":
        fits = isinstance(value, TensorVariable) and value.python_type() in (torch.Tensor, torch.nn.Parameter)
        return value if fits else None
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](tx, expected, value)
    if type(value) is ConstantVariable:
        number = value.value
        if type(number) is int and number.bit_length() > _LONGEST:
            return None
        if type(number) in _NUMBERS.get(kind, ()):
            return ConstantVariable(_PLAIN[kind](number))
    return value if value.python_type() is _PLAIN.get(kind) else None


def _items(tx: Tracer, value: VariableTracker) -> list[VariableTracker] | None:
    """The elements of a list or tuple; TorchScript converts either to the other."""
    is_known = value.python_type() in (list, tuple) and value.known_items() is not None
    return [*value.iterate(tx)] if is_known else None


def _list(tx: Tracer, expected: Any, value: VariableTracker) -> VariableTracker | None:
    """A new list: a scripted function has lists of its own, so that the caller sees none of its writes to them."""
    items = _items(tx, value)
    made = None if items is None else [_converted(tx, expected.getElementType(), item) for item in items]
    return None if made is None or None in made else tx.values.new_list([item for item in made if item is not None])


def _tuple(tx: Tracer, expected: Any, value: VariableTracker) -> VariableTracker | None:
    """A new tuple. Named tuples are left to TorchScript."""
    items, types_ = _items(tx, value), expected.elements()
    if items is None or len(items) != len(types_) or not expected.annotation_str.startswith("Tuple["):
        return None
    made = [_converted(tx, cls, item) for cls, item in zip(types_, items, strict=True)]
    return None if None in made else tx.values.new_sequence(tuple, [item for item in made if item is not None])


def _dict(tx: Tracer, expected: Any, value: VariableTracker) -> VariableTracker | None:
    """A new dict, as a scripted function has of its own."""
    if value.python_type() is not dict or not isinstance(value, DictVariable):
        return None
    key_type, value_type = expected.getKeyType(), expected.getValueType()
    if key_type.kind() not in ("StringType", "IntType"):
        return None
    made: dict[VariableTracker, VariableTracker] = {}
    for key, item in zip(value.keys(), value.values(tx), strict=True):
        pair = _converted(tx, key_type, realized(tx, key)), _converted(tx, value_type, realized(tx, item))
        if pair[0] is None or pair[1] is None:
            return None
        made[pair[0]] = pair[1]
    return tx.values.new_dict(made)


_SEQUENCES = {"ListType": _list, "TupleType": _tuple, "DictType": _dict}
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_CHANGES = frozenset({"update", "pop", "popitem", "setdefault", "clear", "append", "extend", "insert"})


def _reached(function: types.FunctionType, seen: dict[Any, None]) -> Iterator[types.FunctionType]:
    """The function and all Python functions that are reachable from it by name or closure, except torch's."""
    if function in seen:
        return
    seen[function] = None
    yield function
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    names = (i.argval for i in _instructions(function.__code__) if i.opname == "LOAD_GLOBAL")
    for value in (*(function.__globals__.get(name) for name in names), *cells):
        if type(value) is types.FunctionType and not value.__module__.startswith("torch."):
            yield from _reached(value, seen)


def _converts_defaults(function: types.FunctionType) -> bool:
    """Whether TorchScript may convert a default, such as 1 for a float parameter."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults):code.co_argcount]
    pairs = [*zip(names, defaults, strict=True), *(function.__kwdefaults__ or {}).items()]
    return any(type(default) in (bool, int) and function.__annotations__.get(name) not in (
        type(default), type(default).__name__) for name, default in pairs)


def _differs(function: types.FunctionType) -> bool:
    return any(i.opname in ("RAISE_VARARGS", "LOAD_ASSERTION_ERROR") or type(i.argval) is str and i.argval in _ELSEWHERE
               for i in _instructions(function.__code__))


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """The instructions of a function, and those of its comprehensions, which are code objects of their own up to 3.11.
    """
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)


@wraps_type(torch.jit.ScriptFunction)
def _wrap_script_function(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return ScriptFunctionVariable(value, source)
