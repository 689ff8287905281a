"""Functions under ``torch.jit.script``.

The trace evaluates the original Python function, which torch keeps beside the result of TorchScript. Invariant: this
happens only with arguments whose types TorchScript accepts without conversion, and only for functions that neither
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
from ..base import VariableTracker, realized, unsupported, wraps_type
from ..real_object import RealObjectVariable
from ..tensors.tensor import TensorVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

# TorchScript's types in Python. An int for a float parameter would be converted, so it is not accepted.
_PLAIN = {"IntType": int, "FloatType": float, "BoolType": bool, "StringType": str}
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
        if any(_differs(function) for function in _reached(inside, {})):
            unsupported("call_skipped", f"{self.describe()} raises, prints or asks whether it is scripted")
        expected = {argument.name: argument for argument in self.value.schema.arguments}
        given = dict(zip(expected, args, strict=False)) | kwargs
        for name, value in given.items():
            if name not in expected or not _fits(expected[name].type, value):
                unsupported("call_skipped", f"{self.describe()} of {value.describe()}")
        where = AttrSource(ConstSource(self.value, self.describe()), "_torchdynamo_inline")
        return tx.call(realized(tx, tx.values.wrap_at(inside, where)), args, kwargs)


def _fits(expected: Any, value: VariableTracker) -> bool:
    """Whether TorchScript accepts an argument without conversion."""
    kind = expected.kind()
    if kind == "OptionalType":
        return value.is_none() or _fits(expected.getElementType(), value)
    if kind == "TensorType":
        return isinstance(value, TensorVariable) and value.python_type() in (torch.Tensor, torch.nn.Parameter)
    return value.python_type() is _PLAIN.get(kind)


def _reached(function: types.FunctionType, seen: dict[Any, None]) -> Iterator[types.FunctionType]:
    """The function and all Python functions that are reachable from it by name or closure, except torch's."""
    if function in seen:
        return
    seen[function] = None
    yield function
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    for value in (*(function.__globals__.get(name) for name in function.__code__.co_names), *cells):
        if type(value) is types.FunctionType and not value.__module__.startswith("torch."):
            yield from _reached(value, seen)


def _differs(function: types.FunctionType) -> bool:
    code = function.__code__
    return not _ELSEWHERE.isdisjoint(code.co_names) or any(
        instruction.opname in ("RAISE_VARARGS", "LOAD_ASSERTION_ERROR") for instruction in dis.get_instructions(code))


@wraps_type(torch.jit.ScriptFunction)
def _wrap_script_function(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return ScriptFunctionVariable(value, source)
