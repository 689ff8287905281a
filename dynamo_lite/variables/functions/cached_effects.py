"""Whether a function under a cache seems to change something outside of it when it runs.

A cached function of known arguments is asked while tracing, where an effect would come at another point of the program.
Its code says what it may write to directly; only functions that may are evaluated for it first. Invariant: nothing runs
here, and nothing is guarded: a wrong yes costs an evaluation.
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
    """Whether a function written in Python names something outside of it and writes in a way that may reach it."""
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
    """Whether a value is an instance of a class of a program, with attributes of its own."""
    return isinstance(value, type) and value.__module__ != "builtins" or (
        isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, types.ModuleType))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(code: types.CodeType) -> set[str]:
    return {name for part in _codes(code) for name in part.co_names}
