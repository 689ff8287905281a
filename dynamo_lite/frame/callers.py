"""Copies of the functions by which compiled modules and methods are called: one code object for each structure.

What is compiled is kept by code object, and a code object takes `config.recompile_limit` compiles. All modules of a
program are called by the same few lines, all optimizers step in the same wrapper. So a structure has a copy of the code
to itself: modules and optimizers that are built alike share a copy, and with it what is compiled for them, and others
don't use up its limit. Invariant: a copy does what the original does, at the same lines of the same file.
"""
from __future__ import annotations

import itertools
import types
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ..polyfills import call_module

_copies: weakref.WeakValueDictionary[Hashable, types.FunctionType] = weakref.WeakValueDictionary()


def caller_of(module: torch.nn.Module) -> types.FunctionType:
    """The function whose frame is a call of the module."""
    return _copy(call_module, _module_structure(module))


def own_method(method: types.MethodType) -> types.MethodType:
    """The method of a module or an optimizer with a function that only those of its structure share; another object's
    as it is."""
    function, owner = method.__func__, method.__self__
    structure = next((of(owner) for kind, of in _STRUCTURES.items() if isinstance(owner, kind)), None)
    if structure is None or not isinstance(function, types.FunctionType) or function in set(_copies.values()):
        return method
    return types.MethodType(_copy(function, structure), owner)


def _module_structure(module: torch.nn.Module) -> Hashable:
    parts = tuple((name, type(part)) for name, part in module.named_modules())
    tensors = itertools.chain(module.named_parameters(), module.named_buffers())
    return parts, tuple((name, *_form(t)) for name, t in tensors if not is_lazy(t))


def _optimizer_structure(optimizer: torch.optim.Optimizer) -> Hashable:
    groups: Iterable[dict[str, Any]] = optimizer.param_groups
    return type(optimizer), tuple(tuple(_form(t) for t in group["params"] if not is_lazy(t)) for group in groups)


def _form(t: torch.Tensor) -> tuple[Hashable, ...]:
    return tuple(t.shape), t.dtype


_STRUCTURES: dict[type, Callable[[Any], Hashable]] = {
    torch.nn.Module: _module_structure, torch.optim.Optimizer: _optimizer_structure,
}


def _copy(function: Any, structure: Hashable) -> types.FunctionType:
    key = function, structure
    known = _copies.get(key)
    if known is None:
        known = types.FunctionType(
            function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )
        known.__kwdefaults__ = function.__kwdefaults__
        known.__qualname__, known.__module__ = function.__qualname__, function.__module__
        _copies[key] = known
    return known
