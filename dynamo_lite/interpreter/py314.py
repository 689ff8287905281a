"""Handlers of the instructions that Python 3.14 adds to 3.13 or changes.

``with`` looks up ``__exit__`` and ``__enter__`` one by one, each for a call of its own. An iterator stays on the stack
when its loop ends, until POP_ITER takes it.
"""
from __future__ import annotations

from typing import Any

from ..variables.base import type_name, unsupported
from ..variables.constant import ConstantVariable
from ..variables.objects.classes import NO_ATTRIBUTE
from ..variables.objects.objects import ObjectVariable
from . import py313
from .ops_stack import push_callable
from .ops_values import call_spread
from .registry import OpcodeTable
from .translator import NULL, Translator

TABLE: OpcodeTable = py313.TABLE.without()
TABLE.refuse("a template string", "BUILD_INTERPOLATION", "BUILD_TEMPLATE")

_SPECIAL = ("__enter__", "__exit__", "__aenter__", "__aexit__")


@TABLE.opcode("LOAD_SPECIAL")
def _load_special(tx: Translator, i: Any) -> None:
    manager, name = tx.pop(), _SPECIAL[i.arg]
    if i.arg > 1:
        unsupported("unsupported_opcode", f"{i.opname} {name}: an async construct")
    if not isinstance(manager, ObjectVariable):
        # What leaves the context lies below, with its object or NULL.
        if name == "__exit__":
            push_callable(tx, tx.leave_of_native_context(manager))
        else:
            push_callable(tx, tx.enter_of_native_context(manager, tx.stack[-2] if len(tx.stack) > 1 else None))
        return
    method = tx.classes.lookup(manager.cls, name, NO_ATTRIBUTE)
    if method is NO_ATTRIBUTE:
        said = f"{type_name(manager.cls)!r} object does not support the context manager protocol"
        tx.raise_error(TypeError, f"{said} (missed {name} method)")
    found = manager.read_descriptor(tx, name, method)
    if found is None:
        unsupported("unsupported_context_manager", f"{manager.describe()}, a method of which is an empty slot")
    push_callable(tx, found)


@TABLE.opcode("WITH_EXCEPT_START")
def _with_except_start(tx: Translator, i: Any) -> None:
    # exit_func, its object or NULL, lasti, previous exception, exception
    error = tx.wrap_top()
    leave, owner = tx.peek(5), tx.stack[-4]
    first = [] if owner is NULL else [tx.peek(4)]
    arguments = [tx.values.from_result(error.python_type(), "class"), error, ConstantVariable(None)]
    tx.push(tx.call(leave, [*first, *arguments], {}))


@TABLE.opcode("CALL_FUNCTION_EX")
def _call_function_ex(tx: Translator, i: Any) -> None:
    keywords = tx.pop_lazy()
    call_spread(tx, None if keywords is NULL else keywords)
