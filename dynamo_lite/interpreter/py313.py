"""Handlers of the instructions that Python 3.13 adds to 3.12 or changes.

Conditional jumps take True and False only: a TO_BOOL before them makes these.
"""
from __future__ import annotations

from typing import Any

from ..variables.constant import ConstantVariable
from ..variables.functions.functions import NestedFunctionVariable
from . import py312
from .assumptions import branch
from .ops_values import call, new_function, set_function_part
from .registry import OpcodeTable
from .translator import Translator

TABLE: OpcodeTable = py312.TABLE.without("MAKE_FUNCTION")


@TABLE.opcode("TO_BOOL")
def _to_bool(tx: Translator, i: Any) -> None:
    value = tx.pop()
    following = tx.decoded.instructions[i.index + 1]
    if following.opname == "POP_JUMP_IF_TRUE":
        assert following.target is not None
        truth = branch(tx, value, following.target, following.index + 1)
    elif following.opname == "POP_JUMP_IF_FALSE":
        assert following.target is not None
        truth = branch(tx, value, following.index + 1, following.target)
    else:
        truth = tx.truth(value)
    tx.push(ConstantVariable(truth))


# ---------------------------------------------------------------- texts
@TABLE.opcode("CONVERT_VALUE")
def _convert_value(tx: Translator, i: Any) -> None:
    tx.push(tx.texts.to_text(tx.pop(), "_sra"[i.arg]))


@TABLE.opcode("FORMAT_SIMPLE")
def _format_simple(tx: Translator, i: Any) -> None:
    tx.push(tx.texts.format_value(tx.pop(), "", ""))


@TABLE.opcode("FORMAT_WITH_SPEC")
def _format_with_spec(tx: Translator, i: Any) -> None:
    spec = tx.pop().constant()
    tx.push(tx.texts.format_value(tx.pop(), "", spec))


# ---------------------------------------------------------------- calls and functions
@TABLE.opcode("CALL_KW")
def _call_kw(tx: Translator, i: Any) -> None:
    names = tx.values.as_plain(tx.pop())
    call(tx, i.arg, names)


@TABLE.opcode("MAKE_FUNCTION")
def _make_function(tx: Translator, i: Any) -> None:
    tx.push(new_function(tx, tx.pop().constant()))


@TABLE.opcode("SET_FUNCTION_ATTRIBUTE")
def _set_function_attribute(tx: Translator, i: Any) -> None:
    function = tx.pop()
    assert isinstance(function, NestedFunctionVariable)
    set_function_part(tx, function, i.arg, tx.pop())
    tx.push(function)
