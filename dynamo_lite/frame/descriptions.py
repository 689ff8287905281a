"""Descriptions of functions, frames and guard failures, in terms of the user's program.

Invariant: the texts are for logs only; no decision depends on them.
"""
from __future__ import annotations

import re
import types

from ..bytecode.instructions import decode
from ..bytecode.roles import STORES_NAME
from .request import Frame


def place(code: types.CodeType) -> str:
    """The function in words: its name, file and line."""
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


_POLYFILLS = "dynamo_lite.polyfills"  # its `call_module` is the frame of a compiled module


def where(frame: Frame) -> str:
    """The description of a frame: with the line where it resumes for a resume function, with the class for a module."""
    info, code = frame.resumed, frame.code
    if info is not None:
        line = decode(frame.user_code).instructions[info.index].positions[0]
        return place(frame.user_code) + (f", going on at line {line} after a graph break," if line else "")
    if frame.globals.get("__name__") == _POLYFILLS and code.co_name == "call_module":
        module = frame.args[0]
        forward = getattr(getattr(type(module), "forward", None), "__code__", None)
        if forward is not None:
            return f"{type(module).__qualname__}.forward ({forward.co_filename}:{forward.co_firstlineno})"
    return place(code)


def in_users_words(text: str, frame: Frame) -> str:
    """A guard failure's text, with names from the program for values that a break has left on the stack."""
    info = frame.resumed
    if info is None:
        return text
    first = decode(frame.user_code).instructions[info.index]
    for slot in range(len(info.stack)):
        stored = slot == len(info.stack) - 1 and first.roles & STORES_NAME
        name = first.argval if stored else f"<a value of line {first.positions[0]}>"
        text = re.sub(rf"\bintermediate_{slot}\b", name, text)
    return text
