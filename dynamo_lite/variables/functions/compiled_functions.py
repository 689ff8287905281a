"""Results of ``dynamo_lite.compile`` that a trace uses.

Invariant: a call of such an object is a call of the original function; where it is compared, hashed, returned or stored
it has its own identity, so that two compiled objects of one function are two objects, as in plain Python.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._eval_frame import CompiledFunction
from ...guards.source import AttrSource, Source
from ..base import VariableTracker, instance_dict, realized, unsupported, wraps_type
from .functions import FunctionVariable

if TYPE_CHECKING:
    from ..protocols import Tracer


class CompiledFunctionVariable(FunctionVariable):
    """The original function of a compiled object, with the object's identity.

    Args:
        compiled: the compiled object.
        source: where it lives.
    """

    def __init__(self, compiled: CompiledFunction, source: Source) -> None:
        super().__init__(compiled.fn, source)  # type: ignore[arg-type]
        self.real = compiled
        self.function_source = AttrSource(source, "fn")

    def python_type(self) -> type:
        return CompiledFunction

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        assert self.source is not None
        if name == "fn" or name in (instance_dict(self.real) or {}):
            return tx.values.wrap_at(getattr(self.real, name), AttrSource(self.source, name))
        return super().getattr(tx, name)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        unsupported("side_effect_unsupported", f"setting {name!r} of the compiled {self.describe()}")

    def delattr(self, tx: Tracer, name: str) -> None:
        unsupported("side_effect_unsupported", f"deleting {name!r} of the compiled {self.describe()}")

    def reconstruct(self, cg: Any) -> None:
        cg.load_source(self.source)


@wraps_type(CompiledFunction)
def _wrap_compiled_function(tx: Tracer, value: CompiledFunction, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    inner = realized(tx, tx.values.wrap_at(value.fn, AttrSource(source, "fn")))
    # Where a method, a callable object or a function with a special tracker was compiled, its own tracker is used.
    return CompiledFunctionVariable(value, source) if type(inner) is FunctionVariable else inner
