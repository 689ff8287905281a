"""Exceptions that a signal handler of the program's raises while something is compiled, such as that of a time limit.

CPython runs a handler between two instructions of whatever the main thread does, so what it raises comes out of a
compile like a fault of the compiler's own. It is the program's, and goes to the program: whoever takes an exception for
a fault or a reason to fall back asks here first.

Invariant: an exception is known by a frame of a handler's in its traceback, not by its type.
"""
from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from types import CodeType
from typing import Any


def pass_on(error: BaseException) -> None:
    """Raises an exception again if a signal handler has raised it, or what it was raised from.

    Args:
        error: while it is handled.
    """
    handlers: set[tuple[str, str, int]] | None = None
    known: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in known:
        known.add(id(cause))
        entry = cause.__traceback__
        while entry is not None:
            handlers = _handlers() if handlers is None else handlers
            if _place(entry.tb_frame.f_code) in handlers:
                raise cause
            entry = entry.tb_next
        cause = cause.__cause__ or cause.__context__


def _handlers() -> set[tuple[str, str, int]]:
    """Where the handlers that are written in Python stand."""
    return {_place(code) for number in signal.valid_signals() for code in _codes(signal.getsignal(number))}


def _codes(handler: Any) -> Iterator[CodeType]:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return  # SIG_DFL, SIG_IGN, or one that C has installed
    for function in (handler, type(handler).__call__):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _place(code: CodeType) -> tuple[str, str, int]:
    # A handler may itself have been compiled, and then runs in a code object of ours.
    return code.co_filename, code.co_name, code.co_firstlineno
