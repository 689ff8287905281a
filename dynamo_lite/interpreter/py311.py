"""Handlers of the instructions that only Python 3.11 has, or that later versions change."""
from __future__ import annotations

from typing import Any

from ..variables.base import VariableTracker
from ..variables.constant import ConstantVariable
from . import ops_flow
from .ops_class import namespace_of
from .ops_stack import raise_unbound, store_local
from .ops_values import convert_list_to_tuple, new_function, set_function_part
from .registry import OpcodeTable
from .translator import Translator

TABLE = OpcodeTable()

for _way in ("FORWARD", "BACKWARD"):
    TABLE.add(f"POP_JUMP_{_way}_IF_FALSE", ops_flow.pop_jump_if_false)
    TABLE.add(f"POP_JUMP_{_way}_IF_TRUE", ops_flow.pop_jump_if_true)
    TABLE.add(f"POP_JUMP_{_way}_IF_NONE", ops_flow.pop_jump_if_none)
    TABLE.add(f"POP_JUMP_{_way}_IF_NOT_NONE", ops_flow.pop_jump_if_not_none)
TABLE.add("LIST_TO_TUPLE", convert_list_to_tuple)
TABLE.add("STORE_FAST", store_local)
TABLE.refuse("it belongs to modules", "IMPORT_STAR", "PRINT_EXPR")
TABLE.refuse("an exception group", "PREP_RERAISE_STAR")
TABLE.refuse("an async construct", "ASYNC_GEN_WRAP")


@TABLE.opcode("PRECALL")
def _precall(tx: Translator, i: Any) -> None:
    pass


@TABLE.opcode("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP")
def _jump_or_pop(tx: Translator, i: Any) -> int | None:
    if tx.truth(tx.wrap_top()) == (i.opname == "JUMP_IF_TRUE_OR_POP"):
        return i.target
    tx.pop_lazy()
    return None


@TABLE.opcode("UNARY_POSITIVE")
def unary_positive(tx: Translator, i: Any) -> None:
    """[x] -> [+x]"""
    tx.push(tx.pop().unary(tx, "+"))


@TABLE.opcode("LOAD_CLASSDEREF")
def _load_classderef(tx: Translator, i: Any) -> None:
    value = namespace_of(tx, i).lookup(tx, ConstantVariable(i.argval))
    if value is None:
        value = tx.cells[i.argval].load(tx)
    if value is None:
        raise_unbound(tx, i.argval)
    tx.push(value)


@TABLE.opcode("MAKE_FUNCTION")
def make_function(tx: Translator, i: Any) -> None:
    """A function of code and of the parts that the argument names."""
    code = tx.pop().constant()
    parts: list[tuple[int, VariableTracker]] = [(flag, tx.pop()) for flag in (8, 4, 2, 1) if i.arg & flag]
    function = new_function(tx, code)
    for flag, value in parts:
        set_function_part(tx, function, flag, value)
    tx.push(function)
