"""The tables of instruction handlers.

A handler is ``(tx, instruction) -> next index or None``; None goes on with the next instruction. The families
(``ops_*``) register what means the same in every version of Python that has it, ``py311`` to ``py315`` each fill a
table of their own with the rest, and ``opcodes`` puts both together for the running Python. Invariant: an opcode is
either handled or refused, and no version's table names an opcode that this version lacks (tests/test_opcodes.py asks
all five).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Handler = Callable[[Any, Any], int | None]


class OpcodeTable:
    """Handlers by opcode name (as decoded), and the opcodes that break the graph, each with its reason."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.refused: dict[str, str] = {}

    def opcode(self, *names: str) -> Callable[[Handler], Handler]:
        """Registers the handler of these opcodes."""

        def register(handler: Handler) -> Handler:
            for name in names:
                self.add(name, handler)
            return handler

        return register

    def add(self, name: str, handler: Handler) -> None:
        assert name not in self.handlers and name not in self.refused, f"{name} has two handlers"
        self.handlers[name] = handler

    def refuse(self, reason: str, *names: str) -> None:
        """Registers opcodes that break the graph."""
        for name in names:
            assert name not in self.handlers and name not in self.refused, f"{name} has two handlers"
            self.refused[name] = reason

    def without(self, *names: str) -> OpcodeTable:
        """A copy without `names`: the start of the next version's table, without opcodes that it changes or lacks."""
        left = OpcodeTable()
        left.handlers = {name: handler for name, handler in self.handlers.items() if name not in names}
        left.refused = {name: reason for name, reason in self.refused.items() if name not in names}
        assert len(self.handlers) + len(self.refused) == len(left.handlers) + len(left.refused) + len(names)
        return left


# Opcodes that mean the same in every version that has them.
COMMON = OpcodeTable()
opcode = COMMON.opcode
refuse = COMMON.refuse

# The tables of the running Python.
HANDLERS: dict[str, Handler] = {}
REFUSED: dict[str, str] = {}


def use(particular: OpcodeTable, names: Iterable[str]) -> None:
    """Fills the tables of the running Python, whose opcodes are `names`; the table `particular` has precedence."""
    for name in names:
        for table in (particular, COMMON):
            if name in table.handlers:
                HANDLERS[name] = table.handlers[name]
                break
            if name in table.refused:
                REFUSED[name] = table.refused[name]
                break
