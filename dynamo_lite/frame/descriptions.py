"""Functions, frames and what kept an entry from fitting one, in the user's words.

Invariant: made for logs; nothing here decides anything.
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


_POLYFILLS = "dynamo_lite.polyfills"  # whose `call_module` is the frame of a compiled module


def where(frame: Frame) -> str:
    """The same for a frame: for a resume function with the line where it goes on, for a module its class."""
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
    """A miss in which values that a break has left on the stack are named after what the program does with them."""
    info = frame.resumed
    if info is None:
        return text
    first = decode(frame.user_code).instructions[info.index]
    for slot in range(len(info.stack)):
        stored = slot == len(info.stack) - 1 and first.roles & STORES_NAME
        name = first.argval if stored else f"<a value of line {first.positions[0]}>"
        text = re.sub(rf"\bintermediate_{slot}\b", name, text)
    return text
