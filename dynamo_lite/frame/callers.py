"""Copies of the functions by which modules, methods and objects are called: one code object for each structure.

Cache entries belong to a code object, and each code object is compiled at most `config.recompile_limit` times. All
modules of a program are called through the same few lines, and all optimizers step in the same wrapper. Therefore each
structure gets its own copy of this code: modules and optimizers of the same structure share a copy and its cache
entries, and don't use up the limit of others. Invariant: a copy behaves as the original does, and has its file and line
numbers.
"""
from __future__ import annotations

import functools
import hashlib
import itertools
import types
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ..bytecode.code_map import CodeMap
from ..polyfills import call_module
from ..rules import trace_rules

_structures: CodeMap[Hashable] = CodeMap()
_copies: weakref.WeakValueDictionary[Hashable, types.FunctionType] = weakref.WeakValueDictionary()


def caller_of(module: torch.nn.Module) -> types.FunctionType:
    """The function whose frame is the call of a module."""
    return _copy(call_module, _module_structure(module))


def own_method(method: types.MethodType) -> types.MethodType:
    """For a module or an optimizer, the method with a function that only objects of its structure share. The method of
    any other object is returned as it is, as is that of one being copied or unpickled, which has no state yet."""
    function, owner = method.__func__, method.__self__
    if not isinstance(function, types.FunctionType) or function in set(_copies.values()):
        return method
    for kind, (structure_of, state) in _STRUCTURES.items():
        if isinstance(owner, kind):
            return types.MethodType(_copy(function, structure_of(owner)), owner) if state in vars(owner) else method
    return method


def code_of(model: Any) -> types.CodeType | None:
    """The Python code that a call of `model` runs first; None if there is none."""
    while isinstance(model, functools.partial):
        model = model.func
    model = getattr(model, "__func__", model)
    if not isinstance(model, types.FunctionType):
        model = getattr(type(model).__call__, "__func__", type(model).__call__)
    return getattr(model, "__code__", None)


def has_no_frame(model: Any) -> bool:
    """Whether a call of `model` can be captured although it runs no Python frame that can: the function is written in
    C, or is one of functorch's, whose code runs under a functorch interpreter level."""
    if code_of(model) is None:
        return True
    while isinstance(model, functools.partial):
        model = model.func
    return isinstance(model, types.FunctionType) and (
        trace_rules.decide_module(str(model.__globals__.get("__name__"))).kind == "functorch")


def caller_of_callable(model: Any) -> types.MethodType:
    """A method that calls `model`, which has no Python code of its own to compile."""
    return types.MethodType(_copy(call_module, _callable_structure(model)), model)


def called(model: Any) -> Any:
    """The callable that a method made by `caller_of_callable` calls; anything else is returned as it is."""
    if isinstance(model, types.MethodType) and model.__func__ in set(_copies.values()):
        if model.__func__.__name__ == call_module.__name__:
            return model.__self__
    return model


def _callable_structure(model: Any) -> Hashable:
    """The code objects of the functions that a call runs, as a key."""
    if isinstance(model, functools.partial):
        return functools.partial, _callable_structure(model.func)
    if isinstance(model, types.FunctionType):
        cells = (cell.cell_contents for cell in model.__closure__ or () if cell != types.CellType())
        return model.__code__, tuple(_callable_structure(value) for value in cells if callable(value))
    if isinstance(model, torch.nn.Module):
        return _module_structure(model)
    return type(model), getattr(model, "__qualname__", None)


def _module_structure(module: torch.nn.Module) -> Hashable:
    parts = tuple((name, type(part)) for name, part in module.named_modules())
    tensors = itertools.chain(module.named_parameters(), module.named_buffers())
    return parts, tuple((name, *_form(t)) for name, t in tensors if not is_lazy(t))


def _optimizer_structure(optimizer: torch.optim.Optimizer) -> Hashable:
    groups: Iterable[dict[str, Any]] = optimizer.param_groups
    return type(optimizer), tuple(tuple(_form(t) for t in group["params"] if not is_lazy(t)) for group in groups)


def _form(t: torch.Tensor) -> tuple[Hashable, ...]:
    return tuple(t.shape), t.dtype


# For each class: the function that computes an object's structure, and the attribute that must exist for it.
_STRUCTURES: dict[type, tuple[Callable[[Any], Hashable], str]] = {
    torch.nn.Module: (_module_structure, "_modules"), torch.optim.Optimizer: (_optimizer_structure, "param_groups"),
}


def _copy(function: Any, structure: Hashable) -> types.FunctionType:
    key = function, structure
    known = _copies.get(key)
    if known is None:
        # It compares equal to the original, so that rules looked up by code apply to it.
        known = types.FunctionType(
            function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )
        known.__kwdefaults__ = function.__kwdefaults__
        known.__qualname__, known.__module__ = function.__qualname__, function.__module__
        _structures.set(known.__code__, structure)
        _copies[key] = known
    return known


def structure_digest(code: types.CodeType) -> str:
    """A digest of the structure that a copy of a function is for, valid in all processes; empty for other code."""
    structure = _structures.get(code)
    if structure is None:
        return ""
    digest = hashlib.sha256()
    pending: list[Any] = [structure]
    while pending:
        part = pending.pop()
        if isinstance(part, tuple):
            pending += (*part, len(part))
        elif isinstance(part, type):
            digest.update(f"{part.__module__}.{part.__qualname__};".encode("utf-8", "surrogatepass"))
        elif isinstance(part, types.CodeType):
            digest.update(f"{part.co_filename}:{part.co_qualname}:{part.co_firstlineno};".encode(
                "utf-8", "surrogatepass"))
        else:
            digest.update(f"{part!r};".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]
