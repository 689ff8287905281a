"""Handlers of the instructions that Python 3.12 adds to 3.11 or changes.

Comprehensions are part of the function that they stand in (PEP 709): each takes the slots of its variables for itself
and gives back afterwards what they held. Where a variable of a comprehension is a cell, what is saved is a cell, too.
"""
from __future__ import annotations

from typing import Any, NoReturn

from ..variables.base import unsupported
from ..variables.cells import CellVariable
from ..variables.constant import ConstantVariable
from ..variables.functions.equivalents import is_equivalent
from ..variables.numbers.ranges import SliceVariable
from . import py311
from .ops_class import namespace_of
from .ops_stack import push_callable, raise_unbound, store_local
from .ops_values import convert_list_to_tuple
from .py311 import unary_positive
from .registry import OpcodeTable
from .translator import NULL, Translator

TABLE = OpcodeTable()
TABLE.add("MAKE_FUNCTION", py311.make_function)


# ---------------------------------------------------------------- inlined comprehensions
@TABLE.opcode("LOAD_FAST_AND_CLEAR")
def _load_fast_and_clear(tx: Translator, i: Any) -> None:
    if i.argval in tx.cells:
        tx.push(tx.cells.pop(i.argval))
    else:
        tx.push(tx.locals.pop(i.argval, NULL))


@TABLE.opcode("STORE_FAST")
def _store_fast(tx: Translator, i: Any) -> None:
    name, code = i.argval, tx.code
    if name in code.co_cellvars or name in code.co_freevars:  # the value that LOAD_FAST_AND_CLEAR saved
        value = tx.wrap_top()
        assert isinstance(value, CellVariable)
        tx.cells[name] = value
        tx.pop_lazy()
        return
    store_local(tx, i)


# ---------------------------------------------------------------- loops and generators
@TABLE.opcode("END_FOR")
def _end_for(tx: Translator, i: Any) -> NoReturn:
    raise AssertionError("FOR_ITER goes past it")


# ---------------------------------------------------------------- names
@TABLE.opcode("LOAD_LOCALS")
def _load_locals(tx: Translator, i: Any) -> None:
    tx.push(namespace_of(tx, i))


@TABLE.opcode("LOAD_FROM_DICT_OR_GLOBALS")
def _load_from_dict_or_globals(tx: Translator, i: Any) -> None:
    content = tx.operators.dict_content(tx.pop())
    if content is None:
        unsupported("unsupported_opcode", f"{i.opname}: the namespace is no dict")
    value = content.lookup(tx, ConstantVariable(i.argval))
    tx.push(value if value is not None else tx.load_global(i.argval))


@TABLE.opcode("LOAD_FROM_DICT_OR_DEREF")
def _load_from_dict_or_deref(tx: Translator, i: Any) -> None:
    content = tx.operators.dict_content(tx.pop())
    if content is None:
        unsupported("unsupported_opcode", f"{i.opname}: the namespace is no dict")
    value = content.lookup(tx, ConstantVariable(i.argval))
    if value is None:
        value = tx.cells[i.argval].load(tx)
    if value is None:
        raise_unbound(tx, i.argval)
    tx.push(value)


@TABLE.opcode("LOAD_SUPER_ATTR")
def _load_super_attr(tx: Translator, i: Any) -> None:
    function, cls, owner = tx.pop_many(3)
    # The compiler gives both even where none is written; a ``super`` of the program's own is called as written.
    given = [cls, owner] if i.arg & 2 or tx.values.as_plain(function) is super else []
    value = tx.call(function, given, {}).getattr(tx, i.argval)
    if i.arg & 1:
        push_callable(tx, value)
    else:
        tx.push(value)


# ---------------------------------------------------------------- slices
@TABLE.opcode("BINARY_SLICE")
def _binary_slice(tx: Translator, i: Any) -> None:
    owner, start, stop = tx.pop_many(3)
    tx.push(owner.getitem(tx, SliceVariable([start, stop, ConstantVariable(None)])))


@TABLE.opcode("STORE_SLICE")
def _store_slice(tx: Translator, i: Any) -> None:
    value, owner, start, stop = tx.pop_many(4)
    owner.setitem(tx, SliceVariable([start, stop, ConstantVariable(None)]), value)


# ---------------------------------------------------------------- the interpreter's own functions
def _stop_iteration_error(tx: Translator, i: Any) -> None:
    error = tx.pop()
    # A generator of dynamo_lite that replaces an iterator written in C may end with StopIteration.
    if issubclass(error.python_type(), StopIteration) and not is_equivalent(tx.code):
        error = tx.stop_iteration_error(error)
    tx.push(error)


# Include/internal/pycore_intrinsics.h
_UNARY = {3: _stop_iteration_error, 5: unary_positive, 6: convert_list_to_tuple}
_UNARY_REFUSED = {
    1: "it belongs to modules", 2: "it belongs to modules", 4: "an async construct", 7: "a type parameter",
    8: "a type parameter", 9: "a type parameter", 10: "a generic class", 11: "a type alias",
}
_BINARY_REFUSED = {
    1: "an exception group", 2: "a type parameter", 3: "a type parameter", 4: "type parameters", 5: "a type parameter",
}


@TABLE.opcode("CALL_INTRINSIC_1")
def _call_intrinsic_1(tx: Translator, i: Any) -> None:
    function = _UNARY.get(i.arg)
    if function is None:
        unsupported("unsupported_opcode", f"{i.opname} {i.arg}: {_UNARY_REFUSED.get(i.arg, 'no rule')}")
    function(tx, i)


@TABLE.opcode("CALL_INTRINSIC_2")
def _call_intrinsic_2(tx: Translator, i: Any) -> NoReturn:
    unsupported("unsupported_opcode", f"{i.opname} {i.arg}: {_BINARY_REFUSED.get(i.arg, 'no rule')}")
