"""Instructions that Python 3.15 has and 3.14 has not, or not so.

An iterator has two slots on the stack: the second is for those of lists and tuples, which here are iterators like
others.
"""
from __future__ import annotations

from typing import Any

from . import ops_flow, py314
from .registry import OpcodeTable
from .translator import NULL, Translator

TABLE: OpcodeTable = py314.TABLE.without()


@TABLE.opcode("GET_ITER")
def _get_iter(tx: Translator, i: Any) -> None:
    tx.push(tx.iteration.get_iter(tx.pop()))
    tx.push(NULL)


@TABLE.opcode("FOR_ITER")
def _for_iter(tx: Translator, i: Any) -> int | None:
    value = tx.peek(2).next(tx)
    if value is None:
        return ops_flow.behind_loop(tx, i)
    tx.push(value)
    return None


@TABLE.opcode("POP_ITER")
def _pop_iter(tx: Translator, i: Any) -> None:
    tx.pop_lazy()
    tx.pop_lazy()
