"""Heuristic detection of side effects of a function inside a cache.

A cached function with known arguments is called while tracing, where a side effect would happen at the wrong point of
the program. The function's bytecode shows whether it may write to outside objects directly; only functions that may are
first evaluated symbolically. Invariant: nothing runs here, and nothing is guarded: a false positive costs an
evaluation.
"""
from __future__ import annotations

import dis
import random
import types
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet
from typing import Any

_CONTAINERS = (MutableSequence, MutableMapping, MutableSet)
_WRITES_NAMES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_WRITES_CELLS = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_WRITES_TO_OBJECTS = frozenset({"STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR"})
_CHANGES = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "move_to_end", "pop",
    "popitem", "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "subtract", "update", "write",
})


def may_change_something(function: Any) -> bool:
    """Whether a function written in Python refers to an outside object and contains a write that may reach it."""
    if type(function) is not types.FunctionType:
        return False
    outside = [function.__globals__.get(name) for name in _names(function.__code__)]
    for cell in function.__closure__ or ():
        try:
            outside.append(cell.cell_contents)
        except ValueError:
            continue
    if any(value is random for value in outside):
        return True
    reaches = any(isinstance(value, (*_CONTAINERS, types.FunctionType)) or _is_plain_object(value) for value in outside)
    for code in _codes(function.__code__):
        for instruction in dis.get_instructions(code):
            name, argument = instruction.opname, instruction.argval
            if name in _WRITES_NAMES or name in _WRITES_CELLS and argument in function.__code__.co_freevars:
                return True
            if name == "LOAD_GLOBAL" and argument == "print":
                return True
            changes = name in ("LOAD_METHOD", "LOAD_ATTR") and argument in _CHANGES
            if reaches and (changes or name in _WRITES_TO_OBJECTS):
                return True
    return False


def _is_plain_object(value: Any) -> bool:
    """Whether a value is a class that is no builtin, or an object with a ``__dict__`` that is no module."""
    return isinstance(value, type) and value.__module__ != "builtins" or (
        isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, types.ModuleType))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(code: types.CodeType) -> set[str]:
    return {name for part in _codes(code) for name in part.co_names}
