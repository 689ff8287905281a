"""Instructions that move values: constants, locals, cells, globals, the stack itself.

Invariant: after each handler the stack, the locals and the cells are the same as in CPython.
"""
from __future__ import annotations

from types import CodeType
from typing import Any, NoReturn

from ..bytecode.facts import facts
from ..bytecode.hidden import said_name, two_cells
from ..continuation.origins import is_resume_code
from ..guards.source import ConstSource
from ..variables.base import MISSING, VariableTracker, unsupported
from ..variables.cells import CellVariable
from ..variables.constant import ConstantVariable
from .registry import opcode, refuse
from .translator import NULL, Returned, StackMark, Translator

refuse("an async construct", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AWAITABLE")
refuse("an exception group", "CHECK_EG_MATCH")


@opcode("NOP", "RESUME", "NOT_TAKEN", "COPY_FREE_VARS")
def _nothing(tx: Translator, i: Any) -> None:
    if i.opname == "COPY_FREE_VARS":
        for name, cell in zip(tx.code.co_freevars, tx.free_cells):
            tx.cells[name] = cell


@opcode("POP_TOP")
def _pop_top(tx: Translator, i: Any) -> None:
    tx.pop_lazy()


@opcode("PUSH_NULL")
def _push_null(tx: Translator, i: Any) -> None:
    tx.push(NULL)


def push_callable(tx: Translator, value: VariableTracker) -> None:
    """Pushes a callable and the NULL of the calling convention."""
    tx.stack += (NULL, value) if facts.NULL_FIRST else (value, NULL)


@opcode("COPY")
def _copy(tx: Translator, i: Any) -> None:
    value = tx.stack[-i.arg]
    if isinstance(value, StackMark) and value.what != "lasti":
        # Clean-up of an exception handler: POP_EXCEPT takes the copy, and the original is only popped.
        tx.stack[-i.arg] = ConstantVariable(None)
    tx.push(value)


@opcode("SWAP")
def _swap(tx: Translator, i: Any) -> None:
    tx.stack[-1], tx.stack[-i.arg] = tx.stack[-i.arg], tx.stack[-1]


@opcode("RETURN_VALUE")
def _return_value(tx: Translator, i: Any) -> None:
    raise Returned(tx.pop_lazy())


# ---------------------------------------------------------------- constants and locals
@opcode("LOAD_CONST")
def _load_const(tx: Translator, i: Any) -> None:
    value = tx.values.from_result(i.argval, "constant")
    if type(i.argval) is tuple and i.argval:
        # The same object each time that the code runs; the compiler shares equal tuples among a module's functions.
        value.real, value.source = i.argval, ConstSource(i.argval, repr(i.argval))
    tx.push(value)


@opcode("LOAD_FAST")
def _load_fast(tx: Translator, i: Any) -> None:
    value = tx.locals.get(i.argval)
    if value is None:
        _raise_unbound_local(tx, i.argval)
    tx.push(value)


def _raise_unbound_local(tx: Translator, name: str) -> NoReturn:
    what = f"cannot access local variable {said_name(name)!r} where it is not associated with a value"
    tx.raise_error(UnboundLocalError, what)


def store_local(tx: Translator, i: Any) -> None:
    """STORE_FAST: stores the top of the stack in a local; NULL unbinds it."""
    value = tx.pop_lazy()
    if value is NULL:
        tx.locals.pop(i.argval, None)
    else:
        tx.locals[i.argval] = value


@opcode("DELETE_FAST")
def _delete_fast(tx: Translator, i: Any) -> None:
    if tx.locals.pop(i.argval, None) is None:
        _raise_unbound_local(tx, i.argval)


# ---------------------------------------------------------------- cells
def _user_code(tx: Translator) -> CodeType:
    resumed = is_resume_code(tx.code)
    return tx.code if resumed is None else resumed.original


@opcode("MAKE_CELL")
def _make_cell(tx: Translator, i: Any) -> None:
    if i.argval in tx.code.co_freevars and i.argval in _user_code(tx).co_freevars:
        unsupported("unsupported_opcode", two_cells(i.argval))
    contents = tx.locals.pop(i.argval, MISSING)
    cell = tx.cells[i.argval] = CellVariable(contents, local=i.argval if tx.parent is None else None)
    tx.output.effects.cells.append(cell)


@opcode("LOAD_CLOSURE")
def _load_closure(tx: Translator, i: Any) -> None:
    tx.push(tx.cells[i.argval])


@opcode("LOAD_DEREF")
def _load_deref(tx: Translator, i: Any) -> None:
    value = tx.cells[i.argval].load(tx)
    if value is None:
        raise_unbound(tx, i.argval)
    tx.push(value)


def raise_unbound(tx: Translator, name: str) -> NoReturn:
    """Raises the error of reading an empty cell (Python/ceval.c, format_exc_unbound)."""
    free = name in _user_code(tx).co_freevars
    said = f"cannot access {'free' if free else 'local'} variable {name!r} where it is not associated with a value"
    tx.raise_error(NameError if free else UnboundLocalError, said + " in enclosing scope" * free)


@opcode("STORE_DEREF")
def _store_deref(tx: Translator, i: Any) -> None:
    tx.cells[i.argval].store(tx, tx.pop_lazy())


@opcode("DELETE_DEREF")
def _delete_deref(tx: Translator, i: Any) -> None:
    cell = tx.cells[i.argval]
    if cell.contents is MISSING:
        raise_unbound(tx, i.argval)
    cell.store(tx, MISSING)


# ---------------------------------------------------------------- globals and imports
@opcode("LOAD_GLOBAL")
def _load_global(tx: Translator, i: Any) -> None:
    if i.push_null:
        push_callable(tx, tx.load_global(i.argval))
    else:
        tx.push(tx.load_global(i.argval))


@opcode("STORE_GLOBAL")
def _store_global(tx: Translator, i: Any) -> None:
    tx.output.effects.store_global(tx, *tx.globals, i.argval, tx.pop_lazy())


@opcode("DELETE_GLOBAL")
def _delete_global(tx: Translator, i: Any) -> None:
    (space, source), name = tx.globals, i.argval
    written = tx.output.effects.load_global(tx, space, source, name)
    if written is None:
        tx.guard(source, "dict_has" if name in space else "dict_lacks", name)
    if written is MISSING or written is None and name not in space:
        tx.raise_error(NameError, f"name {name!r} is not defined")  # even if a builtin has that name
    tx.output.effects.store_global(tx, space, source, name, MISSING)


@opcode("IMPORT_NAME")
def _import_name(tx: Translator, i: Any) -> None:
    names, level = tx.pop(), tx.pop()
    tx.push(tx.import_module(i.argval, tx.values.as_plain(names), level.constant()))


@opcode("IMPORT_FROM")
def _import_from(tx: Translator, i: Any) -> None:
    tx.push(tx.getattr(tx.wrap_top(), i.argval))


@opcode("LOAD_BUILD_CLASS")
def _load_build_class(tx: Translator, i: Any) -> None:
    tx.push(tx.values.from_result(tx.builtins["__build_class__"], "builtin"))


@opcode("LOAD_ASSERTION_ERROR")
def _load_assertion_error(tx: Translator, i: Any) -> None:
    tx.push(tx.values.from_result(AssertionError, "builtin"))


# ---------------------------------------------------------------- attributes and items
@opcode("LOAD_ATTR")
def _load_attr(tx: Translator, i: Any) -> None:
    tx.push(tx.pop().getattr(tx, i.argval))


@opcode("LOAD_METHOD")
def _load_method(tx: Translator, i: Any) -> None:
    push_callable(tx, tx.pop().getattr(tx, i.argval))


@opcode("STORE_ATTR")
def _store_attr(tx: Translator, i: Any) -> None:
    owner = tx.pop()
    owner.setattr(tx, i.argval, tx.pop())


@opcode("DELETE_ATTR")
def _delete_attr(tx: Translator, i: Any) -> None:
    tx.pop().delattr(tx, i.argval)


@opcode("BINARY_SUBSCR")
def _binary_subscr(tx: Translator, i: Any) -> None:
    owner, key = tx.pop_many(2)
    tx.push(owner.getitem(tx, key))


@opcode("STORE_SUBSCR")
def _store_subscr(tx: Translator, i: Any) -> None:
    value, owner, key = tx.pop_many(3)
    owner.setitem(tx, key, value)


@opcode("DELETE_SUBSCR")
def _delete_subscr(tx: Translator, i: Any) -> None:
    owner, key = tx.pop_many(2)
    owner.delitem(tx, key)


