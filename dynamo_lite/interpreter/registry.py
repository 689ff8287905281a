"""The table of instruction handlers.

A handler is ``(tx, instruction) -> next index or None``; None goes on with the next instruction. Invariant: a handler
is only registered for an opcode that the running Python has, and an opcode is either handled or refused.
"""
from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any], int | None]
HANDLERS: dict[str, Handler] = {}
# opcode -> why no frame that reaches it is evaluated further
REFUSED: dict[str, str] = {}


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Registers the handler of these opcodes."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name in dis.opmap, f"this Python has no opcode {name}"
            assert name not in HANDLERS, f"{name} has two handlers"
            HANDLERS[name] = handler
        return handler

    return register


def refuse(reason: str, *names: str) -> None:
    """Registers opcodes that break the graph."""
    for name in names:
        assert name in dis.opmap, f"this Python has no opcode {name}"
        REFUSED[name] = reason
