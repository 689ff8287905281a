"""The result of ``compile`` for an ``nn.Module``.

Invariant: a compiled module has the attributes, the operators and the state of its original, which is never changed.
"""
from __future__ import annotations

import copy
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import _eval_frame
from ..guards.source import AttrSource, Source
from ..variables.base import VariableTracker, realized, wraps_type
from ..variables.torch_api.compiled_modules import CompiledModuleVariable
from . import callers, stance

if TYPE_CHECKING:
    from ..variables.protocols import Tracer


class CompiledModule(torch.nn.Module):
    """An nn.Module whose call is compiled. Parameters, state, attributes and train/eval mode are those of the original.

    Args:
        module: the original.
        hook: the hook that compiles its frames.
    """

    def __init__(self, module: torch.nn.Module, hook: _eval_frame.FrameHook) -> None:
        # nn.Module.__init__ would make tables of its own; this module's tables are the original's.
        object.__setattr__(self, "_orig_mod", module)
        caller = callers.caller_of(module)
        if hook.roots is not None:
            hook.roots.set(caller.__code__, True)
        object.__setattr__(self, "_compiled_call", _eval_frame.CompiledFunction(types.MethodType(caller, module), hook))
        object.__setattr__(self, "_hook", hook)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _own(self, "_compiled_call")(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(_own(self, "_orig_mod"), name)

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN_NAMES:
            return _own(self, name)
        return getattr(_own(self, "_orig_mod"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __dir__(self) -> list[str]:
        return dir(self._orig_mod)

    def __repr__(self) -> str:
        return f"CompiledModule({self._orig_mod!r})"

    def __enter__(self) -> Any:
        return type(self._orig_mod).__enter__(self._orig_mod)

    def __exit__(self, *error: Any) -> Any:
        return type(self._orig_mod).__exit__(self._orig_mod, *error)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return CompiledModule(copy.deepcopy(self._orig_mod, memo), self._hook)


_own = object.__getattribute__
_OWN_NAMES = frozenset({
    "_orig_mod", "_compiled_call", "_hook", "__class__", "__deepcopy__", "__dict__", "__setattr__",
    "__delattr__",
})


# ---------------------------------------------------------------- operators: Python looks them up in the class
def _forwarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A special method that applies an operator to the original. If the result is the original, it returns the compiled
    module."""

    def method(self: CompiledModule, *operands: Any) -> Any:
        made = function(self._orig_mod, *(o._orig_mod if type(o) is CompiledModule else o for o in operands))
        return self if made is self._orig_mod else made

    return method


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[CompiledModule, Any], Any]:
    return lambda self, other: function(other, self._orig_mod)


_BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
for _name in _BINARY:
    _function = getattr(operator, f"__{_name}__")
    setattr(CompiledModule, f"__{_name}__", _forwarded(_function))
    setattr(CompiledModule, f"__r{_name}__", _reflected(_function))
    setattr(CompiledModule, f"__i{_name}__", _forwarded(getattr(operator, f"__i{_name}__")))
_OTHERS: dict[str, Callable[..., Any]] = {
    "getitem": operator.getitem, "setitem": operator.setitem, "delitem": operator.delitem, "iter": iter,
    "contains": operator.contains, "reversed": reversed, "neg": operator.neg, "pos": operator.pos,
    "invert": operator.invert, "abs": abs,
}
for _name, _function in _OTHERS.items():
    setattr(CompiledModule, f"__{_name}__", _forwarded(_function))


def running_module(module: CompiledModule) -> CompiledModule:
    """The compiled module, with calls that compile nothing (``run``)."""
    made = CompiledModule(module._orig_mod, module._hook)
    object.__setattr__(made, "_compiled_call", stance.Running()(module._compiled_call))
    return made


# Inside a captured function, a compiled module stands for its original.
@wraps_type(CompiledModule)
def _wrap_compiled_module(tx: Tracer, value: CompiledModule, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    original = realized(tx, tx.values.wrap_at(value._orig_mod, AttrSource(source, "_orig_mod")))
    return CompiledModuleVariable(value, original, source, _OWN_NAMES)
